//! Membership guard of a stream: checks that the viewer still takes part before the stream delivers
//! anything.

use std::sync::Arc;

use tokio::time::Instant;

use super::Access;
use super::blocks::BlockList;
use super::leave_epoch::ReadMoment;
use super::membership_versions::SeenVersion;
use super::participant_cache::ParticipantSnapshot;
use crate::chat::error::{Error, Result};
use crate::model::{
    Conversation, ConversationId, ConversationKind, Event, Floor, MessageId, OrderKey, OwnFloor,
    UserId, Viewer,
};

pub struct MembershipGuard {
    access: Arc<Access>,
    viewer: UserId,
    conversation: Arc<Conversation>,
    /// The viewer's own part of their floor.
    own_floor: OwnFloor,
    read: ReadMoment,
    /// Version of the membership at the last check, where it is known.
    seen: Option<SeenVersion>,
    /// Whether the viewer's blocks were known when the stream began.
    has_seen_blocks: bool,
}

impl MembershipGuard {
    /// Call after the stream has subscribed to its topic, so that it receives every departure from
    /// now on. Whether the conversation is large is read after `not_before`.
    pub(crate) async fn begin(
        access: &Arc<Access>,
        caller: &Viewer,
        id: ConversationId,
        not_before: Option<Instant>,
    ) -> Result<Self> {
        let viewer = &caller.user;
        let guard = match Self::of_participant(access, viewer, id, not_before).await {
            Ok(guard) => guard,
            Err(error) => return Err(access.refusal(caller, id, error).await),
        };
        // A list that is not held is read before the first delivery, which then ends the stream.
        match access.blocks().held(viewer) {
            Some(held) if held.hides(id) => Err(Error::Forbidden("you have blocked this user")),
            Some(held) if held.is_empty() => Ok(guard),
            Some(_) if Box::pin(access.hidden_groups().hides(viewer, id)).await? => {
                Err(Error::NotFound("the conversation"))
            }
            Some(_) => Ok(guard),
            None => Ok(Self {
                has_seen_blocks: false,
                ..guard
            }),
        }
    }

    async fn of_participant(
        access: &Arc<Access>,
        viewer: &UserId,
        id: ConversationId,
        not_before: Option<Instant>,
    ) -> Result<Self> {
        let cached = access.participant_cache.cached(viewer, id);
        if let Some(snapshot) = cached.filter(|cached| {
            cached.conversation.is_large
                || not_before.is_none_or(|not_before| cached.read.at() >= not_before)
        }) {
            return Ok(Self::of_snapshot(access, viewer, snapshot));
        }
        // The viewer's own membership is checked first, so a stranger never waits for the shared
        // read of the participants.
        let read = access.leave_epoch.read_moment();
        let seen = access.membership_versions.recent(id);
        let own = access.joined(viewer, &[id]).await?.pop().flatten();
        let own = own.ok_or(Error::NotFound("the conversation"))?;
        let (conversation, own_floor) = (own.conversation, own.membership.own_floor());
        // The first of many streams reads the participants for all of them.
        match access.participant_cache.snapshot(viewer, id).await? {
            Some(snapshot) if snapshot.conversation.is_large || !conversation.is_large => {
                Ok(Self::of_snapshot(access, viewer, snapshot))
            }
            Some(snapshot) => {
                let seen_by = (snapshot.read, seen);
                Ok(Self::new(access, viewer, conversation, own_floor, seen_by))
            }
            None => Ok(Self::new(
                access,
                viewer,
                conversation,
                own_floor,
                (read, seen),
            )),
        }
    }

    /// Reads whether the conversation has become large.
    pub(crate) async fn recheck_size(&mut self) -> Result<()> {
        let (access, viewer) = (&self.access, &self.viewer);
        if !self.conversation.is_large
            && let Some(conversation) = access.conversation(viewer, self.conversation.id).await?
        {
            self.conversation = conversation;
        }
        Ok(())
    }

    fn of_snapshot(access: &Arc<Access>, viewer: &UserId, snapshot: ParticipantSnapshot) -> Self {
        let seen = Some(SeenVersion(snapshot.version));
        let own_floor = snapshot.own_floor(viewer);
        let seen_by = (snapshot.read, seen);
        Self::new(access, viewer, snapshot.conversation, own_floor, seen_by)
    }

    fn new(
        access: &Arc<Access>,
        viewer: &UserId,
        conversation: Arc<Conversation>,
        own_floor: OwnFloor,
        (read, seen): (ReadMoment, Option<SeenVersion>),
    ) -> Self {
        Self {
            access: Arc::clone(access),
            viewer: viewer.clone(),
            conversation,
            own_floor,
            read,
            seen,
            has_seen_blocks: true,
        }
    }

