//! Cache of unread counts, each stored with the head it was counted under. A new message, a deletion or an import
//! changes the head and so invalidates the count: the cache is exact, and an unchanged entry is not counted again.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::metrics::CacheCounts;
use crate::model::{ConversationId, OrderKey, Unread, UserId};
use crate::store::UnreadQuery;
use crate::store::embedded::engine::record::HeadRecord;

const SHARDS: usize = 16;
const SHARD_COUNTS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

struct CachedCount {
    after: OrderKey,
    cap: u32,
    head: HeadRecord,
    unread: Unread,
}

type CountShard = LruCache<(ConversationId, UserId), CachedCount>;

pub(in crate::store::embedded) struct UnreadCounts {
    shards: Vec<Mutex<CountShard>>,
    meter: CacheCounts,
}

impl UnreadCounts {
    pub(in crate::store::embedded) fn new() -> Self {
        let shards = (0..SHARDS)
            .map(|_| Mutex::new(LruCache::new(SHARD_COUNTS_MAX)))
            .collect();
        Self {
            shards,
            meter: CacheCounts::new("unread"),
        }
    }

    fn shard(&self, id: ConversationId) -> MutexGuard<'_, CountShard> {
        self.shards[usize::from(id.0.as_bytes()[15]) % SHARDS].lock()
    }

    /// Returns the count after a position, with this cap and under this head.
    pub(in crate::store::embedded) fn get(
        &self,
        user: &UserId,
        query: &UnreadQuery,
        cap: u32,
        head: &HeadRecord,
    ) -> Option<Unread> {
        let mut shard = self.shard(query.conversation);
        let counted = shard.get(&(query.conversation, user.clone()));
        let counted = counted.filter(|counted| {
            counted.after == query.after && counted.cap == cap && counted.head == *head
        });
        self.meter.count(counted.map(|counted| counted.unread))
    }

    pub(in crate::store::embedded) fn meter(&self) -> &CacheCounts {
        &self.meter
    }

    /// Stores a count. The head must have been read before the snapshot of the count.
    pub(in crate::store::embedded) fn put(
        &self,
        user: &UserId,
        query: &UnreadQuery,
        cap: u32,
        head: HeadRecord,
        unread: Unread,
    ) {
        let counted = CachedCount {
            after: query.after,
            cap,
            head,
            unread,
        };
        self.shard(query.conversation)
            .put((query.conversation, user.clone()), counted);
    }
}
