//! Group policy: which participant may change a group in which way. It decides without the store.
//!
//! Every participant may leave. OWNERs and ADMINs may rename the group, add users, and remove
//! MEMBERs. OWNERs may also remove OWNERs and ADMINs, and set roles. A group always has an OWNER:
//! when the last one leaves, the oldest ADMIN inherits the role, else the oldest participant.
//! ADMINs ban and silence MEMBERs, OWNERs anyone else. Both set the slow mode, the description and the picture. A silence takes all these rights for
//! its time. A service under its own name has the
//! rights of an OWNER in every group, and is never silenced. When it removes the last OWNER, the role is inherited too.

mod history;
mod moderation;
mod posting;

use serde_json::json;

use super::command::group::GroupCommand;
use crate::chat::access::authority::Authority;
use crate::chat::access::silenced;
use crate::chat::error::{Error, Result};
use crate::model::{
    ChangeKind, Conversation, ConversationKind, GroupName, HistorySettings, Membership,
    MembershipState, OrderKey, Role, Timestamp, UserId,
};
use crate::store::{
    ConversationProfileChange, MembershipSnapshot, MembershipTransition, TransitionKind,
};

/// Effects of a group command: what is persisted and published.
#[derive(Default)]
pub(crate) struct GroupDecision {
    pub(crate) name: Option<GroupName>,
    pub(crate) slow_mode_seconds: Option<u32>,
    pub(crate) profile: Option<ConversationProfileChange>,
    /// Settings of the history after the change.
    pub(crate) history: Option<HistorySettings>,
    /// The expiry before, in seconds: messages that have expired by it at the position of the change stay away.
    pub(crate) expired_by: Option<u32>,
    /// Whether users who join see the messages from their joining on.
    pub(crate) is_visible_since_joining: bool,
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
    /// The actor's rights.
    membership: Membership,
    /// Whether the actor is a participant with the role OWNER.
    is_own_owner: bool,
    users: &'a [UserId],
    members: &'a MembershipSnapshot,
    /// Bans and silences end by time.
    now: Timestamp,
}

impl<'a> GroupPolicy<'a> {
    /// `users` are those of [`GroupCommand::concerned`], in the order of `members.memberships`.
    pub(crate) fn new(
        users: &'a [UserId],
        authority: Authority,
        members: &'a MembershipSnapshot,
        now: Timestamp,
        command: &GroupCommand,
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
        let is_own_owner = membership.is_some_and(|own| own.role == Role::Owner);
        let membership = match authority {
            Authority::Membership => membership.ok_or(Error::NotFound("the conversation"))?,
            Authority::Service => Membership::joined(Role::Owner),
        };
        if members.conversation.kind != ConversationKind::Group && !command.is_for_direct(authority)
        {
            return Err(Error::bad_input(
                &["input", "conversationId"],
                "the conversation is direct, not a group",
            ));
        }
        Ok(Self {
            actor,
            membership,
            is_own_owner,
            users,
            members,
            now,
        })
    }

    /// The role of OWNER for the successor, if one of those whom the succession has passed over has it: they have
    /// it by the succession alone. They are the last of the users whose memberships were read.
    pub(crate) fn succession(
        passed_over: &[UserId],
        members: &MembershipSnapshot,
    ) -> Option<GroupDecision> {
        let (next, membership) = members.successor.as_ref()?;
        let of_passed_over = members.memberships.iter().rev().take(passed_over.len());
        let is_owner = |one: &Membership| one.is_joined() && one.role == Role::Owner;
        if passed_over.contains(next) || !of_passed_over.flatten().any(is_owner) {
            return None;
        }
        let transition = staying(next, *membership, Role::Owner);
        let changes = vec![(ChangeKind::RoleChanged, next.clone())];
        Some(GroupDecision::unannounced(transition, changes, Vec::new()))
    }

