//! Ids that a stream has delivered: the deduplication of events that are both replayed and live.

use crate::chat::recent_ids::RecentIds;
use crate::model::{OrderKey, TimeUuid};

/// More events than can wait on the bus together with one page from the store.
const DELIVERED_MAX: usize = 1_024;

pub(crate) enum DeliveredIds {
    /// With one server all ids ascend, so the last one says it all.
    UpTo(OrderKey),
    /// On a shared store, a smaller id may become visible after a greater one.
    Recent(RecentIds<TimeUuid>),
}

impl DeliveredIds {
    /// For a stream that starts at this position.
    pub(crate) fn starting_at(position: OrderKey, is_shared: bool) -> Self {
        if is_shared {
            Self::Recent(RecentIds::new(DELIVERED_MAX))
        } else {
            Self::UpTo(position)
        }
    }

    /// Returns whether the id is new.
    pub(crate) fn insert(&mut self, id: TimeUuid) -> bool {
        match self {
            Self::UpTo(last) => {
                let is_new = id.order_key() > *last;
                *last = id.order_key().max(*last);
                is_new
            }
            Self::Recent(ids) => ids.insert(id),
        }
    }

    /// Allows the event to be delivered once more.
    pub(crate) fn remove(&mut self, id: TimeUuid) {
        if let Self::Recent(ids) = self {
            ids.remove(&id);
        }
    }
}
