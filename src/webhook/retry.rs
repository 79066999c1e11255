//! Tries of one event: the pauses between them, and when the event becomes a dead letter.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

/// Time for which an event may fail while the receiver takes events of other conversations.
const FAILING_MAX: Duration = Duration::from_secs(3_600);

/// When an event is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Pause after the first failure. It doubles with each further one.
    pub first: Duration,
    /// Longest pause.
    pub longest: Duration,
    /// Pauses after a refusal: one try more than there are pauses, then a dead letter.
    pub refusals: [Duration; 2],
    /// Deadline of one try.
    pub deadline: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(300),
            refusals: [Duration::from_secs(10), Duration::from_secs(40)],
            deadline: Duration::from_secs(15),
        }
    }
}

/// Failures in the deliveries of one conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FailureRecord {
    /// Failures of the present event.
    pub(super) failures: u32,
    /// Tries of it that count: after three within a minute it is a dead letter.
    pub(super) strikes: u32,
    /// Last failure of the receiver, of whatever event.
    failed_at: Option<Instant>,
    /// Time for which the event failed while the receiver took others'.
    blamed_for: Duration,
    /// An event became a dead letter because it failed, and none was delivered since.
    is_suspect: bool,
}

impl FailureRecord {
    /// Whether the present event has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0 || self.strikes > 0
    }

    /// Whether the record says anything about events that are still to come.
    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// The record of the next event, after one that was not delivered.
    pub(super) fn next_event(self) -> Self {
        Self {
            failed_at: self.failed_at,
            is_suspect: self.is_suspect,
            ..Self::default()
        }
    }
}

/// Decision after a try that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The same event again, after this pause.
    Again(Duration),
    DeadLetter,
}

impl RetryPolicy {
    /// Decides after the receiver refused an event.
    pub(super) fn refused(&self, record: &mut FailureRecord) -> Verdict {
        record.strikes += 1;
        match self.refusal_pause(record.strikes) {
            Some(pause) => Verdict::Again(pause),
            None => Verdict::DeadLetter,
        }
    }

    /// Decides after the receiver failed. `taken_at` is the last time that it took an event. A failure is the event's own only if
    /// the receiver has taken another conversation's since the failure before: a receiver that fails for all loses nothing.
    pub(super) fn failed(
        &self,
        record: &mut FailureRecord,
        now: Instant,
        taken_at: Option<Instant>,
    ) -> Verdict {
        record.failures = record.failures.saturating_add(1);
        let before = record.failed_at.replace(now);
        let blamed = before.filter(|before| taken_at.is_some_and(|taken_at| taken_at > *before));
        let Some(before) = blamed else {
            return Verdict::Again(self.pause(record.failures));
        };
        if record.is_suspect {
            return self.refused(record);
        }
        record.blamed_for += now - before;
        if record.blamed_for < FAILING_MAX {
            return Verdict::Again(self.pause(record.failures));
        }
        record.is_suspect = true;
        Verdict::DeadLetter
    }

    /// Pause after this server could not make the request.
    pub(super) fn failed_here(&self, record: &mut FailureRecord) -> Duration {
        record.failures = record.failures.saturating_add(1);
        // The time until the next failure says nothing about the receiver.
        record.failed_at = None;
        self.pause(record.failures)
    }

    /// Pause before the next try, after so many failures in a row. The jitter keeps receivers from being asked by all
    /// conversations at once.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(
            1_u32
                .checked_shl(failures.saturating_sub(1))
                .unwrap_or(u32::MAX),
        );
        jittered(doubled.min(self.longest))
    }

    /// Pause after a refusal. `None`: the event is a dead letter.
    fn refusal_pause(&self, refusals: u32) -> Option<Duration> {
        let index = usize::try_from(refusals.saturating_sub(1)).unwrap_or(usize::MAX);
        self.refusals.get(index).copied().map(jittered)
    }
}

/// A random part of the pause, from half of it on.
fn jittered(pause: Duration) -> Duration {
    let [random, ..] = *Uuid::new_v4().as_bytes();
    pause.mul_f64(0.5 + f64::from(random) / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let policy = RetryPolicy::default();
        for (failures, most) in [
            (1, 1),
            (2, 2),
            (5, 16),
            (9, 256),
            (10, 300),
            (40, 300),
            (u32::MAX, 300),
        ] {
            let (pause, most) = (policy.pause(failures), Duration::from_secs(most));
            assert!(pause >= most / 2 && pause <= most, "{failures}: {pause:?}");
        }
    }

    #[test]
    fn three_refusals_within_a_minute_are_all() {
        let policy = RetryPolicy::default();
        let [first, second] = [1, 2].map(|refusals| policy.refusal_pause(refusals).unwrap());
        assert!(first + second < Duration::from_secs(60));
        assert_eq!(policy.refusal_pause(3), None);
    }

    /// Fails an event until it is a dead letter, at most for a week. The receiver takes another event before each try, or none.
    fn until_dead(record: &mut FailureRecord, now: &mut Instant, others: bool) -> Option<Duration> {
        let (policy, began) = (RetryPolicy::default(), *now);
        while *now - began <= Duration::from_secs(7 * 24 * 3_600) {
            let taken_at = others.then(|| *now - Duration::from_millis(1));
            match policy.failed(record, *now, taken_at) {
                Verdict::Again(pause) => *now += pause,
                Verdict::DeadLetter => return Some(*now - began),
            }
        }
        None
    }

    #[test]
    fn an_event_that_fails_alone_for_an_hour_is_dead_and_the_next_ones_within_a_minute() {
        let (mut record, mut now) = (FailureRecord::default(), Instant::now());
        let took = until_dead(&mut record, &mut now, true).unwrap();
        assert!(
            took >= FAILING_MAX && took < FAILING_MAX + Duration::from_secs(600),
            "{took:?}"
        );
        for _ in 0..3 {
            record = record.next_event();
            let took = until_dead(&mut record, &mut now, true).unwrap();
            assert!(took < Duration::from_secs(60), "{took:?}");
        }
        // One is delivered: the next one has its hour.
        record = FailureRecord::default();
        let took = until_dead(&mut record, &mut now, true).unwrap();
        assert!(took >= FAILING_MAX, "{took:?}");
    }

    #[test]
    fn a_receiver_that_fails_for_all_loses_nothing() {
        for is_suspect in [false, true] {
            let mut record = FailureRecord {
                is_suspect,
                ..FailureRecord::default()
            };
            assert_eq!(until_dead(&mut record, &mut Instant::now(), false), None);
        }
    }
}
