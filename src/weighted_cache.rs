//! Cache of the least recently used values (LRU), bounded by entries and by bytes.

use std::borrow::Borrow;
use std::hash::Hash;

use lru::LruCache;
use parking_lot::Mutex;

pub(crate) struct WeightedCache<K: Hash + Eq, V> {
    slots: Mutex<WeightedSlots<K, V>>,
    entries_max: usize,
    bytes_max: usize,
}

struct WeightedSlots<K: Hash + Eq, V> {
    values: LruCache<K, (V, usize)>,
    bytes: usize,
}

impl<K: Hash + Eq, V: Clone> WeightedCache<K, V> {
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Self {
        let slots = WeightedSlots {
            values: LruCache::unbounded(),
            bytes: 0,
        };
        Self {
            slots: Mutex::new(slots),
            entries_max,
            bytes_max,
        }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let mut slots = self.slots.lock();
        slots.values.get(key).map(|(value, _)| value.clone())
    }

    /// The value, which does not become the most recently used one.
    pub(crate) fn peek(&self, key: &K) -> Option<V> {
        let slots = self.slots.lock();
        slots.values.peek(key).map(|(value, _)| value.clone())
    }

    /// The value of this key. Makes it, with this weight, if there is none.
    pub(crate) fn get_or_put(&self, key: K, bytes: usize, make: impl FnOnce() -> V) -> V {
        let mut slots = self.slots.lock();
        if let Some((value, _)) = slots.values.get(&key) {
            return value.clone();
        }
        let value = make();
        slots.values.put(key, (value.clone(), bytes));
        slots.bytes += bytes;
        self.evict(&mut slots);
        value
    }

    pub(crate) fn put(&self, key: K, value: V, bytes: usize) {
        let mut slots = self.slots.lock();
        if let Some((_, replaced)) = slots.values.put(key, (value, bytes)) {
            slots.bytes -= replaced;
        }
        slots.bytes += bytes;
        self.evict(&mut slots);
    }

    /// Sets the weight of a value.
    pub(crate) fn weigh(&self, key: &K, bytes: usize) {
        let mut slots = self.slots.lock();
        let WeightedSlots { values, bytes: all } = &mut *slots;
        if let Some((_, weight)) = values.peek_mut(key) {
            *all = *all - *weight + bytes;
            *weight = bytes;
        }
        self.evict(&mut slots);
    }

    pub(crate) fn forget(&self, key: &K) {
        let mut slots = self.slots.lock();
        if let Some((_, removed)) = slots.values.pop(key) {
            slots.bytes -= removed;
        }
    }

    /// Number of values, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let slots = self.slots.lock();
        (slots.values.len(), slots.bytes)
    }

    fn evict(&self, slots: &mut WeightedSlots<K, V>) {
        while slots.bytes > self.bytes_max || slots.values.len() > self.entries_max {
            let Some((_, (_, removed))) = slots.values.pop_lru() else {
                break;
            };
            slots.bytes -= removed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_values_go_first() {
        let cache = WeightedCache::new(usize::MAX, 10);
        cache.put(1, "one", 4);
        cache.put(2, "two", 4);
        assert_eq!(cache.get(&1), Some("one"));
        cache.put(3, "three", 4);
        assert_eq!((cache.get(&2), cache.size()), (None, (2, 8)));
        cache.put(1, "uno", 2);
        assert_eq!((cache.get(&1), cache.size()), (Some("uno"), (2, 6)));
        cache.put(4, "too large", 11);
        assert_eq!((cache.get(&4), cache.size()), (None, (0, 0)));
        cache.forget(&4);
    }

    #[test]
    fn a_value_is_made_once_and_weighs_what_it_was_given_last() {
        let cache = WeightedCache::new(2, 10);
        assert_eq!(cache.get_or_put(1, 0, || "one"), "one");
        assert_eq!(cache.get_or_put(1, 9, || "uno"), "one");
        cache.weigh(&1, 4);
        cache.weigh(&1, 6);
        assert_eq!((cache.peek(&1), cache.size()), (Some("one"), (1, 6)));
        cache.put(2, "two", 1);
        cache.put(3, "three", 1);
        assert_eq!((cache.peek(&1), cache.size()), (None, (2, 2)));
    }
}
