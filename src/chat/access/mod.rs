//! Access: the only component that decides what a viewer may see.

pub(crate) mod authority;
pub(crate) mod blocks;
pub(crate) mod floor;
pub(crate) mod form_gate;
pub(crate) mod hidden_groups;
pub(crate) mod leave_epoch;
pub(crate) mod membership_guard;
pub(crate) mod membership_versions;
pub(crate) mod participant_cache;
pub(crate) mod relationship;
mod restriction_state;
pub(crate) mod restrictions;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use self::blocks::BlockLists;
pub use self::floor::VisibleConversation;
use self::floor::{FloorRule, expired_at};
use self::form_gate::FormGate;
use self::hidden_groups::HiddenGroups;
use self::leave_epoch::LeaveEpoch;
use self::membership_versions::MembershipVersions;
use self::participant_cache::ParticipantCache;
use crate::bus::Bus;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::publisher::Publisher;
use crate::model::{
    Conversation, ConversationId, ConversationKind, Floor, IdempotencyKey, Membership,
    MembershipState, Message, OrderKey, OwnFloor, ServiceRight, Timestamp, UserId, Viewer,
};
use crate::store::{Participation, Store};

/// Age of messages that no expiry takes.
const YOUNG: Duration = Duration::from_secs(60);

pub struct Access {
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
    leave_epoch: Arc<LeaveEpoch>,
    participant_cache: ParticipantCache,
    membership_versions: MembershipVersions,
    blocks: Arc<BlockLists>,
    hidden_groups: HiddenGroups,
    forms: FormGate,
    floors: FloorRule,
}

