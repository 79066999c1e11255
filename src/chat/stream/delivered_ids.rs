//! Ids that a stream has delivered: the deduplication of events that are both replayed and live.

use crate::bus::TOPIC_NOTICES_MAX;
use crate::chat::recent_ids::RecentIds;
use crate::model::{OrderKey, TimeUuid};

/// Messages and changes of one page from the store.
const PAGE_MAX: usize = 200;
/// Events that can wait on the bus together with one page from the store.
const DELIVERED_MAX: usize = TOPIC_NOTICES_MAX + PAGE_MAX;

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
