//! Lead of the ids over the clock, and the age of ids that lead it.
//!
//! The time of an id is that of its allocation while the clock advances. A clock that was ahead and is set back leaves ids that lead it:
//! the next ones follow at the distance of a microsecond, and a difference to the clock is wrong by the lead. So the ages of such ids
//! go by the monotonic clock: checkpoints say which ids existed at which instant.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, interval};

use super::InFlightIds;
use crate::clock::micros;
use crate::model::{OrderKey, Timestamp};

/// Lead from which on the ids are said to lead the clock. A batch of ids leads it by microseconds.
const LEAD_MIN: Duration = Duration::from_millis(250);
/// Checkpoints that are held. Then every second one is dropped, so that the resolution falls with the age.
const CHECKPOINTS_MAX: usize = 4_096;
/// Interval at which the lead is looked at, for the log.
const WATCH_EVERY: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct LeadingIds {
    checkpoints: VecDeque<LeadCheckpoint>,
    /// Whether the log says that the ids lead the clock.
    is_logged: bool,
}

/// All ids up to `newest` were allocated at this instant or before.
#[derive(Clone, Copy)]
struct LeadCheckpoint {
    newest: Timestamp,
    at: Instant,
}

impl LeadingIds {
    fn note(&mut self, newest: Timestamp) {
        if self
            .checkpoints
            .back()
            .is_some_and(|last| last.newest >= newest)
        {
            return;
        }
        if self.checkpoints.len() == CHECKPOINTS_MAX {
            let every_second = self.checkpoints.iter().copied().skip(1).step_by(2);
            self.checkpoints = every_second.collect();
        }
        let at = Instant::now();
        self.checkpoints.push_back(LeadCheckpoint { newest, at });
    }

    /// The least age of an id, by the monotonic clock.
    fn age(&self, moment: Timestamp) -> Duration {
        let covering = |checkpoint: &LeadCheckpoint| checkpoint.newest < moment;
        let index = self.checkpoints.partition_point(covering);
        let checkpoint = self.checkpoints.get(index);
        checkpoint.map_or(Duration::ZERO, |checkpoint| checkpoint.at.elapsed())
    }

    /// The greatest moment whose ids are at least so old, by the monotonic clock.
    fn allocated_before(&self, age: Duration) -> Timestamp {
        let is_old = |checkpoint: &LeadCheckpoint| checkpoint.at.elapsed() >= age;
        let old = self.checkpoints.partition_point(is_old);
        let checkpoint = old
            .checked_sub(1)
            .and_then(|last| self.checkpoints.get(last));
        checkpoint.map_or(Timestamp::ZERO, |checkpoint| checkpoint.newest)
    }
}

impl InFlightIds {
    /// Lead of the ids over the clock. The clock was set back, or was ahead when the ids were
    /// allocated.
    pub(crate) fn lead_over_clock(&self) -> Duration {
        let lead = self.ids.last().micros() - self.now().micros();
        Duration::from_micros(u64::try_from(lead).unwrap_or(0))
    }

    /// Time since an id was allocated: by the clock, or by the monotonic one if that says more.
    pub(crate) fn age(&self, moment: Timestamp) -> Duration {
        let by_clock = self.now().micros() - moment.micros();
        let by_clock = Duration::from_micros(u64::try_from(by_clock).unwrap_or(0));
        self.note_lead();
        by_clock.max(self.leading.lock().age(moment))
    }

    /// The greatest position whose ids are at least so old, as [`Self::age`] has it.
    pub(crate) fn allocated_before(&self, age: Duration) -> OrderKey {
        let by_clock = self.now().plus_micros(-micros(age));
        self.note_lead();
        let by_arrival = self.leading.lock().allocated_before(age).plus_micros(1);
        OrderKey::first_at(by_clock.max(by_arrival).max(Timestamp::ZERO)).before()
    }

    /// Takes a checkpoint if the ids lead the clock. Returns the lead then.
    pub(super) fn note_lead(&self) -> Option<Duration> {
        let lead = self.lead_over_clock();
        if lead < LEAD_MIN {
            return None;
        }
        self.leading.lock().note(self.ids.last());
        Some(lead)
    }

