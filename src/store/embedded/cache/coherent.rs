//! Values in memory that are exactly those on disk, so that they answer in its place.
//!
//! The writer's thread says what it wrote, between the commit and its acknowledgement. Readers put what they loaded, unless the writer came
//! to the same shard since before they looked at the disk: their mark tells.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use lru::LruCache;

use crate::metrics::CacheCounts;

/// What a value is found by. Most of them hold an id that is random, or a hash.
pub(in crate::store::embedded) trait ExactKey: Hash + Eq {
    fn shard(&self) -> u8;
}

struct Shard<K: ExactKey, V> {
    /// The last write that came here.
    written: u64,
    values: LruCache<K, V>,
}

pub(in crate::store::embedded) struct Exact<K: ExactKey, V> {
    shards: Vec<Mutex<Shard<K, V>>>,
    /// Of the last write, or doubt.
    writes: AtomicU64,
    meter: CacheCounts,
}

/// Where the writer stood before something was loaded.
#[derive(Clone, Copy)]
pub(in crate::store::embedded) struct Mark(u64);

impl<K: ExactKey, V: Clone> Exact<K, V> {
    /// `cache` is what metrics call it.
    pub(in crate::store::embedded) fn new(cache: &str, shards: usize, shard_max: NonZeroUsize) -> Self {
        let shard = |_| Mutex::new(Shard { written: 0, values: LruCache::new(shard_max) });
        Self { shards: (0..shards).map(shard).collect(), writes: AtomicU64::new(0), meter: CacheCounts::new(cache) }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, Shard<K, V>> {
        self.shards[usize::from(key.shard()) % self.shards.len()].lock().expect("no panic while holding values")
    }

    pub(in crate::store::embedded) fn get(&self, key: &K) -> Option<V> {
        self.meter.saw(self.shard(key).values.get(key).cloned())
    }

    pub(in crate::store::embedded) fn meter(&self) -> &CacheCounts {
        &self.meter
    }

    /// To be taken before the view that something is loaded from.
    pub(in crate::store::embedded) fn mark(&self) -> Mark {
        Mark(self.writes.load(Ordering::SeqCst))
    }

    /// Puts what was loaded, unless a writer came since the mark.
    pub(in crate::store::embedded) fn put_loaded(&self, mark: Mark, key: K, value: V) {
        let mut shard = self.shard(&key);
        if shard.written <= mark.0 {
            shard.values.put(key, value);
        }
    }

    /// Puts what was just written. Only between its commit and its acknowledgement, in the order of commits.
    pub(in crate::store::embedded) fn put_written(&self, key: K, value: V) {
        self.written(&key).values.put(key, value);
    }

    /// Alters what was just written, where it is here. Only between its commit and its acknowledgement, in the order of commits.
    pub(in crate::store::embedded) fn alter_written(&self, key: &K, alter: impl FnOnce(&mut V)) {
        if let Some(value) = self.written(key).values.get_mut(key) {
            alter(value);
        }
    }

    pub(in crate::store::embedded) fn forget(&self, key: &K) {
        self.written(key).values.pop(key);
    }

    fn written(&self, key: &K) -> MutexGuard<'_, Shard<K, V>> {
        let mut shard = self.shard(key);
        // Whoever takes a mark from now on looks at the disk after the commit.
        shard.written = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        shard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ExactKey for u8 {
        fn shard(&self) -> u8 {
            *self
        }
    }

    #[test]
    fn what_was_loaded_never_replaces_what_was_written_meanwhile() {
        let exact = Exact::new("test", 2, NonZeroUsize::MIN);
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
        let exact = Exact::new("test", 2, NonZeroUsize::MIN);
        let mark = exact.mark();
        exact.put_written(1, "written");
        exact.put_loaded(mark, 2, "loaded");
        assert_eq!(exact.get(&2), Some("loaded"));
    }

    #[test]
    fn what_is_not_here_is_not_altered_and_not_put_by_who_loaded_it_before() {
        let exact = Exact::new("test", 2, NonZeroUsize::MIN);
        let mark = exact.mark();
        exact.alter_written(&1, |value| *value = "altered");
        exact.put_loaded(mark, 1, "loaded");
        assert_eq!(exact.get(&1), None);
    }
}
