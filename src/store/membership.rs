//! Changes of the membership of a conversation, and the state that they are decided on.

use std::sync::Arc;

use crate::model::{
    Ban, Change, ChangeKind, Conversation, GroupName, HistorySettings, Membership, Message,
    TimeUuid, UserId,
};

/// The memberships on which a change is decided, read at one moment.
#[derive(Debug, Clone)]
pub struct MembershipSnapshot {
    pub conversation: Arc<Conversation>,
    /// Version of the membership, for a compare-and-set: the SYSTEM message of the last change, or
    /// [`super::NewConversation::change`]. `None` if the conversation was imported and its
    /// membership never changed since.
    pub version: Option<TimeUuid>,
    pub participant_count: u64,
    /// The memberships of the requested users, in their order; those of users who have left
    /// included.
    pub memberships: Vec<Option<Membership>>,
    /// The successor as OWNER if the requested users left. `None` if another OWNER or no other
    /// participant remains.
    pub successor: Option<(UserId, Membership)>,
}

/// The version of the membership of a conversation, for a reader that has checked an earlier one.
#[derive(Debug, Clone)]
pub struct MembershipVersion {
    /// The conversation as it is now.
    pub conversation: Arc<Conversation>,
    /// As [`MembershipSnapshot::version`].
    pub version: Option<TimeUuid>,
    pub participant_count: u64,
    /// The change that led to this version. `None` if the store does not name it.
    pub last_change: Option<LastMembershipChange>,
}

/// The last change of a membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastMembershipChange {
    /// The version before the change.
    pub before: Option<TimeUuid>,
    /// The users who joined or left, and those whose memberships changed otherwise.
    pub moved: Vec<UserId>,
}

impl MembershipVersion {
    /// Whether a user who took part at an earlier version takes part at this one, as far as the last change
    /// tells. False if only the user's own membership can tell.
    pub fn keeps(&self, user: &UserId, earlier: Option<TimeUuid>) -> bool {
        let is_unmoved =
            |last: &LastMembershipChange| last.before == earlier && !last.moved.contains(user);
        self.version == earlier || self.last_change.as_ref().is_some_and(is_unmoved)
    }
}

/// A change of the membership of a conversation.
#[derive(Debug, Clone)]
pub struct MembershipChange {
    /// The [`MembershipSnapshot::version`] that the change was decided on.
    pub seen: Option<TimeUuid>,
    /// At most one for each user.
    pub transitions: Vec<MembershipTransition>,
    /// Entries of the change log; their ids ascend.
    pub changes: Vec<Change>,
    /// The SYSTEM message of the change, without an idempotency key. `None` for a change that nobody
    /// joins or leaves by, and that no message announces.
    pub message: Option<Arc<Message>>,
    /// The next version: the id of the message, else that of the last change. It is the last of all.
    pub version: TimeUuid,
    /// At most one for each user.
    pub bans: Vec<BanChange>,
    /// The settings of the history after the change, if it sets them. If its changes say that the floor rose, and
    /// no message announces that, every inbox entry has changed too.
    pub history: Option<HistorySettings>,
}

impl MembershipChange {
    /// Whether every inbox entry changes, although no message announces the change.
    pub fn raises_history_unannounced(&self) -> bool {
        let is_raise = |change: &Change| change.kind == ChangeKind::HistoryRaised;
        self.message.is_none() && self.changes.iter().any(is_raise)
    }

    /// A change that a SYSTEM message announces, and that concerns no ban.
    pub fn announced(
        seen: Option<TimeUuid>,
        transitions: Vec<MembershipTransition>,
        changes: Vec<Change>,
        message: Arc<Message>,
    ) -> Self {
        Self {
            seen,
            transitions,
            changes,
            version: message.id,
            message: Some(message),
            bans: Vec::new(),
            history: None,
        }
    }
}

/// The part of a membership change that concerns a ban. The membership of the same user changes too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanChange {
    Set(Ban),
    Lift(UserId),
}

/// The part of a membership change that concerns one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MembershipTransition {
    pub user: UserId,
    pub kind: TransitionKind,
    /// The membership after the change. If the user stays or clears, whether they take part is as before.
    pub membership: Membership,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionKind {
    Joins,
    Leaves,
    Stays,
    /// The user stays, and has cleared the history: their inbox entry has changed.
    Clears,
}

impl TransitionKind {
    /// Whether the user comes or goes.
    pub const fn moves(self) -> bool {
        matches!(self, Self::Joins | Self::Leaves)
    }
}

/// A new name of a conversation.
#[derive(Debug, Clone)]
pub struct Renaming {
    pub name: GroupName,
    /// Entry of the change log.
    pub change: Change,
    /// The SYSTEM message of the renaming, without an idempotency key. Its id is the last.
    pub message: Arc<Message>,
}
