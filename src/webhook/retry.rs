//! Pauses between the tries of one event.

use std::time::Duration;

use uuid::Uuid;

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

impl RetryPolicy {
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
    pub(super) fn refusal_pause(&self, refusals: u32) -> Option<Duration> {
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
}
