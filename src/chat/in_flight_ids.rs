//! Ids in flight and their low watermark: the greatest safe position of a stream over many
//! conversations.
//!
//! Each conversation allocates its ids and publishes its events in order, but two conversations do
//! not wait for each other. A greater id may be persisted and published while a smaller id of
//! another conversation is still on its way to the disk. A position in the inbox stream must not
//! pass the smaller id. So every allocated id is in flight until its event is published, and no
//! position passes the smallest of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::chat::error::{Error, Result};
use crate::clock::{Clock, IdGenerator};
use crate::model::{OrderKey, TimeUuid, Timestamp};
use crate::store;

/// Maximum lead of the ids over the wall clock on a shared store. With a greater lead, other
/// servers could not tell which ids are new.
const CLOCK_LEAD_MAX: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct InFlightIds {
    clock: Arc<dyn Clock>,
    ids: Arc<IdGenerator>,
    /// First id of each lease. The lock is held during an allocation, so an id is in flight as soon
    /// as it exists.
    leases: Arc<Mutex<BTreeSet<TimeUuid>>>,
    /// Moment, in microseconds, up to which the poller has read the writes of other servers. `None`
    /// on a store of one server.
    remote_watermark: Option<Arc<AtomicI64>>,
}

impl InFlightIds {
    pub(crate) fn new(clock: Arc<dyn Clock>, ids: Arc<IdGenerator>, is_shared: bool) -> Self {
        let remote_watermark = is_shared.then(|| Arc::new(AtomicI64::new(clock.now().micros())));
        Self {
            clock,
            ids,
            leases: Arc::default(),
            remote_watermark,
        }
    }

    /// Whether other servers write to the store too.
    pub(crate) fn is_shared(&self) -> bool {
        self.remote_watermark.is_some()
    }

    /// Call when the writes of other servers up to this moment have been read.
    pub(crate) fn advance_remote_watermark(&self, moment: Timestamp) {
        if let Some(watermark) = &self.remote_watermark {
            watermark.fetch_max(moment.micros(), Ordering::SeqCst);
        }
    }

    /// Allocates `count` ascending ids. They are in flight until the lease is dropped, after their
    /// events were published.
    pub(crate) fn allocate(&self, count: usize) -> IdLease {
        debug_assert!(count > 0, "a batch has an id");
        let mut leases = self.leases.lock();
        let now = self.clock.now();
        let ids: Vec<_> = (0..count).map(|_| self.ids.next(now)).collect();
        leases.insert(ids[0]);
        IdLease {
            ids,
            in_flight: self.clone(),
        }
    }

    /// Allocates ids, unless on a shared store they would lead the wall clock by too much.
    pub(crate) fn allocate_near_clock(&self, count: usize) -> Result<IdLease> {
        if self.is_shared() && self.lead_over_clock() > CLOCK_LEAD_MAX {
            return Err(Error::Busy);
        }
        Ok(self.allocate(count))
    }

    /// Makes all later ids greater than this one.
    pub(crate) fn observe(&self, id: TimeUuid) {
        self.ids.observe(id);
    }

    /// Makes all later ids greater than these, which other servers may have allocated: the next
    /// write may answer them.
    pub(crate) fn observe_remote(&self, ids: impl IntoIterator<Item = TimeUuid>) {
        if self.is_shared()
            && let Some(newest) = ids.into_iter().max()
        {
            self.ids.observe(newest);
        }
    }

    /// Lead of the ids over the wall clock. The clock was set back, or was ahead when the ids were
    /// allocated.
    pub(crate) fn lead_over_clock(&self) -> Duration {
        let lead = self.ids.last().micros() - self.clock.now().micros();
        Duration::from_micros(u64::try_from(lead).unwrap_or(0))
    }

    /// Whether, on a shared store, an id was allocated longer ago than this.
    pub(crate) fn is_older_than(&self, id: TimeUuid, micros: i64) -> bool {
        self.is_shared() && id.moment().plus_micros(micros) < self.clock.now()
    }

    /// Low watermark: all events up to here are published, and no later allocation returns an id up
    /// to here.
    pub(crate) fn low_watermark(&self) -> OrderKey {
        self.low_watermark_without(None)
    }

    fn low_watermark_without(&self, own: Option<TimeUuid>) -> OrderKey {
        let local = self.local_watermark_without(own);
        match &self.remote_watermark {
            Some(remote) => local.min(OrderKey::first_at(Timestamp::from_micros(
                remote.load(Ordering::SeqCst),
            ))),
            None => local,
        }
    }

    fn local_watermark_without(&self, own: Option<TimeUuid>) -> OrderKey {
        let leases = self.leases.lock();
        match leases.iter().find(|id| Some(**id) != own) {
            Some(first) => first.order_key().before(),
            None => {
                // The watermark advances to the present, and later ids pass it. So the position of
                // a quiet stream does not age.
                self.ids.pass(self.clock.now());
                OrderKey::first_at(self.ids.last().plus_micros(1)).before()
            }
        }
    }
}

/// The position that lies `micros` before this one. A read from there also finds events that became
/// visible late.
pub(crate) fn rewind(position: OrderKey, micros: i64) -> OrderKey {
    if micros == 0 {
        position
    } else {
        OrderKey::first_at(position.moment().plus_micros(-micros))
    }
}

/// Ids that were allocated together, and whose events are not all published yet.
pub(crate) struct IdLease {
    ids: Vec<TimeUuid>,
    in_flight: InFlightIds,
}

impl IdLease {
    pub(crate) fn ids(&self) -> &[TimeUuid] {
        &self.ids
    }

    pub(crate) fn newest(&self) -> TimeUuid {
        self.ids[self.ids.len() - 1]
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.in_flight.is_shared()
    }

    /// The result of a write together with its lease, ready to be published. On a store of one
    /// server, a write of unknown outcome pins its ids until the restart, so no position passes
    /// them. On a shared store, streams read back behind their position.
    pub(crate) fn if_persisted<T>(self, written: store::Result<T>) -> store::Result<(Self, T)> {
        match written {
            Ok(written) => Ok((self, written)),
            Err(error) => {
                if !self.in_flight.is_shared() && matches!(error, store::Error::OutcomeUnknown(_)) {
                    std::mem::forget(self);
                }
                Err(error)
            }
        }
    }

    /// Low watermark after the release of this lease.
    pub(crate) fn low_watermark(&self) -> OrderKey {
        self.in_flight.low_watermark_without(Some(self.ids[0]))
    }
}

impl Drop for IdLease {
    fn drop(&mut self) {
        self.in_flight.leases.lock().remove(&self.ids[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn the_low_watermark_never_passes_an_id_in_flight() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
        let in_flight = InFlightIds::new(clock, Arc::new(IdGenerator::new([7; 8])), false);
        let first = in_flight.allocate(1);
        let second = in_flight.allocate(2);
        assert!(in_flight.low_watermark() < first.newest().order_key());
        assert!(
            second.low_watermark() < first.newest().order_key(),
            "the first is not published yet"
        );
        assert!(first.low_watermark() < second.ids()[0].order_key());
        drop(first);
        assert!(
            second.low_watermark() >= second.newest().order_key(),
            "the only lease does not hold back its own watermark"
        );
        assert!(in_flight.low_watermark() < second.ids()[0].order_key());
        let newest = second.newest();
        drop(second);
        assert!(in_flight.low_watermark() >= newest.order_key());
        assert!(in_flight.allocate(1).newest().order_key() > in_flight.low_watermark());
    }
}
