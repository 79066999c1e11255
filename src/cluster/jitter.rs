//! Jitter: random shares of a span, so that many servers or rows that began together do not go on
//! together.

use std::time::Duration;

use parking_lot::Mutex;
use uuid::{Builder, Uuid};

/// A small generator (SplitMix64), seeded by the process, or by a test that wants the same sequence
/// again.
pub(super) struct Jitter(Mutex<u64>);

impl Jitter {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    pub(super) fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(super) fn uuid(&self) -> Uuid {
        Builder::from_random_bytes(Uuid::from_u64_pair(self.next(), self.next()).into_bytes())
            .into_uuid()
    }

    /// Less than this number.
    pub(super) fn below(&self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap_or(0)
    }

    /// From nothing up to the whole span.
    pub(super) fn up_to(&self, span: Duration) -> Duration {
        // 53 bits: as many as a float holds exactly.
        span.mul_f64((self.next() >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_lie_within_the_span_and_differ() {
        let jitter = Jitter::seeded(7);
        let shares: Vec<_> = (0..100)
            .map(|_| jitter.up_to(Duration::from_secs(8)))
            .collect();
        assert!(shares.iter().all(|share| *share <= Duration::from_secs(8)));
        assert!(shares.iter().any(|share| *share > Duration::from_secs(6)));
        assert!(shares.iter().any(|share| *share < Duration::from_secs(2)));
        assert!((0..100).all(|_| jitter.below(4) < 4) && jitter.below(0) == 0);
    }
}
