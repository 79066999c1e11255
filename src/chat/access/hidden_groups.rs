//! Groups that a block hides: those to which a blocked user has added the viewer, until the viewer acts there.
//!
//! For everyone else the viewer takes part in them, so that the blocked user cannot tell a block from a user who is
//! away. The user who added a participant is the sender of the SYSTEM message of the joining, and never changes, so it is
//! held in memory (read-through cache). Without that message, which may be removed or not stored yet, the creator of the
//! group stands for that user, and nothing is held.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::blocks::{BlockList, BlockLists};
use super::may_see;
use super::relationship::has_acted;
use crate::chat::error::Result;
use crate::model::{ConversationId, ConversationKind, MessageKind, OrderKey, Timestamp, UserId};
use crate::store::{Participation, Store};

/// Joinings whose user is held, and direct conversations.
const HELD_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");

pub(crate) struct HiddenGroups {
    store: Arc<dyn Store>,
    blocks: Arc<BlockLists>,
    adders: Mutex<LruCache<(ConversationId, Timestamp), UserId>>,
    /// Conversations that were found to be direct: no block hides them as a group.
    direct: Mutex<LruCache<ConversationId, ()>>,
}

impl HiddenGroups {
    pub(crate) fn new(store: Arc<dyn Store>, blocks: Arc<BlockLists>) -> Self {
        Self {
            store,
            blocks,
            adders: Mutex::new(LruCache::new(HELD_MAX)),
            direct: Mutex::new(LruCache::new(HELD_MAX)),
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
        let adder = self.adder(participation).await?;
        Ok(adder.is_some_and(|adder| blocks.has(&adder))
            && !has_acted(&*self.store, user, participation.conversation.id).await?)
    }

    /// The user who added a participant. `None` if nothing tells.
    async fn adder(&self, participation: &Participation) -> Result<Option<UserId>> {
        let (conversation, membership) = (&participation.conversation, participation.membership);
        // Those who took part from the beginning were chosen by the creator.
        let Some(since) = membership.since else {
            return Ok(conversation.created_by.clone());
        };
        let key = (conversation.id, since);
        if let Some(adder) = self.adders.lock().get(&key) {
            return Ok(Some(adder.clone()));
        }
        let position = OrderKey::first_at(since.plus_micros(1)).before();
        let positions = [(conversation.id, position)];
        let found = self.store.messages_at(&positions).await?.pop().flatten();
        let joining = found
            .filter(|message| message.kind == MessageKind::System && message.id.moment() == since);
        let Some(joining) = joining else {
            return Ok(conversation.created_by.clone());
        };
        self.adders.lock().put(key, joining.sender.clone());
        Ok(Some(joining.sender.clone()))
    }
}