impl Access {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        bus: Bus,
        in_flight: InFlightIds,
        publisher: Arc<Publisher>,
        retention_seconds: Option<u32>,
    ) -> Self {
        let leave_epoch = Arc::<LeaveEpoch>::default();
        let participant_cache =
            ParticipantCache::new(Arc::clone(&store), bus, Arc::clone(&leave_epoch));
        let membership_versions =
            MembershipVersions::new(Arc::clone(&store), Arc::clone(&leave_epoch));
        let blocks = BlockLists::new(
            Arc::clone(&store),
            publisher,
            Arc::clone(&leave_epoch),
            in_flight.is_shared(),
        );
        let blocks = Arc::new(blocks);
        let hidden_groups =
            HiddenGroups::new(Arc::clone(&store), Arc::clone(&blocks), in_flight.clone());
        let forms = FormGate::new(Arc::clone(&store));
        Self {
            store,
            in_flight,
            leave_epoch,
            participant_cache,
            membership_versions,
            blocks,
            hidden_groups,
            forms,
            floors: FloorRule { retention_seconds },
        }
    }

    /// The conversations in which the viewer takes part now; `None` for all others.
    pub async fn conversations(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        let participations = self.participations(viewer, ids).await?.into_iter();
        let conversation = |own: Option<Participation>| own.map(|own| own.conversation);
        Ok(participations.map(conversation).collect())
    }

    /// The viewer's present participations, in groups that a block hides too.
    async fn joined(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        let participations = self.store.participations(viewer, ids).await?.into_iter();
        Ok(participations.map(|one| one.filter(may_see)).collect())
    }

    /// The viewer's participations in the conversations that they may see.
    async fn participations(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        let mut participations = self.joined(viewer, ids).await?;
        let hidden = &self.hidden_groups;
        hidden.take_hidden(viewer, &mut participations).await?;
        Ok(participations)
    }

    /// The conversations in which the viewer takes part now, with the viewer's floors.
    pub async fn visible(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<VisibleConversation>>> {
        let participations = self.participations(viewer, ids).await?.into_iter();
        let visible = |own: Option<Participation>| Some(self.visible_in(&own?));
        Ok(participations.map(visible).collect())
    }

    /// The conversations that the caller may read: those of [`Self::visible`], and for a service that
    /// reads every conversation, all. A service has no floor of its own.
    pub async fn visible_to(
        &self,
        caller: &Viewer,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<VisibleConversation>>> {
        if !caller.may(ServiceRight::Read) {
            return self.visible(&caller.user, ids).await;
        }
        let all = self.store.conversations(ids).await?;
        let visible = |conversation| self.without_own_floor(conversation);
        Ok(all.into_iter().map(|one| one.map(visible)).collect())
    }

    /// The same for the plain viewer of an execution whose payload others share: without a floor of
    /// the viewer's own.
    pub async fn plainly_visible_to(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<VisibleConversation>>> {
        let all = self.conversations(viewer, ids).await?;
        let visible = |conversation| self.without_own_floor(conversation);
        Ok(all.into_iter().map(|one| one.map(visible)).collect())
    }

    fn without_own_floor(&self, conversation: Arc<Conversation>) -> VisibleConversation {
        self.visible_above(conversation, OwnFloor::NONE)
    }

    /// A conversation as a participant sees it.
    pub(crate) fn visible_in(&self, participation: &Participation) -> VisibleConversation {
        let own = participation.membership.own_floor();
        self.visible_above(Arc::clone(&participation.conversation), own)
    }

    /// A conversation as a viewer with this bound of their own sees it.
    pub(crate) fn visible_above(
        &self,
        conversation: Arc<Conversation>,
        own_floor: OwnFloor,
    ) -> VisibleConversation {
        VisibleConversation::new(self.floors, conversation, own_floor, self.now())
    }

    /// The floor of a participant.
    pub(crate) fn floor_of(&self, participation: &Participation) -> Floor {
        let own = participation.membership.own_floor();
        self.floor_above(&participation.conversation, own)
    }

    /// The floor of a viewer with this bound of their own.
    pub(crate) fn floor_above(&self, conversation: &Conversation, own_floor: OwnFloor) -> Floor {
        self.floors.floor(conversation, own_floor, self.now())
    }

    /// Takes out the messages that are gone for everyone. An expiry takes at least a minute, so that a
    /// younger message is not looked at: it is gone only if somebody has just truncated the conversation.
    pub(crate) async fn retain_visible(&self, messages: &mut [Option<Arc<Message>>]) -> Result<()> {
        let young = self.in_flight.allocated_before(YOUNG);
        let is_old = |message: &&Arc<Message>| message.id.order_key() <= young;
        let old = messages.iter().flatten().filter(is_old);
        let mut ids: Vec<_> = old.map(|message| message.conversation).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(());
        }
        let conversations = self.store.conversations(&ids).await?;
        let floors = conversations.into_iter().flatten().map(|conversation| {
            let floor = self.floor_above(&conversation, OwnFloor::NONE);
            (conversation.id, floor)
        });
        let floors: HashMap<_, _> = floors.collect();
        for message in messages {
            message.take_if(|message| {
                let floor = floors.get(&message.conversation);
                floor.is_some_and(|floor| !floor.shows(message.id))
            });
        }
        Ok(())
    }

    /// Moment before which all messages of a conversation are gone for everyone.
    pub fn gone_before(&self, conversation: &Conversation) -> Timestamp {
        let floor = self.floor_above(conversation, OwnFloor::NONE);
        floor.key.moment().plus_micros(1)
    }

    /// The last position that had expired at a moment. `None` without an expiry.
    pub(crate) fn expired_at(
        &self,
        conversation: &Conversation,
        at: Timestamp,
    ) -> Option<OrderKey> {
        let ttl = self.ttl_seconds(conversation);
        ttl.map(|seconds| expired_at(at, seconds))
    }

    /// Seconds after which messages of a conversation expire: by its own setting, or the
    /// deployment's where that is shorter.
    pub fn ttl_seconds(&self, conversation: &Conversation) -> Option<u32> {
        self.floors.ttl_seconds(&conversation.history)
    }

    pub async fn conversation(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Option<Arc<Conversation>>> {
        Ok(self.conversations(viewer, &[id]).await?.pop().flatten())
    }

    /// Like [`Self::visible`], with an error for a viewer who does not take part.
    pub(crate) async fn require_visible(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<VisibleConversation> {
        let participation = self.participation(viewer, id).await?;
        Ok(self.visible_in(&participation))
    }

    /// Like [`Self::conversation`], with an error for a viewer who does not take part.
    pub(crate) async fn require_conversation(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Arc<Conversation>> {
        self.conversation(viewer, id)
            .await?
            .ok_or(Error::NotFound("the conversation"))
    }

    pub(crate) async fn participation(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Participation> {
        let participation = self.participations(viewer, &[id]).await?.pop().flatten();
        participation.ok_or(Error::NotFound("the conversation"))
    }

    /// The time by which bans and silences end.
    pub(crate) fn now(&self) -> Timestamp {
        self.in_flight.now()
    }

    /// The rule of everything that a silenced participant may not do. A service that moderates is never
    /// silenced.
    pub(crate) fn require_unsilenced(
        &self,
        caller: &Viewer,
        participation: &Participation,
    ) -> Result<()> {
        match self.is_silenced(&participation.membership) && !caller.may(ServiceRight::Moderate) {
            true => Err(silenced()),
            false => Ok(()),
        }
    }

    pub(crate) fn is_silenced(&self, membership: &Membership) -> bool {
        membership.silence_at(self.in_flight.now()).is_some()
    }

    /// The rule of a participant who writes: neither silenced, nor the one who blocks the other of a direct
    /// conversation.
    pub(crate) async fn require_writer(
        &self,
        caller: &Viewer,
        participation: &Participation,
    ) -> Result<()> {
        self.require_unsilenced(caller, participation)?;
        self.require_unhidden(&caller.user, &participation.conversation)
            .await
    }

    /// The participation of a viewer who is about to write. Later ids are greater than all that
    /// other servers have written there.
    pub(crate) async fn participation_for_write(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Participation> {
        self.for_write(self.participation(viewer, id), id).await
    }

    async fn for_write(
        &self,
        participation: impl Future<Output = Result<Participation>>,
        id: ConversationId,
    ) -> Result<Participation> {
        if !self.in_flight.is_shared() {
            return participation.await;
        }
        let participation = pin!(participation);
        let conversations = [id];
        let newest = pin!(self.store.newest_events(&conversations));
        // The membership decides: a stranger's answer does not wait for the conversation.
        let (participation, newest) = match select(participation, newest).await {
            Either::Left((participation, newest)) => (participation?, newest.await?),
            Either::Right((newest, participation)) => (participation.await?, newest?),
        };
        self.in_flight.observe(id, newest.into_iter().flatten());
        Ok(participation)
    }

    /// Whether a conversation is hidden from the viewer: the direct one with a user whom they block.
    pub(crate) async fn is_hidden(
        &self,
        viewer: &UserId,
        conversation: &Conversation,
    ) -> Result<bool> {
        Ok(conversation.kind == ConversationKind::Direct
            && self.blocks.of(viewer).await?.hides(conversation.id))
    }

    /// Groups that a block hides from a participant.
    pub(crate) fn hidden_groups(&self) -> &HiddenGroups {
        &self.hidden_groups
    }

    /// The rule of everything but deletions, marks and reads of history.
    pub(crate) async fn require_unhidden(
        &self,
        viewer: &UserId,
        conversation: &Conversation,
    ) -> Result<()> {
        if self.is_hidden(viewer, conversation).await? {
            return Err(Error::Forbidden("you have blocked this user"));
        }
        Ok(())
    }

    /// The gate of a rolling upgrade: mutations that write a new form ask it first.
    pub(crate) fn forms(&self) -> &FormGate {
        &self.forms
    }

    pub fn blocks(&self) -> &Arc<BlockLists> {
        &self.blocks
    }

    pub(crate) fn membership_versions(&self) -> &MembershipVersions {
        &self.membership_versions
    }

    pub(crate) fn leave_epoch(&self) -> &LeaveEpoch {
        &self.leave_epoch
    }
}

/// The idempotency key of a message, visible to its sender only.
pub fn client_key<'a>(viewer: &UserId, message: &'a Message) -> Option<&'a str> {
    message
        .client_key
        .as_ref()
        .filter(|_| message.sender == *viewer)
        .map(IdempotencyKey::as_str)
}

/// The refusal of a participant who reads but may not write.
pub(crate) fn silenced() -> Error {
    Error::Forbidden("you are silenced in this conversation: you read, and may not write")
}

fn may_see(participation: &Participation) -> bool {
    participation.membership.state == MembershipState::Joined
}
