//! Mentions in the embedded store: a row for each user whom a message names, and one for a message that
//! mentions everyone. Counts are read from these rows, however many other messages are unread.

use std::iter::Peekable;

use super::cache::mention_list::{MentionLists, MentionVersion};
use super::engine::committer::{Condition, Op, Write};
use super::engine::db::{InTable, View};
use super::engine::key::{self, Key, Span};
use super::engine::record::{self, MessageRecord};
use super::read_context::ReadContext;
use crate::model::{
    ConversationId, Direction, IgnoredSenders, Mentions, Message, MessageId, OrderKey, Unread,
    UserId,
};
use crate::store::unread_list::{LongUnreadList, UnreadList};
use crate::store::{Result, UnreadQuery, UnreadReader};

const TABLE: &str = "mentions_by_entry";

/// Keys of the rows that a message has while it is not deleted.
pub(super) fn keys(message: &Message) -> Vec<Key> {
    let (id, at) = (message.conversation, message.id.order_key());
    let (named, everyone) = message.counted_mentions();
    let everyone = everyone.then(|| key::everyone(id, at));
    named
        .map(|user| key::mention(user, id, at))
        .chain(everyone)
        .collect()
}

/// Operations that write the rows of a message, with their expiry.
pub(super) fn listed(message: &Message) -> Vec<Op> {
    put(message, keys(message))
}

/// Operations after which the rows of a message are those of its state `after`.
pub(super) fn revised(before: &Message, after: &Message) -> Vec<Op> {
    let (old, new) = (keys(before), keys(after));
    let stale = old.iter().filter(|key| !new.contains(key)).cloned();
    let mut ops: Vec<_> = stale.map(Op::Delete).collect();
    let added = new.into_iter().filter(|key| !old.contains(key)).collect();
    ops.extend(put(after, added));
    ops
}

fn put(message: &Message, keys: Vec<Key>) -> Vec<Op> {
    if keys.is_empty() {
        return Vec::new();
    }
    let sender = record::encode(&message.sender);
    let rows = keys.into_iter().map(|key| Op::Put(key, sender.clone()));
    let expiry = Op::Put(expiry(message), Vec::new());
    rows.chain([expiry]).collect()
}

/// Key of the row that expires all mentions of a message. It refers to the mention of everyone,
/// whether there is one or not.
pub(super) fn expiry(message: &Message) -> Key {
    let expires_at = message.id.moment().plus_micros(Mentions::LIFETIME_MICROS);
    let everyone = key::everyone(message.conversation, message.id.order_key());
    key::expiry(&everyone, expires_at)
}

/// Plans the deletion of the rows of a message, on the condition that the message stays as it is.
/// Those of a message that is gone went with it.
pub(super) fn expire(
    view: &View<'_>,
    (conversation, message): (ConversationId, MessageId),
    write: &mut Write,
) -> Result<()> {
    let row = key::message(conversation, message.order_key());
    let Some(bytes) = view.get(&row)? else {
        return Ok(());
    };
    let record = MessageRecord::decode(&bytes).in_table("messages")?;
    let stored = record.into_message(conversation, message);
    write.conditions.push(Condition::Is(row, bytes.to_vec()));
    write.ops.extend(keys(&stored).into_iter().map(Op::Delete));
    Ok(())
}

pub(super) fn unread(
    context: &ReadContext,
    user: &UserId,
    queries: &[UnreadQuery],
    cap: u32,
    ignored: &IgnoredSenders,
) -> Result<Vec<Unread>> {
    let reader = UnreadReader { user, ignored };
    // The versions are taken before the snapshot: a row that the snapshot lacks ends a list that was read from it.
    let lists = &context.mentions;
    let version = |query: &UnreadQuery| lists.version(query.conversation);
    let versions: Vec<_> = queries.iter().map(version).collect();
    let view = context.view();
    queries
        .iter()
        .zip(versions)
        .map(|(query, version)| count(lists, &view, reader, (query, version), cap))
        .collect()
}

