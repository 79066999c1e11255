//! Counts of messages up to the floors of conversations. A removal from the disk ends the counts of its conversation.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{ConversationId, OrderKey};
use crate::store::rules::position_counts::PositionCounts;

const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

pub(in crate::store::embedded) struct FloorCounts(Mutex<LruCache<ConversationId, Counts>>);

/// Counts of one conversation.
#[derive(Default)]
struct Counts {
    /// Messages up to here were removed when these counts were made.
    removed_up_to: OrderKey,
    counts: PositionCounts,
}

impl FloorCounts {
    pub(in crate::store::embedded) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CONVERSATIONS_MAX)))
    }

    /// The last counted position up to this one, with its count. `removed_up_to` is that of the reader's snapshot.
    pub(in crate::store::embedded) fn known(
        &self,
        conversation: ConversationId,
        removed_up_to: OrderKey,
        position: OrderKey,
    ) -> (OrderKey, u64) {
        let mut all = self.0.lock();
        let known = all.get(&conversation);
        let known = known.filter(|known| known.removed_up_to == removed_up_to);
        let last = known.and_then(|known| known.counts.last_up_to(position));
        last.unwrap_or((OrderKey::MIN, 0))
    }

    pub(in crate::store::embedded) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Notes the count of a position, and the checkpoints that the count has passed.
    pub(in crate::store::embedded) fn put(
        &self,
        conversation: ConversationId,
        removed_up_to: OrderKey,
        count: (OrderKey, u64),
        checkpoints: Vec<(OrderKey, u64)>,
    ) {
        let mut all = self.0.lock();
        let known = all.get_or_insert_mut(conversation, Counts::default);
        if known.removed_up_to > removed_up_to {
            return;
        }
        if known.removed_up_to < removed_up_to {
            *known = Counts {
                removed_up_to,
                ..Counts::default()
            };
        }
        known.counts.add(count, checkpoints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_ends_the_counts() {
        let (counts, id) = (FloorCounts::new(), ConversationId(uuid::Uuid::nil()));
        let position = |number: u128| OrderKey(number.to_be_bytes());
        counts.put(id, OrderKey::MIN, (position(7), 3), Vec::new());
        let known = counts.known(id, OrderKey::MIN, position(9));
        assert_eq!(known, (position(7), 3));
        let after_removal = counts.known(id, position(5), position(9));
        assert_eq!(after_removal, (OrderKey::MIN, 0));
        counts.put(id, position(5), (position(8), 1), Vec::new());
        counts.put(id, OrderKey::MIN, (position(9), 4), Vec::new());
        let known = counts.known(id, position(5), position(9));
        assert_eq!(
            known,
            (position(8), 1),
            "a snapshot from before it adds none"
        );
    }
}
