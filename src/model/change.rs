//! What alters a conversation other than a new message.

use super::{ChangeId, Content, MessageId, UserId};

/// One change, by which streams that were away learn of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub id: ChangeId,
    pub kind: ChangeKind,
    /// The message that it is about, or the SYSTEM message that tells of it.
    pub message: MessageId,
    /// Who did it. Where a participant is another than before: who that is.
    pub user: UserId,
}

/// Never reordered: stores keep the place in this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum ChangeKind {
    MessageEdited,
    MessageDeleted,
    ParticipantAdded,
    ParticipantRemoved,
    RoleChanged,
    ConversationRenamed,
    /// The message itself, which became visible long after its id.
    MessageLate,
    /// Somebody reacted to the message, or does not any more.
    ReactionsChanged,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revision {
    Content(Content),
    /// Its content goes; itself it stays. Wins over every edit.
    Deletion,
}

impl Revision {
    pub const fn kind(&self) -> ChangeKind {
        match self {
            Self::Content(_) => ChangeKind::MessageEdited,
            Self::Deletion => ChangeKind::MessageDeleted,
        }
    }
}
