//! Least recently used values, up to a number of bytes.

use std::hash::Hash;

use lru::LruCache;
use parking_lot::Mutex;

pub(super) struct WeightedCache<K: Hash + Eq, V> {
    slots: Mutex<Slots<K, V>>,
    bytes_max: usize,
}

struct Slots<K: Hash + Eq, V> {
    values: LruCache<K, (V, usize)>,
    bytes: usize,
}

impl<K: Hash + Eq + Copy, V: Clone> WeightedCache<K, V> {
    pub(super) fn new(bytes_max: usize) -> Self {
        let slots = Slots {
            values: LruCache::unbounded(),
            bytes: 0,
        };
        Self {
            slots: Mutex::new(slots),
            bytes_max,
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let mut slots = self.slots.lock();
        slots.values.get(key).map(|(value, _)| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, bytes: usize) {
        let mut slots = self.slots.lock();
        if let Some((_, replaced)) = slots.values.put(key, (value, bytes)) {
            slots.bytes -= replaced;
        }
        slots.bytes += bytes;
        while slots.bytes > self.bytes_max {
            let Some((_, (_, removed))) = slots.values.pop_lru() else {
                break;
            };
            slots.bytes -= removed;
        }
    }

    pub(super) fn forget(&self, key: &K) {
        let mut slots = self.slots.lock();
        if let Some((_, removed)) = slots.values.pop(key) {
            slots.bytes -= removed;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_values_go_first() {
        let cache = WeightedCache::new(10);
        cache.put(1, "one", 4);
        cache.put(2, "two", 4);
        assert_eq!(cache.get(&1), Some("one"));
        cache.put(3, "three", 4);
        assert_eq!((cache.get(&2), cache.bytes()), (None, 8));
        cache.put(1, "uno", 2);
        assert_eq!((cache.get(&1), cache.bytes()), (Some("uno"), 6));
        cache.put(4, "too large", 11);
        assert_eq!((cache.get(&4), cache.bytes()), (None, 0));
        cache.forget(&4);
    }
}
