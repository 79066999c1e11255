//! How fast one socket is read: a bucket of tokens, one a message.

use std::time::Duration;

use tokio::time::Instant;

/// Full at first; it fills at a steady rate and holds no more than a burst.
pub(super) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
    /// Since when it has been too empty to catch up.
    over_since: Option<Instant>,
}

impl Bucket {
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

    /// Takes one, where there is one. It is asked before a message is read, so that who is too fast is read more slowly: a client that comes
    /// back with a hundred subscriptions at once is not turned away.
    pub(super) fn take(&mut self, now: Instant) {
        self.fill(now);
        self.tokens -= 1.0;
        if self.tokens < 1.0 {
            self.over_since.get_or_insert(now);
        } else if self.tokens > self.burst / 2.0 {
            self.over_since = None;
        }
    }

    /// When the next message may be read: now or later.
    pub(super) fn ready_at(&mut self, now: Instant) -> Option<Instant> {
        self.fill(now);
        (self.tokens < 1.0)
            .then(|| now + Duration::from_secs_f64((1.0 - self.tokens) / self.per_second))
    }

    /// For how long its sender has been too fast.
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
        let mut bucket = Bucket::new(20, 60, start);
        for _ in 0..60 {
            assert_eq!(bucket.ready_at(start), None);
            bucket.take(start);
        }
        let next = bucket.ready_at(start).unwrap();
        assert!(
            next > start + Duration::from_millis(49) && next < start + Duration::from_millis(51)
        );
        assert_eq!(bucket.ready_at(start + Duration::from_millis(51)), None);
    }

    #[test]
    fn patience_counts_from_the_first_message_too_many_until_it_rests() {
        let start = Instant::now();
        let mut bucket = Bucket::new(20, 60, start);
        let mut now = start;
        for _ in 0..200 {
            now = bucket.ready_at(now).unwrap_or(now);
            bucket.take(now);
        }
        assert!(bucket.over_for(now) > Duration::from_secs(6));
        now += Duration::from_secs(3);
        assert_eq!(bucket.ready_at(now), None);
        assert_eq!(bucket.over_for(now), Duration::ZERO);
    }
}
