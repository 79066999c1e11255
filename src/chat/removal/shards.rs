//! Shards of the lists of removals that this server holds. On a cluster each has a lease and a position in the store, as
//! one cell that changes by compare-and-set.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{PASS_EVERY, PASS_MAX};
use crate::chat::error::Result;
use crate::chat::in_flight_ids::InFlightIds;
use crate::model::{OrderKey, OutboxShard, Timestamp};
use crate::store::cluster::SKEW_MAX;
use crate::store::{DUE_KEPT_HOURS, ReaderLease, ReaderPosition, Store, hour_of};

/// Name of the positions among those of the readers of the outbox. No webhook can have it.
const READER: &str = "wideroom:removal";
/// Life of a lease. Its holder renews it with each pass.
const LEASE_FOR: Duration = Duration::from_secs(180);
const LEASE_MARGIN: Duration = Duration::from_secs(10);
const _: () = assert!(
    PASS_EVERY.as_secs() + PASS_MAX.as_secs() < LEASE_FOR.as_secs() - LEASE_MARGIN.as_secs()
        && LEASE_MARGIN.as_secs() > 2 * SKEW_MAX.as_secs()
);
/// Hours that are looked at again: a write that took long may list something in an hour that has passed.
const LATE_HOURS: u32 = 4;
const HOUR_MICROS: i64 = 3_600 * 1_000_000;

/// A shard that this server works through.
pub(super) struct HeldShard {
    pub(super) shard: OutboxShard,
    /// The first hour that may have entries.
    pub(super) from: u32,
    /// `None` on a store of a single server.
    lease: Option<HeldLease>,
}

struct HeldLease {
    state: ReaderPosition,
    valid_until: Instant,
}

impl HeldShard {
    /// Whether this server still holds the shard.
    pub(super) fn is_valid(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_none_or(|lease| Instant::now() < lease.valid_until)
    }

    /// Notes that the entries until this hour are done. A clock that was ahead and is set back lists entries in earlier
    /// hours again.
    pub(super) fn advance(&mut self, hour: u32) {
        self.from = hour.saturating_sub(LATE_HOURS);
    }
}

pub(super) struct ShardHolder {
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
    holder: Uuid,
    held: Vec<HeldShard>,
}

impl ShardHolder {
    pub(super) fn new(store: Arc<dyn Store>, in_flight: InFlightIds) -> Self {
        Self {
            store,
            in_flight,
            holder: Uuid::new_v4(),
            held: Vec::new(),
        }
    }

    pub(super) fn held_mut(&mut self) -> &mut [HeldShard] {
        &mut self.held
    }

    /// Whether this server holds the first shard, whose holder does what is done once for all.
    pub(super) fn holds_first(&self) -> bool {
        self.held
            .iter()
            .any(|held| held.shard.number() == 0 && held.is_valid())
    }

    /// Acquires the shards that nobody holds: an equal part of all for each server, about.
    pub(super) async fn acquire(&mut self, now: Timestamp) -> Result<()> {
        if !self.in_flight.is_shared() {
            if self.held.is_empty() {
                let every = OutboxShard::all().map(|shard| HeldShard {
                    shard,
                    from: 0,
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
        let positions = self.store.reader_positions(READER).await?;
        let mut shards: Vec<_> = OutboxShard::all().zip(positions).collect();
        let [random, ..] = *self.holder.as_bytes();
        let start = usize::from(random) % shards.len();
        shards.rotate_left(start);
        for (shard, seen) in shards {
            let is_held = self.held.iter().any(|held| held.shard == shard);
            let lease = seen.as_ref().and_then(|seen| seen.lease);
            let has_ended = |lease: ReaderLease| {
                lease.until.plus_micros(micros(LEASE_MARGIN)) < now || lease.holder == self.holder
            };
            if is_held || self.held.len() >= share || !lease.is_none_or(has_ended) {
                continue;
            }
            let from = seen
                .as_ref()
                // Entries of earlier hours have expired.
                .map_or(hour_of(now).saturating_sub(DUE_KEPT_HOURS), |seen| {
                    hour_of(seen.position.moment())
                });
            let lease = self.swap(shard, seen.as_ref(), from).await?;
            self.held.extend(lease.map(|lease| HeldShard {
                shard,
                from,
                lease: Some(lease),
            }));
        }
        Ok(())
    }

    /// Renews the leases, with the positions. A shard that another server has acquired is dropped.
    pub(super) async fn renew(&mut self) -> Result<()> {
        let mut renewed = Vec::with_capacity(self.held.len());
        for held in std::mem::take(&mut self.held) {
            let lease = match held.lease {
                None => None,
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

    async fn swap(
        &self,
        shard: OutboxShard,
        seen: Option<&ReaderPosition>,
        from: u32,
    ) -> Result<Option<HeldLease>> {
        // Both count from here. The pass may have begun long before: a lease that counts from there would end in the store first.
        let began = Instant::now();
        let until = self.in_flight.now().plus_micros(micros(LEASE_FOR));
        let begin = Timestamp::from_micros(i64::from(from) * HOUR_MICROS);
        let state = ReaderPosition {
            position: OrderKey::first_at(begin),
            held: Vec::new(),
            lease: Some(ReaderLease {
                holder: self.holder,
                until,
            }),
        };
        let swapped = self
            .store
            .swap_reader_position(READER, shard, seen, &state)
            .await?;
        Ok(swapped.then(|| HeldLease {
            state,
            valid_until: began + LEASE_FOR - LEASE_MARGIN,
        }))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_has_its_hours_looked_at_again() {
        let mut held = HeldShard {
            shard: OutboxShard::of(crate::model::ConversationId::random()),
            from: 0,
            lease: None,
        };
        held.advance(1_000);
        assert_eq!(held.from, 1_000 - LATE_HOURS);
        held.advance(900);
        assert_eq!(held.from, 900 - LATE_HOURS);
    }
}
