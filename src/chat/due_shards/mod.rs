//! Shards of a due queue that this server holds. On a cluster each has a lease and a position in the store, as one cell that
//! changes by compare-and-set.
//!
//! A due queue lists work by the slot of time in which it is due. Its work is idempotent: a lost lease means that a step is repeated.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::chat::error::Result;
use crate::chat::in_flight_ids::InFlightIds;
use crate::clock::micros;
use crate::model::{OrderKey, OutboxShard, Timestamp};
use crate::store::cluster::SKEW_MAX;
use crate::store::{ReaderLease, ReaderPosition, Store};

/// A due queue, and the leases of its shards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DueQueue {
    /// Name of the positions among those of the readers of the outbox. No webhook can have it.
    pub(crate) reader: &'static str,
    /// Length of a slot.
    pub(crate) slot: Duration,
    /// Slots that are looked at again: a write that took long may list something in a slot that has passed.
    pub(crate) late_slots: u32,
    /// Slots after which an entry is of no use. A store with leases does not hold it longer.
    pub(crate) kept_slots: u32,
    /// Slots before the present one from which a queue that nobody has worked through is read.
    pub(crate) new_slots: u32,
    /// Life of a lease.
    pub(crate) lease_for: Duration,
    /// Time before its end from which the holder stops, and after it from which others acquire the shard.
    pub(crate) lease_margin: Duration,
    /// Age from which a lease is renewed. A position that has advanced renews it at once.
    pub(crate) renew_after: Duration,
}

impl DueQueue {
    /// The queue, whose worker renews leases at the end of passes: one begins so long after another, and takes so long.
    pub(crate) const fn checked(self, pass_every: Duration, pass_max: Duration) -> Self {
        let renewed_after = self.renew_after.as_secs() + pass_every.as_secs() + pass_max.as_secs();
        assert!(renewed_after < self.lease_for.as_secs() - self.lease_margin.as_secs());
        assert!(self.lease_margin.as_secs() > 2 * SKEW_MAX.as_secs());
        self
    }

    /// The slot of a moment, counted from 1970.
    pub(crate) fn slot_of(&self, moment: Timestamp) -> u32 {
        let slot = moment.micros().div_euclid(micros(self.slot));
        u32::try_from(slot).unwrap_or_default()
    }

    fn begin_of(&self, slot: u32) -> Timestamp {
        Timestamp::from_micros(i64::from(slot) * micros(self.slot))
    }

    /// The first slot that may have entries, by the stored position.
    fn first_slot(&self, seen: Option<&ReaderPosition>, now: Timestamp) -> u32 {
        let before = |slots| self.slot_of(now).saturating_sub(slots);
        match seen {
            Some(seen) => self
                .slot_of(seen.position.moment())
                .max(before(self.kept_slots)),
            None => before(self.new_slots),
        }
    }
}

/// A shard that this server works through.
pub(crate) struct HeldShard {
    pub(crate) shard: OutboxShard,
    /// The first slot that may have entries.
    pub(crate) from: u32,
    late_slots: u32,
    /// `None` on a store of a single server.
    lease: Option<HeldLease>,
}

struct HeldLease {
    state: ReaderPosition,
    acquired_at: Instant,
    valid_until: Instant,
}

impl HeldShard {
    /// Whether this server still holds the shard.
    pub(crate) fn is_valid(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_none_or(|lease| Instant::now() < lease.valid_until)
    }

    /// Notes that the entries until this slot are done. A clock that was ahead and is set back lists entries in earlier
    /// slots again.
    pub(crate) fn advance(&mut self, slot: u32) {
        self.from = slot.saturating_sub(self.late_slots);
    }
}

/// The shards of a due queue that this server holds.
pub(crate) struct ShardHolder {
    queue: DueQueue,
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
    holder: Uuid,
    held: Vec<HeldShard>,
}

impl ShardHolder {
    pub(crate) fn new(queue: DueQueue, store: Arc<dyn Store>, in_flight: InFlightIds) -> Self {
        Self {
            queue,
            store,
            in_flight,
            holder: Uuid::new_v4(),
            held: Vec::new(),
        }
    }

    pub(crate) fn held_mut(&mut self) -> &mut [HeldShard] {
        &mut self.held
    }

    /// Whether this server holds the first shard, whose holder does what is done once for all.
    pub(crate) fn holds_first(&self) -> bool {
        self.held
            .iter()
            .any(|held| held.shard.number() == 0 && held.is_valid())
    }

