//! Decisions on bans and silences.

use super::{BanDecision, GroupDecision, GroupPolicy, staying};
use crate::chat::error::{Error, Result};
use crate::chat::write::command::group::BanDraft;
use crate::model::{ChangeKind, Membership, MembershipState, Role, Silence, Timestamp, UserId};
use crate::store::{MembershipTransition, TransitionKind};

impl GroupPolicy<'_> {
    /// An ADMIN bans and silences MEMBERs, an OWNER anyone else. A user who does not take part counts as
    /// a MEMBER.
    fn require_moderator(&self, of: Option<Membership>) -> Result<()> {
        self.require_admin()?;
        let role = of.filter(Membership::is_joined).map(|one| one.role);
        let is_member = role.is_none_or(|role| role == Role::Member);
        if self.membership.role != Role::Owner && !is_member {
            return Err(Error::Forbidden(
                "only an owner of the group may do that to an owner or admin",
            ));
        }
        Ok(())
    }

    /// A second ban replaces the first.
    pub(super) fn ban(&self, draft: &BanDraft) -> Result<GroupDecision> {
        let BanDraft {
            user,
            until,
            reason,
        } = draft;
        let earlier = self.membership_of(user);
        self.require_moderator(earlier)?;
        let bans = vec![BanDecision::Set {
            user: user.clone(),
            until: *until,
            reason: reason.clone(),
        }];
        let membership = Membership {
            state: MembershipState::Banned,
            banned_until: *until,
            ..earlier.unwrap_or(Membership::joined(Role::Member))
        };
        if !earlier.is_some_and(|earlier| earlier.is_joined()) {
            let transition = staying(user, membership, membership.role);
            return Ok(GroupDecision::unannounced(transition, Vec::new(), bans));
        }
        let transition = MembershipTransition {
            user: user.clone(),
            kind: TransitionKind::Leaves,
            membership,
        };
        let changes = vec![(ChangeKind::ParticipantRemoved, user.clone())];
        let decision = GroupDecision {
            bans,
            ..GroupDecision::of_transitions("removed", vec![transition], changes)
        };
        Ok(self.inherited(membership.role, decision))
    }

    pub(super) fn lift_ban(&self, user: &UserId) -> Result<Option<GroupDecision>> {
        self.require_admin()?;
        let Some(earlier) = self
            .membership_of(user)
            .filter(|one| one.is_banned_at(self.now))
        else {
            return Ok(None);
        };
        let membership = Membership {
            state: MembershipState::Left,
            banned_until: None,
            ..earlier
        };
        let transition = staying(user, membership, membership.role);
        let bans = vec![BanDecision::Lift(user.clone())];
        let decision = GroupDecision::unannounced(transition, Vec::new(), bans);
        Ok(Some(decision))
    }

    pub(super) fn silence(
        &self,
        user: &UserId,
        until: Option<Timestamp>,
    ) -> Result<Option<GroupDecision>> {
        let silence = Silence {
            since: self.now,
            until,
        };
        self.set_silence(user, Some(silence))
    }

    pub(super) fn unsilence(&self, user: &UserId) -> Result<Option<GroupDecision>> {
        self.set_silence(user, None)
    }

    fn set_silence(
        &self,
        user: &UserId,
        silence: Option<Silence>,
    ) -> Result<Option<GroupDecision>> {
        let earlier = self.membership_of(user).filter(Membership::is_joined);
        self.require_moderator(earlier)?;
        let earlier = earlier.ok_or(Error::NotFound("the participant"))?;
        let end = |silence: Option<Silence>| silence.map(|silence| silence.until);
        if end(earlier.silence_at(self.now)) == end(silence) {
            return Ok(None);
        }
        let membership = Membership { silence, ..earlier };
        let transition = staying(user, membership, membership.role);
        let changes = vec![(ChangeKind::ParticipantUpdated, user.clone())];
        let decision = GroupDecision::unannounced(transition, changes, Vec::new());
        Ok(Some(decision))
    }
}
