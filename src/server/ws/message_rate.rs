//! Message rate of one socket: a token bucket with one token a message.

use std::time::Duration;

use tokio::time::Instant;

/// Token bucket: full at first, refilled at a steady rate, at most one burst.
pub(super) struct MessageRate {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
    /// Time since when the client has exceeded the rate.
    over_since: Option<Instant>,
}

impl MessageRate {
    pub(super) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            per_second: f64::from(per_second.max(1)),
            burst,
            tokens: burst,
            at: now,
            over_since: None,
        }
    }

    /// Takes the token of one message.
    ///
    /// The socket waits for the token before it reads, so a fast client is read more slowly: one that resumes a hundred
    /// subscriptions at once is not refused.
    pub(super) fn take(&mut self, now: Instant) {
        self.fill(now);
        self.tokens -= 1.0;
        if self.tokens < 1.0 {
            self.over_since.get_or_insert(now);
        } else if self.tokens > self.burst / 2.0 {
            self.over_since = None;
        }
    }

    /// Time of the next read; `None` for now.
    pub(super) fn ready_at(&mut self, now: Instant) -> Option<Instant> {
        self.fill(now);
        (self.tokens < 1.0)
            .then(|| now + Duration::from_secs_f64((1.0 - self.tokens) / self.per_second))
    }

    /// Time for which the client has exceeded the rate.
    pub(super) fn over_for(&self, now: Instant) -> Duration {
        self.over_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.at = now;
        if self.tokens >= self.burst {
            self.over_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_it_goes_at_the_rate() {
        let start = Instant::now();
        let mut rate = MessageRate::new(20, 60, start);
        for _ in 0..60 {
            assert_eq!(rate.ready_at(start), None);
            rate.take(start);
        }
        let next = rate.ready_at(start).unwrap();
        assert!(
            next > start + Duration::from_millis(49) && next < start + Duration::from_millis(51)
        );
        assert_eq!(rate.ready_at(start + Duration::from_millis(51)), None);
    }

    #[test]
    fn patience_counts_from_the_first_message_too_many_until_it_rests() {
        let start = Instant::now();
        let mut rate = MessageRate::new(20, 60, start);
        let mut now = start;
        for _ in 0..200 {
            now = rate.ready_at(now).unwrap_or(now);
            rate.take(now);
        }
        assert!(rate.over_for(now) > Duration::from_secs(6));
        now += Duration::from_secs(3);
        assert_eq!(rate.ready_at(now), None);
        assert_eq!(rate.over_for(now), Duration::ZERO);
    }
}
