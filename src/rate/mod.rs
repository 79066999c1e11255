//! Rate limits: a token bucket for each of very many keys, in memory of a fixed size (GCRA).
//!
//! A bucket is one number: the time at which it will be full again (GCRA's "theoretical arrival time"). A full bucket
//! holds no information, so its slot is free.
//!
//! [`Buckets`] is a set-associative table. Its slots hold the keys that were active in the last seconds: it never sweeps,
//! never grows, and never refuses a key for want of memory. In a full set it evicts the bucket that is nearest to full,
//! which loses the least.

mod pace;

use std::array;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::pace::{Pace, Pacing, Paid};
use crate::metrics::{self, IntCounter, Metrics};

/// Sustained rate (`count` in each `per`) and burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    pub per: Duration,
    pub burst: u32,
}

impl Rate {
    pub const fn per_second(count: u32, burst: u32) -> Self {
        Self {
            count,
            per: Duration::from_secs(1),
            burst,
        }
    }

    /// Rate of an hour, whose burst is the whole hour.
    pub const fn per_hour(count: u32) -> Self {
        Self {
            count,
            per: Duration::from_secs(3_600),
            burst: count,
        }
    }

    /// Rate of a day, whose burst is the whole day.
    pub const fn per_day(count: u32) -> Self {
        Self {
            per: Duration::from_secs(24 * 3_600),
            ..Self::per_hour(count)
        }
    }
}

/// Refusal for want of tokens, with the time until enough have refilled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFast {
    pub retry_after: Duration,
}

/// Slots of a set. Few, so that a lookup reads one or two cache lines.
const WAYS: usize = 8;
/// Locks, so that concurrent lookups rarely contend.
const SHARDS: usize = 64;
/// Sets under one lock. In total 131,072 slots of 16 bytes.
const SETS: usize = 256;

/// Hash of a key, and the time at which its bucket is full, in nanoseconds since the table was created. Zeros are a free slot.
///
/// Two keys with the same hash share a bucket, which 64 bits under a random secret make improbable.
type Slot = (u64, u64);

/// Token buckets by key.
pub struct Buckets {
    /// A shard allocates its 32 KiB with its first debit: an unused rate costs no memory.
    shards: [Mutex<Box<[Slot]>>; SHARDS],
    hasher: RandomState,
    start: Instant,
    /// Nanoseconds in which one token and a whole bucket refill.
    token: u64,
    full: u64,
    burst: u32,
    refused: IntCounter,
}

impl Buckets {
    /// `name` is the label of its refusals in the metrics.
    pub fn new(name: &str, rate: Rate) -> Self {
        let burst = rate.burst.max(1);
        let token = nanos(rate.per) / u64::from(rate.count.max(1));
        Self {
            shards: array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            start: Instant::now(),
            token,
            full: token.saturating_mul(u64::from(burst)),
            burst,
            refused: metrics::counter_of(
                "wideroom_rate_refusals_total",
                "Requests refused because a user or an address exceeded a rate, by rate.",
                ("rate", name),
            ),
        }
    }

