//! Events of a conversation as its streams deliver them.

use std::sync::Arc;

use crate::model::{Change, ChangeKind, Message, UserId};

#[derive(Debug, Clone)]
pub enum ConversationEvent {
    MessageAdded(Arc<Message>),
    /// The message in its current state.
    MessageChanged(ChangeKind, Arc<Message>),
    ParticipantAdded(UserId),
    ParticipantRemoved(UserId),
    RoleChanged(UserId),
    Renamed,
    ParticipantUpdated(UserId),
    ConversationUpdated,
    HistoryExpired,
    MarkerMoved(UserId),
}

impl ConversationEvent {
    /// The event of a change. `None` for changes of messages.
    pub(crate) fn of_change(change: &Change) -> Option<Self> {
        let user = || change.user.clone();
        match change.kind {
            ChangeKind::MessageEdited
            | ChangeKind::MessageDeleted
            | ChangeKind::ReactionsChanged
            | ChangeKind::PinsChanged
            | ChangeKind::MessageLate => None,
            ChangeKind::ParticipantAdded => Some(Self::ParticipantAdded(user())),
            ChangeKind::ParticipantRemoved => Some(Self::ParticipantRemoved(user())),
            ChangeKind::RoleChanged => Some(Self::RoleChanged(user())),
            ChangeKind::ConversationRenamed => Some(Self::Renamed),
            ChangeKind::ParticipantUpdated => Some(Self::ParticipantUpdated(user())),
            ChangeKind::ConversationUpdated => Some(Self::ConversationUpdated),
            ChangeKind::HistoryRaised => Some(Self::HistoryExpired),
        }
    }

    /// The message that the event shows.
    pub fn message(&self) -> Option<&Arc<Message>> {
        match self {
            Self::MessageAdded(message) | Self::MessageChanged(_, message) => Some(message),
            Self::ParticipantAdded(_)
            | Self::ParticipantRemoved(_)
            | Self::RoleChanged(_)
            | Self::Renamed
            | Self::ParticipantUpdated(_)
            | Self::ConversationUpdated
            | Self::HistoryExpired
            | Self::MarkerMoved(_) => None,
        }
    }
}

/// Whether a message shows the effect of a change. On a cluster, the log and the message may become
/// visible one after the other.
pub(crate) fn is_visible_in(change: &Change, message: Option<&Message>) -> bool {
    let is_unannounced = matches!(
        change.kind,
        ChangeKind::ParticipantUpdated
            | ChangeKind::ConversationUpdated
            | ChangeKind::HistoryRaised
    );
    let is_silent_leaving = change.message == change.id;
    if is_unannounced || is_silent_leaving {
        // The participant and the setting are written with the log, or before it.
        return true;
    }
    let Some(message) = message else { return false };
    match change.kind {
        ChangeKind::MessageDeleted => message.deleted_at.is_some(),
        ChangeKind::MessageEdited => {
            let edited_at = message
                .content
                .as_ref()
                .and_then(|content| content.edited_at);
            message.deleted_at.is_some() || edited_at >= Some(change.id.moment())
        }
        ChangeKind::PinsChanged => {
            let pinned = message.pin.as_ref().map(|pin| pin.change);
            message.deleted_at.is_some() || pinned >= Some(change.id)
        }
        // Reactions are counted when they are rendered.
        ChangeKind::ReactionsChanged
        | ChangeKind::MessageLate
        | ChangeKind::ParticipantAdded
        | ChangeKind::ParticipantRemoved
        | ChangeKind::RoleChanged
        | ChangeKind::ConversationRenamed
        | ChangeKind::ParticipantUpdated
        | ChangeKind::ConversationUpdated
        | ChangeKind::HistoryRaised => true,
    }
}