    /// Logs when the ids begin to lead the clock, and when the clock has caught up. Runs until it is dropped.
    pub(crate) async fn watch_lead(&self) {
        let mut ticks = interval(WATCH_EVERY);
        loop {
            ticks.tick().await;
            self.log_lead();
        }
    }

    fn log_lead(&self) {
        let lead = self.note_lead();
        let was_logged = std::mem::replace(&mut self.leading.lock().is_logged, lead.is_some());
        match lead {
            Some(ahead) if !was_logged => {
                tracing::warn!(
                    ?ahead,
                    "the server's clock is behind the newest id of the store: an operator set the clock back, or the clock was ahead before. New ids follow the newest id, and messages expire later by the lead. Synchronise the clock with NTP"
                );
            }
            None if was_logged => tracing::info!("the clock has caught up with the ids"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::advance;

    use super::*;
    use crate::clock::{IdGenerator, ManualClock};

    const START: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn in_flight() -> (Arc<ManualClock>, InFlightIds) {
        let clock = Arc::new(ManualClock::at(START));
        let ids = Arc::new(IdGenerator::new([7; 8]));
        let in_flight = InFlightIds::new(clock.clone(), ids, None, 9);
        (clock, in_flight)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn ids_that_lead_the_clock_age_by_the_monotonic_one() {
        let (clock, in_flight) = in_flight();
        let allocate = || in_flight.lease(1, Timestamp::ZERO).newest();
        let early = allocate();
        clock.set(START.plus_micros(-30_000_000));
        assert_eq!(in_flight.age(early.moment()), seconds(0), "the least age");
        advance(seconds(2)).await;
        let late = allocate();
        assert_eq!(in_flight.lead_over_clock().as_secs(), 30);
        advance(seconds(3)).await;
        let ages = [early, late].map(|id| in_flight.age(id.moment()));
        assert_eq!(ages, [seconds(5), seconds(3)]);
        let old = |age| in_flight.allocated_before(seconds(age));
        assert!(old(3) >= late.order_key());
        assert!(old(4) >= early.order_key() && old(4) < late.order_key());
        assert!(old(6) < early.order_key());
        // The clock passes the ids: the greater of the two ages is the nearer one.
        clock.set(START.plus_micros(1_000_000));
        assert_eq!(in_flight.age(late.moment()), seconds(3));
        clock.set(START.plus_micros(60_000_000));
        assert_eq!(in_flight.age(early.moment()), seconds(60));
    }

    #[tokio::test(start_paused = true)]
    async fn many_ids_take_bounded_memory_and_ages_are_exact_to_a_hundredth() {
        let (clock, in_flight) = in_flight();
        drop(in_flight.lease(1, Timestamp::ZERO));
        clock.set(START.plus_micros(-60_000_000));
        let mut ids = Vec::new();
        for _ in 0..3 * CHECKPOINTS_MAX {
            ids.push(in_flight.lease(1, Timestamp::ZERO).newest().moment());
            advance(Duration::from_millis(1)).await;
        }
        assert!(in_flight.leading.lock().checkpoints.len() <= CHECKPOINTS_MAX);
        let age = |back: usize| in_flight.age(ids[ids.len() - back]);
        let near = Duration::from_millis(98)..=Duration::from_millis(100);
        assert!(near.contains(&age(100)), "{:?}", age(100));
        let oldest = age(ids.len());
        assert!(oldest <= Duration::from_millis(ids.len() as u64));
        assert!(oldest >= Duration::from_millis(ids.len() as u64 / 100 * 99));
    }

    #[tokio::test(start_paused = true)]
    async fn the_lead_is_logged_once_and_so_is_its_end() {
        let (clock, in_flight) = in_flight();
        let is_logged = || {
            in_flight.log_lead();
            in_flight.leading.lock().is_logged
        };
        drop(in_flight.lease(1, Timestamp::ZERO));
        assert!(!is_logged(), "an id of this moment does not lead");
        clock.set(START.plus_micros(-1_000_000));
        assert!(is_logged() && is_logged());
        clock.set(START);
        assert!(!is_logged());
    }
}
