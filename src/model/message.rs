//! Messages, and what makes a retry of a send recognisable.

use sha2::{Digest, Sha256};

use super::{Content, ConversationId, MessageId, TextError, Timestamp, UserId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MessageKind {
    Text,
    System,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    pub conversation: ConversationId,
    pub id: MessageId,
    pub sender: UserId,
    pub kind: MessageKind,
    /// `None` once deleted.
    pub content: Option<Content>,
    pub reply_to: Option<MessageId>,
    pub client_key: Option<IdempotencyKey>,
    pub deleted_at: Option<Timestamp>,
    /// Whether anybody ever reacted to it. Without, there is no reaction to be read.
    pub has_reactions: bool,
}

impl Message {
    /// Whether it is one of those that somebody else has yet to read.
    pub fn counts_as_unread_for(&self, user: &UserId) -> bool {
        self.kind == MessageKind::Text && self.sender != *user && self.deleted_at.is_none()
    }
}

/// By which a client recognises its own send, and we its retry: 1 to 64 bytes of printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    pub const BYTES_MAX: usize = 64;
    /// For how long a retry is recognised.
    pub const LIFETIME_MICROS: i64 = 24 * 3_600 * 1_000_000;

    pub fn parse(text: &str) -> Result<Self, TextError> {
        if text.is_empty() {
            return Err(TextError::Blank);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(TextError::TooLong { bytes: text.len(), bytes_max: Self::BYTES_MAX });
        }
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(TextError::Control);
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// SHA-256 of an input, by which another input under the same key is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct InputHash(pub [u8; 32]);

impl InputHash {
    /// Of a send: what it says and what it answers.
    pub fn of_send(content: &Content, reply_to: Option<MessageId>) -> Self {
        let input = (content.body.as_str(), &content.attachments, content.metadata.as_ref(), reply_to);
        Self::of(&input)
    }

    /// Of the send of a message as far as the message still says it. Nobody can send what a deletion leaves: a retry is then a conflict,
    /// and no second message.
    pub fn of_imported(message: &Message) -> Self {
        Self::of_send(&message.content.clone().unwrap_or_default(), message.reply_to)
    }

    /// Of a new group: its name and its people, in any order.
    pub fn of_group(name: &str, users: &[UserId]) -> Self {
        let mut users: Vec<_> = users.iter().collect();
        users.sort_unstable();
        users.dedup();
        Self::of(&(name, users))
    }

    fn of(input: &impl serde::Serialize) -> Self {
        // postcard puts a length before each part, so that no two inputs have the same bytes.
        let bytes = postcard::to_stdvec(input).expect("plain data serialises");
        Self(Sha256::digest(bytes).into())
    }
}
