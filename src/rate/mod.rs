//! Rates: how often each of very many may do something, in memory that does not grow.
//!
//! A bucket of tokens for each key, kept as one number: the moment at which it will be full again (the "theoretical arrival time" of GCRA).
//! A bucket that is full again says nothing that is not known, and its place is free. So [`Buckets`] is a table of a fixed size whose places
//! are taken by whoever was active in the last seconds: it never sweeps, never grows and never refuses somebody for want of room. Where too
//! many are active at once for the place of a key, the bucket that is nearest to full is forgotten, which costs the least.

mod pace;

use std::array;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::pace::{Pace, Pacing, Paid};
use crate::metrics::{self, IntCounter, Metrics};

/// So many in each `per`, and so many at once.
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

    /// All of an hour's at once, if one likes.
    pub const fn per_hour(count: u32) -> Self {
        Self {
            count,
            per: Duration::from_secs(3_600),
            burst: count,
        }
    }
}

/// There are not enough tokens now; after so long there will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFast {
    pub retry_after: Duration,
}

/// Places in which a key may lie. Few, so that one look at the memory finds it.
const WAYS: usize = 8;
/// Locks, so that those who ask at once rarely meet.
const SHARDS: usize = 64;
/// Groups of places under one lock. In all there is room for 131,072 keys whose buckets are not full, at 16 bytes each.
const SETS: usize = 256;

/// A key's hash, and when its bucket is full again, in nanoseconds since the table was made. All zeros is a free place, too.
///
/// Two keys with one hash share a bucket. Of 64 bits under a random secret that happens to nobody.
type Place = (u64, u64);

/// A bucket for each key.
pub struct Buckets {
    /// A shard allocates its 32 KiB with its first debit: a rate that nobody uses costs no memory.
    shards: [Mutex<Box<[Place]>>; SHARDS],
    hasher: RandomState,
    start: Instant,
    /// How long one token takes to come, and a whole bucket.
    token: u64,
    full: u64,
    burst: u32,
    refused: IntCounter,
}

impl Buckets {
    /// `what` is the name under which it is counted who was refused.
    pub fn new(what: &str, rate: Rate) -> Self {
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
                "What was refused because a user or an address was too fast.",
                ("what", what),
            ),
        }
    }

    /// Tells how often somebody was refused.
    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.refused.clone());
    }

    /// Position of a bucket: its shard, and the first place of its set.
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
        let mut places = self.shards[shard].lock();
        // A shard without a debit is empty, and has nothing to refund.
        let bucket = places
            .get_mut(set..set + WAYS)
            .into_iter()
            .flatten()
            .find(|(key, _)| *key == hash);
        if let Some((_, full_at)) = bucket {
            *full_at = full_at.saturating_sub(self.token.saturating_mul(u64::from(tokens)));
        }
    }

    /// Takes so many tokens from the key's bucket, or none. Who wants more than a bucket holds waits for a full one.
    pub fn take(
        &self,
        key: &(impl Hash + ?Sized),
        tokens: u32,
        now: Instant,
    ) -> Result<(), TooFast> {
        self.try_debit(self.key(key), tokens, now)
            .inspect_err(|_| self.refused.inc())
    }

    /// How long one token takes to come.
    pub fn token_every(&self) -> Duration {
        Duration::from_nanos(self.token)
    }

    /// The key as the table knows it.
    fn key(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one(key)
    }

    fn try_debit(&self, hash: u64, tokens: u32, now: Instant) -> Result<(), TooFast> {
        self.debit(hash, tokens, now, self.full)
    }

    /// Takes the tokens although they are not there yet: the bucket then has to fill for so much longer.
    fn overdraw(&self, hash: u64, tokens: u32, now: Instant) {
        // Without a limit it is never refused.
        let _ = self.debit(hash, tokens, now, u64::MAX);
    }

    /// Takes the tokens where the bucket is full again within `limit` after that.
    fn debit(&self, hash: u64, tokens: u32, now: Instant, limit: u64) -> Result<(), TooFast> {
        let now = nanos(now.saturating_duration_since(self.start));
        let cost = self.token.saturating_mul(u64::from(tokens.min(self.burst)));
        let (shard, set) = Self::position(hash);
        let mut places = self.shards[shard].lock();
        if places.is_empty() {
            *places = vec![(0, 0); SETS * WAYS].into_boxed_slice();
        }
        let places = &mut places[set..set + WAYS];
        let place = places.iter().position(|(key, _)| *key == hash);
        let full_at = place
            .map_or(now, |place| places[place].1.max(now))
            .saturating_add(cost);
        let wait = (full_at - now).saturating_sub(limit);
        if wait > 0 {
            return Err(TooFast {
                retry_after: Duration::from_nanos(wait),
            });
        }
        // One that is full again is the nearest to full.
        let nearest_to_full = || {
            places
                .iter()
                .enumerate()
                .min_by_key(|(_, (_, full_at))| *full_at)
                .map(|(place, _)| place)
        };
        if let Some(place) = place.or_else(nearest_to_full) {
            places[place] = (hash, full_at);
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
    fn a_burst_passes_then_it_goes_at_the_rate() {
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
    fn one_that_is_refused_costs_nothing() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        for _ in 0..1_000 {
            assert!(buckets.take("alice", 1, start).is_err());
        }
        assert_eq!(buckets.take("alice", 30, later(start, 3_000)), Ok(()));
    }

    #[test]
    fn what_is_given_back_may_be_taken_again_and_more_than_a_bucket_is_never_there() {
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
            "nobody gains by what they never took"
        );
    }

    #[test]
    fn each_has_a_bucket_of_their_own() {
        let buckets = Buckets::new("test", RATE);
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        assert!(buckets.take("alice", 1, start).is_err());
        assert_eq!(buckets.take("bob", 30, start), Ok(()));
    }

    #[test]
    fn what_costs_more_than_a_bucket_holds_takes_a_full_one() {
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
            let places: usize = buckets.shards.iter().map(|shard| shard.lock().len()).sum();
            places * size_of::<Place>()
        };
        let start = Instant::now();
        buckets.take("alice", 30, start).unwrap();
        assert_eq!(bytes(), SETS * WAYS * size_of::<Place>());
        for user in 0..1_000_000_u32 {
            // Nobody is refused for want of room, although none of these buckets fills up meanwhile.
            buckets.take(&user, 1, start).unwrap();
        }
        assert_eq!(bytes(), 2 * 1024 * 1024);
        assert!(
            buckets.take("alice", 1, start).is_err(),
            "who took much is not forgotten for those who took little"
        );
    }
}
