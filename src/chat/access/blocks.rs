//! Block lists: the users whom each user blocks, held in memory (read-through cache).
//!
//! A block hides the direct conversation of both users from the blocker. Its id follows from the
//! two names, so a list hides also a conversation that the blocked user starts later, and nothing
//! has to be written when it starts. Sends and inbox pages cost no more for it.
//!
//! On a shared store the servers poll the log of changes (`access::restrictions`), so a list is at
//! most two seconds old.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::leave_epoch::LeaveEpoch;
use crate::chat::publisher::Publisher;
use crate::model::{
    Block, BlockNotice, ConversationId, DirectIds, IgnoredSenders, OrderKey, Timestamp, UserId,
};
use crate::store::{Result, Store};

/// Users whose lists are held, most of them empty.
const LISTS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");
/// Blocks in all lists.
const BLOCKS_MAX: usize = 500_000;
/// Lifetime of a list from a shared store: a bound for what a poll may ever have missed.
const LIFETIME: Duration = Duration::from_secs(3_600);
const CONCURRENCY: usize = 16;

/// The blocks of one user.
#[derive(Debug, Default)]
pub struct BlockList {
    /// Those that are on, and those that ended lately.
    blocks: HashMap<UserId, Block>,
    /// Direct conversations with the blocked users, whether they exist or not.
    directs: HashMap<UserId, ConversationId>,
    hidden: HashSet<ConversationId>,
    ignored: IgnoredSenders,
}

impl BlockList {
    /// Whether the user blocks this one.
    pub fn has(&self, user: &UserId) -> bool {
        self.since(user).is_some()
    }

    /// Start of the block of this user, if it is on.
    pub(crate) fn since(&self, user: &UserId) -> Option<Timestamp> {
        let block = self.blocks.get(user).filter(|block| block.is_on)?;
        Some(block.change.moment())
    }

    /// Whether a conversation is the direct one with a blocked user.
    pub(crate) fn hides(&self, conversation: ConversationId) -> bool {
        self.hidden.contains(&conversation)
    }

    /// The blocked users, as senders whose messages are never unread.
    pub(crate) fn ignored(&self) -> &IgnoredSenders {
        &self.ignored
    }

    /// Whether the user blocks nobody.
    pub(crate) fn is_empty(&self) -> bool {
        self.directs.is_empty()
    }

    /// The blocks that are on, in no order.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values().filter(|block| block.is_on)
    }

    /// Blocks that began or ended after a position, in the order of the changes.
    pub(crate) fn changed_after(&self, position: OrderKey) -> Vec<Block> {
        let is_new = |block: &&Block| block.change.order_key() > position;
        let mut changed: Vec<_> = self.blocks.values().filter(is_new).cloned().collect();
        changed.sort_unstable_by_key(|block| block.change);
        changed
    }
}

/// Lists in memory, with the number of their blocks.
struct HeldLists {
    lists: LruCache<UserId, HeldList>,
    blocks: usize,
}

#[derive(Clone)]
struct HeldList {
    list: Arc<BlockList>,
    read_at: Instant,
    /// Number of the read. A later one is at least as new.
    read: u64,
}

impl HeldLists {
    fn put(&mut self, user: &UserId, held: HeldList) {
        if let Some(present) = self.lists.peek(user)
            && present.read > held.read
        {
            return;
        }
        self.blocks += held.list.blocks.len();
        if let Some((_, evicted)) = self.lists.push(user.clone(), held) {
            self.blocks -= evicted.list.blocks.len();
        }
        while self.blocks > BLOCKS_MAX
            && let Some((_, evicted)) = self.lists.pop_lru()
        {
            self.blocks -= evicted.list.blocks.len();
        }
    }
}

pub struct BlockLists {
    store: Arc<dyn Store>,
    publisher: Arc<Publisher>,
    /// Writers who wait check again after a block has begun.
    leave_epoch: Arc<LeaveEpoch>,
    is_shared: bool,
    direct_ids: OnceCell<DirectIds>,
    held: Mutex<HeldLists>,
    reads: AtomicU64,
    /// The list of a user who blocks nobody.
    empty: Arc<BlockList>,
}

