//! Ids in flight and their low watermark: the greatest safe position of a stream over many
//! conversations.
//!
//! Each conversation allocates its ids and publishes its events in order, but two conversations do
//! not wait for each other. A greater id may be persisted and published while a smaller id of
//! another conversation is still on its way to the disk. A position in the inbox stream must not
//! pass the smaller id. So every allocated id is in flight until its event is published, and no
//! position passes the smallest of them.
//!
//! On a cluster, ids go by the cluster's clock. An id of another server may lie ahead of it: then
//! it raises the queue of its own conversation, whose next id is greater, and no other queue.

mod clock_lead;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use self::clock_lead::LeadingIds;
use crate::chat::error::{Error, Result};
use crate::clock::{Clock, IdGenerator, micros};
use crate::cluster::{Cluster, CursorScope};
use crate::model::{ConversationId, OrderKey, TimeUuid, Timestamp};
use crate::store;
use crate::store::cluster::{CLOCK_FAULT_FOUND_WITHIN, READ_BACK, SKEW_MAX};

/// Maximum lead of an id over the clock on a shared store. With a greater lead, other servers could
/// not tell which ids are new.
const CLOCK_LEAD_MAX: Duration = Duration::from_secs(2);
/// How long a queue that is further ahead waits for the clock.
const LEAD_WAIT_MAX: Duration = Duration::from_secs(2);
/// A queue that was raised is remembered until the clock has passed it by this much: the clock may
/// be corrected backwards.
const RAISED_FOR: Duration = Duration::from_secs(5);
/// Raised queues before those that the clock has passed are forgotten.
const RAISED_MIN: usize = 1_024;
/// How far after now a cursor may lie that was read and not received.
const CURSOR_AHEAD: Duration = Duration::from_secs(3);
/// Greatest lead over this server's clock of a cursor that a client brings: another server may have given it.
pub(crate) const CURSOR_AHEAD_MAX_MICROS: i64 = 6_000_000;
const _: () = assert!(
    CURSOR_AHEAD_MAX_MICROS as u128 > CURSOR_AHEAD.as_micros() + SKEW_MAX.as_micros()
        && CLOCK_LEAD_MAX.as_micros() < CURSOR_AHEAD.as_micros()
);

/// How far a reader of the outbox of a shared store trails.
const OUTBOX_TRAIL_MICROS: i64 = 500_000;
const OUTBOX_STEP_MICROS: i64 = 250_000;

/// Age of an id at which its event is late: it is logged again under a fresh id. Streams read back
/// ten seconds, which is twice this and the difference of two clocks.
const LATE_AFTER: Duration = Duration::from_secs(4);
// Events that a coordinator with a wrong clock has lost until then are still read back.
const _: () = assert!(
    CLOCK_FAULT_FOUND_WITHIN.as_millis() + LATE_AFTER.as_millis() + CURSOR_AHEAD.as_millis()
        <= READ_BACK.as_millis()
);

#[derive(Clone)]
pub(crate) struct InFlightIds {
    clock: Arc<dyn Clock>,
    ids: Arc<IdGenerator>,
    /// First id of each lease. The lock is held during an allocation, so an id is in flight as soon
    /// as it exists.
    leases: Arc<Mutex<BTreeSet<TimeUuid>>>,
    /// Greatest ids of other servers that were ahead of the clock when they were seen.
    raised: Arc<Mutex<RaisedQueues>>,
    /// Arrivals of the ids that lead the clock.
    leading: Arc<Mutex<LeadingIds>>,
    /// Signals to readers of the outbox that there may be more rows.
    released: Arc<watch::Sender<()>>,
    /// This server's part in a cluster. `None` on a store of one server.
    cluster: Option<Cluster>,
    /// Writes that are in flight, or are not delivered to the other servers yet.
    unsettled_max: usize,
}

