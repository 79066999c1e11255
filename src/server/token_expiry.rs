//! The end of a token while something still runs for it.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;
use crate::model::Timestamp;

/// The wall clock may be set: so often at least the end of a token is looked at again.
const CHECK: Duration = Duration::from_secs(60 * 60);

/// When a token ends, by the wall clock, and when to look at that clock again.
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

    /// Looks at the clock, where it is time to.
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
    // A millisecond more, so that one look is enough where both clocks agree.
    let left = Duration::from_micros(u64::try_from(left).unwrap_or(0)) + Duration::from_millis(1);
    now + left.min(CHECK)
}