    /// Registers the counter of refusals.
    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.refused.clone());
    }

    /// Position of a bucket: its shard, and the first slot of its set.
    fn position(hash: u64) -> (usize, usize) {
        (
            (hash >> 32) as usize % SHARDS,
            (hash as u32) as usize % SETS * WAYS,
        )
    }

    /// Takes all of these tokens or none. Unlike [`Self::take`], refuses more than a full bucket holds.
    pub fn take_all(
        &self,
        key: &(impl Hash + ?Sized),
        tokens: u32,
        now: Instant,
    ) -> Result<(), TooFast> {
        if tokens > self.burst {
            self.refused.inc();
            return Err(TooFast {
                retry_after: Duration::from_nanos(self.full),
            });
        }
        self.take(key, tokens, now)
    }

    /// Refunds tokens that were taken and not used.
    pub fn give_back(&self, key: &(impl Hash + ?Sized), tokens: u32) {
        let hash = self.key(key);
        let (shard, set) = Self::position(hash);
        let mut slots = self.shards[shard].lock();
        // A shard without a debit is empty, and has nothing to refund.
        let bucket = slots
            .get_mut(set..set + WAYS)
            .into_iter()
            .flatten()
            .find(|(key, _)| *key == hash);
        if let Some((_, full_at)) = bucket {
            *full_at = full_at.saturating_sub(self.token.saturating_mul(u64::from(tokens)));
        }
    }

    /// Takes these tokens from the bucket of a key, or none. A price above the burst costs a full bucket.
    pub fn take(
        &self,
        key: &(impl Hash + ?Sized),
        tokens: u32,
        now: Instant,
    ) -> Result<(), TooFast> {
        self.try_debit(self.key(key), tokens, now)
            .inspect_err(|_| self.refused.inc())
    }

    /// Tokens of a full bucket.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Time in which one token refills.
    pub fn token_every(&self) -> Duration {
        Duration::from_nanos(self.token)
    }

    /// Hash of a key under the secret of this table.
    fn key(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one(key)
    }

    fn try_debit(&self, hash: u64, tokens: u32, now: Instant) -> Result<(), TooFast> {
        self.debit(hash, tokens, now, self.full)
    }

    /// Takes tokens that have not refilled yet: the bucket goes into debt.
    pub fn overdraw(&self, key: &(impl Hash + ?Sized), tokens: u32, now: Instant) {
        self.owe(self.key(key), tokens, now);
    }

    fn owe(&self, hash: u64, tokens: u32, now: Instant) {
        // Without a limit a debit always succeeds.
        let _ = self.debit(hash, tokens, now, u64::MAX);
    }

    /// Takes tokens if the bucket would then be full again within `limit`.
    fn debit(&self, hash: u64, tokens: u32, now: Instant, limit: u64) -> Result<(), TooFast> {
        let now = nanos(now.saturating_duration_since(self.start));
        let cost = self.token.saturating_mul(u64::from(tokens.min(self.burst)));
        let (shard, set) = Self::position(hash);
        let mut slots = self.shards[shard].lock();
        if slots.is_empty() {
            *slots = vec![(0, 0); SETS * WAYS].into_boxed_slice();
        }
        let slots = &mut slots[set..set + WAYS];
        let index = slots.iter().position(|(key, _)| *key == hash);
        let full_at = index
            .map_or(now, |index| slots[index].1.max(now))
            .saturating_add(cost);
        let wait = (full_at - now).saturating_sub(limit);
        if wait > 0 {
            return Err(TooFast {
                retry_after: Duration::from_nanos(wait),
            });
        }
        // A full bucket (a free slot) is the nearest to full.
        let nearest_to_full = || {
            slots
                .iter()
                .enumerate()
                .min_by_key(|(_, (_, full_at))| *full_at)
                .map(|(index, _)| index)
        };
        if let Some(index) = index.or_else(nearest_to_full) {
            slots[index] = (hash, full_at);
        }
        Ok(())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::per_second(10, 30);

    fn later(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        for _ in 0..30 {
            buckets.take("alice", 1, start).unwrap();
        }
        assert_eq!(
            buckets.take("alice", 1, start),
            Err(TooFast {
                retry_after: Duration::from_millis(100)
            })
        );
        assert_eq!(
            buckets.take("alice", 1, later(start, 99)),
            Err(TooFast {
                retry_after: Duration::from_millis(1)
            })
        );
        assert_eq!(buckets.take("alice", 1, later(start, 100)), Ok(()));
        assert!(buckets.take("alice", 1, later(start, 100)).is_err());
    }

    #[test]
    fn a_refusal_costs_no_tokens() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        for _ in 0..1_000 {
            assert!(buckets.take("alice", 1, start).is_err());
        }
        assert_eq!(buckets.take("alice", 30, later(start, 3_000)), Ok(()));
    }

    #[test]
    fn a_refund_can_be_taken_again_and_never_exceeds_the_burst() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        assert_eq!(
            buckets.take_all("alice", 31, start),
            Err(TooFast {
                retry_after: Duration::from_secs(3)
            })
        );
        buckets.take_all("alice", 30, start).unwrap();
        assert!(buckets.take_all("alice", 1, start).is_err());
        buckets.give_back("alice", 2);
        buckets.give_back("bob", 2);
        assert_eq!(buckets.take_all("alice", 2, start), Ok(()));
        assert!(buckets.take_all("alice", 1, start).is_err());
        buckets.take_all("bob", 30, start).unwrap();
        assert!(
            buckets.take_all("bob", 1, start).is_err(),
            "a refund to a full bucket adds nothing"
        );
    }

    #[test]
    fn each_key_has_a_bucket_of_its_own() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        assert!(buckets.take("alice", 1, start).is_err());
        assert_eq!(buckets.take("bob", 30, start), Ok(()));
    }

    #[test]
    fn a_price_above_the_burst_takes_a_full_bucket() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        assert_eq!(buckets.take("alice", 1_000, start), Ok(()));
        assert_eq!(
            buckets.take("alice", 1_000, start),
            Err(TooFast {
                retry_after: Duration::from_secs(3)
            })
        );
    }

    #[test]
    fn a_million_users_take_two_mebibytes() {
        let buckets = Buckets::new("test", RATE);
        let bytes = || {
            let slots: usize = buckets.shards.iter().map(|shard| shard.lock().len()).sum();
            slots * size_of::<Slot>()
        };
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        assert_eq!(bytes(), SETS * WAYS * size_of::<Slot>());
        for user in 0..1_000_000_u32 {
            // The table refuses no key for want of memory, although none of these buckets refills meanwhile.
            buckets.take(&user, 1, start).unwrap();
        }
        assert_eq!(bytes(), 2 * 1024 * 1024);
        assert!(
            buckets.take("alice", 1, start).is_err(),
            "the bucket of a key that took much is not evicted for keys that took little"
        );
    }
}
