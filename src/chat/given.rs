//! What a stream has given lately, by identity: so nothing comes twice where the replay meets what is live.

use std::collections::{HashSet, VecDeque};

use crate::model::TimeUuid;

/// More than can wait on the bus beside a page from the store.
const GIVEN_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct Given {
    order: VecDeque<TimeUuid>,
    ids: HashSet<TimeUuid>,
}

impl Given {
    /// Whether it is new.
    pub(super) fn insert(&mut self, id: TimeUuid) -> bool {
        if !self.ids.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > GIVEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }

    /// It may come once more.
    pub(super) fn forget(&mut self, id: TimeUuid) {
        self.ids.remove(&id);
    }
}
