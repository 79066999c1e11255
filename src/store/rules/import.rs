//! Rows that an import accepts, and the values that it derives from them.

use crate::model::{Conversation, IdempotencyKey, Message, MessageId, Timestamp};

/// Refusal of a participant of a conversation without room. Former participants take none.
/// Refusal of a conversation whose app key leads to another one.
pub(in crate::store) const APP_KEY_TAKEN: &str = "another conversation has this `appKey` already";

pub(in crate::store) fn refuse_without_room(joined: u64) -> Result<(), &'static str> {
    if joined < Conversation::PARTICIPANTS_MAX as u64 {
        Ok(())
    } else {
        Err("a conversation has at most 20,000 participants")
    }
}

/// The expiry of the idempotency key of an imported message, by which a retry of a send from before
/// the import is recognised. `None` if it has expired.
pub(in crate::store) fn key_expiry(message: &Message, now: Timestamp) -> Option<Timestamp> {
    let expires_at = message
        .id
        .moment()
        .plus_micros(IdempotencyKey::LIFETIME_MICROS);
    (expires_at > now).then_some(expires_at)
}

/// The activity of a conversation: the time of the last message or a later given one, else that of
/// the creation.
pub(in crate::store) fn activity(
    created_at: Timestamp,
    given: Option<Timestamp>,
    last_message: Option<MessageId>,
) -> Timestamp {
    given
        .max(last_message.map(MessageId::moment))
        .unwrap_or(created_at)
}
