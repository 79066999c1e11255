//! Counts of messages up to a position, for the counts of those above a floor. A floor only rises, so each count
//! continues an earlier one.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{ConversationId, OrderKey};

const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");
/// Positions of one conversation. Its participants have floors of their own.
const POSITIONS_MAX: usize = 64;

pub(in crate::store::embedded) struct FloorCounts(
    Mutex<LruCache<ConversationId, BTreeMap<OrderKey, u64>>>,
);

impl FloorCounts {
    pub(in crate::store::embedded) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CONVERSATIONS_MAX)))
    }

    /// The last counted position up to this one, with its count.
    pub(in crate::store::embedded) fn known(
        &self,
        conversation: ConversationId,
        position: OrderKey,
    ) -> (OrderKey, u64) {
        let mut counts = self.0.lock();
        let known = counts.get(&conversation);
        let last = known.and_then(|known| known.range(..=position).next_back());
        last.map_or((OrderKey::MIN, 0), |(position, count)| (*position, *count))
    }

    pub(in crate::store::embedded) fn put(
        &self,
        conversation: ConversationId,
        position: OrderKey,
        count: u64,
    ) {
        let mut counts = self.0.lock();
        let known = counts.get_or_insert_mut(conversation, BTreeMap::new);
        known.insert(position, count);
        if known.len() > POSITIONS_MAX {
            known.pop_first();
        }
    }
}
