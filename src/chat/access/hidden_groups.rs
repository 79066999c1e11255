//! Groups that a block hides: those to which a blocked user has added the viewer, until the viewer acts there.
//!
//! For everyone else the viewer takes part in them, so that the blocked user cannot tell a block from a user who is
//! away. The user who added a participant is the sender of the SYSTEM message of the joining, and never changes, so it is
//! held in memory (read-through cache). Without that message, which may be removed or not stored yet, the creator of the
//! group stands for that user.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::blocks::{BlockList, BlockLists};
use super::may_see;
use super::relationship::has_acted;
use crate::chat::error::Result;
use crate::chat::in_flight_ids::InFlightIds;
use crate::model::{ConversationId, ConversationKind, MessageKind, OrderKey, Timestamp, UserId};
use crate::store::{Participation, Store};

/// Joinings whose user is held, and direct conversations.
const HELD_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");
/// Age of a joining from which on its message is stored, or was removed.
const STORED_WITHIN_MICROS: i64 = 600_000_000;

pub(crate) struct HiddenGroups {
    store: Arc<dyn Store>,
    blocks: Arc<BlockLists>,
    adders: Mutex<LruCache<(ConversationId, Timestamp), UserId>>,
    /// Conversations that were found to be direct: no block hides them as a group.
    direct: Mutex<LruCache<ConversationId, ()>>,
    in_flight: InFlightIds,
}

impl HiddenGroups {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        blocks: Arc<BlockLists>,
        in_flight: InFlightIds,
    ) -> Self {
        Self {
            store,
            blocks,
            adders: Mutex::new(LruCache::new(HELD_MAX)),
            direct: Mutex::new(LruCache::new(HELD_MAX)),
            in_flight,
        }
    }

    /// Takes out the groups that are hidden from the viewer. It reads only for viewers who block somebody.
    pub(super) async fn take_hidden(
        &self,
        viewer: &UserId,
        found: &mut [Option<Participation>],
    ) -> Result<()> {
        // A stranger's question reads no more than anybody's.
        let is_group = |one: &Participation| one.conversation.kind == ConversationKind::Group;
        if !found.iter().flatten().any(is_group) {
            return Ok(());
        }
        let blocks = self.blocks.of(viewer).await?;
        if blocks.is_empty() {
            return Ok(());
        }
        let groups = found.iter().flatten().filter(|one| is_group(one));
        self.load_adders(groups).await?;
        for participation in found {
            if let Some(of_group) = participation
                && self.is_hidden(viewer, &blocks, of_group).await?
            {
                *participation = None;
            }
        }
        Ok(())
    }

    /// Whether a group is hidden from a participant. One who has left or was removed hears of it.
    pub(crate) async fn hides(&self, user: &UserId, id: ConversationId) -> Result<bool> {
        let blocks = self.blocks.of(user).await?;
        if blocks.is_empty() || self.direct.lock().get(&id).is_some() {
            return Ok(false);
        }
        let found = self.store.participations(user, &[id]).await?.pop();
        match found.flatten().filter(may_see) {
            Some(participation) => self.is_hidden(user, &blocks, &participation).await,
            None => Ok(false),
        }
    }

    async fn is_hidden(
        &self,
        user: &UserId,
        blocks: &BlockList,
        participation: &Participation,
    ) -> Result<bool> {
        if participation.conversation.kind != ConversationKind::Group {
            self.direct.lock().put(participation.conversation.id, ());
            return Ok(false);
        }
        self.load_adders([participation]).await?;
        let adder = self.adder(participation);
        Ok(adder.is_some_and(|adder| blocks.has(&adder))
            && !has_acted(&*self.store, user, participation.conversation.id).await?)
    }

    /// The user who added a participant, as far as it was loaded. `None` if nothing tells.
    fn adder(&self, participation: &Participation) -> Option<UserId> {
        let (conversation, membership) = (&participation.conversation, participation.membership);
        // Those who took part from the beginning were chosen by the creator.
        let loaded = membership
            .since
            .and_then(|since| self.adders.lock().get(&(conversation.id, since)).cloned());
        loaded.or_else(|| conversation.created_by.clone())
    }

    /// Loads the users who added these participants, in one read.
    async fn load_adders(&self, all: impl IntoIterator<Item = &Participation>) -> Result<()> {
        let missing: Vec<_> = {
            let adders = self.adders.lock();
            let of = |one: &Participation| Some((one.conversation.clone(), one.membership.since?));
            let joinings = all.into_iter().filter_map(of);
            joinings
                .filter(|(conversation, since)| !adders.contains(&(conversation.id, *since)))
                .collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let position = |since: &Timestamp| OrderKey::first_at(since.plus_micros(1)).before();
        let positions: Vec<_> = missing
            .iter()
            .map(|(conversation, since)| (conversation.id, position(since)))
            .collect();
        let found = self.store.messages_at(&positions).await?;
        let settled_by = self.in_flight.now().plus_micros(-STORED_WITHIN_MICROS);
        for ((conversation, since), message) in missing.into_iter().zip(found) {
            let joining = message.filter(|message| {
                message.kind == MessageKind::System && message.id.moment() == since
            });
            let adder = match joining {
                Some(joining) => Some(joining.sender.clone()),
                // It was removed.
                None if since < settled_by => conversation.created_by.clone(),
                None => None,
            };
            if let Some(adder) = adder {
                self.adders.lock().put((conversation.id, since), adder);
            }
        }
        Ok(())
    }
}
