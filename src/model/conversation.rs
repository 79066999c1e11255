//! Conversations and those who take part in them.

use super::content::parse_line;
use super::{ConversationId, InputHash, OrderKey, TextError, Timestamp, UserId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ConversationKind {
    Direct,
    Group,
}

/// What is told of a conversation apart from its messages.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Conversation {
    pub id: ConversationId,
    pub kind: ConversationKind,
    pub name: Option<GroupName>,
    pub created_at: Timestamp,
    pub created_by: Option<UserId>,
    /// Of the input that made it, where an idempotency key did.
    pub input_hash: Option<InputHash>,
    /// More than [`Conversation::FAN_OUT_MAX`] participants, now or once: its sends write no inbox rows.
    pub is_large: bool,
}

impl Conversation {
    /// The most participants whose inboxes a send writes. One more, and the conversation is large for good.
    pub const FAN_OUT_MAX: usize = 32;
    pub const PARTICIPANTS_MAX: usize = 20_000;
    /// Usernames in one call.
    pub const USERNAMES_MAX: usize = 50;
}

/// The name of a conversation, within its bound.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct GroupName(String);

impl GroupName {
    pub const BYTES_MAX: usize = 256;

    pub fn parse(text: &str) -> Result<Self, TextError> {
        parse_line(text, Self::BYTES_MAX)?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Role {
    Owner,
    Admin,
    Member,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MembershipState {
    Joined,
    Left,
}

/// One user's part in one conversation: a single value, written as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Membership {
    pub state: MembershipState,
    pub role: Role,
    /// When it took this state. `None`: since the conversation was made.
    pub since: Option<Timestamp>,
}

impl Membership {
    pub const fn joined(role: Role) -> Self {
        Self { state: MembershipState::Joined, role, since: None }
    }

    pub fn is_joined(&self) -> bool {
        self.state == MembershipState::Joined
    }

    /// Where a user stands among those who follow an OWNER: ADMINs first, then the others; among equals those who are there longest, then
    /// by username bytes. The smallest is next.
    pub fn succession<'a>(&self, user: &'a UserId) -> (bool, Option<Timestamp>, &'a UserId) {
        (self.role != Role::Admin, self.since, user)
    }
}

/// A user in a conversation, with the receipts' two maxima.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    pub conversation: ConversationId,
    pub user: UserId,
    pub membership: Membership,
    /// [`OrderKey::MIN`] where nothing was read. Never goes back, unlike the marker in the inbox.
    pub read_up_to: OrderKey,
    pub delivered_up_to: OrderKey,
}
