//! Counts of messages up to positions, for the counts of those above a floor. A floor only rises, so each count continues an
//! earlier one.

use std::collections::BTreeMap;

use crate::model::OrderKey;

/// Last positions with their exact counts.
const POSITIONS_MAX: usize = 64;
/// Messages between two checkpoints: whatever floors there are, a count reads no more once the messages were counted.
pub(in crate::store) const CHECKPOINT_EVERY: u64 = 1_024;

/// Counts of one range of messages, each of those up to a position.
#[derive(Default)]
pub(in crate::store) struct PositionCounts {
    checkpoints: BTreeMap<OrderKey, u64>,
    below: BTreeMap<OrderKey, u64>,
}

impl PositionCounts {
    /// The last counted position up to this one, with its count.
    pub(in crate::store) fn last_up_to(&self, position: OrderKey) -> Option<(OrderKey, u64)> {
        let up_to = |counts: &'_ BTreeMap<OrderKey, u64>| {
            let last = counts.range(..=position).next_back();
            last.map(|(position, count)| (*position, *count))
        };
        up_to(&self.below).max(up_to(&self.checkpoints))
    }

    /// Adds the count of a position, and the checkpoints that the count has passed.
    pub(in crate::store) fn add(
        &mut self,
        (position, count): (OrderKey, u64),
        checkpoints: Vec<(OrderKey, u64)>,
    ) {
        self.checkpoints.extend(checkpoints);
        self.below.insert(position, count);
        if self.below.len() > POSITIONS_MAX {
            self.below.pop_first();
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
        let mut counts = PositionCounts::default();
        let messages = 100 * CHECKPOINT_EVERY;
        let mut read = 0;
        // Floors from above to below: none continues another one.
        for floor in (0..messages).rev().step_by(97) {
            let last = counts.last_up_to(position(floor));
            let (from, below) = last.unwrap_or((OrderKey::MIN, 0));
            assert!(floor == messages - 1 || floor - below < CHECKPOINT_EVERY);
            read += floor - below;
            let passed = (below + 1..=floor).filter(|count| count % CHECKPOINT_EVERY == 0);
            let checkpoints = passed.map(|count| (position(count), count)).collect();
            assert_eq!(from, position(below));
            counts.add((position(floor), floor), checkpoints);
        }
        let floors = messages / 97;
        assert!(read < messages + (floors + 2) * CHECKPOINT_EVERY, "{read}");
    }
}
