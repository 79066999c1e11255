//! Changes: events of a conversation other than a new message.

use strum::{FromRepr, VariantArray};

use super::{ChangeId, Content, Mentions, Message, MessageId, Timestamp, UserId};

/// One change of a conversation. Resumed streams replay changes after their cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub id: ChangeId,
    pub kind: ChangeKind,
    /// The changed message, or the SYSTEM message that announces the change. A change that no message
    /// announces repeats its id.
    pub message: MessageId,
    /// The user who made the change. For changes of a participant: that participant.
    pub user: UserId,
}

/// Stores persist the index in this list, so never reorder it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    FromRepr,
    VariantArray,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(u8)]
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
    /// A participant was silenced, or may write again. No message announces it.
    ParticipantUpdated,
    /// A setting of the conversation changed. No message announces it.
    ConversationUpdated,
    /// A user pinned or unpinned the message.
    PinsChanged,
    /// Messages are gone for everyone: the floor of the conversation rose.
    HistoryRaised,
}

/// Revision of a message: new content, or its deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revision {
    Edit {
        content: Content,
        /// The users whom the message did not mention before.
        newly_mentioned: Mentions,
    },
    /// Removes the content and keeps the message as a tombstone. A deletion wins over every edit.
    Deletion,
}

impl Revision {
    /// The message after the revision at a moment.
    pub fn apply(&self, message: Message, at: Timestamp) -> Message {
        match self {
            Self::Edit { content, .. } => Message {
                content: Some(content.clone()),
                ..message
            },
            Self::Deletion => Message {
                content: None,
                deleted_at: Some(at),
                pin: None,
                ..message
            },
        }
    }
}

impl ChangeKind {
    /// Index in the list of variants.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether it changes a message, and not the conversation or a participant.
    pub const fn is_of_message(self) -> bool {
        matches!(
            self,
            Self::MessageEdited
                | Self::MessageDeleted
                | Self::MessageLate
                | Self::ReactionsChanged
                | Self::PinsChanged
        )
    }

    /// Whether the entry of an inbox may show a change of this kind. No entry shows reactions and pins.
    pub const fn shows_in_inboxes(self) -> bool {
        !matches!(self, Self::ReactionsChanged | Self::PinsChanged)
    }
}

impl Revision {
    /// An edit that mentions nobody anew.
    pub const fn edit(content: Content) -> Self {
        Self::Edit {
            content,
            newly_mentioned: Mentions::NONE,
        }
    }

    /// The users whom the revision mentions anew.
    pub fn newly_mentioned(&self) -> &Mentions {
        static NOBODY: Mentions = Mentions::NONE;
        match self {
            Self::Edit {
                newly_mentioned, ..
            } => newly_mentioned,
            Self::Deletion => &NOBODY,
        }
    }

    pub const fn kind(&self) -> ChangeKind {
        match self {
            Self::Edit { .. } => ChangeKind::MessageEdited,
            Self::Deletion => ChangeKind::MessageDeleted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_number() {
        for (index, kind) in ChangeKind::VARIANTS.iter().copied().enumerate() {
            assert_eq!(usize::from(kind.number()), index);
            assert_eq!(ChangeKind::from_repr(kind.number()), Some(kind));
        }
        assert_eq!(ChangeKind::from_repr(200), None);
    }
}
