//! Changes: events of a conversation other than a new message.

use super::{ChangeId, Content, MessageId, UserId};

/// One change of a conversation. Resumed streams replay changes after their cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub id: ChangeId,
    pub kind: ChangeKind,
    /// The changed message, or the SYSTEM message that announces the change.
    pub message: MessageId,
    /// The user who made the change. For changes of a participant: that participant.
    pub user: UserId,
}

/// Stores persist the index in this list, so never reorder it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum ChangeKind {
    MessageEdited,
    MessageDeleted,
    ParticipantAdded,
    ParticipantRemoved,
    RoleChanged,
    ConversationRenamed,
    /// The message itself, if it became visible long after its id was allocated.
    MessageLate,
    /// A user added or removed a reaction to the message.
    ReactionsChanged,
}

/// Revision of a message: new content, or its deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revision {
    Content(Content),
    /// Removes the content and keeps the message as a tombstone. A deletion wins over every edit.
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
