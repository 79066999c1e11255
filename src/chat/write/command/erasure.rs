//! Command to erase a user from a conversation. It runs in the conversation's queue, and is no event.

use super::WriterCheck;
use crate::chat::access::authority::Authority;
use crate::model::{MessageId, UserId};

pub(crate) struct ErasureCommand {
    pub(crate) user: UserId,
    pub(crate) target: ErasureTarget,
}

/// Part of a conversation that the user is erased from.
pub(crate) enum ErasureTarget {
    Messages(Vec<MessageId>),
    /// Everything but messages.
    Participant,
}

impl ErasureCommand {
    /// Approximate size in a queue.
    pub(crate) fn bytes(&self) -> usize {
        let messages = match &self.target {
            ErasureTarget::Messages(messages) => messages.len(),
            ErasureTarget::Participant => 0,
        };
        16 * messages + 256
    }
}

/// The right of the server itself.
pub(crate) const ERASURE_CHECK: WriterCheck = WriterCheck::of_server(Authority::Service);
