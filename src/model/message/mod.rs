//! Messages with their pins and steps, and the idempotency keys and input hashes that detect retries.

mod erasure;
mod mentions;
mod pin;
mod steps;

use sha2::{Digest, Sha256};

pub use self::mentions::Mentions;
pub use self::pin::{Pin, PinKey};
pub use self::steps::{MessageStep, MessageStepState, MessageSteps, StepsError};
use super::{
    Content, ConversationId, ConversationProfile, MessageId, Metadata, PostingRoles, TextError,
    Timestamp, UserId,
};

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
    /// `None` after a deletion.
    pub content: Option<Content>,
    pub reply_to: Option<MessageId>,
    pub client_key: Option<IdempotencyKey>,
    pub deleted_at: Option<Timestamp>,
    /// Whether any user has ever reacted. If not, readers skip the query for reactions.
    pub has_reactions: bool,
    /// `None` if the message was never pinned, and after a deletion.
    #[serde(skip)]
    pub pin: Option<Box<Pin>>,
}

impl Message {
    /// A message as it is sent, without a reply and a client key.
    pub fn new(
        conversation: ConversationId,
        id: MessageId,
        sender: UserId,
        kind: MessageKind,
        content: Content,
    ) -> Self {
        Self {
            conversation,
            id,
            sender,
            kind,
            content: Some(content),
            reply_to: None,
            client_key: None,
            deleted_at: None,
            has_reactions: false,
            pin: None,
        }
    }

    /// The mentions of a message that is not deleted.
    pub fn mentions(&self) -> Option<&Mentions> {
        let content = self.content.as_ref()?;
        Some(&content.mentions).filter(|mentions| !mentions.is_empty())
    }

    /// The users whose mentions are counted, and whether that of everyone is. A sender is not mentioned by themselves,
    /// and mentions of agents are not counted.
    pub fn counted_mentions(&self) -> (impl Iterator<Item = &UserId>, bool) {
        let mentions = self.mentions();
        let users = mentions.into_iter().flat_map(Mentions::users);
        let users = users.filter(|user| **user != self.sender && !user.is_agent());
        (users, mentions.is_some_and(|mentions| mentions.everyone))
    }

    /// Whether the message counts as an unread mention for this user until the user reads it.
    pub fn counts_as_mention_for(&self, user: &UserId) -> bool {
        let is_mention = self
            .mentions()
            .is_some_and(|mentions| mentions.concern(user));
        is_mention && self.counts_as_unread_for(user)
    }

    /// The pin of a message that is pinned now.
    pub fn current_pin(&self) -> Option<&Pin> {
        self.pin.as_deref().filter(|pin| pin.is_on)
    }

    /// Whether the message counts as unread for this user until the user reads it.
    pub fn counts_as_unread_for(&self, user: &UserId) -> bool {
        self.kind == MessageKind::Text && self.sender != *user && self.deleted_at.is_none()
    }
}

/// Idempotency key of a client, which identifies retries of the same send: 1 to 64 bytes of printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    pub const BYTES_MAX: usize = 64;
    /// Deduplication window: a retry within this time returns the first result.
    pub const LIFETIME_MICROS: i64 = 24 * 3_600 * 1_000_000;

    pub fn parse(text: &str) -> Result<Self, TextError> {
        if text.is_empty() {
            return Err(TextError::Blank);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(TextError::TooLong {
                bytes: text.len(),
                bytes_max: Self::BYTES_MAX,
            });
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

/// SHA-256 of an input. It detects a different input under the same idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct InputHash(pub [u8; 32]);

impl InputHash {
    /// Hash of a send: its content, mentions and steps included, and the message that it replies to. A server that sends what a silent
    /// writer left sends the same.
    pub fn of_send(content: &Content, reply_to: Option<MessageId>) -> Self {
        // Metadata counts by its value: the order of keys and the spelling of numbers make no other send.
        let metadata = content.metadata.as_ref().map(Metadata::canonical);
        let input = (
            content.body.as_str(),
            &content.attachments,
            metadata,
            reply_to,
        );
        let parts = content.input_parts();
        // Without mentions and parts the bytes are those of the first version.
        if !parts.is_empty() {
            Self::of(&(input, &content.mentions, parts))
        } else if !content.mentions.is_empty() {
            Self::of(&(input, &content.mentions))
        } else {
            Self::of(&input)
        }
    }

    /// Hash of the send that an imported message came from, computed from its current content. No client can send the empty content of a
    /// deleted message, so a retry of a deleted one conflicts instead of creating a second message.
    pub fn of_imported(message: &Message) -> Self {
        Self::of_send(
            &message.content.clone().unwrap_or_default(),
            message.reply_to,
        )
    }

    /// Hash of a new group: its name, its participants in any order, its profile and its posting roles.
    pub fn of_group(
        name: &str,
        users: &[UserId],
        profile: &ConversationProfile,
        roles: PostingRoles,
    ) -> Self {
        let mut users: Vec<_> = users.iter().collect();
        users.sort_unstable();
        users.dedup();
        if !roles.is_default() {
            return Self::of(&(name, users, profile, roles));
        }
        if !profile.is_empty() {
            return Self::of(&(name, users, profile));
        }
        // Without a profile the bytes are those of the first version.
        Self::of(&(name, users))
    }

    /// Hash of a new group with an app key: all of its input, and its owner.
    pub fn of_app_key(group: Self, owner: &UserId) -> Self {
        Self::of(&(group.0, owner))
    }

    fn of(input: &impl serde::Serialize) -> Self {
        // postcard prefixes each part with its length, so different inputs have different bytes.
        let bytes = postcard::to_stdvec(input).expect("plain data serialises");
        Self(Sha256::digest(bytes).into())
    }
}
