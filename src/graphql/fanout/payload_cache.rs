//! Cache of payloads: each group executes an update once, and its other subscribers take the bytes
//! from here.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, OnceCell};

use super::response::SharedPayload;
use super::update::UpdatePlace;
use crate::chat::{MembershipGuard, UpdateKey};
use crate::model::{OrderKey, UserId};
use crate::weighted_cache::WeightedCache;

/// Shards of the cache, each with its own lock.
const SHARDS: usize = 16;
/// Bounds of one shard. An evicted payload is executed again.
const SHARD_ENTRIES_MAX: usize = 512;
const SHARD_BYTES_MAX: usize = 1 << 20;
/// A larger payload is not cached. Only the subscribers that wait for its execution share it.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Payloads of recent updates, by group.
pub(super) struct PayloadCache([WeightedCache<SlotKey, Arc<PayloadSlot>>; SHARDS]);

/// Group, place and update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SlotKey {
    pub(super) group: u64,
    pub(super) place: UpdatePlace,
    pub(super) update: (usize, usize),
}

/// Result of a shared execution.
#[derive(Clone)]
pub(super) struct RenderedPayload {
    pub(super) payload: SharedPayload,
    /// Senders whose `clientKey` the payload leaves out. They execute the update on their own.
    pub(super) withheld: Arc<[UserId]>,
    /// Users whom the payload shows as not blocked. A viewer who blocks one executes it alone.
    pub(super) unblocked: Arc<[UserId]>,
    /// The oldest position that the execution looked at. A viewer with a floor of their own at or above
    /// it executes the update alone.
    pub(super) oldest: Option<OrderKey>,
}

impl RenderedPayload {
    /// Whether the viewer of this stream may receive the payload. If the viewer's blocks cannot be
    /// read, an execution of the viewer's own reports that.
    pub(super) async fn is_for(&self, guard: &MembershipGuard) -> bool {
        let is_below = |oldest: OrderKey| oldest <= guard.own_floor();
        let own_floor = guard.own_floor();
        if self.withheld.contains(guard.viewer())
            || (own_floor > OrderKey::MIN && self.oldest.is_some_and(is_below))
        {
            return false;
        }
        self.unblocked.is_empty() || self.blocks_none(guard).await
    }

    async fn blocks_none(&self, guard: &MembershipGuard) -> bool {
        match guard.blocks().await {
            Ok(blocks) => !self.unblocked.iter().any(|user| blocks.has(user)),
            Err(_) => false,
        }
    }
}

/// Single-flight slot of one payload: one subscriber executes, the others wait.
pub(super) struct PayloadSlot {
    is_started: AtomicBool,
    pub(super) rendered: OnceCell<RenderedPayload>,
    /// Wakes the subscribers that wait for their tokens.
    pub(super) done: Notify,
    /// Keeps the update alive: its key is an address, which must not be reused.
    _update: UpdateKey,
}

impl PayloadSlot {
    fn new(update: &UpdateKey) -> Self {
        Self {
            is_started: AtomicBool::new(false),
            rendered: OnceCell::new(),
            done: Notify::new(),
            _update: update.clone(),
        }
    }

    /// Whether this caller is the first, and is to execute the update.
    pub(super) fn start(&self) -> bool {
        !self.is_started.swap(true, Ordering::Relaxed)
    }
}

impl Default for PayloadCache {
    fn default() -> Self {
        let shard = |_| WeightedCache::new(SHARD_ENTRIES_MAX, SHARD_BYTES_MAX);
        Self(std::array::from_fn(shard))
    }
}

impl PayloadCache {
    /// The slot of this key. Creates it for the first caller.
    pub(super) fn slot(&self, key: SlotKey, update: &UpdateKey) -> Arc<PayloadSlot> {
        let slot = || Arc::new(PayloadSlot::new(update));
        self.shard(&key).get_or_put(key, 0, slot)
    }

    /// Counts the bytes of a rendered payload, or removes its slot if the payload is too large.
    /// Returns whether it is cached.
    pub(super) fn keep(&self, key: &SlotKey, payload: &SharedPayload) -> bool {
        let (bytes, shard) = (payload.get().len(), self.shard(key));
        if bytes > PAYLOAD_BYTES_MAX {
            shard.forget(key);
            return false;
        }
        shard.weigh(key, bytes);
        true
    }

    /// All slots of a group are in one shard.
    fn shard(&self, key: &SlotKey) -> &WeightedCache<SlotKey, Arc<PayloadSlot>> {
        let mut hasher = DefaultHasher::new();
        key.group.hash(&mut hasher);
        &self.0[hasher.finish() as usize % SHARDS]
    }
}
