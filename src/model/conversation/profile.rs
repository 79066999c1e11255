//! Profile of a conversation, and the key under which an app knows it.

use super::Conversation;
use crate::model::text::{TextError, parse_line};
use crate::model::{ConversationId, InputHash, Metadata};

/// Profile of a conversation: the fields that an app shows beside its name. Membership reads and sends do not read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ConversationProfile {
    pub description: Option<String>,
    pub avatar_url: Option<String>,
    /// The app's own data, which services write.
    pub metadata: Option<Metadata>,
    /// It is given at the creation, and never changes.
    pub app_key: Option<AppKey>,
}

/// Key of an app for one conversation of a deployment: one line of bounded length.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct AppKey(String);

impl AppKey {
    pub const BYTES_MAX: usize = 128;

    pub fn parse(text: &str) -> Result<Self, TextError> {
        parse_line(text, Self::BYTES_MAX)?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Claim of an app key: the conversation that has it, or will have it once a creation is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AppKeyClaim {
    pub conversation: ConversationId,
    /// Hash of the input of the creation. `None` for an imported conversation without one.
    pub input_hash: Option<InputHash>,
}

impl AppKeyClaim {
    /// The claim of a conversation that has all of its input.
    pub fn of(conversation: &Conversation) -> Self {
        let input = conversation
            .input_hash
            .zip(conversation.created_by.as_ref());
        Self {
            conversation: conversation.id,
            input_hash: input.map(|(hash, owner)| InputHash::of_app_key(hash, owner)),
        }
    }

    /// Whether it is of the same input, as far as that is known.
    pub fn is_of(&self, input_hash: InputHash) -> bool {
        self.input_hash.is_none_or(|known| known == input_hash)
    }
}

impl ConversationProfile {
    pub const DESCRIPTION_BYTES_MAX: usize = 1_024;

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
