//! Time and ids: the wall clock, and the hybrid logical clock that allocates the id of every message and change.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};

use crate::model::{TimeUuid, Timestamp};

/// Source of the current time: the system clock, or a clock that a test controls.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// Microseconds of a duration, at most the greatest number.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
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

/// Clock that follows another one once there is one, for as long as that lives.
pub struct FollowingClock {
    own: Arc<dyn Clock>,
    followed: RwLock<Option<Weak<dyn Clock>>>,
}

impl FollowingClock {
    pub fn new(own: Arc<dyn Clock>) -> Self {
        Self {
            own,
            followed: RwLock::new(None),
        }
    }

    pub fn follow(&self, clock: Weak<dyn Clock>) {
        *self.followed.write() = Some(clock);
    }
}

impl Clock for FollowingClock {
    fn now(&self) -> Timestamp {
        let followed = self.followed.read().as_ref().and_then(Weak::upgrade);
        followed.map_or_else(|| self.own.now(), |clock| clock.now())
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

/// Hybrid logical clock that allocates ids. Each id is at or after the clock, and greater than every
/// id allocated or observed before. No two ids share a microsecond.
///
/// On a store of several servers, an id of another one raises only the queue of its conversation
/// ([`IdGenerator::next_after`]).
pub struct IdGenerator {
    state: Mutex<GeneratorState>,
    /// Clock sequence and node, random for each process, so two servers never allocate the same id.
    rest: [u8; 8],
}

struct GeneratorState {
    last: Timestamp,
    /// Microseconds after `last` that ids of raised queues have taken.
    taken: BTreeSet<Timestamp>,
}

impl GeneratorState {
    /// The first microsecond from this one on that no id has taken.
    fn free_from(&self, moment: Timestamp) -> Timestamp {
        let mut free = moment;
        while self.taken.contains(&free) {
            free = free.plus_micros(1);
        }
        free
    }

    fn advance(&mut self, to: Timestamp) {
        self.last = self.last.max(to);
        if self.taken.first().is_some_and(|first| *first <= self.last) {
            self.taken = self.taken.split_off(&self.last.plus_micros(1));
        }
    }
}

impl IdGenerator {
    pub fn new(rest: [u8; 8]) -> Self {
        let mut rest = rest;
        // The multicast bit marks a node id that is not the address of a network card (RFC 4122, 4.5).
        rest[2] |= 1;
        Self {
            state: Mutex::new(GeneratorState {
                last: Timestamp::ZERO,
                taken: BTreeSet::new(),
            }),
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
        let mut state = self.state.lock();
        let next = state.free_from(now.max(state.last.plus_micros(1)));
        state.advance(next);
        TimeUuid::new(next, self.rest)
    }

    /// The same, greater than this moment too, which may lie ahead of the clock. Then the id is an
    /// exception: later ids of other queues go on from the clock, and skip its microsecond.
    pub fn next_after(&self, moment: Timestamp, now: Timestamp) -> TimeUuid {
        {
            let mut state = self.state.lock();
            if moment > now.max(state.last) {
                let next = state.free_from(moment.plus_micros(1));
                state.taken.insert(next);
                return TimeUuid::new(next, self.rest);
            }
        }
        self.next(now)
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
        self.state.lock().advance(moment);
    }

    /// Greatest moment allocated or observed so far, but for the ids of raised queues.
    pub fn last(&self) -> Timestamp {
        self.state.lock().last
    }
}
