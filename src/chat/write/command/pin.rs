//! Command to pin or unpin a message, and the rules for it.

use super::WriterCheck;
use crate::chat::error::{Error, Result};
use crate::model::{Message, MessageId, Pin, Role};

pub(crate) struct PinDraft {
    pub(crate) message: MessageId,
    pub(crate) is_on: bool,
    pub(crate) check: WriterCheck,
}

impl PinDraft {
    /// Approximate size in a queue.
    pub(crate) const BYTES: usize = 256;

    /// In a direct or small conversation every participant may pin. `role` is the one in a large
    /// conversation.
    pub(crate) fn check_role(&self, role: Option<Role>) -> Result<()> {
        if role == Some(Role::Member) {
            return Err(Error::Forbidden(
                "only an owner or admin of a large conversation may pin and unpin messages",
            ));
        }
        Ok(())
    }

    /// Whether the command changes anything. A deleted message cannot be pinned.
    pub(crate) fn changes(&self, present: &Message) -> Result<bool> {
        if present.deleted_at.is_some() {
            if self.is_on {
                return Err(Error::bad_input(
                    &["input", "messageId"],
                    "the message is deleted",
                ));
            }
            return Ok(false);
        }
        Ok(present.current_pin().is_some() != self.is_on)
    }

    /// `count` messages are pinned; the store has `kept` pins and ended pins.
    pub(crate) fn check_room(count: usize, kept: usize) -> Result<()> {
        if count >= Pin::COUNT_MAX {
            return Err(Error::TooMany(
                "100 messages of this conversation are pinned, which is the most: unpin one of them first",
            ));
        }
        if kept >= Pin::KEPT_MAX {
            return Err(Error::TooMany(
                "too many messages of this conversation were pinned and unpinned in the last 35 days",
            ));
        }
        Ok(())
    }
}
