//! Group policy: which participant may change a group in which way. It decides without the store.
//!
//! Every participant may leave. OWNERs and ADMINs may rename the group, add users, and remove
//! MEMBERs. OWNERs may also remove OWNERs and ADMINs, and set roles. A group always has an OWNER:
//! when the last one leaves, the oldest ADMIN inherits the role, else the oldest participant.
//! ADMINs ban and silence MEMBERs, OWNERs anyone else. Both set the slow mode.

use serde_json::json;

use super::command::group::{BanDraft, GroupCommand};
use crate::chat::access::silenced;
use crate::chat::error::{Error, Result};
use crate::model::{
    ChangeKind, Conversation, ConversationKind, GroupName, Membership, MembershipState, Role,
    Silence, Timestamp, UserId,
};
use crate::store::{MembershipSnapshot, MembershipTransition, TransitionKind};

/// Effects of a group command: what is persisted and published.
#[derive(Default)]
pub(crate) struct GroupDecision {
    pub(crate) name: Option<GroupName>,
    pub(crate) slow_mode_seconds: Option<u32>,
    /// Changes of memberships. The time of a joining or leaving is set with the id.
    pub(crate) transitions: Vec<MembershipTransition>,
    /// Kinds of the changes with the affected users, in the order of their publication.
    pub(crate) changes: Vec<(ChangeKind, UserId)>,
    /// At most one for each user.
    pub(crate) bans: Vec<BanDecision>,
    /// Metadata of the SYSTEM message. `None` for a change that no message announces.
    pub(crate) metadata: Option<serde_json::Value>,
}

/// A ban that is set or lifted. Its moment is that of the change.
#[derive(Debug)]
pub(crate) enum BanDecision {
    Set {
        user: UserId,
        until: Option<Timestamp>,
        reason: Option<String>,
    },
    Lift(UserId),
}

impl GroupDecision {
    fn of_transitions(
        event: &str,
        transitions: Vec<MembershipTransition>,
        changes: Vec<(ChangeKind, UserId)>,
    ) -> Self {
        let usernames: Vec<_> = changes.iter().map(|(_, user)| user.as_str()).collect();
        Self {
            metadata: Some(json!({"event": event, "usernames": usernames})),
            transitions,
            changes,
            ..Self::default()
        }
    }

    /// A change of one user's membership that no message announces.
    fn unannounced(
        transition: MembershipTransition,
        changes: Vec<(ChangeKind, UserId)>,
        bans: Vec<BanDecision>,
    ) -> Self {
        Self {
            transitions: vec![transition],
            changes,
            bans,
            ..Self::default()
        }
    }
}

/// Decides on the commands of one actor, from the memberships that the store has read.
pub(crate) struct GroupPolicy<'a> {
    actor: &'a UserId,
    membership: Membership,
    users: &'a [UserId],
    members: &'a MembershipSnapshot,
    /// Bans and silences end by time.
    now: Timestamp,
}

impl<'a> GroupPolicy<'a> {
    /// `users` are those of [`GroupCommand::concerned`], in the order of `members.memberships`.
    pub(crate) fn new(
        users: &'a [UserId],
        members: &'a MembershipSnapshot,
        now: Timestamp,
    ) -> Result<Self> {
        let actor = users
            .first()
            .expect("the actor is the first concerned user");
        let membership = members
            .memberships
            .first()
            .copied()
            .flatten()
            .filter(Membership::is_joined);
        let membership = membership.ok_or(Error::NotFound("the conversation"))?;
        if members.conversation.kind != ConversationKind::Group {
            return Err(Error::bad_input(
                &["input", "conversationId"],
                "the conversation is direct, not a group",
            ));
        }
        Ok(Self {
            actor,
            membership,
            users,
            members,
            now,
        })
    }

    /// `None` if the command changes nothing.
    pub(crate) fn decide(&self, command: &GroupCommand) -> Result<Option<GroupDecision>> {
        match command {
            GroupCommand::Rename(name) => self.rename(name),
            GroupCommand::Add(users) => self.add(users),
            GroupCommand::Remove(user) => self.remove(user),
            GroupCommand::SetRole(user, role) => self.set_role(user, *role),
            GroupCommand::Leave => Ok(Some(self.leave())),
            GroupCommand::Ban(draft) => self.ban(draft).map(Some),
            GroupCommand::LiftBan(user) => self.lift_ban(user),
            GroupCommand::Silence(user, until) => self.silence(user, *until),
            GroupCommand::Unsilence(user) => self.unsilence(user),
            GroupCommand::SetSlowMode(seconds) => self.set_slow_mode(*seconds),
        }
    }

    fn membership_of(&self, user: &UserId) -> Option<Membership> {
        let index = self.users.iter().position(|known| known == user)?;
        self.members.memberships.get(index).copied().flatten()
    }

    fn require_admin(&self) -> Result<()> {
        match self.membership.role {
            Role::Owner | Role::Admin => Ok(()),
            Role::Member => Err(Error::Forbidden(
                "only an owner or admin of the group may do that",
            )),
        }
    }

    fn rename(&self, name: &GroupName) -> Result<Option<GroupDecision>> {
        self.require_admin()?;
        if self.membership.silence_at(self.now).is_some() {
            return Err(silenced());
        }
        if self.members.conversation.name.as_ref() == Some(name) {
            return Ok(None);
        }
        let changes = vec![(ChangeKind::ConversationRenamed, self.actor.clone())];
        let metadata = json!({"event": "renamed", "usernames": [], "name": name.as_str()});
        Ok(Some(GroupDecision {
            name: Some(name.clone()),
            changes,
            metadata: Some(metadata),
            ..GroupDecision::default()
        }))
    }

