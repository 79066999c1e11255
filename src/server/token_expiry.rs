//! Expiry of a token while a subscription or socket still runs for it.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;
use crate::model::Timestamp;

/// Longest interval between two checks, because the wall clock can be set.
const CHECK: Duration = Duration::from_secs(60 * 60);

/// End of a token by the wall clock, and the time of the next check.
pub(super) struct TokenExpiry {
    expires_at: Timestamp,
    check_at: Instant,
}

impl TokenExpiry {
    pub(super) fn new(expires_at: Timestamp, clock: &dyn Clock, now: Instant) -> Self {
        Self {
            expires_at,
            check_at: next_check(expires_at, clock, now),
        }
    }

    pub(super) fn check_at(&self) -> Instant {
        self.check_at
    }

    /// Checks the wall clock if the check is due.
    pub(super) fn is_over(&mut self, clock: &dyn Clock, now: Instant) -> bool {
        if self.check_at > now {
            return false;
        }
        self.check_at = next_check(self.expires_at, clock, now);
        clock.now() >= self.expires_at
    }
}

fn next_check(expires_at: Timestamp, clock: &dyn Clock, now: Instant) -> Instant {
    let left = expires_at.micros().saturating_sub(clock.now().micros());
    // One millisecond more, so that one check suffices if both clocks agree.
    let left = Duration::from_micros(u64::try_from(left).unwrap_or(0)) + Duration::from_millis(1);
    now + left.min(CHECK)
}
