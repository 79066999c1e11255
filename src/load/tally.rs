//! What became of many operations: how long each took, and which failed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::failure::Failure;

/// Three digits of each time are kept, up to an hour: nothing here waits so long.
const DIGITS: u8 = 3;
const MICROS_MAX: u64 = 3_600_000_000;

/// Failures by their codes: how many, and what one of them said.
pub(super) type Failures = BTreeMap<String, (u64, String)>;

/// What is written by many at once.
pub(super) struct Meter(Mutex<Tally>);

#[derive(Clone)]
pub(super) struct Tally {
    /// In microseconds.
    times: Histogram<u64>,
    pub(super) failures: Failures,
}

/// In milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { times: Histogram::new_with_bounds(1, MICROS_MAX, DIGITS).expect("these bounds may be asked for"), failures: Failures::new() }
    }
}

impl Tally {
    /// How many were done.
    pub(super) fn count(&self) -> u64 {
        self.times.len()
    }

    pub(super) fn failed(&self) -> u64 {
        self.failures.values().map(|(count, _)| count).sum()
    }

    pub(super) fn fail(&mut self, failure: &Failure) {
        self.count_failure(failure.code(), failure.to_string());
    }

    pub(super) fn count_failure(&mut self, code: &str, sentence: String) {
        self.failures.entry(code.to_owned()).or_insert((0, sentence)).0 += 1;
    }

    pub(super) fn take_failures(&mut self, others: Failures) {
        for (code, (count, sentence)) in others {
            self.failures.entry(code).or_insert((0, sentence)).0 += count;
        }
    }

    /// `None` where nothing was done.
    pub(super) fn spread(&self) -> Option<Spread> {
        let at = |share| self.times.value_at_quantile(share) as f64 / 1e3;
        let spread = Spread { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: self.times.max() as f64 / 1e3 };
        (self.count() > 0).then_some(spread)
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self(Mutex::new(Tally::default()))
    }
}

impl Meter {
    pub(super) fn took(&self, time: Duration) {
        self.lock().times.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn fail(&self, failure: &Failure) {
        self.lock().fail(failure);
    }

    pub(super) fn count_failure(&self, code: &str, sentence: String) {
        self.lock().count_failure(code, sentence);
    }

    /// How many were done so far.
    pub(super) fn count(&self) -> u64 {
        self.lock().count()
    }

    pub(super) fn failed(&self) -> u64 {
        self.lock().failed()
    }

    /// As it is now.
    pub(super) fn tally(&self) -> Tally {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().expect("no panic while the tally is held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_measured() {
        let meter = Meter::default();
        assert!(meter.tally().spread().is_none());
        (1..=1_000).for_each(|millis| meter.took(Duration::from_millis(millis)));
        meter.fail(&Failure::Late);
        let tally = meter.tally();
        let spread = tally.spread().unwrap();
        for (measured, expected) in [(spread.p50, 500.0), (spread.p90, 900.0), (spread.p99, 990.0), (spread.max, 1_000.0)] {
            assert!((measured / expected - 1.0_f64).abs() < 0.002, "{spread:?}");
        }
        assert_eq!((tally.count(), tally.failed()), (1_000, 1));
    }
}
