//! Map of shared values, each of which lives while something outside holds it.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Fewest entries before the map drops those of ended values.
const PRUNE_MIN: usize = 256;

/// Map whose entries end with their values. It holds at most twice the entries of the values that live, and a few.
pub struct WeakMap<K, V>(Mutex<Entries<K, V>>);

struct Entries<K, V> {
    by_key: HashMap<K, Weak<V>>,
    /// Number of entries at which those of ended values are dropped.
    prune_at: usize,
}

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self(Mutex::new(Entries {
            by_key: HashMap::new(),
            prune_at: PRUNE_MIN,
        }))
    }
}

impl<K: Eq + Hash, V> WeakMap<K, V> {
    /// The value of this key, if something holds it.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.0.lock().by_key.get(key).and_then(Weak::upgrade)
    }

    /// The value of this key. Makes it if nothing holds one.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut entries = self.0.lock();
        if let Some(value) = entries.by_key.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        if entries.by_key.len() >= entries.prune_at {
            entries.by_key.retain(|_, value| value.strong_count() > 0);
            entries.prune_at = PRUNE_MIN.max(entries.by_key.len() * 2);
        }
        let value = Arc::new(make());
        entries.by_key.insert(key, Arc::downgrade(&value));
        value
    }
}

impl<K, V> fmt::Debug for WeakMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakMap").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shared_while_it_is_held() {
        let map = WeakMap::default();
        let first = map.get_or_insert_with("alice", || 1);
        assert_eq!(*map.get_or_insert_with("alice", || 2), 1);
        assert!(map.get(&"alice").is_some() && map.get(&"bob").is_none());
        drop(first);
        assert!(map.get(&"alice").is_none());
        assert_eq!(*map.get_or_insert_with("alice", || 3), 3);
    }

    #[test]
    fn the_map_stays_as_small_as_the_values_that_live() {
        let map = WeakMap::default();
        let held: Vec<_> = (0..100)
            .map(|key| map.get_or_insert_with(key, || ()))
            .collect();
        for key in 100..100_000 {
            map.get_or_insert_with(key, || ());
        }
        assert!(map.0.lock().by_key.len() <= PRUNE_MIN);
        assert!((0..100).all(|key| Arc::ptr_eq(&held[key], &map.get_or_insert_with(key, || ()))));
    }
}
