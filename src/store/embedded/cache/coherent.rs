//! Coherent write-through cache: its values are exactly those on disk, so a hit needs no read.
//!
//! The committer's thread writes through between commit and acknowledgement. A reader inserts a loaded value only
//! if no write reached the shard since its mark, which it took before its snapshot.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::metrics::CacheCounts;

/// Key of the cache. Most keys hold a random id or a hash.
pub(crate) trait CacheKey: Hash + Eq {
    fn shard(&self) -> u8;
}

struct CacheShard<K: CacheKey, V> {
    /// Number of the last write to this shard.
    written: u64,
    values: LruCache<K, V>,
}

pub(crate) struct CoherentCache<K: CacheKey, V> {
    shards: Vec<Mutex<CacheShard<K, V>>>,
    /// Number of the last write or invalidation.
    writes: AtomicU64,
    meter: CacheCounts,
}

/// Position of the writer, taken before a load.
#[derive(Clone, Copy)]
pub(crate) struct Mark(u64);

impl<K: CacheKey, V> CoherentCache<K, V> {
    /// Creates a cache. `cache` is its name in the metrics.
    pub(crate) fn new(cache: &str, shards: usize, shard_max: NonZeroUsize) -> Self {
        let shard = |_| {
            Mutex::new(CacheShard {
                written: 0,
                values: LruCache::new(shard_max),
            })
        };
        Self {
            shards: (0..shards).map(shard).collect(),
            writes: AtomicU64::new(0),
            meter: CacheCounts::new(cache),
        }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, CacheShard<K, V>> {
        self.shards[usize::from(key.shard()) % self.shards.len()].lock()
    }

    pub(crate) fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.meter.count(self.shard(key).values.get(key).cloned())
    }

    /// Finds something in a cached value. A value without it counts as not there, and nothing shows that it
    /// is.
    pub(crate) fn find<R>(&self, key: &K, found_in: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        let mut shard = self.shard(key);
        let found = shard.values.peek(key).and_then(found_in);
        if found.is_some() {
            shard.values.promote(key);
        }
        drop(shard);
        self.meter.count(found)
    }

    pub(crate) fn meter(&self) -> &CacheCounts {
        &self.meter
    }

    /// Takes a mark. Call it before the snapshot of the load.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.writes.load(Ordering::SeqCst))
    }

    /// Inserts a loaded value, unless a write came since the mark.
    pub(crate) fn put_loaded(&self, mark: Mark, key: K, value: V) {
        let mut shard = self.shard(&key);
        if shard.written <= mark.0 {
            shard.values.put(key, value);
        }
    }

    /// Writes a committed value through. Call it between commit and acknowledgement, in commit order.
    pub(crate) fn put_written(&self, key: K, value: V) {
        self.written(&key).values.put(key, value);
    }

    /// Alters a cached value after its commit. Call it between commit and acknowledgement, in commit order.
    pub(crate) fn alter_written(&self, key: &K, alter: impl FnOnce(&mut V)) {
        if let Some(value) = self.written(key).values.get_mut(key) {
            alter(value);
        }
    }

    pub(crate) fn forget(&self, key: &K) {
        self.written(key).values.pop(key);
    }

    /// Forgets every value, as the engine is opened anew.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.written = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
            shard.values.clear();
        }
    }

    fn written(&self, key: &K) -> MutexGuard<'_, CacheShard<K, V>> {
        let mut shard = self.shard(key);
        // A reader that takes a mark from now on reads the disk after this commit.
        shard.written = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        shard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CacheKey for u8 {
        fn shard(&self) -> u8 {
            *self
        }
    }

    #[test]
    fn what_was_loaded_never_replaces_what_was_written_meanwhile() {
        let exact = CoherentCache::new("test", 2, NonZeroUsize::MIN);
        let mark = exact.mark();
        exact.put_written(1, "second");
        exact.put_loaded(mark, 1, "first");
        assert_eq!(exact.get(&1), Some("second"));

        let mark = exact.mark();
        exact.alter_written(&1, |value| *value = "third");
        exact.put_loaded(mark, 1, "second");
        assert_eq!(exact.get(&1), Some("third"));

        let mark = exact.mark();
        exact.forget(&1);
        exact.put_loaded(mark, 1, "third");
        assert_eq!(exact.get(&1), None);

        exact.put_loaded(exact.mark(), 1, "fourth");
        assert_eq!(exact.get(&1), Some("fourth"));
    }

    #[test]
    fn a_write_elsewhere_keeps_nothing_from_being_put() {
        let exact = CoherentCache::new("test", 2, NonZeroUsize::MIN);
        let mark = exact.mark();
        exact.put_written(1, "written");
        exact.put_loaded(mark, 2, "loaded");
        assert_eq!(exact.get(&2), Some("loaded"));
    }

    #[test]
    fn what_is_not_here_is_not_altered_and_not_put_by_who_loaded_it_before() {
        let exact = CoherentCache::new("test", 2, NonZeroUsize::MIN);
        let mark = exact.mark();
        exact.alter_written(&1, |value| *value = "altered");
        exact.put_loaded(mark, 1, "loaded");
        assert_eq!(exact.get(&1), None);
    }
}
