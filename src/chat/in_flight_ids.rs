//! Which ids are settled: what makes a position in a user's inbox stream safe.
//!
//! Each conversation gives its ids and tells its events in order, but two conversations do not wait for each other: a later id may be
//! stored and told while an earlier one of another conversation is still on its way to the disk. A position in a stream over many
//! conversations must not pass that one. So every id that is given is under way until its event was told, and a position never lies
//! beyond the smallest of those.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::clock::{Clock, IdGenerator};
use crate::model::{OrderKey, TimeUuid, Timestamp};
use crate::store;

#[derive(Clone)]
pub(crate) struct InFlightIds {
    clock: Arc<dyn Clock>,
    ids: Arc<IdGenerator>,
    /// The first of each ids under way. Held while ids are given, so that an id is under way as soon as it exists.
    under_way: Arc<Mutex<BTreeSet<TimeUuid>>>,
    /// Where other servers write too: up to when it is known what they wrote, in microseconds.
    others: Option<Arc<AtomicI64>>,
}

impl InFlightIds {
    pub(crate) fn new(clock: Arc<dyn Clock>, ids: Arc<IdGenerator>, is_shared: bool) -> Self {
        let others = is_shared.then(|| Arc::new(AtomicI64::new(clock.now().micros())));
        Self {
            clock,
            ids,
            under_way: Arc::default(),
            others,
        }
    }

    /// What other servers wrote up to then was looked at.
    pub(crate) fn seen_up_to(&self, moment: Timestamp) {
        if let Some(others) = &self.others {
            others.fetch_max(moment.micros(), Ordering::SeqCst);
        }
    }

    /// Gives `count` ids, ascending, which are under way until they are dropped: after what they stand for was told.
    pub(crate) fn begin(&self, count: usize) -> IdLease {
        debug_assert!(count > 0, "a batch has an id");
        let mut under_way = self.under_way.lock();
        let now = self.clock.now();
        let ids: Vec<_> = (0..count).map(|_| self.ids.next(now)).collect();
        under_way.insert(ids[0]);
        IdLease {
            ids,
            in_flight: self.clone(),
        }
    }

    /// Everything up to here was told, and nothing will get an id up to here any more.
    pub(crate) fn settled(&self) -> OrderKey {
        self.settled_beside(None)
    }

    fn settled_beside(&self, own: Option<TimeUuid>) -> OrderKey {
        let settled = self.settled_here(own);
        match &self.others {
            Some(others) => settled.min(OrderKey::first_at(Timestamp::from_micros(
                others.load(Ordering::SeqCst),
            ))),
            None => settled,
        }
    }

    fn settled_here(&self, own: Option<TimeUuid>) -> OrderKey {
        let under_way = self.under_way.lock();
        match under_way.iter().find(|id| Some(**id) != own) {
            Some(first) => first.order_key().before(),
            None => {
                // Now is such a place too: every later id is made to lie after it. So the position of a quiet stream does not grow old.
                self.ids.pass(self.clock.now());
                OrderKey::first_at(self.ids.last().plus_micros(1)).before()
            }
        }
    }
}

/// IdLease that were given together and whose events are not all told yet.
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

    /// What was kept, with the ids that are now to be told of. Where nobody knows whether it was, and will not before the store is opened
    /// again, they stay under way: until then no position passes them. On a shared store a stream looks back behind its position anyway.
    pub(crate) fn if_kept<T>(self, kept: store::Result<T>) -> store::Result<(Self, T)> {
        match kept {
            Ok(kept) => Ok((self, kept)),
            Err(error) => {
                if self.in_flight.others.is_none()
                    && matches!(error, store::Error::OutcomeUnknown(_))
                {
                    std::mem::forget(self);
                }
                Err(error)
            }
        }
    }

    /// What will be settled once these are told.
    pub(crate) fn settled(&self) -> OrderKey {
        self.in_flight.settled_beside(Some(self.ids[0]))
    }
}

impl Drop for IdLease {
    fn drop(&mut self) {
        self.in_flight.under_way.lock().remove(&self.ids[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_position_never_passes_what_is_under_way() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
        let in_flight = InFlightIds::new(clock, Arc::new(IdGenerator::new([7; 8])), false);
        let first = in_flight.begin(1);
        let second = in_flight.begin(2);
        assert!(in_flight.settled() < first.newest().order_key());
        assert!(
            second.settled() < first.newest().order_key(),
            "the first is not told yet"
        );
        assert!(first.settled() < second.ids()[0].order_key());
        drop(first);
        assert!(
            second.settled() >= second.newest().order_key(),
            "alone, its own telling settles it"
        );
        assert!(in_flight.settled() < second.ids()[0].order_key());
        let newest = second.newest();
        drop(second);
        assert!(in_flight.settled() >= newest.order_key());
        assert!(in_flight.begin(1).newest().order_key() > in_flight.settled());
    }
}