impl BlockLists {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        publisher: Arc<Publisher>,
        leave_epoch: Arc<LeaveEpoch>,
        is_shared: bool,
    ) -> Self {
        Self {
            store,
            publisher,
            leave_epoch,
            is_shared,
            direct_ids: OnceCell::new(),
            held: Mutex::new(HeldLists {
                lists: LruCache::new(LISTS_MAX),
                blocks: 0,
            }),
            reads: AtomicU64::new(0),
            empty: Arc::default(),
        }
    }

    /// The list of a user, without a read. `None` if it is not held.
    pub fn held(&self, user: &UserId) -> Option<Arc<BlockList>> {
        let mut held = self.held.lock();
        let found = held.lists.get(user)?;
        let is_fresh = !self.is_shared || found.read_at.elapsed() < LIFETIME;
        is_fresh.then(|| Arc::clone(&found.list))
    }

    /// The list of a user.
    pub async fn of(&self, user: &UserId) -> Result<Arc<BlockList>> {
        match self.held(user) {
            Some(held) => Ok(held),
            None => self.read(user).await,
        }
    }

    /// The lists of these users, in their order.
    pub(crate) async fn of_all(&self, users: &[UserId]) -> Result<Vec<Arc<BlockList>>> {
        let mut lists = Vec::with_capacity(users.len());
        for some in users.chunks(CONCURRENCY) {
            lists.extend(try_join_all(some.iter().map(|user| self.of(user))).await?);
        }
        Ok(lists)
    }

    /// The direct conversation of two users, whether it exists or not.
    pub(crate) async fn direct_id(&self, one: &UserId, other: &UserId) -> Result<ConversationId> {
        // An imported conversation may have another id than the pair's own.
        if let Some(id) = self.store.direct_conversation(one, other).await? {
            return Ok(id);
        }
        let read = async || self.store.direct_ids().await;
        Ok(self.direct_ids.get_or_try_init(read).await?.id(one, other))
    }

    /// The direct conversation of two users, if the first one takes part in it.
    pub(crate) async fn direct(
        &self,
        one: &UserId,
        other: &UserId,
    ) -> Result<Option<ConversationId>> {
        let Some(id) = self.store.direct_conversation(one, other).await? else {
            return Ok(None);
        };
        let rows = self.store.inbox_rows(one, &[id]).await?;
        Ok(rows
            .into_iter()
            .flatten()
            .next()
            .map(|row| row.conversation))
    }

    /// Reads the list of a user.
    pub(crate) async fn read(&self, user: &UserId) -> Result<Arc<BlockList>> {
        let (read_at, read) = (Instant::now(), self.reads.fetch_add(1, Ordering::SeqCst));
        let blocks = self.store.blocks(user).await?;
        let list = if blocks.is_empty() {
            Arc::clone(&self.empty)
        } else {
            Arc::new(self.list_of(user, blocks).await?)
        };
        let held = HeldList {
            list: Arc::clone(&list),
            read_at,
            read,
        };
        self.held.lock().put(user, held);
        Ok(list)
    }

    async fn list_of(&self, user: &UserId, blocks: Vec<Block>) -> Result<BlockList> {
        // The ids of an earlier list still hold: nothing but an import brings other ones.
        let earlier = self.held.lock().lists.peek(user).cloned();
        let known = |blocked: &UserId| earlier.as_ref()?.list.directs.get(blocked).copied();
        let mut directs = HashMap::new();
        let mut unknown = Vec::new();
        for block in blocks.iter().filter(|block| block.is_on) {
            match known(&block.blocked) {
                Some(id) => drop(directs.insert(block.blocked.clone(), id)),
                None => unknown.push(&block.blocked),
            }
        }
        for some in unknown.chunks(CONCURRENCY) {
            let ids = some.iter().map(|blocked| self.direct_id(user, blocked));
            let ids = try_join_all(ids).await?;
            directs.extend(some.iter().map(|blocked| (*blocked).clone()).zip(ids));
        }
        Ok(BlockList {
            hidden: directs.values().copied().collect(),
            ignored: IgnoredSenders::of(directs.keys().cloned()),
            directs,
            blocks: blocks
                .into_iter()
                .map(|block| (block.blocked.clone(), block))
                .collect(),
        })
    }

    /// Reads the list of a user again after a change, and publishes it on this server. Call after the
    /// change was persisted.
    pub(crate) async fn on_change(&self, user: &UserId, block: &Block) -> Result<()> {
        self.read(user).await?;
        self.publisher.record(block.change);
        self.publish(user, block).await
    }

    /// Follows the changes since a moment that the log of a shared store tells of.
    pub(crate) async fn on_logged(&self, user: &UserId, since: Timestamp) -> Result<()> {
        let is_held = self.held.lock().lists.peek(user).is_some();
        if !is_held && !self.publisher.has_streams_of(user) {
            return Ok(());
        }
        let list = self.read(user).await?;
        let recent = list.changed_after(OrderKey::first_at(since).before());
        for block in recent {
            if self.publisher.record_new(block.change) {
                self.publish(user, &block).await?;
            }
        }
        Ok(())
    }

    async fn publish(&self, user: &UserId, block: &Block) -> Result<()> {
        self.leave_epoch.advance_rights();
        let notice = BlockNotice {
            blocker: user.clone(),
            blocked: block.blocked.clone(),
            direct: self.direct(user, &block.blocked).await?,
        };
        self.publisher.publish_block(notice);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ChangeId;

    fn name(text: &str) -> UserId {
        UserId::parse(text).unwrap()
    }

    fn list(of: &[(&str, bool, i64)]) -> BlockList {
        let block = |(blocked, is_on, micros): &(&str, bool, i64)| Block {
            blocked: name(blocked),
            is_on: *is_on,
            change: ChangeId::new(Timestamp::from_micros(*micros), [0; 8]),
        };
        BlockList {
            blocks: of.iter().map(|one| (name(one.0), block(one))).collect(),
            ..BlockList::default()
        }
    }

    fn held(list: BlockList, read: u64) -> HeldList {
        HeldList {
            list: Arc::new(list),
            read_at: Instant::now(),
            read,
        }
    }

    #[test]
    fn an_ended_block_is_no_block_but_a_change() {
        let list = list(&[("ben", true, 5), ("cat", false, 9), ("dan", true, 7)]);
        assert!(list.has(&name("ben")) && !list.has(&name("cat")));
        let position = ChangeId::new(Timestamp::from_micros(5), [0; 8]).order_key();
        let changed = list.changed_after(position).into_iter();
        let changed: Vec<_> = changed.map(|block| block.blocked).collect();
        assert_eq!(changed, ["dan", "cat"].map(name));
    }

    #[test]
    fn an_earlier_read_replaces_no_later_one_and_all_blocks_are_counted() {
        let mut lists = HeldLists {
            lists: LruCache::new(LISTS_MAX),
            blocks: 0,
        };
        let ann = name("ann");
        lists.put(&ann, held(list(&[("ben", true, 1), ("cat", true, 1)]), 2));
        lists.put(&ann, held(list(&[]), 1));
        assert_eq!((lists.blocks, lists.lists.len()), (2, 1));
        lists.put(&ann, held(list(&[("ben", true, 1)]), 3));
        assert_eq!(lists.blocks, 1);
    }
}
