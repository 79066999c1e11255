//! Counts of messages up to a position, for the counts of those above a floor. A floor only rises, so each count
//! continues an earlier one. A removal from the disk ends the counts of its conversation.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{ConversationId, OrderKey};

const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");
/// Positions of one conversation. Its participants have floors of their own.
const POSITIONS_MAX: usize = 64;

pub(in crate::store::embedded) struct FloorCounts(Mutex<LruCache<ConversationId, Counts>>);

/// Counts of one conversation.
#[derive(Default)]
struct Counts {
    /// Messages up to here were removed when these counts were made.
    removed_up_to: OrderKey,
    below: BTreeMap<OrderKey, u64>,
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
        let mut counts = self.0.lock();
        let known = counts.get(&conversation);
        let known = known.filter(|known| known.removed_up_to == removed_up_to);
        let last = known.and_then(|known| known.below.range(..=position).next_back());
        last.map_or((OrderKey::MIN, 0), |(position, count)| (*position, *count))
    }

    pub(in crate::store::embedded) fn put(
        &self,
        conversation: ConversationId,
        removed_up_to: OrderKey,
        position: OrderKey,
        count: u64,
    ) {
        let mut counts = self.0.lock();
        let known = counts.get_or_insert_mut(conversation, Counts::default);
        if known.removed_up_to > removed_up_to {
            return;
        }
        if known.removed_up_to < removed_up_to {
            *known = Counts {
                removed_up_to,
                ..Counts::default()
            };
        }
        known.below.insert(position, count);
        if known.below.len() > POSITIONS_MAX {
            known.below.pop_first();
        }
    }
}
