//! Messages in the embedded store: what a send writes, and how history is read.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use super::committer::{Condition, Op, Write};
use super::core::Core;
use super::db::{KeyError, View, corrupt};
use super::inbox;
use super::key::{self, EntryCell, Key, Span, Table};
use super::page::read_page;
use super::record::{self, MessageLead, MessageRecord, SendRecord};
use super::state::State;
use crate::model::{
    ConversationId, Cut, Direction, IdempotencyKey, InputHash, Message, MessageId, MessageKind, OrderKey, Page, PageRequest, Unread, UserId,
};
use crate::store::{EarlierSend, NewMessage, Result, UnreadQuestion};

/// What keeping these messages writes. On the condition that the conversation is as this state says.
pub(super) fn append(core: &Core, state: &State, messages: &[NewMessage]) -> Write {
    let id = state.conversation.id;
    let mut head = state.head;
    let mut ops = Vec::with_capacity(messages.len() * 3 + 72);
    let mut sent: HashMap<&UserId, MessageId> = HashMap::new();
    for NewMessage { message, input_hash } in messages {
        head.count(message.id);
        ops.push(Op::Put(key::message(id, message.id.order_key()), MessageRecord::encode(message)));
        // What the server says in somebody's name moves no marker of theirs.
        if message.kind == MessageKind::Text {
            sent.entry(&message.sender).and_modify(|last| *last = message.id.max(*last)).or_insert(message.id);
        }
        if let (Some(client_key), Some(input_hash)) = (&message.client_key, input_hash) {
            ops.extend(send_by_key(message, client_key, *input_hash));
        }
    }
    for (sender, last) in sent {
        ops.push(Op::Max(key::entry(sender, id, EntryCell::SentUpTo), record::encode_place(last.order_key())));
    }
    if let Some(people) = &state.people {
        ops.extend(inbox::keep_busy(&mut head, &state.head, id));
        ops.extend(inbox::relist(&people.joined, id, state.head.listing(false), head.listing(false)));
    }
    let after = Arc::new(state.with_head(head));
    ops.push(Op::Put(key::head(id), after.head_bytes.clone()));
    let (states, known) = (Arc::clone(&core.states), Arc::clone(&core.known));
    let kept = messages.iter().map(|new| Arc::clone(&new.message)).collect();
    Write {
        ops,
        conditions: vec![Condition::Is(key::head(id), state.head_bytes.clone())],
        newest_id: messages.iter().map(|new| new.message.id).max(),
        applied: Some(Box::new(move || {
            states.put_written(after);
            known.put_messages(kept);
        })),
    }
}

/// Whether one of these may have been kept before: all others are later than the last one.
pub(super) fn may_be_kept(state: &State, messages: &[NewMessage]) -> bool {
    messages.iter().any(|new| state.head.last_message.is_some_and(|last| new.message.id <= last))
}

/// That no earlier message has a key of these.
pub(super) fn unused_keys(messages: &[NewMessage]) -> impl Iterator<Item = Condition> {
    messages.iter().filter_map(|NewMessage { message, .. }| {
        let client_key = message.client_key.as_ref()?;
        Some(Condition::Absent(key::send_by_key(message.conversation, &message.sender, client_key)))
    })
}

/// The same message again would be counted twice: a write whose outcome was not known may have been done.
pub(super) fn not_yet_kept(core: &Core, conversation: ConversationId, messages: &[NewMessage]) -> Result<Vec<NewMessage>> {
    let view = core.view();
    let mut rest = Vec::with_capacity(messages.len());
    for new in messages {
        if !view.has(&key::message(conversation, new.message.id.order_key()))? {
            rest.push(new.clone());
        }
    }
    Ok(rest)
}

/// The row by which a retry is recognised, and the one by which it is forgotten.
pub(super) fn send_by_key(message: &Message, client_key: &IdempotencyKey, input_hash: InputHash) -> [Op; 2] {
    let expires_at = message.id.moment().plus_micros(IdempotencyKey::LIFETIME_MICROS);
    let key = key::send_by_key(message.conversation, &message.sender, client_key);
    let expiry = key::expiry(&key, expires_at);
    let record = SendRecord { message: message.id, input_hash, expires_at };
    [Op::Put(key, record::encode(&record)), Op::Put(expiry, Vec::new())]
}

pub(super) fn earlier_sends(
    core: &Core,
    conversation: ConversationId,
    keys: &[(UserId, IdempotencyKey)],
) -> Result<Vec<Option<EarlierSend>>> {
    let view = core.view();
    let now = core.clock.now();
    let each = |(sender, client_key): &(UserId, IdempotencyKey)| {
        let record: Option<SendRecord> = view.record(&key::send_by_key(conversation, sender, client_key))?;
        let alive = record.filter(|record| record.expires_at > now);
        Ok(alive.map(|record| EarlierSend { message: record.message, input_hash: record.input_hash }))
    };
    keys.iter().map(each).collect()
}

