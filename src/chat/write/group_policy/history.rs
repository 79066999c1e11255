//! Decisions on the history of a conversation.
//!
//! OWNERs set the visibility and the expiry of a group, and truncate it. In a direct conversation each participant
//! asks for an expiry, and the longer one holds. So nobody alone destroys the history of both.

use serde_json::json;

use super::{GroupDecision, GroupPolicy, staying};
use crate::chat::access::floor::bound_before;
use crate::chat::error::{Error, Result};
use crate::chat::write::command::history::HistoryCommand;
use crate::model::{
    ChangeKind, ConversationKind, HistorySettings, HistoryVisibility, Membership, OrderKey, Role,
    Timestamp, UserId,
};
use crate::store::{MembershipTransition, TransitionKind};

impl GroupPolicy<'_> {
    pub(super) fn decide_history(&self, command: &HistoryCommand) -> Result<Option<GroupDecision>> {
        match command {
            HistoryCommand::SetVisibility(visibility) => self.set_visibility(*visibility),
            HistoryCommand::SetExpiry { seconds, peer } => match self.members.conversation.kind {
                ConversationKind::Group => self.set_expiry(*seconds),
                ConversationKind::Direct => Ok(self.ask_expiry(*seconds, peer.as_ref())),
            },
            HistoryCommand::Truncate { up_to } => {
                self.require_owner()?;
                Ok(self.truncate(up_to.order_key()))
            }
            HistoryCommand::Clear { up_to } => Ok(self.clear(*up_to)),
        }
    }

    pub(super) fn require_owner(&self) -> Result<()> {
        if self.membership.role == Role::Owner {
            Ok(())
        } else {
            Err(Error::Forbidden("only an owner of the group may do that"))
        }
    }

    pub(super) fn settings(&self) -> HistorySettings {
        self.members.conversation.history
    }

    fn set_visibility(&self, visibility: HistoryVisibility) -> Result<Option<GroupDecision>> {
        self.require_owner()?;
        if self.settings().visibility == visibility {
            return Ok(None);
        }
        let metadata =
            json!({"event": "visibilityChanged", "usernames": [], "visibility": visibility});
        Ok(Some(GroupDecision {
            history: Some(HistorySettings {
                visibility,
                ..self.settings()
            }),
            changes: vec![(ChangeKind::ConversationUpdated, self.actor.clone())],
            metadata: Some(metadata),
            ..GroupDecision::default()
        }))
    }

    fn set_expiry(&self, seconds: Option<u32>) -> Result<Option<GroupDecision>> {
        self.require_owner()?;
        Ok(self.with_expiry(seconds))
    }

    /// The decision on the expiry of all messages. `None` if it is so already.
    fn with_expiry(&self, seconds: Option<u32>) -> Option<GroupDecision> {
        let before = self.settings();
        if before.ttl_seconds == seconds {
            return None;
        }
        let mut changes = vec![(ChangeKind::ConversationUpdated, self.actor.clone())];
        let is_shorter =
            seconds.is_some_and(|after| before.ttl_seconds.is_none_or(|before| after < before));
        if is_shorter {
            changes.push((ChangeKind::HistoryRaised, self.actor.clone()));
        }
        let metadata = json!({"event": "expiryChanged", "usernames": [], "seconds": seconds});
        Some(GroupDecision {
            history: Some(HistorySettings {
                ttl_seconds: seconds,
                ..before
            }),
            expired_by: before.ttl_seconds,
            changes,
            metadata: Some(metadata),
            ..GroupDecision::default()
        })
    }

    fn ask_expiry(&self, seconds: Option<u32>, peer: Option<&UserId>) -> Option<GroupDecision> {
        if self.membership.asked_ttl_seconds == seconds {
            return None;
        }
        let membership = Membership {
            asked_ttl_seconds: seconds,
            ..self.membership
        };
        let transition = staying(self.actor, membership, membership.role);
        let asked = (ChangeKind::ParticipantUpdated, self.actor.clone());
        let of_peer = peer.and_then(|peer| self.membership_of(peer));
        let held = match of_peer.map(|peer| peer.asked_ttl_seconds) {
            // Never is the longest.
            Some(of_peer) => seconds.zip(of_peer).map(|(one, other)| one.max(other)),
            None => seconds,
        };
        let mut decision = self.with_expiry(held).unwrap_or_default();
        decision.transitions.push(transition);
        decision.changes.insert(0, asked);
        Some(decision)
    }

    fn truncate(&self, up_to: OrderKey) -> Option<GroupDecision> {
        if self.settings().floor >= up_to {
            return None;
        }
        Some(GroupDecision {
            history: Some(HistorySettings {
                floor: up_to,
                ..self.settings()
            }),
            changes: vec![(ChangeKind::HistoryRaised, self.actor.clone())],
            ..GroupDecision::default()
        })
    }

    fn clear(&self, up_to: OrderKey) -> Option<GroupDecision> {
        if self.membership.cleared_up_to >= up_to {
            return None;
        }
        let membership = Membership {
            cleared_up_to: up_to,
            ..self.membership
        };
        Some(GroupDecision {
            transitions: vec![MembershipTransition {
                user: self.actor.clone(),
                kind: TransitionKind::Clears,
                membership,
            }],
            ..GroupDecision::default()
        })
    }

    /// The bound of users who join, where the setting does not say that it is the joining. It is never
    /// before the bound of the user who adds them.
    pub(super) fn bound_of_joiners(&self, visible_from: Option<Timestamp>) -> OrderKey {
        match visible_from {
            Some(from) => bound_before(from.min(self.now)).max(self.membership.visible_from),
            None => OrderKey::MIN,
        }
    }

    /// Whether users who join without a bound of their own see the messages from then on.
    pub(super) fn is_visible_since_joining(&self, visible_from: Option<Timestamp>) -> bool {
        visible_from.is_none() && self.settings().visibility == HistoryVisibility::SinceJoined
    }
}
