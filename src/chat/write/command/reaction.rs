//! Command to put a reaction on or off.

use super::WriterCheck;
use crate::chat::error::{Error, Result};
use crate::model::{Emoji, MessageId, Role, UserId};

/// Input path of a refused emoji.
pub(crate) const EMOJI_PATH: &[&str] = &["input", "emoji"];

pub(crate) struct ReactionDraft {
    pub(crate) message: MessageId,
    pub(crate) emoji: Emoji,
    /// User of the reaction, who may be another one than the actor.
    pub(crate) user: UserId,
    pub(crate) is_on: bool,
    pub(crate) check: WriterCheck,
}

impl ReactionDraft {
    pub(crate) fn parse(
        message: MessageId,
        emoji: &str,
        user: UserId,
        is_on: bool,
        check: WriterCheck,
    ) -> Result<Self> {
        let parsed = match is_on {
            true => Emoji::parse(emoji),
            false => Emoji::parse_existing(emoji),
        };
        let emoji =
            parsed.map_err(|error| Error::bad_input(EMOJI_PATH, format!("the emoji {error}")))?;
        Ok(Self {
            message,
            emoji,
            user,
            is_on,
            check,
        })
    }

    /// Reactions are moderated as messages are: an OWNER or ADMIN of a group removes those of others.
    pub(crate) fn check_role(role: Role) -> Result<()> {
        match role {
            Role::Owner | Role::Admin => Ok(()),
            Role::Member => Err(Error::Forbidden(
                "only its user, or an owner or admin of the group, may remove a reaction",
            )),
        }
    }
}
