//! Counts of messages up to a position, for the counts of those above a floor. A floor only rises, so each count
//! continues an earlier one. A removal from the disk ends the counts of its conversation.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{ConversationId, OrderKey};

const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");
/// Last positions of one conversation, with their exact counts.
const POSITIONS_MAX: usize = 64;
/// Messages between two checkpoints of one conversation: whatever floors its participants have, a count reads no more
/// once the messages were counted.
pub(in crate::store::embedded) const CHECKPOINT_EVERY: u64 = 1_024;

pub(in crate::store::embedded) struct FloorCounts(Mutex<LruCache<ConversationId, Counts>>);

/// Counts of one conversation.
#[derive(Default)]
struct Counts {
    /// Messages up to here were removed when these counts were made.
    removed_up_to: OrderKey,
    checkpoints: BTreeMap<OrderKey, u64>,
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
        let last = known.and_then(|known| {
            let up_to = |counts: &'_ BTreeMap<OrderKey, u64>| {
                let last = counts.range(..=position).next_back();
                last.map(|(position, count)| (*position, *count))
            };
            up_to(&known.below).max(up_to(&known.checkpoints))
        });
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
        (position, count): (OrderKey, u64),
        checkpoints: Vec<(OrderKey, u64)>,
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
        known.checkpoints.extend(checkpoints);
        known.below.insert(position, count);
        if known.below.len() > POSITIONS_MAX {
            known.below.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(number: u64) -> OrderKey {
        OrderKey(u128::from(number).to_be_bytes())
    }

    #[test]
    fn a_floor_is_near_a_checkpoint_however_many_others_were_counted() {
        let (counts, id) = (FloorCounts::new(), ConversationId(uuid::Uuid::nil()));
        let messages = 100 * CHECKPOINT_EVERY;
        let mut read = 0;
        // Floors from above to below: none continues another one.
        for floor in (0..messages).rev().step_by(97) {
            let (from, below) = counts.known(id, OrderKey::MIN, position(floor));
            assert!(floor == messages - 1 || floor - below < CHECKPOINT_EVERY);
            read += floor - below;
            let passed = (below + 1..=floor).filter(|count| count % CHECKPOINT_EVERY == 0);
            let checkpoints = passed.map(|count| (position(count), count)).collect();
            assert_eq!(from, position(below));
            counts.put(id, OrderKey::MIN, (position(floor), floor), checkpoints);
        }
        let floors = messages / 97;
        assert!(read < messages + (floors + 2) * CHECKPOINT_EVERY, "{read}");
        let (_, below) = counts.known(id, position(5), position(messages));
        assert_eq!(below, 0, "a removal ends the counts");
    }
}
