//! Deduplication window: the most recent ids of a stream of events, in a bounded set.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// Set of the last `max` inserted ids. An insertion beyond that evicts the oldest id.
pub(crate) struct RecentIds<T> {
    order: VecDeque<T>,
    ids: HashSet<T>,
    max: usize,
}

impl<T: Clone + Eq + Hash> RecentIds<T> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            order: VecDeque::new(),
            ids: HashSet::new(),
            max,
        }
    }

    /// Returns whether the id is new.
    pub(crate) fn insert(&mut self, id: T) -> bool {
        if !self.ids.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }

    /// Removes an id, so that its next insertion is new again.
    pub(crate) fn remove(&mut self, id: &T) {
        self.ids.remove(id);
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
        assert!(!recent.ids.contains(&1) && !recent.insert(2) && !recent.insert(3));
        recent.remove(&3);
        assert!(recent.insert(3), "a removed id is new again");
    }
}
