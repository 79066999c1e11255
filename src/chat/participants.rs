//! Participants of conversations, their receipts, and the profiles of users.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::chat::access::{Access, VisibleConversation};
use crate::chat::error::{Error, Result};
use crate::model::{
    AppKey, Ban, Conversation, ConversationId, ConversationKind, ConversationProfile, Membership,
    Message, Page, PageRequest, Participant, Profile, Role, ServiceRight, Silence, UserId, Viewer,
};
use crate::store::Store;

/// Direct conversations whose participants are cached, each with two usernames.
const DIRECT_PAIRS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");

pub struct ParticipantService {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    direct_pairs: Mutex<LruCache<ConversationId, CachedPair>>,
}

/// Two usernames, and the time of their read.
type CachedPair = ([UserId; 2], Instant);

/// Time after which a pair is read again: another server may have erased one of the two.
const DIRECT_PAIR_KEPT: Duration = Duration::from_secs(3_600);

impl ParticipantService {
    pub(crate) fn new(store: Arc<dyn Store>, access: Arc<Access>) -> Self {
        Self {
            store,
            access,
            direct_pairs: Mutex::new(LruCache::new(DIRECT_PAIRS_MAX)),
        }
    }

    /// A page of the participants whose usernames begin with a prefix, ordered by username
    /// (bytewise). The caller has checked the viewer's access.
    pub async fn page(
        &self,
        conversation: ConversationId,
        prefix: &str,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        if prefix.is_empty() {
            return Ok(self.store.participants(conversation, page).await?);
        }
        if prefix.len() > UserId::BYTES_MAX || prefix.chars().any(char::is_control) {
            let message = format!(
                "a usernamePrefix has at most {} bytes and no control characters",
                UserId::BYTES_MAX
            );
            return Err(Error::bad_input(&["usernamePrefix"], message));
        }
        let store = &self.store;
        Ok(store
            .participants_with_prefix(conversation, prefix, page)
            .await?)
    }

