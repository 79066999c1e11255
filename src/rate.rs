//! Rate limiter: a token bucket for each of very many keys, in constant memory.
//!
//! A bucket is one number, the time at which it will be full again (the theoretical arrival time of GCRA). A full bucket carries no
//! information, so its slot is free. [`Buckets`] is therefore a set-associative table of fixed size that holds the keys active in the last
//! seconds. It never sweeps, never grows and never refuses a key for lack of room. If all slots of a set are taken, the bucket nearest to
//! full is evicted, because it loses the least.

use std::array;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::{self, IntCounter, Metrics};

/// Sustained rate of `count` tokens in each `per`, and a burst of up to `burst` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    pub per: Duration,
    pub burst: u32,
}

impl Rate {
    pub const fn per_second(count: u32, burst: u32) -> Self {
        Self { count, per: Duration::from_secs(1), burst }
    }

    /// The burst is the whole hourly rate.
    pub const fn per_hour(count: u32) -> Self {
        Self { count, per: Duration::from_secs(3_600), burst: count }
    }
}

/// The bucket holds too few tokens. After `retry_after` it will hold enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFast {
    pub retry_after: Duration,
}

/// Slots of a set. Few, so that a set fits in two cache lines.
const WAYS: usize = 8;
/// Shards with one lock each, so that concurrent callers rarely contend.
const SHARDS: usize = 64;
/// Sets of a shard. The whole table holds 131,072 buckets that are not full, at 16 bytes each.
const SETS: usize = 256;

/// Hash of a key, and the time at which its bucket is full again, in nanoseconds since the table was created. All zeros is a free slot.
///
/// Two keys with the same hash share a bucket. With 64 bits under a random secret this practically never happens.
type Slot = (u64, u64);

/// Token buckets by key.
pub struct Buckets {
    shards: [Mutex<Box<[Slot]>>; SHARDS],
    hasher: RandomState,
    start: Instant,
    /// Nanoseconds to refill one token, and a whole bucket.
    token: u64,
    full: u64,
    burst: u32,
    refused: IntCounter,
}

impl Buckets {
    /// `what` is the label of the refusal counter.
    pub fn new(what: &str, rate: Rate) -> Self {
        let burst = rate.burst.max(1);
        let token = nanos(rate.per) / u64::from(rate.count.max(1));
        Self {
            shards: array::from_fn(|_| Mutex::new(vec![(0, 0); SETS * WAYS].into_boxed_slice())),
            hasher: RandomState::new(),
            start: Instant::now(),
            token,
            full: token.saturating_mul(u64::from(burst)),
            burst,
            refused: metrics::counter_of(
                "wideroom_rate_refusals_total",
                "Operations refused because a user or an address exceeded its rate limit.",
                ("what", what),
            ),
        }
    }

    /// Registers the refusal counter.
    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.refused.clone());
    }

    /// Takes this many tokens from the key's bucket, or none. A request for more tokens than a bucket holds takes a full bucket.
    pub fn take(&self, key: &(impl Hash + ?Sized), tokens: u32, now: Instant) -> Result<(), TooFast> {
        let hash = self.hasher.hash_one(key);
        let now = nanos(now.saturating_duration_since(self.start));
        let cost = self.token.saturating_mul(u64::from(tokens.min(self.burst)));
        let shard = (hash >> 32) as usize % SHARDS;
        let set = (hash as u32) as usize % SETS * WAYS;
        let mut slots = self.shards[shard].lock().expect("no panic while a shard is held");
        let slots = &mut slots[set..set + WAYS];
        let slot = slots.iter().position(|(key, _)| *key == hash);
        let full_at = slot.map_or(now, |slot| slots[slot].1.max(now)).saturating_add(cost);
        let wait = (full_at - now).saturating_sub(self.full);
        if wait > 0 {
            self.refused.inc();
            return Err(TooFast { retry_after: Duration::from_nanos(wait) });
        }
        // A full bucket is a free slot, and counts as nearest to full.
        let nearest_to_full = || slots.iter().enumerate().min_by_key(|(_, (_, full_at))| *full_at).map(|(slot, _)| slot);
        if let Some(slot) = slot.or_else(nearest_to_full) {
            slots[slot] = (hash, full_at);
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
    fn a_burst_passes_and_then_the_sustained_rate() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        for _ in 0..30 {
            buckets.take("alice", 1, start).unwrap();
        }
        assert_eq!(buckets.take("alice", 1, start), Err(TooFast { retry_after: Duration::from_millis(100) }));
        assert_eq!(buckets.take("alice", 1, later(start, 99)), Err(TooFast { retry_after: Duration::from_millis(1) }));
        assert_eq!(buckets.take("alice", 1, later(start, 100)), Ok(()));
        assert!(buckets.take("alice", 1, later(start, 100)).is_err());
    }

    #[test]
    fn a_refused_request_takes_no_tokens() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        for _ in 0..1_000 {
            assert!(buckets.take("alice", 1, start).is_err());
        }
        assert_eq!(buckets.take("alice", 30, later(start, 3_000)), Ok(()));
    }

    #[test]
    fn each_key_has_its_own_bucket() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        assert!(buckets.take("alice", 1, start).is_err());
        assert_eq!(buckets.take("bob", 30, start), Ok(()));
    }

    #[test]
    fn a_request_above_the_burst_takes_a_full_bucket() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        assert_eq!(buckets.take("alice", 1_000, start), Ok(()));
        assert_eq!(buckets.take("alice", 1_000, start), Err(TooFast { retry_after: Duration::from_secs(3) }));
    }

    #[test]
    fn a_million_users_take_no_more_memory_than_one() {
        let buckets = Buckets::new("test", RATE);
        let bytes = || {
            let slots: usize = buckets.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
            slots * size_of::<Slot>()
        };
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        let at_first = bytes();
        for user in 0..1_000_000_u32 {
            // No key is refused for lack of room, although none of these buckets refills in the meantime.
            buckets.take(&user, 1, start).unwrap();
        }
        assert_eq!(bytes(), at_first);
        assert!(at_first <= 2 * 1024 * 1024, "{at_first}");
        assert!(buckets.take("alice", 1, start).is_err(), "a bucket nearer to full is evicted first");
    }
}
