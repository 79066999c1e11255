//! Groups: their name, who is in them, and as what.
//!
//! Everyone may leave. ADMINs and OWNERs may rename the group, add people, and remove MEMBERs. OWNERs may also remove anybody else and give
//! roles. A group is never without an OWNER: when the last one leaves, the oldest ADMIN, else the oldest participant, takes the role.
//!
//! What is decided rests on a version of the membership, and the store takes it only while that is the present one: where another server
//! was faster, it is decided anew. PresenceGuard it happens in the queue of the conversation, so that it has its place in the order of all events.

use std::sync::Arc;

use serde_json::json;

use crate::bus::Signal;
use crate::chat::in_flight_ids::IdLease;
use crate::chat::write::conversation::parse_usernames;
use crate::chat::write::conversation_queue::{Work, Worker};
use crate::chat::{Chat, Error, Result};
use crate::model::{
    Change, ChangeKind, Content, Conversation, ConversationId, ConversationKind, Event, GroupName,
    Membership, MembershipState, Message, MessageKind, Metadata, Participant, Role, UserId,
};
use crate::store::{
    Audience, MembershipChange, MembershipSnapshot, MembershipTransition, Renaming, TransitionKind,
};

/// How often it is decided anew because another server was faster.
const TRIES_MAX: usize = 8;

/// What a user wants to become of a group.
#[derive(Debug)]
pub(crate) enum GroupCommand {
    Rename(GroupName),
    Add(Vec<UserId>),
    Remove(UserId),
    SetRole(UserId, Role),
    Leave,
}

impl Chat {
    /// Gives a group another name. The same name again changes nothing.
    pub async fn rename(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        name: &str,
    ) -> Result<()> {
        let name = GroupName::parse(name)
            .map_err(|error| Error::bad_input(&["input", "name"], format!("the name {error}")))?;
        self.govern(viewer, conversation, GroupCommand::Rename(name))
            .await
    }

    /// Adds these users as MEMBERs. Who is in the group already stays as they are. Answers with who was named.
    pub async fn add_participants(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        usernames: &[String],
    ) -> Result<Vec<UserId>> {
        let users = parse_usernames(usernames)?;
        self.participation_to_write(viewer, conversation).await?;
        self.check_introductions(viewer, conversation, &users)
            .await?;
        self.govern(viewer, conversation, GroupCommand::Add(users.clone()))
            .await?;
        Ok(users)
    }

    /// Removes a user from a group. One who is not in it changes nothing. Answers with who was named, where they ever were in it.
    pub async fn remove_participant(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        username: &str,
    ) -> Result<Option<UserId>> {
        let user = parse_username(username)?;
        if user == *viewer {
            return Err(Error::bad_input(
                &["input", "username"],
                "who wants to go leaves the conversation",
            ));
        }
        // Looked for before: nothing may fail once it is done.
        let was_there = self
            .participant_or_gone(viewer, conversation, &user)
            .await?
            .is_some();
        self.govern(viewer, conversation, GroupCommand::Remove(user.clone()))
            .await?;
        Ok(was_there.then_some(user))
    }

    /// Gives a participant another role. The same role again changes nothing.
    pub async fn set_role(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        username: &str,
        role: Role,
    ) -> Result<UserId> {
        let user = parse_username(username)?;
        self.govern(
            viewer,
            conversation,
            GroupCommand::SetRole(user.clone(), role),
        )
        .await?;
        Ok(user)
    }

    /// Takes the viewer out of a group.
    pub async fn leave(&self, viewer: &UserId, conversation: ConversationId) -> Result<()> {
        self.govern(viewer, conversation, GroupCommand::Leave).await
    }

    /// A participant as they are now, also one who has left. `None` for one who never was in it, and to a stranger.
    pub async fn participant_or_gone(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        user: &UserId,
    ) -> Result<Option<Participant>> {
        if self.conversation(viewer, conversation).await?.is_none() {
            return Ok(None);
        }
        Ok(self
            .0
            .store
            .participants_by_name(&[(conversation, user.clone())])
            .await?
            .pop()
            .flatten())
    }

