//! Time and ids: the wall clock, and the hybrid logical clock that gives every message and change its id.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::{TimeUuid, Timestamp};

/// Where the time comes from: the system, or a test.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the system's clock is read")]
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
    }
}

/// A clock that stands still until it is told otherwise.
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

/// Gives ids: each later than the wall clock, than every id it gave, and than every id it was shown. No two share a microsecond.
pub struct IdGenerator {
    last: Mutex<Timestamp>,
    /// Clock sequence and node, random for each process: two servers never make the same id.
    rest: [u8; 8],
}

impl IdGenerator {
    pub fn new(rest: [u8; 8]) -> Self {
        let mut rest = rest;
        // A node id that was not read from a network card says so in its multicast bit (RFC 4122, 4.5).
        rest[2] |= 1;
        Self { last: Mutex::new(Timestamp::ZERO), rest }
    }

    pub fn random() -> Self {
        let random = uuid::Uuid::new_v4();
        let (_, rest) = random.as_bytes().split_last_chunk::<8>().expect("a uuid has sixteen bytes");
        Self::new(*rest)
    }

    /// An id at or after `now`, greater than all before it.
    pub fn next(&self, now: Timestamp) -> TimeUuid {
        let mut last = self.last.lock().expect("no panic while giving an id");
        *last = now.max(last.plus_micros(1));
        TimeUuid::new(*last, self.rest)
    }

    /// Whether it is one of its own.
    pub fn made(&self, id: TimeUuid) -> bool {
        id == TimeUuid::new(id.moment(), self.rest)
    }

    /// Ids from now on lie after this one.
    pub fn observe(&self, id: TimeUuid) {
        self.pass(id.moment());
    }

    /// Ids from now on lie after this moment.
    pub fn pass(&self, moment: Timestamp) {
        let mut last = self.last.lock().expect("no panic while giving an id");
        *last = (*last).max(moment);
    }

    /// The last moment given or shown.
    pub fn last(&self) -> Timestamp {
        *self.last.lock().expect("no panic while giving an id")
    }
}
