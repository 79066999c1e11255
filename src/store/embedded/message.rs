//! Messages in the embedded store: pages of history and unread counts.

use std::ops::Bound;
use std::sync::Arc;

use fjall::Slice;

use super::cache::floor_counts::CountsVersion;
use super::cache::newest::NewestList;
use super::inbox;
use super::read_context::ReadContext;
use crate::model::{
    ConversationId, Cut, Direction, IgnoredSenders, Message, MessageId, OrderKey, Page,
    PageRequest, Unread, UserId,
};
use crate::store::embedded::engine::committer::Op;
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, Key, Span, Table};
use crate::store::embedded::engine::page::read_page;
use crate::store::embedded::engine::record::{HeadRecord, MessageLead, MessageRecord};
use crate::store::embedded::write::removal;
use crate::store::rules::position_counts::CHECKPOINT_EVERY;
use crate::store::unread_list::UnreadList;
use crate::store::{Result, StoredMessage, UnreadQuery, UnreadReader};

/// Key range of a cut. The newest message comes first, so the cut's end is the range's start.
fn cut_span(conversation: ConversationId, cut: &Cut<OrderKey>) -> Span {
    let whole = key::messages(conversation);
    let start = match cut.end {
        Bound::Included(position) => key::message_position(conversation, position).start,
        Bound::Excluded(position) => key::message_position(conversation, position).end,
        Bound::Unbounded => whole.start,
    };
    let end = match cut.start {
        Bound::Included(position) => key::message_position(conversation, position).end,
        Bound::Excluded(position) => key::message_position(conversation, position).start,
        Bound::Unbounded => whole.end,
    };
    Span {
        table: Table::Messages,
        start,
        end,
    }
}

/// Rows of messages as they lie on the disk. The task that asked decodes them: what one thread allocates and
/// another one frees costs several times as much.
pub(super) type MessageRows = Page<(Slice, Slice)>;

pub(super) fn history_rows(
    context: &ReadContext,
    conversation: ConversationId,
    cut: &Cut<OrderKey>,
    request: &PageRequest<OrderKey>,
) -> Result<MessageRows> {
    let view = context.view();
    read_page(
        &cut_span(conversation, cut),
        request,
        |position| key::message_position(conversation, *position),
        |position| view.has(&key::message(conversation, *position)),
        |span, direction, limit| view.scan(span, direction).take(limit).collect(),
    )
}

pub(super) fn history_of(
    conversation: ConversationId,
    rows: &MessageRows,
) -> Result<Page<Arc<Message>>> {
    let messages = rows.items.iter().map(|row| read(conversation, row));
    Ok(Page {
        items: messages.collect::<Result<_>>()?,
        has_previous: rows.has_previous,
        has_next: rows.has_next,
    })
}

pub(super) fn begins_with_newest(cut: &Cut<OrderKey>, request: &PageRequest<OrderKey>) -> bool {
    request.direction == Direction::Forward
        && request.after.is_none()
        && request.before.is_none()
        && cut.end == Bound::Unbounded
}

/// Reads a page that begins with the newest message, and caches its messages.
pub(super) fn newest_page(
    context: &ReadContext,
    conversation: ConversationId,
    cut: &Cut<OrderKey>,
    request: &PageRequest<OrderKey>,
) -> Result<Page<Arc<Message>>> {
    let newest = &context.rows.newest;
    // Take the mark before the view: a list from the view is then never cached as newer than it is.
    let mark = newest.mark();
    let limit = request.overread();
    let rows: Vec<_> = context
        .view()
        .scan(cut_span(conversation, cut), Direction::Forward)
        .take(limit)
        .map(|row| read(conversation, &row?))
        .collect::<Result<_>>()?;
    let is_whole = rows.len() < limit && cut.start == Bound::Unbounded;
    newest.put_loaded(mark, conversation, NewestList::of(&rows, is_whole));
    Ok(Page::from_overread(request, rows, false))
}

fn read<B: AsRef<[u8]>>(
    conversation: ConversationId,
    (key, value): &(B, B),
) -> Result<Arc<Message>> {
    let id = message_id(key.as_ref())?;
    let record = MessageRecord::decode(value.as_ref()).in_table("messages")?;
    Ok(Arc::new(record.into_message(conversation, id)))
}