/// The list that a cut leaves. The newest comes first, so the cut's end is the span's start.
fn cut_span(conversation: ConversationId, cut: &Cut<OrderKey>) -> Span {
    let whole = key::messages(conversation);
    let start = match cut.end {
        Bound::Included(place) => key::message_place(conversation, place).start,
        Bound::Excluded(place) => key::message_place(conversation, place).end,
        Bound::Unbounded => whole.start,
    };
    let end = match cut.start {
        Bound::Included(place) => key::message_place(conversation, place).end,
        Bound::Excluded(place) => key::message_place(conversation, place).start,
        Bound::Unbounded => whole.end,
    };
    Span { table: Table::Messages, start, end }
}

pub(super) fn history(
    core: &Core,
    conversation: ConversationId,
    cut: &Cut<OrderKey>,
    request: &PageRequest<OrderKey>,
) -> Result<Page<Arc<Message>>> {
    let view = core.view();
    read_page(
        &cut_span(conversation, cut),
        request,
        |place| key::message_place(conversation, *place),
        |place| view.has(&key::message(conversation, *place)),
        |span, direction, limit| view.scan(span, direction).take(limit).map(|row| read(conversation, &row?)).collect(),
    )
}

fn read<B: AsRef<[u8]>>(conversation: ConversationId, (key, value): &(B, B)) -> Result<Arc<Message>> {
    let id = message_id(key.as_ref())?;
    let record = MessageRecord::decode(value.as_ref()).map_err(|error| corrupt("messages", error))?;
    Ok(Arc::new(record.into_message(conversation, id)))
}

impl View<'_> {
    pub(super) fn message(&self, conversation: ConversationId, id: MessageId) -> Result<Option<Message>> {
        let record = self.decoded(&key::message(conversation, id.order_key()), MessageRecord::decode)?;
        Ok(record.map(|record| record.into_message(conversation, id)))
    }
}

fn message_id(key: &[u8]) -> Result<MessageId> {
    key::message_id(key).ok_or_else(|| corrupt("messages", KeyError))
}

pub(super) fn messages(core: &Core, keys: &[(ConversationId, MessageId)]) -> Result<Vec<Option<Arc<Message>>>> {
    let look = core.look();
    keys.iter().map(|(conversation, id)| look.message(*conversation, *id)).collect()
}

/// The same, where memory has all of it.
pub(super) fn messages_in_memory(core: &Core, keys: &[(ConversationId, MessageId)]) -> Option<Vec<Option<Arc<Message>>>> {
    keys.iter().map(|(conversation, id)| core.known.message_in_memory(*conversation, *id).map(Some)).collect()
}

pub(super) fn messages_at(core: &Core, places: &[(ConversationId, OrderKey)]) -> Result<Vec<Option<Arc<Message>>>> {
    let view = core.view();
    let each = |(conversation, place): &(ConversationId, OrderKey)| {
        let span = key::messages(*conversation).from(&key::message_place(*conversation, *place));
        view.scan(span, Direction::Forward).next().map(|row| read(*conversation, &row?)).transpose()
    };
    places.iter().map(each).collect()
}

pub(super) fn unread(core: &Core, user: &UserId, questions: &[UnreadQuestion], cap: u32) -> Result<Vec<Unread>> {
    let each = |question: &UnreadQuestion| {
        if let Some(known) = unread_in_memory(core, user, question, cap) {
            return Ok(known);
        }
        // First the head, then the view: what is counted is at least as new as the head that it is kept under.
        let state = core.state(question.conversation)?;
        let unread = unread_of_one(&core.view(), user, question, cap)?;
        if let Some(state) = state {
            core.counts.put(user, question, cap, state.head, unread);
        }
        Ok(unread)
    };
    questions.iter().map(each).collect()
}

fn unread_of_one(view: &View<'_>, user: &UserId, question: &UnreadQuestion, cap: u32) -> Result<Unread> {
    let place = key::message_place(question.conversation, question.after);
    let newer = key::messages(question.conversation).before(&place);
    let mut unread = Unread::default();
    // Backward is from the oldest on: the first one that counts is the first unread.
    for (looked_at, row) in view.scan(newer, Direction::Backward).take(Unread::ROWS_MAX).enumerate() {
        let (key, value) = row?;
        let lead = MessageLead::read(&value).map_err(|error| corrupt("messages", error))?;
        if lead.counts_as_unread_for(user) {
            unread.first = unread.first.or(Some(message_id(&key)?));
            unread.count += 1;
        }
        if unread.count >= cap || looked_at + 1 == Unread::ROWS_MAX {
            unread.is_capped = true;
            break;
        }
    }
    Ok(unread)
}

/// Where memory has the answer: nothing lies after the place, or it was counted before.
pub(super) fn unread_in_memory(core: &Core, user: &UserId, question: &UnreadQuestion, cap: u32) -> Option<Unread> {
    let head = core.states.get(question.conversation)?.head;
    if head.last_message.is_none_or(|last| last.order_key() <= question.after) {
        return Some(Unread::default());
    }
    core.counts.get(user, question, cap, &head)
}

/// The key of a message that is to be imported.
pub(super) fn key_of(message: &Message) -> Key {
    key::message(message.conversation, message.id.order_key())
}
