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
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::chat::error::{Error, Result};
use crate::clock::{Clock, IdGenerator};
use crate::cluster::{Cluster, CursorScope};
use crate::model::{OrderKey, TimeUuid};
use crate::store;

/// Maximum lead of the ids over the wall clock on a shared store. With a greater lead, other
/// servers could not tell which ids are new.
const CLOCK_LEAD_MAX: Duration = Duration::from_secs(2);

/// Age of an id at which its event is late: it is logged again under a fresh id. Streams read back
/// ten seconds, which is twice this and the difference of two clocks.
const LATE_AFTER: Duration = Duration::from_secs(4);

#[derive(Clone)]
pub(crate) struct InFlightIds {
    clock: Arc<dyn Clock>,
    ids: Arc<IdGenerator>,
    /// First id of each lease. The lock is held during an allocation, so an id is in flight as soon
    /// as it exists.
    leases: Arc<Mutex<BTreeSet<TimeUuid>>>,
    /// This server's part in a cluster. `None` on a store of one server.
    cluster: Option<Cluster>,
}

impl InFlightIds {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        ids: Arc<IdGenerator>,
        cluster: Option<Cluster>,
    ) -> Self {
        Self {
            clock,
            ids,
            leases: Arc::default(),
            cluster,
        }
    }

    /// Whether other servers write to the store too.
    pub(crate) fn is_shared(&self) -> bool {
        self.cluster.is_some()
    }

    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Greatest position that a stream may give, by what has arrived from other servers. Events
    /// that are being published, of which `except` is the oldest, do not hold it back.
    pub(crate) fn position_max(
        &self,
        scope: CursorScope<'_>,
        except: Option<OrderKey>,
    ) -> OrderKey {
        self.cluster
            .as_ref()
            .map_or(OrderKey::MAX, |cluster| cluster.cursor_limit(scope, except))
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
            allocated_at: Instant::now(),
            in_flight: self.clone(),
        }
    }

    /// Allocates ids, unless on a shared store they would lead the wall clock by too much, or too
    /// many events wait to be delivered to other servers.
    pub(crate) fn allocate_near_clock(&self, count: usize) -> Result<IdLease> {
        if let Some(cluster) = &self.cluster
            && (self.lead_over_clock() > CLOCK_LEAD_MAX || !cluster.has_room())
        {
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

    /// Whether streams of other servers may have passed this id. Both clocks count: the monotonic
    /// one stands still while a machine is suspended, and the wall clock may be set.
    pub(crate) fn is_late(&self, id: TimeUuid, allocated_at: Instant) -> bool {
        let age = self.clock.now().micros() - id.moment().micros();
        let by_wall_clock = Duration::from_micros(u64::try_from(age).unwrap_or(0));
        self.is_shared() && allocated_at.elapsed().max(by_wall_clock) > LATE_AFTER
    }

    /// Low watermark: all events of this server up to here are published, and no later allocation
    /// returns an id up to here.
    pub(crate) fn low_watermark(&self) -> OrderKey {
        self.low_watermark_without(None)
    }

    /// The low watermark, or the greatest position that streams of this scope may give.
    pub(crate) fn position(&self, scope: CursorScope<'_>) -> OrderKey {
        self.low_watermark().min(self.position_max(scope, None))
    }

    fn low_watermark_without(&self, own: Option<TimeUuid>) -> OrderKey {
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
    allocated_at: Instant,
    in_flight: InFlightIds,
}

impl IdLease {
    pub(crate) fn ids(&self) -> &[TimeUuid] {
        &self.ids
    }

    pub(crate) fn newest(&self) -> TimeUuid {
        self.ids[self.ids.len() - 1]
    }

    pub(crate) fn allocated_at(&self) -> Instant {
        self.allocated_at
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
    use crate::model::Timestamp;

    #[test]
    fn the_low_watermark_never_passes_an_id_in_flight() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
        let in_flight = InFlightIds::new(clock, Arc::new(IdGenerator::new([7; 8])), None);
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