    /// Reads the membership again. `None` if the viewer no longer takes part.
    async fn renewed(&self) -> Result<Option<Self>> {
        let (access, viewer, id) = (&self.access, &self.viewer, self.conversation.id);
        if access.in_flight.is_shared() && self.conversation.is_large {
            let last = self.seen.map(|seen| (seen, self.own_floor));
            let checked = access.membership_versions.check(viewer, id, last);
            return Ok(checked.await?.map(|checked| {
                let seen_by = (checked.read, Some(checked.seen));
                let own_floor = checked.own_floor;
                Self::new(access, viewer, checked.conversation, own_floor, seen_by)
            }));
        }
        if let Some(snapshot) = access.participant_cache.snapshot(viewer, id).await? {
            return Ok(Some(Self::of_snapshot(access, viewer, snapshot)));
        }
        let read = access.leave_epoch.read_moment();
        let visible = access.visible(viewer, &[id]).await?.pop().flatten();
        Ok(visible.map(|visible| {
            let own_floor = visible.own_floor;
            Self::new(
                access,
                viewer,
                visible.conversation,
                own_floor,
                (read, None),
            )
        }))
    }

    pub fn viewer(&self) -> &UserId {
        &self.viewer
    }

    /// The conversation at the last check.
    pub(crate) fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// The viewer's floor, by the membership at the last check.
    pub(crate) fn floor(&self) -> Floor {
        self.access.floor_above(&self.conversation, self.own_floor)
    }

    /// The viewer's own part of that floor.
    pub fn own_floor(&self) -> OrderKey {
        self.own_floor.key()
    }

    /// The bound of events without a message, by the membership at the last check.
    pub(crate) fn visible_from(&self) -> OrderKey {
        self.own_floor.visible_from
    }

    /// Whether the viewer may see an event at this position, with this message.
    pub(crate) fn shows(&self, position: OrderKey, message: Option<MessageId>) -> bool {
        match message {
            Some(message) => self.floor().shows(message),
            None => position > self.visible_from(),
        }
    }

    /// Whether the viewer still takes part. It reads the store only if a user has left some
    /// conversation, or on a shared store after the lifetime of a membership.
    pub(crate) async fn may_still_see(&mut self) -> Result<bool> {
        if !std::mem::replace(&mut self.has_seen_blocks, true) {
            // Boxed: a waiting stream would reserve its size.
            let (hidden, id) = (self.access.hidden_groups(), self.conversation.id);
            if Box::pin(hidden.hides(&self.viewer, id)).await? {
                return Ok(false);
            }
        }
        Ok(self.still_takes_part().await? && !self.is_hidden_direct().await?)
    }

    /// Whether a block hides the conversation from the viewer.
    pub(crate) async fn is_hidden(&self) -> Result<bool> {
        let hidden = self.access.hidden_groups();
        Ok(self.is_hidden_direct().await?
            || Box::pin(hidden.hides(&self.viewer, self.conversation.id)).await?)
    }

    /// Whether the viewer has blocked the other participant of a direct conversation. It reads the
    /// store only if the viewer's list is not held.
    async fn is_hidden_direct(&self) -> Result<bool> {
        if self.conversation.kind != ConversationKind::Direct {
            return Ok(false);
        }
        let (access, viewer) = (&self.access, &self.viewer);
        if let Some(held) = access.blocks().held(viewer) {
            return Ok(held.hides(self.conversation.id));
        }
        // Boxed: the future is rarely polled, and every waiting stream would reserve its size.
        Box::pin(access.is_hidden(viewer, &self.conversation)).await
    }

    /// Whether the viewer blocks a user.
    pub(crate) async fn has_blocked(&self, user: &UserId) -> Result<bool> {
        Ok(self.blocks().await?.has(user))
    }

    /// Whether a user blocks the viewer.
    pub(crate) async fn is_blocked_by(&self, user: &UserId) -> Result<bool> {
        let lists = self.access.blocks();
        let list = match lists.held(user) {
            Some(held) => held,
            None => Box::pin(lists.of(user)).await?,
        };
        Ok(list.has(&self.viewer))
    }

    /// Whether the event says that the viewer has blocked or unblocked somebody.
    pub(crate) fn is_own_block(&self, event: &Event) -> bool {
        matches!(event, Event::BlockChanged(block) if block.blocker == self.viewer)
    }

    /// The viewer's block list. It reads the store only if the list is not held.
    pub(crate) async fn blocks(&self) -> Result<Arc<BlockList>> {
        let lists = self.access.blocks();
        match lists.held(&self.viewer) {
            Some(held) => Ok(held),
            // Boxed: the future is rarely polled, and every waiting stream would reserve its size.
            None => Ok(Box::pin(lists.of(&self.viewer)).await?),
        }
    }

    async fn still_takes_part(&mut self) -> Result<bool> {
        let may_be_stale = self.access.in_flight.is_shared() && self.read.has_expired();
        if !may_be_stale && self.access.leave_epoch.is_current(self.read) {
            return Ok(true);
        }
        // Boxed: the future is rarely polled, and every waiting stream would reserve its size.
        let Some(renewed) = Box::pin(self.renewed()).await? else {
            return Ok(false);
        };
        *self = renewed;
        Ok(true)
    }

    /// Whether the viewer takes part at this moment, according to the store. If so, the viewer was
    /// allowed to see everything read so far.
    pub async fn is_in(&self) -> bool {
        matches!(
            self.access
                .conversation(&self.viewer, self.conversation.id)
                .await,
            Ok(Some(_))
        )
    }
}