/// From the oldest on, behind one of them.
pub(super) fn stored_messages(
    context: &ReadContext,
    conversation: ConversationId,
    after: Option<MessageId>,
    limit: usize,
) -> Result<Vec<StoredMessage>> {
    let all = key::messages(conversation);
    let rest = match after {
        Some(id) => all.before(&key::message_position(conversation, id.order_key())),
        None => all,
    };
    context
        .view()
        .scan(rest, Direction::Backward)
        .take(limit)
        .map(|row| stored(conversation, &row?))
        .collect()
}

/// A row as it lies there, damaged or not.
pub(super) fn stored<B: AsRef<[u8]>>(
    conversation: ConversationId,
    (key, value): &(B, B),
) -> Result<StoredMessage> {
    let id = message_id(key.as_ref())?;
    let read =
        MessageRecord::decode(value.as_ref()).map(|record| record.into_message(conversation, id));
    StoredMessage::of(id, read.in_table("messages"))
}

impl View<'_> {
    pub(super) fn message(
        &self,
        conversation: ConversationId,
        id: MessageId,
    ) -> Result<Option<Message>> {
        let record = self.decoded(
            &key::message(conversation, id.order_key()),
            MessageRecord::decode,
        )?;
        Ok(record.map(|record| record.into_message(conversation, id)))
    }
}

fn message_id(key: &[u8]) -> Result<MessageId> {
    key::message_id(key).in_table("messages")
}

pub(super) fn messages(
    context: &ReadContext,
    keys: &[(ConversationId, MessageId)],
) -> Result<Vec<Option<Arc<Message>>>> {
    let snapshot = context.snapshot();
    keys.iter()
        .map(|(conversation, id)| snapshot.message(*conversation, *id))
        .collect()
}

/// Answers the same from the caches alone. `None` on a miss.
pub(super) fn messages_in_memory(
    context: &ReadContext,
    keys: &[(ConversationId, MessageId)],
) -> Option<Vec<Option<Arc<Message>>>> {
    keys.iter()
        .map(|(conversation, id)| context.rows.message_in_memory(*conversation, *id).map(Some))
        .collect()
}

pub(super) fn messages_at(
    context: &ReadContext,
    positions: &[(ConversationId, OrderKey)],
) -> Result<Vec<Option<Arc<Message>>>> {
    let view = context.view();
    let each = |(conversation, position): &(ConversationId, OrderKey)| {
        let span =
            key::messages(*conversation).from(&key::message_position(*conversation, *position));
        view.scan(span, Direction::Forward)
            .next()
            .map(|row| read(*conversation, &row?))
            .transpose()
    };
    positions.iter().map(each).collect()
}

/// Counts the messages after positions: all of them, less those up to the position. The latter number is cached,
/// and an advancing position continues it.
pub(super) fn counts_after(
    context: &ReadContext,
    positions: &[(ConversationId, OrderKey)],
) -> Result<Vec<u64>> {
    let each = |(id, position): &(ConversationId, OrderKey)| {
        let imports = context.floors.imports();
        let view = context.view();
        let head: Option<HeadRecord> = view.record(&key::head(*id))?;
        let Some(head) = head else {
            return Ok(0);
        };
        let version = CountsVersion {
            imports,
            removed_up_to: removal::removed_up_to(&view, *id)?,
        };
        let (from, counted) = context.floors.nearest(*id, version, *position);
        let (from_key, to_key) = (
            key::message_position(*id, from),
            key::message_position(*id, *position),
        );
        let span = key::messages(*id).before(&from_key).from(&to_key);
        let (mut below, mut checkpoints) = (counted, Vec::new());
        for row in view.scan(span, Direction::Backward) {
            let (key, _) = row?;
            below += 1;
            if below % CHECKPOINT_EVERY == 0 {
                let message = key::message_id(&key).in_table("messages")?;
                checkpoints.push((message.order_key(), below));
            }
        }
        let floors = &context.floors;
        floors.put(*id, version, (*position, below), checkpoints);
        Ok(head.message_count.saturating_sub(below))
    };
    positions.iter().map(each).collect()
}

pub(super) fn unread(
    context: &ReadContext,
    user: &UserId,
    queries: &[UnreadQuery],
    cap: u32,
    ignored: &IgnoredSenders,
) -> Result<Vec<Unread>> {
    let reader = UnreadReader { user, ignored };
    let each = |query: &UnreadQuery| {
        if let Some(cached) = cached_unread(context, reader, query, cap) {
            return Ok(cached);
        }
        let Some(state) = context.state(query.conversation)? else {
            return Ok(Unread::default());
        };
        unread_of_one(context, &state.head, reader, query, cap)
    };
    queries.iter().map(each).collect()
}

