//! Command to pin or unpin a message, and the rules for it.

use super::WriterCheck;
use crate::chat::error::{Error, Result};
use crate::model::{Message, MessageId, Pin, Role};
use crate::store::Participation;

pub(crate) struct PinDraft {
    pub(crate) message: MessageId,
    pub(crate) is_on: bool,
    pub(crate) check: WriterCheck,
}

impl PinDraft {
    /// In a direct or small conversation every participant may pin, unless an OWNER of the group has set a role.
    pub(crate) fn check_role(participation: &Participation) -> Result<()> {
        let Participation {
            conversation,
            membership,
        } = participation;
        let set = conversation.roles().pin;
        let needed = match conversation.is_large {
            true => set.unwrap_or(Role::Admin),
            false => set.unwrap_or(Role::Member),
        };
        if membership.role.covers(needed) {
            return Ok(());
        }
        Err(Error::Forbidden(match (needed, set) {
            (Role::Owner, _) => "only an owner of this group may pin and unpin messages",
            (_, Some(_)) => "only an owner or admin of this group may pin and unpin messages",
            (_, None) => {
                "only an owner or admin of a large conversation may pin and unpin messages"
            }
        }))
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