    /// The profiles of conversations. The caller has checked the viewer's access.
    pub async fn conversation_profiles(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Arc<ConversationProfile>>> {
        let found = self.store.conversation_profiles(conversations).await?;
        Ok(found.into_iter().map(Arc::new).collect())
    }

    /// The conversation of an app key. For a key without one the answer is the id of none, so that both take the same reads.
    pub async fn by_app_key(&self, key: &AppKey) -> Result<ConversationId> {
        let claim = self.store.app_key_claim(key).await?;
        Ok(claim.map_or_else(ConversationId::random, |claim| claim.conversation))
    }

    /// The silence of a participant that holds now.
    pub fn silence(&self, membership: &Membership) -> Option<Silence> {
        membership.silence_at(self.access.now())
    }

    /// A page of the bans of a conversation, ordered by username (bytewise). `None` for a caller who
    /// is no OWNER, ADMIN or service that moderates.
    pub async fn bans(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Option<Page<Ban>>> {
        if !self.may_see_bans(caller, conversation).await? {
            return Ok(None);
        }
        Ok(Some(self.store.bans(conversation, page).await?))
    }

    /// The ban of a user that holds now, for a caller who may see it.
    pub async fn ban(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        user: &UserId,
    ) -> Result<Option<Ban>> {
        if !self.may_see_bans(caller, conversation).await? {
            return Ok(None);
        }
        let users = std::slice::from_ref(user);
        let bans = self.store.bans_of(conversation, users).await?;
        Ok(bans.into_iter().next().flatten())
    }

    async fn may_see_bans(&self, caller: &Viewer, conversation: ConversationId) -> Result<bool> {
        if caller.may(ServiceRight::Moderate) {
            return Ok(true);
        }
        match self.access.participation(&caller.user, conversation).await {
            Ok(own) => Ok(own.conversation.kind == ConversationKind::Group
                && own.membership.role != Role::Member),
            Err(Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A participant as the viewer may see them. `None` for a user who does not take part, and for
    /// a viewer who does not.
    pub async fn participant(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        user: &UserId,
    ) -> Result<Option<Participant>> {
        let found = self.current_or_former(caller, conversation, user).await?;
        Ok(found.filter(|participant| participant.membership.is_joined()))
    }

    /// A current or former participant. `None` for a user who never took part, and for a viewer who
    /// does not.
    pub async fn current_or_former(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        user: &UserId,
    ) -> Result<Option<Participant>> {
        let visible = self.access.visible_to(caller, &[conversation]).await?;
        if visible.iter().flatten().next().is_none() {
            return Ok(None);
        }
        Ok(self
            .store
            .participants_by_name(&[(conversation, user.clone())])
            .await?
            .pop()
            .flatten())
    }

    /// The current participants among these users, in their order. Empty for a viewer who does not
    /// take part.
    pub async fn named(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Vec<Participant>> {
        let visible = self.access.visible_to(caller, &[conversation]).await?;
        if visible.iter().flatten().next().is_none() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = users
            .iter()
            .map(|user| (conversation, user.clone()))
            .collect();
        let found = self.store.participants_by_name(&keys).await?;
        Ok(found
            .into_iter()
            .flatten()
            .filter(|participant| participant.membership.is_joined())
            .collect())
    }

    pub async fn counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        Ok(self.store.participant_counts(conversations).await?)
    }

    /// The participants of each conversation, from which the receipts of all its messages follow.
    /// `None` for a large conversation, whose messages have no receipts, and for one that the
    /// viewer does not take part in.
    pub async fn all(
        &self,
        caller: &Viewer,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Arc<[Participant]>>>> {
        let conversations = self.access.visible_to(caller, conversations).await?;
        try_join_all(
            conversations
                .into_iter()
                .map(|conversation| self.all_of_small(conversation)),
        )
        .await
    }

    async fn all_of_small(
        &self,
        conversation: Option<VisibleConversation>,
    ) -> Result<Option<Arc<[Participant]>>> {
        let Some(conversation) = conversation.filter(|conversation| !conversation.is_large) else {
            return Ok(None);
        };
        let page = PageRequest::first(Conversation::FAN_OUT_MAX);
        let page = self.store.participants(conversation.id, &page).await?;
        Ok(Some(page.items.into()))
    }

    /// A page of the receivers of a message, ordered by username (bytewise). The caller has checked
    /// the viewer's access.
    pub async fn receivers(
        &self,
        message: &Message,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        Ok(self
            .store
            .receivers(message.conversation, message.id, &message.sender, page)
            .await?)
    }

    /// The other participant of each direct conversation, or the viewer in a conversation with
    /// themselves. `None` for a viewer who takes no part. The caller has checked the viewer's access.
    pub async fn direct_peers(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<UserId>>> {
        let pairs = conversations.iter().map(|id| self.direct_pair(*id));
        let peer = |(pair, id): (Vec<UserId>, &ConversationId)| {
            if !pair.contains(viewer) {
                return None;
            }
            let peer = pair.into_iter().find(|user| user != viewer);
            // A user who is left alone by an erasure has no peer.
            peer.or_else(|| id.is_with_oneself(viewer).then(|| viewer.clone()))
        };
        let pairs = try_join_all(pairs).await?;
        Ok(pairs.into_iter().zip(conversations).map(peer).collect())
    }

    /// Reads the pair of a conversation again when it is needed.
    pub(crate) fn forget_pair(&self, conversation: ConversationId) {
        self.direct_pairs.lock().pop(&conversation);
    }

    /// The participants of a direct conversation. Nobody joins one, and only erased users leave, so a pair is
    /// cached. A single participant is not: an import may add the other one.
    async fn direct_pair(&self, conversation: ConversationId) -> Result<Vec<UserId>> {
        if let Some((pair, read_at)) = self.direct_pairs.lock().get(&conversation)
            && read_at.elapsed() < DIRECT_PAIR_KEPT
        {
            return Ok(pair.to_vec());
        }
        let page = PageRequest::first(2);
        let participants = self.store.participants(conversation, &page).await?.items;
        let users: Vec<_> = participants.into_iter().map(|one| one.user).collect();
        if let Ok(pair) = <[UserId; 2]>::try_from(users.clone()) {
            let read = (pair, Instant::now());
            self.direct_pairs.lock().put(conversation, read);
        }
        Ok(users)
    }

    pub async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        Ok(self.store.profiles(users).await?)
    }
}
