//! Creation of conversations: direct ones, which are unique for a pair of users, and groups.

use std::sync::Arc;

use super::WriteService;
use super::command::draft::parse_key;
use super::command::group::{parse_added, parse_group_name, parse_usernames};
use super::command::profile::ConversationProfileInput;
use super::introduction::StrangerCharge;
use super::outgoing::creation::OutgoingCreation;
use crate::chat::error::{Error, Result};
use crate::chat::late_rule::EventAge;
use crate::chat::publisher::Origin;
use crate::model::{
    Conversation, ConversationId, ConversationKind, ConversationProfile, DirectIds, GroupName,
    InputHash, Role, UserId, Viewer,
};
use crate::store::{Created, NewConversation};

impl WriteService {
    /// The only direct conversation of the viewer and this user, created if it does not exist. A
    /// user may have one with themselves.
    pub async fn start_direct(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        username: &str,
    ) -> Result<Arc<Conversation>> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let peer = parse_added(username)?;
        let context = &self.context;
        if context.access.blocks().of(viewer).await?.has(&peer) {
            return Err(Error::Forbidden("you have blocked this user"));
        }
        // Read first: an imported conversation may have another id than the pair's own.
        let known = context.store.direct_conversation(viewer, &peer).await?;
        let mut users = vec![viewer.clone()];
        if peer != *viewer {
            users.push(peer.clone());
        }
        if let Some(id) = known
            && let Some(existing) = context.access.conversation(viewer, id).await?
        {
            self.deliver_again(&existing, users).await?;
            return Ok(existing);
        }
        // A server that died during the creation leaves an id without a conversation. It is created
        // now.
        let id = match known {
            Some(id) => id,
            None => self.new_direct_id(viewer, &peer).await?,
        };
        let introductions = &context.introductions;
        introductions
            .check_conversation_bound(viewer, &users, &["input", "username"])
            .await?;
        let charge = introductions.charge_strangers(caller, &users).await?;
        let participants = users.into_iter().map(|user| (user, Role::Member)).collect();
        let new = ConversationDraft {
            id,
            kind: ConversationKind::Direct,
            name: None,
            participants,
            input_hash: None,
            profile: ConversationProfile::default(),
        };
        match self.create(viewer, new).await? {
            CreationOutcome::New(created) => Ok(created),
            CreationOutcome::Existing(existing) => {
                introductions.refund(viewer, charge);
                context
                    .access
                    .require_conversation(viewer, existing.id)
                    .await
            }
        }
    }

    /// Creates a group of the viewer, who is its OWNER, and these users. A retry with the same
    /// idempotency key returns the same group.
    pub async fn create_group(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        name: &str,
        usernames: &[String],
        key: Option<&str>,
    ) -> Result<Arc<Conversation>> {
        let profile = ConversationProfileInput::default();
        self.create_group_with(caller, name, usernames, key, profile)
            .await
    }

    /// The same with a profile.
    pub async fn create_group_with(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        name: &str,
        usernames: &[String],
        key: Option<&str>,
        profile: ConversationProfileInput,
    ) -> Result<Arc<Conversation>> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let profile = profile.parse(caller)?.apply(ConversationProfile::default());
        let name = parse_group_name(name)?;
        let others = parse_usernames(usernames)?;
        let key = key.map(parse_key).transpose()?;
        let mut users: Vec<_> = others.into_iter().filter(|user| user != viewer).collect();
        users.push(viewer.clone());
        let hash = InputHash::of_group(name.as_str(), &users, &profile);
        // Left out without a word: the viewer sees an absence, not its reason.
        users.retain(|user| user == viewer || !self.restrictions.is_suspended(user));
        let may_exist = key.is_some();
        let id = key.map_or_else(ConversationId::random, |key| {
            ConversationId::group(viewer, key.as_str())
        });
        // A retry finds the group of its first attempt: it is within all bounds, and introduces
        // nobody.
        let charge = if may_exist && self.has_taken_part(viewer, id).await? {
            StrangerCharge::default()
        } else {
            self.charge_group(caller, &users).await?
        };
        let role = |user: &UserId| {
            if user == viewer {
                Role::Owner
            } else {
                Role::Member
            }
        };
        let participants = users
            .into_iter()
            .map(|user| (user.clone(), role(&user)))
            .collect();
        let new = ConversationDraft {
            id,
            kind: ConversationKind::Group,
            name: Some(name),
            participants,
            input_hash: Some(hash),
            profile,
        };
        let existing = match self.create(viewer, new).await? {
            CreationOutcome::New(created) => return Ok(created),
            CreationOutcome::Existing(existing) => existing,
        };
        self.context.introductions.refund(viewer, charge);
        if existing.input_hash == Some(hash) {
            self.context
                .access
                .require_conversation(viewer, existing.id)
                .await
        } else {
            Err(Error::Conflict)
        }
    }

    async fn has_taken_part(&self, viewer: &UserId, id: ConversationId) -> Result<bool> {
        let participations = self.context.store.participations(viewer, &[id]).await?;
        Ok(participations.iter().any(Option::is_some))
    }

    /// Checks the bounds of a new group, and charges for its strangers.
    async fn charge_group(&self, caller: &Viewer, users: &[UserId]) -> Result<StrangerCharge> {
        let viewer = &caller.user;
        let introductions = &self.context.introductions;
        introductions
            .check_conversation_bound(viewer, users, &["input", "usernames"])
            .await?;
        if users.len() > Conversation::FAN_OUT_MAX {
            introductions
                .check_large_bound(None, Some(viewer), users)
                .await?;
        }
        introductions.charge_strangers(caller, users).await
    }

    /// Id of the direct conversation of two users who have none. The pair's own id stays with the other user
    /// after an erasure: then another one is chosen.
    async fn new_direct_id(&self, viewer: &UserId, peer: &UserId) -> Result<ConversationId> {
        let id = self.direct_ids().await?.id(viewer, peer);
        let store = &self.context.store;
        let is_taken = store
            .conversations(&[id])
            .await?
            .iter()
            .any(Option::is_some);
        if is_taken && !self.has_taken_part(viewer, id).await? {
            return Ok(DirectIds::random().id(viewer, peer));
        }
        Ok(id)
    }

    /// Ids of new direct conversations, read from the store once.
    async fn direct_ids(&self) -> Result<&DirectIds> {
        let read = async || Ok(self.context.store.direct_ids().await?);
        self.direct_ids.get_or_try_init(read).await
    }

    /// Delivers a conversation that a command finds instead of creating it: the server that created
    /// it may have died before it notified the others.
    async fn deliver_again(
        self: &Arc<Self>,
        existing: &Arc<Conversation>,
        users: Vec<UserId>,
    ) -> Result<()> {
        if !self.context.may_repeat_creation(existing) {
            return Ok(());
        }
        let (writes, existing) = (Arc::clone(self), Arc::clone(existing));
        self.tasks
            .run_to_completion(async move {
                Ok(writes.context.repeat_creation(&existing, users).await?)
            })
            .await
    }

    async fn create(
        self: &Arc<Self>,
        viewer: &UserId,
        draft: ConversationDraft,
    ) -> Result<CreationOutcome> {
        let (writes, creator) = (Arc::clone(self), viewer.clone());
        self.tasks
            .run_to_completion(async move { writes.persist_conversation(creator, draft).await })
            .await
    }

    async fn persist_conversation(
        &self,
        creator: UserId,
        draft: ConversationDraft,
    ) -> Result<CreationOutcome> {
        let context = &self.context;
        let lease = context.in_flight.allocate(draft.id, 1).await?;
        let change = lease.newest();
        let ConversationDraft {
            id,
            kind,
            name,
            participants,
            input_hash,
            profile,
        } = draft;
        let conversation = Conversation {
            id,
            kind,
            name,
            created_at: change.moment(),
            created_by: Some(creator),
            input_hash,
            slow_mode_seconds: 0,
            history: Default::default(),
            is_large: participants.len() > Conversation::FAN_OUT_MAX,
        };
        let new = NewConversation {
            conversation,
            participants,
            change,
            profile,
        };
        let written = context.store.create_conversation(&new).await;
        let (lease, created) = lease.if_persisted(written)?;
        match created {
            Created::New => {
                let users = || new.participants.iter().map(|(user, _)| user);
                context.introductions.count_joiners(users());
                let publisher = &context.publisher;
                publisher.publish_to_inboxes(users(), id, change, Origin::Own(&lease));
                if context.in_flight.is_shared() {
                    let creation = OutgoingCreation {
                        conversation: id,
                        change,
                        users: users().cloned().collect(),
                        age: Some(EventAge::of(&lease)),
                    };
                    // It is published: no position waits for the notices.
                    drop(lease);
                    creation.deliver(context).await?;
                    context.note_creation(&new.conversation);
                }
                Ok(CreationOutcome::New(Arc::new(new.conversation)))
            }
            Created::Existing(existing) => {
                drop(lease);
                // The retry of a keyed creation, or the conversation of the same pair.
                let is_same = existing.kind == new.conversation.kind
                    && existing.input_hash == new.conversation.input_hash;
                if is_same && context.may_repeat_creation(&existing) {
                    let users = new.participants.into_iter().map(|(user, _)| user);
                    context.repeat_creation(&existing, users.collect()).await?;
                }
                Ok(CreationOutcome::Existing(existing))
            }
        }
    }
}

/// Conversation to be created, without its time and creator.
struct ConversationDraft {
    id: ConversationId,
    kind: ConversationKind,
    name: Option<GroupName>,
    participants: Vec<(UserId, Role)>,
    input_hash: Option<InputHash>,
    profile: ConversationProfile,
}

enum CreationOutcome {
    New(Arc<Conversation>),
    Existing(Arc<Conversation>),
}