    /// Acquires the shards that nobody holds: an equal part of all for each server, about.
    pub(crate) async fn acquire(&mut self, now: Timestamp) -> Result<()> {
        if !self.in_flight.is_shared() {
            if self.held.is_empty() {
                let every = OutboxShard::all().map(|shard| HeldShard {
                    shard,
                    from: 0,
                    late_slots: self.queue.late_slots,
                    lease: None,
                });
                self.held = every.collect();
            }
            return Ok(());
        }
        self.held.retain(HeldShard::is_valid);
        let servers = match self.store.cluster() {
            Some(cluster) => cluster.beats().await?.len().max(1),
            None => 1,
        };
        let share = usize::from(OutboxShard::COUNT).div_ceil(servers);
        let positions = self.store.reader_positions(self.queue.reader).await?;
        let mut shards: Vec<_> = OutboxShard::all().zip(positions).collect();
        let [random, ..] = *self.holder.as_bytes();
        let start = usize::from(random) % shards.len();
        shards.rotate_left(start);
        for (shard, seen) in shards {
            let is_held = self.held.iter().any(|held| held.shard == shard);
            let lease = seen.as_ref().and_then(|seen| seen.lease);
            let has_ended = |lease: ReaderLease| {
                lease.until.plus_micros(micros(self.queue.lease_margin)) < now
                    || lease.holder == self.holder
            };
            if is_held || self.held.len() >= share || !lease.is_none_or(has_ended) {
                continue;
            }
            let from = self.queue.first_slot(seen.as_ref(), now);
            let lease = self.swap(shard, seen.as_ref(), from).await?;
            self.held.extend(lease.map(|lease| HeldShard {
                shard,
                from,
                late_slots: self.queue.late_slots,
                lease: Some(lease),
            }));
        }
        Ok(())
    }

    /// Renews the leases, with the positions. A shard that another server has acquired is dropped.
    pub(crate) async fn renew(&mut self) -> Result<()> {
        let mut renewed = Vec::with_capacity(self.held.len());
        for held in std::mem::take(&mut self.held) {
            let lease = match held.lease {
                None => None,
                Some(lease) if self.is_current(&lease, held.from) => Some(lease),
                Some(lease) => {
                    let seen = Some(&lease.state);
                    match self.swap(held.shard, seen, held.from).await? {
                        Some(lease) => Some(lease),
                        None => continue,
                    }
                }
            };
            renewed.push(HeldShard { lease, ..held });
        }
        self.held = renewed;
        Ok(())
    }

    /// Whether a lease need not be renewed yet, and has this position.
    fn is_current(&self, lease: &HeldLease, from: u32) -> bool {
        lease.acquired_at.elapsed() < self.queue.renew_after
            && lease.state.position == OrderKey::first_at(self.queue.begin_of(from))
    }

    async fn swap(
        &self,
        shard: OutboxShard,
        seen: Option<&ReaderPosition>,
        from: u32,
    ) -> Result<Option<HeldLease>> {
        // Both count from here. The pass may have begun long before: a lease that counts from there would end in the store first.
        let began = Instant::now();
        let lease_for = self.queue.lease_for;
        let until = self.in_flight.now().plus_micros(micros(lease_for));
        let state = ReaderPosition {
            position: OrderKey::first_at(self.queue.begin_of(from)),
            held: Vec::new(),
            lease: Some(ReaderLease {
                holder: self.holder,
                until,
            }),
        };
        let swapped = self
            .store
            .swap_reader_position(self.queue.reader, shard, seen, &state)
            .await?;
        Ok(swapped.then(|| HeldLease {
            state,
            acquired_at: began,
            valid_until: began + lease_for - self.queue.lease_margin,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: DueQueue = DueQueue {
        reader: "wideroom:test",
        slot: Duration::from_secs(60),
        late_slots: 4,
        kept_slots: 100,
        new_slots: 10,
        lease_for: Duration::from_secs(30),
        lease_margin: Duration::from_secs(5),
        renew_after: Duration::from_secs(10),
    };

    #[test]
    fn a_clock_that_is_set_back_has_its_slots_looked_at_again() {
        let mut held = HeldShard {
            shard: OutboxShard::of(crate::model::ConversationId::random()),
            from: 0,
            late_slots: QUEUE.late_slots,
            lease: None,
        };
        held.advance(1_000);
        assert_eq!(held.from, 996);
        held.advance(900);
        assert_eq!(held.from, 896);
    }

    #[test]
    fn a_queue_is_read_from_its_position_or_from_the_oldest_entry_of_use() {
        let now = QUEUE.begin_of(1_000).plus_micros(59_999_999);
        assert_eq!(QUEUE.slot_of(now), 1_000);
        let seen = |slot| ReaderPosition {
            position: OrderKey::first_at(QUEUE.begin_of(slot)),
            held: Vec::new(),
            lease: None,
        };
        assert_eq!(QUEUE.first_slot(None, now), 990);
        assert_eq!(QUEUE.first_slot(Some(&seen(950)), now), 950);
        assert_eq!(QUEUE.first_slot(Some(&seen(7)), now), 900);
    }
}