/// Counts by a scan, which continues the cached list where it can. The head was read before.
fn unread_of_one(
    context: &ReadContext,
    head: &HeadRecord,
    reader: UnreadReader<'_>,
    query: &UnreadQuery,
    cap: u32,
) -> Result<Unread> {
    // The snapshot is taken after the head was read: a list is at least as new as the head it is cached under.
    let version = context.unread.version(head);
    let view = context.view();
    // A list continues only over the rows that it was read from. Of a long one only later deletions are unknown.
    let rest = match context.unread.rest(reader, query, &version) {
        Some((read_under, rest))
            if read_under == *head && inbox::head(&view, query.conversation)? == *head =>
        {
            rest
        }
        Some((_, rest)) if rest.is_long() => still_unread(&view, reader, query, rest)?,
        Some(_) | None => UnreadList::new(query.after),
    };
    let list = scan_unread(&view, reader, query, cap, rest)?;
    let unread = list.count_or_capped(query, cap);
    if query.up_to.is_none() || list.is_long() {
        let conversation = query.conversation;
        context.unread.put(reader, conversation, version, list);
    }
    Ok(unread)
}

/// The same list without the messages that count no longer.
fn still_unread(
    view: &View<'_>,
    reader: UnreadReader<'_>,
    query: &UnreadQuery,
    mut list: UnreadList,
) -> Result<UnreadList> {
    let mut ids = Vec::with_capacity(list.ids.len());
    for id in list.ids {
        let value = view.get(&key::message(query.conversation, id.order_key()))?;
        let counts = match &value {
            Some(value) => read_lead(value)?.counts_as_unread_for(reader),
            None => false,
        };
        if counts {
            ids.push(id);
        }
    }
    (list.ids, list.is_whole) = (ids, false);
    Ok(list)
}

fn read_lead(value: &[u8]) -> Result<MessageLead<'_>> {
    MessageLead::read(value).in_table("messages")
}

/// Extends a list until it holds enough for the query, or [`Unread::ROWS_MAX`] rows were read.
fn scan_unread(
    view: &View<'_>,
    reader: UnreadReader<'_>,
    query: &UnreadQuery,
    cap: u32,
    mut list: UnreadList,
) -> Result<UnreadList> {
    if list.count(query, cap).is_some() {
        return Ok(list);
    }
    let position = key::message_position(query.conversation, list.read_up_to);
    let newer = key::messages(query.conversation).before(&position);
    let rows_max = list.rows + Unread::ROWS_MAX;
    // Backward runs from the oldest message on: the first counted one is the first unread.
    for row in view.scan(newer, Direction::Backward) {
        if list.rows == rows_max {
            return Ok(list);
        }
        let (key, value) = row?;
        let id = message_id(&key)?;
        if let Some(up_to) = query.up_to.filter(|up_to| id.order_key() > *up_to) {
            list.read_up_to = up_to.max(list.read_up_to);
            return Ok(list);
        }
        let counts = read_lead(&value)?.counts_as_unread_for(reader);
        if !list.add(id, counts, cap) {
            return Ok(list);
        }
    }
    list.is_whole = true;
    Ok(list)
}

/// Answers the same from the caches alone. `None` on a miss.
pub(super) fn unread_in_memory(
    context: &ReadContext,
    user: &UserId,
    queries: &[UnreadQuery],
    cap: u32,
    ignored: &IgnoredSenders,
) -> Option<Vec<Unread>> {
    let reader = UnreadReader { user, ignored };
    let each = |query| cached_unread(context, reader, query, cap);
    queries.iter().map(each).collect()
}

/// Answers from memory: nothing is newer than the position, or the count is cached.
fn cached_unread(
    context: &ReadContext,
    reader: UnreadReader<'_>,
    query: &UnreadQuery,
    cap: u32,
) -> Option<Unread> {
    let head = context.states.get(&query.conversation)?.head;
    if head
        .last_message
        .is_none_or(|last| last.order_key() <= query.after)
    {
        return Some(Unread::default());
    }
    context.unread.count(reader, query, cap, &head)
}

/// Operation that sets the row of a message.
pub(super) fn put(message: &Message) -> Op {
    Op::Put(key_of(message), MessageRecord::encode(message))
}

/// Key of a message.
pub(super) fn key_of(message: &Message) -> Key {
    key::message(message.conversation, message.id.order_key())
}
