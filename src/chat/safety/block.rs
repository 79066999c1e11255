//! Blocks: the commands of a user who blocks another one, and the list of blocked users.
//!
//! The blocked user must be able to tell nothing. So a block writes nothing that the blocked user
//! reads, and changes no answer to them but that the blocker is not added.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::chat::access::blocks::BlockLists;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::write_tasks::WriteTasks;
use crate::model::{
    Block, ChangeId, ConversationId, OrderKey, Page, PageRequest, ReadMarker, UserId,
};
use crate::store::{MarkerMove, Store};

/// Position in the list of blocked users: the newest block first, then by username (bytewise).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockKey {
    change: Reverse<OrderKey>,
    pub user: UserId,
}

impl BlockKey {
    pub fn new(change: OrderKey, user: UserId) -> Self {
        Self {
            change: Reverse(change),
            user,
        }
    }

    /// Id of the change that began the block, in order.
    pub fn change(&self) -> OrderKey {
        self.change.0
    }

    fn of(block: &Block) -> Self {
        Self::new(block.change.order_key(), block.blocked.clone())
    }
}

/// Result of a block.
#[derive(Debug)]
pub struct Blocked {
    pub key: BlockKey,
    /// The direct conversation that left the viewer's inbox.
    pub removed: Option<ConversationId>,
}

/// Result of the end of a block.
#[derive(Debug)]
pub struct Unblocked {
    pub user: UserId,
    /// The direct conversation in the viewer's inbox.
    pub direct: Option<ConversationId>,
}

pub struct BlockService {
    store: Arc<dyn Store>,
    lists: Arc<BlockLists>,
    in_flight: InFlightIds,
    tasks: Arc<WriteTasks>,
}

impl BlockService {
    pub(crate) fn new(components: &Components) -> Self {
        Self {
            store: Arc::clone(&components.store),
            lists: Arc::clone(components.access.blocks()),
            in_flight: components.in_flight.clone(),
            tasks: Arc::clone(&components.tasks),
        }
    }

    /// Blocks a user. A second block changes nothing.
    pub async fn block(self: &Arc<Self>, viewer: &UserId, username: &str) -> Result<Blocked> {
        let user = parse_other(viewer, username)?;
        let (blocks, viewer) = (Arc::clone(self), viewer.clone());
        self.tasks
            .run_to_completion(async move {
                let block = blocks.begin(&viewer, &user).await?;
                Ok(Blocked {
                    key: BlockKey::of(&block),
                    removed: blocks.lists.direct(&viewer, &user).await?,
                })
            })
            .await
    }

    /// Ends a block. Without one, nothing changes.
    pub async fn unblock(self: &Arc<Self>, viewer: &UserId, username: &str) -> Result<Unblocked> {
        let user = parse_other(viewer, username)?;
        let (blocks, viewer) = (Arc::clone(self), viewer.clone());
        self.tasks
            .run_to_completion(async move {
                let direct = blocks.lists.direct(&viewer, &user).await?;
                blocks.end(&viewer, &user, direct).await?;
                Ok(Unblocked { user, direct })
            })
            .await
    }

    /// Whether the viewer blocks a user.
    pub async fn has(&self, viewer: &UserId, user: &UserId) -> Result<bool> {
        Ok(self.lists.of(viewer).await?.has(user))
    }

    /// A page of the users whom the viewer blocks, the newest block first.
    pub async fn page(
        &self,
        viewer: &UserId,
        request: &PageRequest<BlockKey>,
    ) -> Result<Page<BlockKey>> {
        let list = self.lists.of(viewer).await?;
        let mut keys: Vec<_> = list.active().map(BlockKey::of).collect();
        keys.sort_unstable();
        Ok(Page::of_sorted(&keys, request))
    }