    fn set_slow_mode(&self, seconds: u32) -> Result<Option<GroupDecision>> {
        self.require_admin()?;
        if self.members.conversation.slow_mode_seconds == seconds {
            return Ok(None);
        }
        Ok(Some(GroupDecision {
            slow_mode_seconds: Some(seconds),
            changes: vec![(ChangeKind::ConversationUpdated, self.actor.clone())],
            ..GroupDecision::default()
        }))
    }

    fn add(&self, users: &[UserId]) -> Result<Option<GroupDecision>> {
        self.require_admin()?;
        // A banned user is left out without a word.
        let is_new = |user: &&UserId| {
            !self
                .membership_of(user)
                .is_some_and(|one| one.is_joined() || one.is_banned_at(self.now))
        };
        let new: Vec<_> = users.iter().filter(is_new).cloned().collect();
        if new.is_empty() {
            return Ok(None);
        }
        if self.members.participant_count + new.len() as u64 > Conversation::PARTICIPANTS_MAX as u64
        {
            let message = format!(
                "a group has at most {} participants",
                Conversation::PARTICIPANTS_MAX
            );
            return Err(Error::bad_input(&["input", "usernames"], message));
        }
        let transition = |user: &UserId| MembershipTransition {
            user: user.clone(),
            kind: TransitionKind::Joins,
            membership: Membership {
                // Leaving and coming back ends no silence.
                silence: self
                    .membership_of(user)
                    .and_then(|earlier| earlier.silence_at(self.now)),
                ..Membership::joined(Role::Member)
            },
        };
        let transitions = new.iter().map(transition).collect();
        let has_ended_ban = |user: &&UserId| {
            let earlier = self.membership_of(user);
            earlier.is_some_and(|one| one.state == MembershipState::Banned)
        };
        let bans = new.iter().filter(has_ended_ban).cloned();
        let bans = bans.map(BanDecision::Lift).collect();
        let changes = new
            .into_iter()
            .map(|user| (ChangeKind::ParticipantAdded, user))
            .collect();
        Ok(Some(GroupDecision {
            bans,
            ..GroupDecision::of_transitions("joined", transitions, changes)
        }))
    }

    fn remove(&self, user: &UserId) -> Result<Option<GroupDecision>> {
        self.require_admin()?;
        let Some(membership) = self.membership_of(user).filter(Membership::is_joined) else {
            return Ok(None);
        };
        if self.membership.role != Role::Owner && membership.role != Role::Member {
            return Err(Error::Forbidden(
                "only an owner of the group may remove an owner or admin",
            ));
        }
        let changes = vec![(ChangeKind::ParticipantRemoved, user.clone())];
        Ok(Some(GroupDecision::of_transitions(
            "removed",
            vec![leaving(user, membership)],
            changes,
        )))
    }

    fn leave(&self) -> GroupDecision {
        let changes = vec![(ChangeKind::ParticipantRemoved, self.actor.clone())];
        let mut decision = GroupDecision::of_transitions(
            "left",
            vec![leaving(self.actor, self.membership)],
            changes,
        );
        if let (Role::Owner, Some((next, membership))) =
            (self.membership.role, &self.members.successor)
        {
            decision
                .transitions
                .push(staying(next, *membership, Role::Owner));
            decision
                .changes
                .push((ChangeKind::RoleChanged, next.clone()));
        }
        decision
    }

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
    fn ban(&self, draft: &BanDraft) -> Result<GroupDecision> {
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
        Ok(GroupDecision {
            bans,
            ..GroupDecision::of_transitions("removed", vec![transition], changes)
        })
    }

    fn lift_ban(&self, user: &UserId) -> Result<Option<GroupDecision>> {
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

    fn silence(&self, user: &UserId, until: Option<Timestamp>) -> Result<Option<GroupDecision>> {
        let silence = Silence {
            since: self.now,
            until,
        };
        self.set_silence(user, Some(silence))
    }

    fn unsilence(&self, user: &UserId) -> Result<Option<GroupDecision>> {
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

    fn set_role(&self, user: &UserId, role: Role) -> Result<Option<GroupDecision>> {
        if self.membership.role != Role::Owner {
            return Err(Error::Forbidden("only an owner of the group may set roles"));
        }
        let membership = self
            .membership_of(user)
            .filter(Membership::is_joined)
            .ok_or(Error::NotFound("the participant"))?;
        if membership.role == role {
            return Ok(None);
        }
        let is_last_owner = self.members.successor.is_some() || self.members.participant_count == 1;
        if user == self.actor && is_last_owner {
            return Err(Error::bad_input(
                &["input", "role"],
                "a group always has an owner: make another participant an owner first",
            ));
        }
        let mut transitions = vec![staying(user, membership, role)];
        if user != self.actor {
            // Makes an inherited OWNER role explicit, so that the promoted user does not inherit it
            // instead.
            transitions.push(staying(self.actor, self.membership, Role::Owner));
        }
        let mut decision = GroupDecision::of_transitions(
            "roleChanged",
            transitions,
            vec![(ChangeKind::RoleChanged, user.clone())],
        );
        if let Some(metadata) = &mut decision.metadata {
            metadata["role"] = serde_json::to_value(role).expect("a role is a word");
        }
        Ok(Some(decision))
    }
}

fn leaving(user: &UserId, membership: Membership) -> MembershipTransition {
    MembershipTransition {
        user: user.clone(),
        kind: TransitionKind::Leaves,
        membership: Membership {
            state: MembershipState::Left,
            ..membership
        },
    }
}

fn staying(user: &UserId, membership: Membership, role: Role) -> MembershipTransition {
    MembershipTransition {
        user: user.clone(),
        kind: TransitionKind::Stays,
        membership: Membership { role, ..membership },
    }
}
