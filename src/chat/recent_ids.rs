//! Deduplication window: the most recent ids of a stream of events, in a bounded ring of keyed
//! hashes.
//!
//! Each live stream of a cluster has one, so its memory counts: eight bytes an id, and a scan in
//! place of an index. The hash has 64 bits and a key of the process, so that two ids do not collide
//! in practice.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::LazyLock;

/// Ids by which a full window grows.
const STEP: usize = 64;

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Set of the last `max` inserted ids. An insertion beyond that evicts the oldest id.
pub(crate) struct RecentIds<T> {
    /// The oldest first.
    hashes: VecDeque<u64>,
    max: usize,
    ids: PhantomData<T>,
}

impl<T: Hash> RecentIds<T> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            hashes: VecDeque::new(),
            max,
            ids: PhantomData,
        }
    }

    /// Returns whether the id is new.
    pub(crate) fn insert(&mut self, id: T) -> bool {
        let hash = KEY.hash_one(id);
        if self.hashes.contains(&hash) {
            return false;
        }
        if self.hashes.len() == self.max {
            self.hashes.pop_front();
        } else if self.hashes.len() == self.hashes.capacity() {
            self.hashes.reserve_exact(STEP);
        }
        self.hashes.push_back(hash);
        true
    }

    /// Removes an id, so that its next insertion is new again.
    pub(crate) fn remove(&mut self, id: &T) {
        let hash = KEY.hash_one(id);
        self.hashes.retain(|other| *other != hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_insertion_beyond_the_bound_evicts_the_oldest_id() {
        let mut recent = RecentIds::new(2);
        assert!(recent.insert(1) && recent.insert(2));
        assert!(!recent.insert(1), "a duplicate");
        assert!(recent.insert(3));
        assert!(recent.insert(1), "it was evicted");
        assert!(!recent.insert(1) && !recent.insert(3));
        recent.remove(&3);
        assert!(recent.insert(3), "a removed id is new again");
    }

    #[test]
    fn a_full_window_takes_eight_bytes_an_id() {
        let mut recent = RecentIds::new(456);
        (0..10_000).for_each(|id| assert!(recent.insert(id)));
        assert!(recent.hashes.len() == 456 && recent.hashes.capacity() <= 512);
    }
}
