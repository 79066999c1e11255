//! Creation of conversations: the steps of all of them, and direct ones, which are unique for a pair of users.

use std::sync::Arc;

use super::WriteService;
use super::command::group::parse_added;
use super::outgoing::creation::OutgoingCreation;
use crate::chat::error::{Error, Result};
use crate::chat::late_rule::EventAge;
use crate::chat::publisher::Origin;
use crate::model::{
    Conversation, ConversationId, ConversationKind, ConversationProfile, DirectIds, GroupName,
    HistorySettings, InputHash, PostingRoles, Role, UserId, Viewer,
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
            roles: PostingRoles::default(),
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

    pub(super) async fn has_taken_part(&self, viewer: &UserId, id: ConversationId) -> Result<bool> {
        let participations = self.context.store.participations(viewer, &[id]).await?;
        Ok(participations.iter().any(Option::is_some))
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

    pub(super) async fn create(
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
            roles,
        } = draft;
        let conversation = Conversation {
            id,
            kind,
            name,
            created_at: change.moment(),
            created_by: Some(creator),
            input_hash,
            slow_mode_seconds: 0,
            history: HistorySettings {
                roles,
                ..HistorySettings::default()
            },
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
pub(super) struct ConversationDraft {
    pub(super) id: ConversationId,
    pub(super) kind: ConversationKind,
    pub(super) name: Option<GroupName>,
    pub(super) participants: Vec<(UserId, Role)>,
    pub(super) input_hash: Option<InputHash>,
    pub(super) profile: ConversationProfile,
    pub(super) roles: PostingRoles,
}

/// Outcome of a creation.
pub(super) enum CreationOutcome {
    New(Arc<Conversation>),
    Existing(Arc<Conversation>),
}
