//! Keys of mentions: those of a user in a conversation, and those of everyone.

use super::row::{all_after, has_tag};
use super::{Key, Span, Table, Tag, conversation_id, name, rows, rows_with, split_name};
use crate::model::{ConversationId, MessageId, OrderKey, UserId};

// Mentions: name ‖ 0 ‖ conversation ‖ order key. Mentions of everyone: conversation ‖ order key.

pub(crate) fn mention(user: &UserId, conversation: ConversationId, message: OrderKey) -> Key {
    rows(
        Tag::Mention,
        &[&name(user), conversation.0.as_bytes(), &message.0],
    )
}

pub(crate) fn everyone(conversation: ConversationId, message: OrderKey) -> Key {
    rows(Tag::Everyone, &[conversation.0.as_bytes(), &message.0])
}

/// Mentions of a user after a position, and up to another one, the oldest first.
pub(crate) fn mentions(
    user: &UserId,
    conversation: ConversationId,
    (after, up_to): (OrderKey, OrderKey),
) -> Span {
    between(
        mention(user, conversation, after),
        mention(user, conversation, up_to),
    )
}

/// Mentions of everyone after a position, and up to another one, the oldest first.
pub(crate) fn everyones(
    conversation: ConversationId,
    (after, up_to): (OrderKey, OrderKey),
) -> Span {
    between(everyone(conversation, after), everyone(conversation, up_to))
}

/// Keys after one, and up to another one.
fn between(after: Key, up_to: Key) -> Span {
    Span {
        table: Table::Rows,
        start: Span::of_key(after).end,
        end: Span::of_key(up_to).end,
    }
}

/// Parses the message at the end of a key of [`mentions`] or [`everyones`].
pub(crate) fn mentioned_at(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(*bytes.last_chunk::<16>()?))
}

pub(crate) fn all_mentions() -> Span {
    all_after(Tag::Mention, None)
}

pub(crate) fn all_everyones() -> Span {
    all_after(Tag::Everyone, None)
}

/// Parses the message of a key of [`all_mentions`].
pub(crate) fn mention_of(bytes: &[u8]) -> Option<(ConversationId, MessageId)> {
    let (_, rest) = split_name(bytes.get(1..)?)?;
    let (conversation, _) = rest.split_first_chunk::<16>()?;
    Some((conversation_id(conversation)?, mentioned_at(rest)?))
}

/// Parses a key of [`all_everyones`].
pub(crate) fn everyone_of(bytes: &[u8]) -> Option<(ConversationId, MessageId)> {
    let (conversation, _) = bytes.get(1..)?.split_first_chunk::<16>()?;
    Some((conversation_id(conversation)?, mentioned_at(bytes)?))
}

/// The message of the key of a mention of everyone.
pub(crate) fn everyone_in(key: &Key) -> Option<(ConversationId, MessageId)> {
    has_tag(key, Tag::Everyone)
        .then(|| everyone_of(&key.bytes))
        .flatten()
}

/// Range of all mentions of a user, in all conversations.
pub(crate) fn mentions_of_user(user: &UserId) -> Span {
    rows_with(Tag::Mention, &[&name(user)])
}
