//! Live messages: a message while it is written, in view of the other participants.
//!
//! Its text is append-only and belongs to one writer: a process, and one try of it. Each writer claims the next number of
//! a list. A later writer replaces the text of an earlier one, so that no text is ever a mixture of two.

mod text;
mod view;
mod writers;

use std::fmt;

use uuid::Uuid;

pub use self::text::{LiveBody, LiveChunk, LiveExtent, LiveStatus, LiveText};
pub use self::view::{LiveCursor, LivePosition, LiveStep, LiveView};
pub use self::writers::{LiveWriter, LiveWriters, WriterName, WriterNumber, WritersError};
use super::{
    ConversationId, DirectIds, IdempotencyKey, MessageId, MessageSteps, Timestamp, UserId,
};

/// Id of a live message. It follows from the conversation, the sender and the key of the send that ends it, under the secret
/// of the deployment: any server computes it, and nobody else.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct LiveMessageId(pub Uuid);

impl LiveMessageId {
    pub fn new(
        ids: &DirectIds,
        conversation: ConversationId,
        sender: &UserId,
        key: &IdempotencyKey,
    ) -> Self {
        let length = u16::try_from(sender.as_str().len()).expect("names are bounded when parsed");
        let bytes = ids.mac(&[
            b"live message",
            conversation.0.as_bytes(),
            &length.to_be_bytes(),
            sender.as_str().as_bytes(),
            key.as_str().as_bytes(),
        ]);
        Self(Uuid::from_bytes(bytes))
    }
}

impl fmt::Display for LiveMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for LiveMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Key of a live message: its conversation and its id.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct LiveKey {
    pub conversation: ConversationId,
    pub id: LiveMessageId,
}

/// Fields of a live message that its first writer sets.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LiveStart {
    pub sender: UserId,
    /// Idempotency key of the send that ends the live message.
    pub key: IdempotencyKey,
    pub reply_to: Option<MessageId>,
    pub at: Timestamp,
}

/// Request to the writer to stop.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LiveStop {
    pub by: UserId,
    pub at: Timestamp,
}

/// Live message without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveMessage {
    pub key: LiveKey,
    pub start: LiveStart,
    pub writers: LiveWriters,
    /// Time of the last write, one without text included.
    pub touched_at: Timestamp,
    pub status: Option<LiveStatus>,
    pub steps: MessageSteps,
    pub stop: Option<LiveStop>,
    pub discarded_at: Option<Timestamp>,
}

/// Stage of a live message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveMessageState {
    Writing,
    Sent,
    Discarded,
}

impl LiveMessage {
    /// Longest time from the start to the last write.
    pub const LIFE_MICROS: i64 = 12 * 3_600 * 1_000_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_follows_from_the_secret_and_from_each_part() {
        let user = |name| UserId::parse(name).unwrap();
        let key = |text| IdempotencyKey::parse(text).unwrap();
        let ids = DirectIds::new([7; 32]);
        let (one, other) = (ConversationId::random(), ConversationId::random());
        let id = LiveMessageId::new(&ids, one, &user("ann"), &key("k"));
        assert_eq!(LiveMessageId::new(&ids, one, &user("ann"), &key("k")), id);
        for different in [
            LiveMessageId::new(&DirectIds::new([8; 32]), one, &user("ann"), &key("k")),
            LiveMessageId::new(&ids, other, &user("ann"), &key("k")),
            LiveMessageId::new(&ids, one, &user("an"), &key("nk")),
            LiveMessageId::new(&ids, one, &user("ann"), &key("l")),
        ] {
            assert_ne!(different, id);
        }
    }
}
