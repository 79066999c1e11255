//! What was told in this process, by identity: where several servers share a store, what one of them told itself is found there once more.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use parking_lot::Mutex;

use crate::model::TimeUuid;

/// More than is told within the time that a look reads back.
const TOLD_MAX: usize = 1 << 17;

/// Identities, the oldest of which are forgotten.
pub(crate) struct RecentIds<T> {
    order: VecDeque<T>,
    ids: HashSet<T>,
}

impl<T> Default for RecentIds<T> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            ids: HashSet::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> RecentIds<T> {
    /// Whether it is new.
    pub(crate) fn insert(&mut self, id: T) -> bool {
        if !self.ids.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > TOLD_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }

    pub(crate) fn contains(&self, id: &T) -> bool {
        self.ids.contains(id)
    }
}

/// Events, by this server's own writes too.
#[derive(Default)]
pub(crate) struct PublishedIds(Mutex<RecentIds<TimeUuid>>);

impl PublishedIds {
    pub(crate) fn insert(&self, id: TimeUuid) -> bool {
        self.0.lock().insert(id)
    }

    pub(crate) fn contains(&self, id: TimeUuid) -> bool {
        self.0.lock().contains(&id)
    }
}
