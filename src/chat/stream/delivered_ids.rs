//! What a stream has given lately, by identity: so nothing comes twice where the replay meets what is live.

use std::collections::{HashSet, VecDeque};

use crate::model::{OrderKey, TimeUuid};

/// More than can wait on the bus beside a page from the store.
const GIVEN_MAX: usize = 1_024;

pub(crate) enum DeliveredIds {
    /// Where one server gives all ids they come in order, and the last one says it all.
    UpTo(OrderKey),
    Lately {
        order: VecDeque<TimeUuid>,
        ids: HashSet<TimeUuid>,
    },
}

impl DeliveredIds {
    /// Of a stream that begins at this place.
    pub(crate) fn from(place: OrderKey, is_shared: bool) -> Self {
        if is_shared {
            Self::Lately {
                order: VecDeque::new(),
                ids: HashSet::new(),
            }
        } else {
            Self::UpTo(place)
        }
    }

    /// Whether it is new.
    pub(crate) fn insert(&mut self, id: TimeUuid) -> bool {
        match self {
            Self::UpTo(last) => {
                let is_new = id.order_key() > *last;
                *last = id.order_key().max(*last);
                is_new
            }
            Self::Lately { order, ids } => {
                if !ids.insert(id) {
                    return false;
                }
                order.push_back(id);
                if order.len() > GIVEN_MAX
                    && let Some(oldest) = order.pop_front()
                {
                    ids.remove(&oldest);
                }
                true
            }
        }
    }

    /// It may come once more.
    pub(crate) fn forget(&mut self, id: TimeUuid) {
        if let Self::Lately { ids, .. } = self {
            ids.remove(&id);
        }
    }
}