    /// Those of these users who are in the conversation now, in their order. None to a stranger.
    pub async fn participants_named(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Vec<Participant>> {
        if self.conversation(viewer, conversation).await?.is_none() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = users
            .iter()
            .map(|user| (conversation, user.clone()))
            .collect();
        let found = self.0.store.participants_by_name(&keys).await?;
        Ok(found
            .into_iter()
            .flatten()
            .filter(|participant| participant.membership.is_joined())
            .collect())
    }

    /// Whether the viewer may bring those of these users in who are not there yet, outside the queue of the conversation: it reads much. Who
    /// may not add anybody is refused first, and pays nothing.
    async fn check_introductions(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<()> {
        let wish = GroupCommand::Add(users.to_vec());
        let users = wish.concerns(viewer);
        let members = self
            .0
            .store
            .membership_snapshot(conversation, &users)
            .await?
            .ok_or(Error::NotFound("the conversation"))?;
        let Some(decision) = GroupPolicy::new(&users, &members)?.decide(&wish)? else {
            return Ok(());
        };
        let new: Vec<_> = decision
            .transitions
            .into_iter()
            .map(|transition| transition.user)
            .collect();
        self.check_room_for_one_more(viewer, &new, &["input", "usernames"])
            .await?;
        self.pay_for_strangers(viewer, &new).await.map(drop)
    }

    async fn govern(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        wish: GroupCommand,
    ) -> Result<()> {
        // A stranger takes no place in the queue.
        self.participation_to_write(viewer, conversation).await?;
        self.work(conversation, viewer, |reply| Work::Group(wish, reply))
            .await
    }
}

fn parse_username(username: &str) -> Result<UserId> {
    UserId::parse(username).map_err(|error| Error::bad_input(&["input", "username"], error))
}

impl GroupCommand {
    pub(crate) fn bytes(&self) -> usize {
        let named = match self {
            Self::Add(users) => users.iter().map(|user| user.as_str().len()).sum(),
            Self::Rename(_) | Self::Remove(_) | Self::SetRole(..) | Self::Leave => 0,
        };
        named + 512
    }

    /// Who must be known to decide on it: who wishes it, and behind them those whom it is about.
    fn concerns(&self, actor: &UserId) -> Vec<UserId> {
        let others = match self {
            Self::Add(users) => users.as_slice(),
            Self::Remove(user) | Self::SetRole(user, _) => std::slice::from_ref(user),
            Self::Rename(_) | Self::Leave => &[],
        };
        std::iter::once(actor)
            .chain(others.iter().filter(|user| *user != actor))
            .cloned()
            .collect()
    }
}

/// What is to be kept of a wish, and told.
#[derive(Default)]
struct Decision {
    name: Option<GroupName>,
    /// Where somebody joins or leaves: since when is written into it with the id.
    transitions: Vec<MembershipTransition>,
    told: Vec<(ChangeKind, UserId)>,
    metadata: serde_json::Value,
}

impl Decision {
    fn of_transitions(
        event: &str,
        transitions: Vec<MembershipTransition>,
        told: Vec<(ChangeKind, UserId)>,
    ) -> Self {
        let usernames: Vec<_> = told.iter().map(|(_, user)| user.as_str()).collect();
        Self {
            metadata: json!({"event": event, "usernames": usernames}),
            name: None,
            transitions,
            told,
        }
    }
}

/// A wish, with what is known of those whom it concerns.
struct GroupPolicy<'a> {
    actor: &'a UserId,
    membership: Membership,
    users: &'a [UserId],
    members: &'a MembershipSnapshot,
}

impl<'a> GroupPolicy<'a> {
    fn new(users: &'a [UserId], members: &'a MembershipSnapshot) -> Result<Self> {
        let actor = users.first().expect("who wishes it is the first");
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
                "it is a direct conversation",
            ));
        }
        Ok(Self {
            actor,
            membership,
            users,
            members,
        })
    }

    /// `None` where nothing changes.
    fn decide(&self, wish: &GroupCommand) -> Result<Option<Decision>> {
        match wish {
            GroupCommand::Rename(name) => self.rename(name),
            GroupCommand::Add(users) => self.add(users),
            GroupCommand::Remove(user) => self.remove(user),
            GroupCommand::SetRole(user, role) => self.set_role(user, *role),
            GroupCommand::Leave => Ok(Some(self.leave())),
        }
    }

    fn of(&self, user: &UserId) -> Option<Membership> {
        let place = self.users.iter().position(|known| known == user)?;
        self.members.memberships.get(place).copied().flatten()
    }

    fn must_govern(&self) -> Result<()> {
        match self.membership.role {
            Role::Owner | Role::Admin => Ok(()),
            Role::Member => Err(Error::Forbidden(
                "only an owner or admin of the group may do that",
            )),
        }
    }

    fn rename(&self, name: &GroupName) -> Result<Option<Decision>> {
        self.must_govern()?;
        if self.members.conversation.name.as_ref() == Some(name) {
            return Ok(None);
        }
        let told = vec![(ChangeKind::ConversationRenamed, self.actor.clone())];
        let metadata = json!({"event": "renamed", "usernames": [], "name": name.as_str()});
        Ok(Some(Decision {
            name: Some(name.clone()),
            transitions: Vec::new(),
            told,
            metadata,
        }))
    }

    fn add(&self, users: &[UserId]) -> Result<Option<Decision>> {
        self.must_govern()?;
        let is_new = |user: &&UserId| {
            !self
                .of(user)
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
        let told = new
            .into_iter()
            .map(|user| (ChangeKind::ParticipantAdded, user))
            .collect();
        Ok(Some(Decision::of_transitions("joined", transitions, told)))
    }

    fn remove(&self, user: &UserId) -> Result<Option<Decision>> {
        self.must_govern()?;
        let Some(membership) = self.of(user).filter(Membership::is_joined) else {
            return Ok(None);
        };
        if self.membership.role != Role::Owner && membership.role != Role::Member {
            return Err(Error::Forbidden(
                "only an owner of the group may remove an owner or admin",
            ));
        }
        let told = vec![(ChangeKind::ParticipantRemoved, user.clone())];
        Ok(Some(Decision::of_transitions(
            "removed",
            vec![leaving(user, membership)],
            told,
        )))
    }

    fn leave(&self) -> Decision {
        let told = vec![(ChangeKind::ParticipantRemoved, self.actor.clone())];
        let mut decision =
            Decision::of_transitions("left", vec![leaving(self.actor, self.membership)], told);
        if let (Role::Owner, Some((next, membership))) =
            (self.membership.role, &self.members.successor)
        {
            decision
                .transitions
                .push(staying(next, *membership, Role::Owner));
            decision.told.push((ChangeKind::RoleChanged, next.clone()));
        }
        decision
    }

    fn set_role(&self, user: &UserId, role: Role) -> Result<Option<Decision>> {
        if self.membership.role != Role::Owner {
            return Err(Error::Forbidden(
                "only an owner of the group may give roles",
            ));
        }
        let membership = self
            .of(user)
            .filter(Membership::is_joined)
            .ok_or(Error::NotFound("the participant"))?;
        if membership.role == role {
            return Ok(None);
        }
        let is_last_owner = self.members.successor.is_some() || self.members.participant_count == 1;
        if user == self.actor && is_last_owner {
            return Err(Error::bad_input(
                &["input", "role"],
                "a group is never without an owner: make somebody else one first",
            ));
        }
        let mut transitions = vec![staying(user, membership, role)];
        if user != self.actor {
            // One who is OWNER because nobody was given the role: another ADMIN must not take it from them.
            transitions.push(staying(self.actor, self.membership, Role::Owner));
        }
        let mut decision = Decision::of_transitions(
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

impl Worker {
    /// Does what a user wishes for a group, where the rules let them.
    pub(crate) async fn govern(&self, actor: &UserId, wish: &GroupCommand) -> Result<()> {
        let users = wish.concerns(actor);
        for _ in 0..TRIES_MAX {
            let members = self
                .chat
                .0
                .store
                .membership_snapshot(self.conversation, &users)
                .await?;
            let members = members.ok_or(Error::NotFound("the conversation"))?;
            // Decided after it, whatever that server's clock says.
            self.chat.seen(members.version);
            let Some(decision) = GroupPolicy::new(&users, &members)?.decide(wish)? else {
                return Ok(());
            };
            self.check_room(&members, &decision.transitions).await?;
            if self.keep_decision(actor, &members, decision).await? {
                return Ok(());
            }
        }
        Err(Error::Busy)
    }

    /// Whether everybody who would be in one more large conversation may be.
    async fn check_room(
        &self,
        members: &MembershipSnapshot,
        transitions: &[MembershipTransition],
    ) -> Result<()> {
        let id = self.conversation;
        let mut users: Vec<_> = transitions
            .iter()
            .filter(|transition| transition.kind == TransitionKind::Joins)
            .map(|transition| transition.user.clone())
            .collect();
        let count = members.participant_count + users.len() as u64;
        if users.is_empty()
            || (!members.conversation.is_large && count <= Conversation::FAN_OUT_MAX as u64)
        {
            return Ok(());
        }
        if !members.conversation.is_large {
            users.extend(
                self.chat
                    .participants_of(id)
                    .await?
                    .into_iter()
                    .map(|participant| participant.user),
            );
        }
        self.chat
            .check_room_for_a_large_one(Some(id), members.conversation.created_by.as_ref(), &users)
            .await
    }

    /// Whether it was kept: not where the membership has changed since it was decided.
    async fn keep_decision(
        &self,
        actor: &UserId,
        members: &MembershipSnapshot,
        decision: Decision,
    ) -> Result<bool> {
        let Decision {
            name,
            mut transitions,
            told,
            metadata,
        } = decision;
        let ids = self.chat.begin(told.len() + 1)?;
        let message = Arc::new(self.system_message(actor, &ids, &metadata));
        let change = |(id, (kind, user)): (_, (ChangeKind, UserId))| Change {
            id,
            kind,
            message: message.id,
            user,
        };
        let changes: Vec<_> = ids.ids().iter().copied().zip(told).map(change).collect();
        for transition in transitions
            .iter_mut()
            .filter(|transition| transition.kind != TransitionKind::Stays)
        {
            transition.membership.since = Some(message.id.moment());
        }
        let store = &self.chat.0.store;
        let (ids, audience) = match name {
            Some(name) => {
                let change = changes
                    .first()
                    .cloned()
                    .expect("another name is one change");
                let renaming = Renaming {
                    name,
                    change,
                    message: Arc::clone(&message),
                };
                let (ids, audience) = self
                    .chat
                    .settled(ids, || {
                        store.rename_conversation(self.conversation, &renaming)
                    })
                    .await?;
                (ids, Some(audience))
            }
            None => {
                let (transitions, changes) = (transitions.clone(), changes.clone());
                let change = MembershipChange {
                    seen: members.version,
                    transitions,
                    changes,
                    message: Arc::clone(&message),
                };
                self.chat
                    .settled(ids, || store.change_membership(self.conversation, &change))
                    .await?
            }
        };
        let Some(audience) = audience else {
            return Ok(false);
        };
        self.log_late_decision(&changes, &message).await?;
        self.tell_decision(&changes, &transitions, message, &audience, &ids);
        Ok(true)
    }

    fn system_message(
        &self,
        actor: &UserId,
        ids: &IdLease,
        metadata: &serde_json::Value,
    ) -> Message {
        let metadata = Metadata::new(metadata, Metadata::SYSTEM_BYTES_MAX)
            .expect("names are bounded, and so is their number");
        Message {
            conversation: self.conversation,
            id: ids.newest(),
            sender: actor.clone(),
            kind: MessageKind::System,
            content: Some(Content {
                metadata: Some(metadata),
                ..Content::default()
            }),
            reply_to: None,
            client_key: None,
            deleted_at: None,
            has_reactions: false,
        }
    }

    fn tell_decision(
        &self,
        changes: &[Change],
        transitions: &[MembershipTransition],
        message: Arc<Message>,
        audience: &Audience,
        ids: &IdLease,
    ) {
        let leavers = transitions
            .iter()
            .filter(|transition| transition.kind == TransitionKind::Leaves)
            .map(|transition| &transition.user);
        let joiners = transitions
            .iter()
            .filter(|transition| transition.kind == TransitionKind::Joins)
            .map(|transition| &transition.user);
        self.chat.joined_one_more(joiners.clone());
        if leavers.clone().next().is_some() {
            // Before anything is told.
            self.chat.advance_leave_epoch();
        }
        for change in changes {
            self.tell(
                change.id,
                ids,
                Event::Changed(self.conversation, change.clone()),
            );
        }
        self.tell(message.id, ids, Event::MessageAdded(Arc::clone(&message)));
        self.tell_audience(message.id, audience, ids);
        // Those who are in a large conversation listen to it, but not who has just come or gone.
        let others = joiners.filter(|_| audience.users.is_none()).chain(leavers);
        self.chat.tell_inboxes(
            others,
            self.conversation,
            (ids.newest(), ids.settled()),
            Signal::Inbox,
        );
    }
}
