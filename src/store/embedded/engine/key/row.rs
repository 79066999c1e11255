//! Keys of small and rare rows, each behind its tag: conversations, users, pairs, idempotency keys, pins, jobs and settings.

use super::{Key, Span, Table, Tag, conversation_id, name, rows, rows_with};
use crate::model::message::IdempotencyKey;
use crate::model::{AppKey, ConversationId, JobId, MessageId, OrderKey, UserId};

pub(crate) fn meta(name: &str) -> Key {
    rows(Tag::Meta, &[name.as_bytes()])
}

pub(crate) fn note(name: &str) -> Key {
    rows(Tag::Note, &[name.as_bytes()])
}

pub(crate) fn conversation(id: ConversationId) -> Key {
    rows(Tag::Conversation, &[id.0.as_bytes()])
}

pub(crate) fn conversation_profile(id: ConversationId) -> Key {
    rows(Tag::ConversationProfile, &[id.0.as_bytes()])
}

pub(crate) fn app_key(key: &AppKey) -> Key {
    rows(Tag::AppKey, &[key.as_str().as_bytes()])
}

pub(crate) fn conversations_after(after: Option<ConversationId>) -> Span {
    all_after(Tag::Conversation, after.map(conversation))
}

/// Parses a key of [`conversations_after`].
pub(crate) fn conversation_of(bytes: &[u8]) -> Option<ConversationId> {
    conversation_id(bytes.get(1..)?.try_into().ok()?)
}

pub(crate) fn users_after(after: Option<&UserId>) -> Span {
    all_after(Tag::User, after.map(user))
}

/// Parses a key of [`users_after`].
pub(crate) fn user_of(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes.get(1..)?).ok()?).ok()
}

pub(super) fn all_after(tag: Tag, after: Option<Key>) -> Span {
    let all = Span::of_prefix(Table::Rows, vec![tag as u8]);
    match after {
        Some(key) => all.behind(&Span::of_key(key)),
        None => all,
    }
}

/// Key of a conversation's membership version and owner count.
pub(crate) fn roster(id: ConversationId) -> Key {
    rows(Tag::Roster, &[id.0.as_bytes()])
}

pub(crate) fn pair(one: &UserId, other: &UserId) -> Key {
    rows(Tag::Pair, &[&crate::model::id::pair_key(one, other)])
}

pub(crate) fn user(id: &UserId) -> Key {
    rows(Tag::User, &[id.as_str().as_bytes()])
}

pub(crate) fn send_by_key(
    conversation: ConversationId,
    sender: &UserId,
    key: &IdempotencyKey,
) -> Key {
    rows(
        Tag::SendByKey,
        &[
            conversation.0.as_bytes(),
            &name(sender),
            key.as_str().as_bytes(),
        ],
    )
}

/// List of the pins of a conversation.
pub(crate) fn pin_list(conversation: ConversationId) -> Key {
    rows(Tag::PinList, &[conversation.0.as_bytes()])
}

// Pins of version 0.2: conversation ‖ order key of the message.

/// Range of the pins of a conversation that has no list yet.
pub(crate) fn pins(conversation: ConversationId) -> Span {
    rows_with(Tag::Pin, &[conversation.0.as_bytes()])
}

/// Parses the message of a key of [`pins`].
pub(crate) fn pinned_of(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(bytes.get(17..)?.try_into().ok()?))
}

pub(crate) fn all_pairs() -> Span {
    all_after(Tag::Pair, None)
}

/// The part of a range after the key with these bytes.
pub(crate) fn behind(span: Span, bytes: Option<Vec<u8>>) -> Span {
    match bytes {
        Some(bytes) => {
            let key = Key {
                table: span.table,
                bytes,
            };
            span.behind(&Span::of_key(key))
        }
        None => span,
    }
}

pub(crate) fn is_send_by_key(key: &Key) -> bool {
    has_tag(key, Tag::SendByKey)
}

pub(crate) fn is_ended_job(key: &Key) -> bool {
    has_tag(key, Tag::EndedJob)
}

pub(super) fn has_tag(key: &Key, tag: Tag) -> bool {
    key.table == Table::Rows && key.bytes.first() == Some(&(tag as u8))
}

// Users who are notified of all messages: conversation ‖ name.

pub(crate) fn notify_all(conversation: ConversationId, user: &UserId) -> Key {
    rows(
        Tag::NotifyAll,
        &[conversation.0.as_bytes(), user.as_str().as_bytes()],
    )
}

/// Those of a conversation after a user.
pub(crate) fn notify_all_after(conversation: ConversationId, after: Option<&UserId>) -> Span {
    let all = rows_with(Tag::NotifyAll, &[conversation.0.as_bytes()]);
    match after {
        Some(user) => all.behind(&Span::of_key(notify_all(conversation, user))),
        None => all,
    }
}

/// Parses the user of a key of [`notify_all_after`].
pub(crate) fn notify_all_of(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes.get(17..)?).ok()?).ok()
}

// Jobs: those that run, and those that have ended.

pub(crate) fn job(id: JobId) -> Key {
    rows(Tag::Job, &[id.0.as_bytes()])
}

pub(crate) fn ended_job(id: JobId) -> Key {
    rows(Tag::EndedJob, &[id.0.as_bytes()])
}

/// Range of the jobs that run.
pub(crate) fn jobs() -> Span {
    all_after(Tag::Job, None)
}
