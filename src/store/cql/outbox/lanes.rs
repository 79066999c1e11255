//! Lanes: the partition that this server writes each shard of the outbox to.

use std::sync::atomic::{AtomicI8, Ordering};

use uuid::Uuid;

use crate::model::OutboxShard;

/// Lanes of each shard. Rows are in all of them, so never change it.
pub(super) const LANES: i8 = 4;

pub(super) struct Lanes([AtomicI8; OutboxShard::COUNT as usize]);

impl Lanes {
    /// A lane by server, so that servers share no hot partition.
    pub(super) fn random() -> Self {
        let [.., random] = *Uuid::new_v4().as_bytes();
        let lane = (random % LANES.cast_unsigned()).cast_signed();
        Self(std::array::from_fn(|_| AtomicI8::new(lane)))
    }

    fn of(&self, shard: OutboxShard) -> &AtomicI8 {
        &self.0[usize::from(shard.number())]
    }

    pub(super) fn present(&self, shard: OutboxShard) -> i8 {
        self.of(shard).load(Ordering::Relaxed)
    }

    /// All lanes, the present one first.
    pub(super) fn in_turn(&self, shard: OutboxShard) -> impl Iterator<Item = i8> + use<> {
        let first = self.present(shard);
        (0..LANES).map(move |step| (first + step) % LANES)
    }

    /// Takes the lane after a failed one, unless another write has done so.
    pub(super) fn advance(&self, shard: OutboxShard, failed: i8) {
        let next = (failed + 1) % LANES;
        let lane = self.of(shard);
        let _ = lane.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_lane_is_left_once() {
        let lanes = Lanes::random();
        let mut shards = OutboxShard::all();
        let (one, other) = (shards.next().unwrap(), shards.next().unwrap());
        let first = lanes.present(one);
        let all: Vec<_> = lanes.in_turn(one).collect();
        assert_eq!((all[0], all.len()), (first, 4));
        lanes.advance(one, first);
        lanes.advance(one, first);
        assert_eq!(
            lanes.present(one),
            all[1],
            "two writes saw the same failure"
        );
        assert_eq!(lanes.present(other), first);
    }
}
