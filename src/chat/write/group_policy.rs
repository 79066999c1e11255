//! Group policy: which participant may change a group in which way. It decides without the store.
//!
//! Every participant may leave. OWNERs and ADMINs may rename the group, add users, and remove
//! MEMBERs. OWNERs may also remove OWNERs and ADMINs, and set roles. A group always has an OWNER:
//! when the last one leaves, the oldest ADMIN inherits the role, else the oldest participant.

use serde_json::json;

use super::command::group::GroupCommand;
use crate::chat::error::{Error, Result};
use crate::model::{
    ChangeKind, Conversation, ConversationKind, GroupName, Membership, MembershipState, Role,
    UserId,
};
use crate::store::{MembershipSnapshot, MembershipTransition, TransitionKind};

/// Effects of a group command: what is persisted and published.
#[derive(Default)]
pub(crate) struct GroupDecision {
    pub(crate) name: Option<GroupName>,
    /// Changes of memberships. The time of a joining or leaving is set with the id.
    pub(crate) transitions: Vec<MembershipTransition>,
    /// Kinds of the changes with the affected users, in the order of their publication.
    pub(crate) changes: Vec<(ChangeKind, UserId)>,
    /// Metadata of the SYSTEM message.
    pub(crate) metadata: serde_json::Value,
}

impl GroupDecision {
    fn of_transitions(
        event: &str,
        transitions: Vec<MembershipTransition>,
        changes: Vec<(ChangeKind, UserId)>,
    ) -> Self {
        let usernames: Vec<_> = changes.iter().map(|(_, user)| user.as_str()).collect();
        Self {
            metadata: json!({"event": event, "usernames": usernames}),
            name: None,
            transitions,
            changes,
        }
    }
}

/// Decides on the commands of one actor, from the memberships that the store has read.
pub(crate) struct GroupPolicy<'a> {
    actor: &'a UserId,
    membership: Membership,
    users: &'a [UserId],
    members: &'a MembershipSnapshot,
}

impl<'a> GroupPolicy<'a> {
    /// `users` are those of [`GroupCommand::concerned`], in the order of `members.memberships`.
    pub(crate) fn new(users: &'a [UserId], members: &'a MembershipSnapshot) -> Result<Self> {
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
        if self.members.conversation.name.as_ref() == Some(name) {
            return Ok(None);
        }
        let changes = vec![(ChangeKind::ConversationRenamed, self.actor.clone())];
        let metadata = json!({"event": "renamed", "usernames": [], "name": name.as_str()});
        Ok(Some(GroupDecision {
            name: Some(name.clone()),
            transitions: Vec::new(),
            changes,
            metadata,
        }))
    }

    fn add(&self, users: &[UserId]) -> Result<Option<GroupDecision>> {
        self.require_admin()?;
        let is_new = |user: &&UserId| {
            !self
                .membership_of(user)
                .is_some_and(|membership| membership.is_joined())
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
            membership: Membership::joined(Role::Member),
        };
        let transitions = new.iter().map(transition).collect();
        let changes = new
            .into_iter()
            .map(|user| (ChangeKind::ParticipantAdded, user))
            .collect();
        Ok(Some(GroupDecision::of_transitions(
            "joined",
            transitions,
            changes,
        )))
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
        decision.metadata["role"] = serde_json::to_value(role).expect("a role is a word");
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
