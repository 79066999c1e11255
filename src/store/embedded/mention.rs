//! Mentions in the embedded store: a row for each user whom a message names, and one for a message that
//! mentions everyone. Counts are read from these rows, however many other messages are unread.

use std::iter::Peekable;

use super::engine::committer::{Condition, Op, Write};
use super::engine::db::{MalformedKey, View, corrupt};
use super::engine::key::{self, Key, Span};
use super::engine::record::{self, MessageRecord};
use super::read_context::ReadContext;
use crate::model::{
    ConversationId, Direction, Mentions, Message, MessageId, OrderKey, Unread, UserId,
};
use crate::store::{Result, UnreadQuery, UnreadReader};

const TABLE: &str = "mentions_by_entry";

/// Keys of the rows that a message has while it is not deleted. A sender is not mentioned by themselves.
pub(super) fn keys(message: &Message) -> Vec<Key> {
    let Some(mentions) = message.mentions() else {
        return Vec::new();
    };
    let (id, at) = (message.conversation, message.id.order_key());
    let named = mentions.users().iter();
    let named = named.filter(|user| **user != message.sender);
    let everyone = mentions.everyone.then(|| key::everyone(id, at));
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
    let record = MessageRecord::decode(&bytes).map_err(|error| corrupt("messages", error))?;
    let stored = record.into_message(conversation, message);
    write.conditions.push(Condition::Is(row, bytes.to_vec()));
    write.ops.extend(keys(&stored).into_iter().map(Op::Delete));
    Ok(())
}

pub(super) fn unread(
    context: &ReadContext,
    reader: UnreadReader<'_>,
    queries: &[UnreadQuery],
    cap: u32,
) -> Result<Vec<Unread>> {
    let view = context.view();
    queries
        .iter()
        .map(|query| count(&view, reader, query, cap))
        .collect()
}

fn count(
    view: &View<'_>,
    reader: UnreadReader<'_>,
    query: &UnreadQuery,
    cap: u32,
) -> Result<Unread> {
    let range = (query.after, query.up_to.unwrap_or(OrderKey::MAX));
    let mut named = rows(view, key::mentions(reader.user, query.conversation, range));
    let mut everyone = rows(view, key::everyones(query.conversation, range));
    let mut unread = Unread::default();
    for _ in 0..Unread::ROWS_MAX {
        let Some((message, sender)) = next_of(&mut named, &mut everyone)? else {
            return Ok(unread);
        };
        if reader.counts(sender.as_str()) && !unread.add(message, cap) {
            return Ok(unread);
        }
    }
    unread.is_capped = true;
    Ok(unread)
}

type Row = (MessageId, UserId);

fn rows(view: &View<'_>, span: Span) -> Peekable<impl Iterator<Item = Result<Row>>> {
    let decoded = |row: Result<(fjall::Slice, fjall::Slice)>| {
        let (key, sender) = row?;
        let message = key::mentioned_at(&key).ok_or_else(|| corrupt(TABLE, MalformedKey))?;
        let sender = record::decode(&sender).map_err(|error| corrupt(TABLE, error))?;
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