    async fn begin(&self, viewer: &UserId, user: &UserId) -> Result<Block> {
        // The truth, and not what this server holds.
        let stored = self.store.blocks(viewer).await?;
        let earlier = stored.iter().find(|block| block.blocked == *user);
        if let Some(block) = earlier.filter(|block| block.is_on) {
            self.lists.on_change(viewer, block).await?;
            return Ok(block.clone());
        }
        if stored.iter().filter(|block| block.is_on).count() >= Block::COUNT_MAX {
            return Err(Error::TooMany(
                "you block 1,000 users already, which is the most: unblock some of them first",
            ));
        }
        if earlier.is_none() && stored.len() >= Block::KEPT_MAX {
            return Err(Error::Full(
                "you have blocked and unblocked too many users in the last 35 days",
            ));
        }
        let direct = self.lists.direct_id(viewer, user).await?;
        self.set(viewer, user, direct, earlier, true).await
    }

    async fn end(
        &self,
        viewer: &UserId,
        user: &UserId,
        direct: Option<ConversationId>,
    ) -> Result<()> {
        let stored = self.store.blocks(viewer).await?;
        let earlier = stored.iter().find(|block| block.blocked == *user);
        let Some(block) = earlier.filter(|block| block.is_on) else {
            if let Some(ended) = earlier {
                self.lists.on_change(viewer, ended).await?;
            }
            return Ok(());
        };
        if let Some(direct) = direct {
            self.catch_up(viewer, direct).await?;
        }
        let id = self.lists.direct_id(viewer, user).await?;
        self.set(viewer, user, id, Some(block), false).await?;
        Ok(())
    }

    /// Persists a change of a block, and publishes it. Its id is allocated in the direct conversation
    /// of both users, and is greater than that of the change before.
    async fn set(
        &self,
        viewer: &UserId,
        user: &UserId,
        direct: ConversationId,
        earlier: Option<&Block>,
        is_on: bool,
    ) -> Result<Block> {
        let earlier = earlier.map(|block| block.change);
        self.in_flight.observe(direct, earlier);
        let lease = self.in_flight.allocate(direct, 1).await?;
        let block = Block {
            blocked: user.clone(),
            is_on,
            change: later_than(earlier, lease.newest()),
        };
        let written = self.store.set_block(viewer, &block).await;
        let (_lease, ()) = lease.if_persisted(written)?;
        self.lists.on_change(viewer, &block).await?;
        Ok(block)
    }

    /// Moves the viewer's marker to the newest message, without a receipt: what was sent during the
    /// block is not unread after it.
    async fn catch_up(&self, viewer: &UserId, direct: ConversationId) -> Result<()> {
        let row = self.store.inbox_rows(viewer, &[direct]).await?.pop();
        let Some(row) = row.flatten() else {
            return Ok(());
        };
        let Some(last) = row.last_message.filter(|_| row.may_be_unread()) else {
            return Ok(());
        };
        self.in_flight.observe(direct, [last]);
        let lease = self.in_flight.allocate(direct, 1).await?;
        let to = MarkerMove {
            conversation: direct,
            marker: ReadMarker {
                epoch: row.marker.epoch,
                up_to: last.order_key(),
            },
            read_up_to: None,
            is_by_service: false,
            change: lease.newest(),
        };
        let written = self.store.move_read_marker(viewer, &to).await;
        lease.if_persisted(written)?;
        Ok(())
    }
}

/// An id that no clock has set back behind the change before.
fn later_than(earlier: Option<ChangeId>, id: ChangeId) -> ChangeId {
    match earlier {
        Some(earlier) if earlier >= id => ChangeId::new(earlier.moment().plus_micros(1), [0; 8]),
        Some(_) | None => id,
    }
}

fn parse_other(viewer: &UserId, username: &str) -> Result<UserId> {
    const PATH: &[&str] = &["input", "username"];
    let user = UserId::parse(username).map_err(|error| Error::bad_input(PATH, error))?;
    if user == *viewer {
        return Err(Error::bad_input(PATH, "you cannot block yourself"));
    }
    Ok(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_block_comes_first() {
        let key = |micros: u8, name: &str| {
            BlockKey::new(OrderKey([micros; 16]), UserId::parse(name).unwrap())
        };
        let mut keys = [key(1, "ann"), key(2, "cat"), key(2, "ben")];
        keys.sort_unstable();
        assert_eq!(keys, [key(2, "ben"), key(2, "cat"), key(1, "ann")]);
    }
}
