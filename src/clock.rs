//! Time and ids: the wall clock, and the hybrid logical clock that allocates the id of every message and change.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::model::{TimeUuid, Timestamp};

/// Source of the current time: the system clock, or a clock that a test controls.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place that reads the system clock"
    )]
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
    }
}

/// A clock that changes only when a test sets it.
pub struct ManualClock(AtomicI64);

impl ManualClock {
    pub fn at(moment: Timestamp) -> Self {
        Self(AtomicI64::new(moment.micros()))
    }

    pub fn set(&self, moment: Timestamp) {
        self.0.store(moment.micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// Hybrid logical clock that allocates ids. Each id is at or after the wall clock, and greater than every id allocated or observed before.
/// No two ids share a microsecond.
pub struct IdGenerator {
    last: Mutex<Timestamp>,
    /// Clock sequence and node, random for each process, so two servers never allocate the same id.
    rest: [u8; 8],
}

impl IdGenerator {
    pub fn new(rest: [u8; 8]) -> Self {
        let mut rest = rest;
        // The multicast bit marks a node id that is not the address of a network card (RFC 4122, 4.5).
        rest[2] |= 1;
        Self {
            last: Mutex::new(Timestamp::ZERO),
            rest,
        }
    }

    pub fn random() -> Self {
        let random = uuid::Uuid::new_v4();
        let (_, rest) = random
            .as_bytes()
            .split_last_chunk::<8>()
            .expect("a uuid has sixteen bytes");
        Self::new(*rest)
    }

    /// An id at or after `now`, greater than all before it.
    pub fn next(&self, now: Timestamp) -> TimeUuid {
        let mut last = self.last.lock();
        *last = now.max(last.plus_micros(1));
        TimeUuid::new(*last, self.rest)
    }

    /// Whether this generator allocated the id.
    pub fn made(&self, id: TimeUuid) -> bool {
        id == TimeUuid::new(id.moment(), self.rest)
    }

    /// Makes all later ids greater than this one.
    pub fn observe(&self, id: TimeUuid) {
        self.pass(id.moment());
    }

    /// Makes all later ids greater than this moment.
    pub fn pass(&self, moment: Timestamp) {
        let mut last = self.last.lock();
        *last = (*last).max(moment);
    }

    /// Greatest moment allocated or observed so far.
    pub fn last(&self) -> Timestamp {
        *self.last.lock()
    }
}
