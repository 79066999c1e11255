//! Creation of a conversation, and a user's participation in one.

use std::sync::Arc;

use crate::model::{ChangeId, Conversation, ConversationProfile, Membership, Role, UserId};

/// A conversation to create, with its participants.
#[derive(Debug, Clone)]
pub struct NewConversation {
    pub conversation: Conversation,
    /// At least one, all different. More than [`Conversation::FAN_OUT_MAX`] make it large.
    pub participants: Vec<(UserId, Role)>,
    /// Id of the creation in the participants' `changes_by_user`.
    pub change: ChangeId,
    pub profile: ConversationProfile,
}

/// Result of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    New,
    /// The conversation that has the id, or the pair, already, with the input that made it.
    /// Nothing was changed.
    Existing(Arc<Conversation>),
}

/// A user's participation in a conversation.
#[derive(Debug, Clone)]
pub struct Participation {
    pub conversation: Arc<Conversation>,
    pub membership: Membership,
}