/// Counts by a scan, which continues the remembered list where there is one.
fn count(
    lists: &MentionLists,
    view: &View<'_>,
    reader: UnreadReader<'_>,
    (query, version): (&UnreadQuery, MentionVersion),
    cap: u32,
) -> Result<Unread> {
    let mut cached = match lists.rest(reader, query, version) {
        Some(mut cached) => {
            still_mentioned(view, reader, query.conversation, &mut cached.list)?;
            cached
        }
        None => LongUnreadList::new(reader, query.after, version),
    };
    if cached.list.count(query, cap).is_none() {
        extend(view, reader, query, cap, &mut cached.list)?;
    }
    let unread = cached.list.count_or_capped(query, cap);
    if cached.list.is_long() {
        lists.put(reader, query.conversation, cached);
    }
    Ok(unread)
}

/// Removes the mentions whose rows were deleted.
fn still_mentioned(
    view: &View<'_>,
    reader: UnreadReader<'_>,
    conversation: ConversationId,
    list: &mut UnreadList,
) -> Result<()> {
    let mut ids = Vec::with_capacity(list.ids.len());
    for id in &list.ids {
        let at = id.order_key();
        if view.has(&key::mention(reader.user, conversation, at))?
            || view.has(&key::everyone(conversation, at))?
        {
            ids.push(*id);
        }
    }
    (list.ids, list.is_whole) = (ids, false);
    Ok(())
}

/// Extends a list until it holds enough for the query, or [`Unread::ROWS_MAX`] rows were read.
fn extend(
    view: &View<'_>,
    reader: UnreadReader<'_>,
    query: &UnreadQuery,
    cap: u32,
    list: &mut UnreadList,
) -> Result<()> {
    let range = (list.read_up_to, query.up_to.unwrap_or(OrderKey::MAX));
    let mut named = rows(view, key::mentions(reader.user, query.conversation, range));
    let mut everyone = rows(view, key::everyones(query.conversation, range));
    for _ in 0..Unread::ROWS_MAX {
        let Some((message, sender)) = next_of(&mut named, &mut everyone)? else {
            list.is_whole = query.up_to.is_none();
            list.read_up_to = list.read_up_to.max(query.up_to.unwrap_or_default());
            return Ok(());
        };
        if !list.add(message, reader.counts(sender.as_str()), cap) {
            return Ok(());
        }
    }
    Ok(())
}

type Row = (MessageId, UserId);

fn rows(view: &View<'_>, span: Span) -> Peekable<impl Iterator<Item = Result<Row>>> {
    let decoded = |row: Result<(fjall::Slice, fjall::Slice)>| {
        let (key, sender) = row?;
        let message = key::mentioned_at(&key).in_table(TABLE)?;
        let sender = record::decode(&sender).in_table(TABLE)?;
        Ok((message, sender))
    };
    view.scan(span, Direction::Forward).map(decoded).peekable()
}

/// The older one of the next rows. A message in both lists is one row.
fn next_of(
    named: &mut Peekable<impl Iterator<Item = Result<Row>>>,
    everyone: &mut Peekable<impl Iterator<Item = Result<Row>>>,
) -> Result<Option<Row>> {
    let position = |row: Option<&Result<Row>>| match row {
        Some(Ok((message, _))) => Some(message.order_key()),
        // An error is returned first.
        Some(Err(_)) => Some(OrderKey::MIN),
        None => None,
    };
    let (one, other) = (position(named.peek()), position(everyone.peek()));
    match (one, other) {
        (Some(one), Some(other)) if one == other => {
            everyone.next();
            named.next().transpose()
        }
        (Some(one), Some(other)) if other < one => everyone.next().transpose(),
        (None, Some(_)) => everyone.next().transpose(),
        (Some(_), _) => named.next().transpose(),
        (None, None) => Ok(None),
    }
}