    /// `None` if the command changes nothing.
    pub(crate) fn decide(&self, command: &GroupCommand) -> Result<Option<GroupDecision>> {
        if self.membership.silence_at(self.now).is_some() && !command.is_for_silenced() {
            return Err(silenced());
        }
        match command {
            GroupCommand::Rename(name) => self.rename(name),
            GroupCommand::Add(users, visible_from) => self.add(users, *visible_from),
            GroupCommand::Remove(user) => self.remove(user),
            GroupCommand::SetRole(user, role) => self.set_role(user, *role),
            GroupCommand::Leave => Ok(Some(self.leave())),
            GroupCommand::Withdraw => Ok(Some(self.withdraw())),
            GroupCommand::Ban(draft) => self.ban(draft).map(Some),
            GroupCommand::LiftBan(user) => self.lift_ban(user),
            GroupCommand::Silence(user, until) => self.silence(user, *until),
            GroupCommand::Unsilence(user) => self.unsilence(user),
            GroupCommand::SetSlowMode(seconds) => self.set_slow_mode(*seconds),
            GroupCommand::SetProfile(to) => self.set_profile(to).map(Some),
            GroupCommand::SetPostingRole(act, role) => self.set_posting_role(*act, *role),
            GroupCommand::History(command) => self.decide_history(command),
        }
    }

    /// Whether the actor stays an OWNER when this user is none any more.
    fn keeps_owner(&self, user: &UserId) -> bool {
        self.is_own_owner && user != self.actor
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

    /// The metadata is a service's, whatever the role of the user that it acts for.
    fn set_profile(&self, to: &ConversationProfileChange) -> Result<GroupDecision> {
        if to.description.is_some() || to.avatar_url.is_some() {
            self.require_admin()?;
        }
        Ok(GroupDecision {
            profile: Some(to.clone()),
            changes: vec![(ChangeKind::ConversationUpdated, self.actor.clone())],
            ..GroupDecision::default()
        })
    }

    fn add(
        &self,
        users: &[UserId],
        visible_from: Option<Timestamp>,
    ) -> Result<Option<GroupDecision>> {
        self.require_add_role()?;
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
                visible_from: self.bound_of_joiners(visible_from),
                // Nor does it bring back what the user has cleared.
                cleared_up_to: self
                    .membership_of(user)
                    .map_or(OrderKey::MIN, |earlier| earlier.cleared_up_to),
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
            is_visible_since_joining: self.is_visible_since_joining(visible_from),
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
        let decision =
            GroupDecision::of_transitions("removed", vec![leaving(user, membership)], changes);
        Ok(Some(self.inherited(membership.role, decision)))
    }

    /// Adds that the successor becomes OWNER, if the last OWNER goes. An OWNER who removes another one stays.
    fn inherited(&self, role: Role, decision: GroupDecision) -> GroupDecision {
        match role == Role::Owner && !self.is_own_owner {
            true => self.succeeded(decision),
            false => decision,
        }
    }

    /// Adds that the successor becomes OWNER.
    fn succeeded(&self, mut decision: GroupDecision) -> GroupDecision {
        if let Some((next, membership)) = &self.members.successor {
            let transition = staying(next, *membership, Role::Owner);
            decision.transitions.push(transition);
            let change = (ChangeKind::RoleChanged, next.clone());
            decision.changes.push(change);
        }
        decision
    }

    fn leave(&self) -> GroupDecision {
        let changes = vec![(ChangeKind::ParticipantRemoved, self.actor.clone())];
        let transitions = vec![leaving(self.actor, self.membership)];
        let decision = GroupDecision::of_transitions("left", transitions, changes);
        match self.membership.role {
            Role::Owner => self.succeeded(decision),
            Role::Admin | Role::Member => decision,
        }
    }

    /// An erased user leaves without a message: it would name the user, and move everyone's inbox.
    fn withdraw(&self) -> GroupDecision {
        GroupDecision {
            metadata: None,
            ..self.leave()
        }
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
        let is_given_up = user == self.actor || membership.role == Role::Owner;
        if is_given_up && !self.keeps_owner(user) && is_last_owner {
            return Err(Error::bad_input(
                &["input", "role"],
                "a group always has an owner: make another participant an owner first",
            ));
        }
        let mut transitions = vec![staying(user, membership, role)];
        // Makes an inherited OWNER role explicit, so that the promoted user does not inherit it
        // instead.
        if self.is_own_owner && user != self.actor {
            let own = self.membership_of(self.actor).unwrap_or(self.membership);
            transitions.push(staying(self.actor, own, Role::Owner));
        } else if !self.is_own_owner
            && membership.role != Role::Owner
            && let Some((heir, of_heir)) = &self.members.successor
        {
            transitions.push(staying(heir, *of_heir, Role::Owner));
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
