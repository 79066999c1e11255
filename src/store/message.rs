//! Writes of messages, and their results.

use std::sync::Arc;

use crate::model::{InputHash, Message, MessageId, UserId};

/// A message to persist, with the hash that recognises a retry of its send.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub message: Arc<Message>,
    /// The hash of the input, for a message with a `client_key`.
    pub input_hash: Option<InputHash>,
    /// Whether a service sends it in the name of a sender who has not acted in the conversation yet.
    pub is_by_service: bool,
}

/// An earlier send under the same idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierSend {
    pub message: MessageId,
    pub input_hash: InputHash,
    /// Whether a server has delivered the message to all others after a retry, so that the next
    /// retry is only answered.
    pub is_delivered: bool,
}

/// The users whose inbox subscriptions receive an event.
#[derive(Debug, Clone)]
pub struct Audience {
    /// The participants of the conversation. `None` for a large one: its subscribers listen to the
    /// conversation itself.
    pub users: Option<Arc<[UserId]>>,
}

/// The result of a send of several messages.
#[derive(Debug, Clone)]
pub struct Appended {
    pub audience: Audience,
    /// The messages that were not persisted, by their index: an earlier send of the last 24 hours
    /// has the key.
    pub taken: Vec<(usize, EarlierSend)>,
}

/// The result of an edit or a deletion.
#[derive(Debug, Clone)]
pub struct Revised {
    /// The message after the change.
    pub message: Arc<Message>,
    /// The users whose inbox entry has changed. `None` for a large conversation.
    pub audience: Audience,
}