#[derive(Default)]
struct RaisedQueues {
    by_conversation: HashMap<ConversationId, Timestamp>,
    /// Number at which those that the clock has passed are forgotten.
    forget_at: usize,
}

impl RaisedQueues {
    fn raise(&mut self, conversation: ConversationId, to: Timestamp, now: Timestamp) {
        let forgotten = now.plus_micros(-micros(RAISED_FOR));
        if to <= forgotten {
            return;
        }
        let raised = self.by_conversation.entry(conversation).or_insert(to);
        *raised = to.max(*raised);
        if self.by_conversation.len() >= self.forget_at.max(RAISED_MIN) {
            self.by_conversation.retain(|_, raised| *raised > forgotten);
            self.forget_at = 2 * self.by_conversation.len();
        }
    }
}

impl InFlightIds {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        ids: Arc<IdGenerator>,
        cluster: Option<Cluster>,
        unsettled_max: usize,
    ) -> Self {
        Self {
            clock,
            ids,
            leases: Arc::default(),
            raised: Arc::default(),
            leading: Arc::default(),
            released: Arc::new(watch::Sender::new(())),
            cluster,
            unsettled_max,
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

    /// Time by which ids and cursors go: the cluster's, or the wall clock's.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The greatest cursor that a read of the store may give.
    pub(crate) fn cursor_max(&self) -> OrderKey {
        match &self.cluster {
            Some(cluster) => OrderKey::first_at(cluster.now().plus_micros(micros(CURSOR_AHEAD))),
            None => OrderKey::MAX,
        }
    }

    /// Allocates `count` ascending ids of a conversation. They are in flight until the lease is
    /// dropped, after their events were published.
    ///
    /// On a cluster, the ids are greater than all that were observed in the conversation. `Busy`
    /// where this server's clock is wrong, where the conversation is too far ahead of it, and where
    /// too many writes are in flight or wait to be delivered to other servers.
    pub(crate) async fn allocate(
        &self,
        conversation: ConversationId,
        count: usize,
    ) -> Result<IdLease> {
        let Some(cluster) = &self.cluster else {
            return Ok(self.lease(count, Timestamp::ZERO));
        };
        let deadline = Instant::now() + LEAD_WAIT_MAX;
        loop {
            let is_fit = cluster.check_clock().is_ok() && self.has_room(cluster);
            if !is_fit || self.lead_over_clock() > CLOCK_LEAD_MAX {
                return Err(Error::Busy);
            }
            let raised = self.raised_to(conversation);
            let lead = raised.micros() - self.now().micros();
            let wait = Duration::from_micros(u64::try_from(lead).unwrap_or(0))
                .saturating_sub(CLOCK_LEAD_MAX);
            if wait.is_zero() {
                return Ok(self.lease(count, raised));
            }
            if Instant::now() + wait > deadline {
                return Err(Error::Busy);
            }
            sleep(wait).await;
        }
    }

    /// Whether the bound on unsettled writes has room for another one. A late event that the store
    /// refuses to log is in flight until it is logged.
    fn has_room(&self, cluster: &Cluster) -> bool {
        self.leases.lock().len() + cluster.undelivered() < self.unsettled_max
    }

    /// Allocates ids for events that are persisted already, and logged again.
    pub(crate) fn allocate_late(&self, conversation: ConversationId, count: usize) -> IdLease {
        self.lease(count, self.raised_to(conversation))
    }

    fn raised_to(&self, conversation: ConversationId) -> Timestamp {
        let raised = self.raised.lock();
        let to = raised.by_conversation.get(&conversation).copied();
        to.unwrap_or_default()
    }

    fn lease(&self, count: usize, after: Timestamp) -> IdLease {
        debug_assert!(count > 0, "a batch has an id");
        let mut leases = self.leases.lock();
        let now = self.now();
        let mut after = after;
        let ids: Vec<_> = (0..count)
            .map(|_| {
                let id = self.ids.next_after(after, now);
                after = id.moment();
                id
            })
            .collect();
        leases.insert(ids[0]);
        drop(leases);
        self.note_lead();
        IdLease {
            ids,
            allocated_at: Instant::now(),
            in_flight: self.clone(),
        }
    }

    /// Makes later ids of this conversation greater than these, which other servers may have
    /// allocated: the next write may answer them.
    pub(crate) fn observe(
        &self,
        conversation: ConversationId,
        ids: impl IntoIterator<Item = TimeUuid>,
    ) {
        if self.is_shared()
            && let Some(newest) = ids.into_iter().max()
        {
            let mut raised = self.raised.lock();
            raised.raise(conversation, newest.moment(), self.now());
        }
    }

    /// Whether streams of other servers may have passed this id. After the machine was suspended,
    /// the monotonic clock lacks that time, and the cluster's clock is unknown.
    pub(crate) fn is_late(&self, id: TimeUuid, allocated_at: Instant) -> bool {
        let Some(cluster) = &self.cluster else {
            return false;
        };
        let age = cluster.now().micros() - id.moment().micros();
        let by_clock = Duration::from_micros(u64::try_from(age).unwrap_or(0));
        !cluster.is_clock_known() || allocated_at.elapsed().max(by_clock) > LATE_AFTER
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

    /// Position up to which a reader of the outbox scans that stays behind the present by `trail`:
    /// the low watermark, without one. On a shared store every reader trails a little, so that events
    /// that two servers write to one conversation at the same time are visible in their order. Later
    /// ones are late.
    pub(crate) fn outbox_limit(&self, trail: Duration) -> OrderKey {
        if self.is_shared() {
            // Whole steps: readers that ask at about the same time share one read of the store.
            let step = self.now().micros().div_euclid(OUTBOX_STEP_MICROS);
            let now = Timestamp::from_micros(step * OUTBOX_STEP_MICROS);
            OrderKey::first_at(now.plus_micros(-OUTBOX_TRAIL_MICROS - micros(trail)))
        } else if trail.is_zero() {
            self.low_watermark()
        } else {
            self.low_watermark().min(self.allocated_before(trail))
        }
    }

    /// Receives a signal whenever ids are released, as the low watermark may have advanced, and
    /// whenever another server tells of an event.
    pub(crate) fn watch_released(&self) -> watch::Receiver<()> {
        self.released.subscribe()
    }

    /// Tells readers of the outbox that there may be more rows.
    pub(crate) fn signal_readers(&self) {
        if self.released.receiver_count() > 0 {
            self.released.send_replace(());
        }
    }

    fn low_watermark_without(&self, own: Option<TimeUuid>) -> OrderKey {
        let leases = self.leases.lock();
        match leases.iter().find(|id| Some(**id) != own) {
            Some(first) => first.order_key().before(),
            None => {
                // The watermark advances to the present, and later ids pass it. So the position of
                // a quiet stream does not age.
                self.ids.pass(self.now());
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
        self.in_flight.signal_readers();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn readers_hear_of_released_ids_and_of_other_servers() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
        let in_flight = InFlightIds::new(clock, Arc::new(IdGenerator::new([7; 8])), None, 9);
        let mut released = in_flight.watch_released();
        let lease = in_flight.lease(1, Timestamp::ZERO);
        assert!(!released.has_changed().unwrap());
        drop(lease);
        assert!(released.has_changed().unwrap());
        released.borrow_and_update();
        in_flight.signal_readers();
        assert!(released.has_changed().unwrap());
    }

    #[test]
    fn the_low_watermark_never_passes_an_id_in_flight() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
        let in_flight = InFlightIds::new(clock, Arc::new(IdGenerator::new([7; 8])), None, 9);
        let first = in_flight.lease(1, Timestamp::ZERO);
        let second = in_flight.lease(2, Timestamp::ZERO);
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
        assert!(
            in_flight.lease(1, Timestamp::ZERO).newest().order_key() > in_flight.low_watermark()
        );
    }
}
