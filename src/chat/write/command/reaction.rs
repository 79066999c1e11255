//! Command to put a reaction on or off.

use super::WriterCheck;
use crate::chat::error::{Error, Result};
use crate::model::{Emoji, MessageId};

/// Input path of a refused emoji.
pub(crate) const EMOJI_PATH: &[&str] = &["input", "emoji"];

pub(crate) struct ReactionDraft {
    pub(crate) message: MessageId,
    pub(crate) emoji: Emoji,
    pub(crate) is_on: bool,
    pub(crate) check: WriterCheck,
}

impl ReactionDraft {
    /// Approximate size in a queue.
    pub(crate) const BYTES: usize = 256;

    pub(crate) fn parse(
        message: MessageId,
        emoji: &str,
        is_on: bool,
        check: WriterCheck,
    ) -> Result<Self> {
        let emoji = Emoji::parse(emoji)
            .map_err(|error| Error::bad_input(EMOJI_PATH, format!("the emoji {error}")))?;
        Ok(Self {
            message,
            emoji,
            is_on,
            check,
        })
    }
}
