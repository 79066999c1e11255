//! Concurrency limits: how many connections, sockets or streams each user or address has open.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::metrics::IntCounter;

/// Limit of permits per key. It stores only keys that hold a permit.
pub(crate) struct ConcurrencyLimit<K> {
    counts: Arc<Mutex<HashMap<K, usize>>>,
    pub(crate) max: usize,
    refused: IntCounter,
}

/// Permit of one key, released when it is dropped.
pub(crate) struct ConcurrencyPermit<K: Eq + Hash> {
    counts: Arc<Mutex<HashMap<K, usize>>>,
    key: K,
}

impl<K: Eq + Hash + Clone> ConcurrencyLimit<K> {
    pub(crate) fn new(max: usize, refused: IntCounter) -> Self {
        Self {
            counts: Arc::default(),
            max,
            refused,
        }
    }

    pub(crate) fn acquire(&self, key: K) -> Option<ConcurrencyPermit<K>> {
        let mut counts = self.counts.lock();
        let count = counts.get(&key).copied().unwrap_or(0);
        if count >= self.max {
            self.refused.inc();
            return None;
        }
        counts.insert(key.clone(), count + 1);
        Some(ConcurrencyPermit {
            counts: Arc::clone(&self.counts),
            key,
        })
    }
}

impl<K: Eq + Hash> Drop for ConcurrencyPermit<K> {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;

    #[test]
    fn a_key_without_permits_is_not_stored() {
        let counts = ConcurrencyLimit::new(2, metrics::counter("refused", "In a test."));
        let held: Vec<_> = (0..3).map(|_| counts.acquire("alice")).collect();
        assert_eq!(held.iter().filter(|taken| taken.is_some()).count(), 2);
        assert!(counts.acquire("bob").is_some());
        assert_eq!(counts.counts.lock().len(), 1);
        drop(held);
        assert!(counts.counts.lock().is_empty());
    }
}
