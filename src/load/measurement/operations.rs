//! Statistics of operations: a histogram of latencies, and failures by code.

use std::collections::BTreeMap;

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};

use crate::load::failure::Failure;

/// The histogram keeps three significant digits of latencies up to one hour. Deadlines end every wait much earlier.
const DIGITS: u8 = 3;
const MICROS_MAX: u64 = 3_600_000_000;

/// Failures by code: their number, and the sentence of the first.
pub(crate) type Failures = BTreeMap<String, (u64, String)>;

/// Statistics that many tasks write to.
pub(crate) struct StatsRecorder(Mutex<OperationStats>);

#[derive(Clone)]
pub struct OperationStats {
    /// In microseconds.
    latencies: Histogram<u64>,
    pub(crate) failures: Failures,
}

/// Latencies in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Default for OperationStats {
    fn default() -> Self {
        Self {
            latencies: Histogram::new_with_bounds(1, MICROS_MAX, DIGITS)
                .expect("the bounds of the histogram are valid"),
            failures: Failures::new(),
        }
    }
}

impl OperationStats {
    /// Number of successful operations.
    pub fn count(&self) -> u64 {
        self.latencies.len()
    }

    pub fn record(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(micros);
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().map(|(count, _)| count).sum()
    }

    pub(crate) fn record_failure(&mut self, failure: &Failure) {
        self.record_failure_code(failure.code(), failure.to_string());
    }

    pub(crate) fn record_failure_code(&mut self, code: &str, sentence: String) {
        self.failures
            .entry(code.to_owned())
            .or_insert((0, sentence))
            .0 += 1;
    }

    pub(crate) fn add_failures(&mut self, others: Failures) {
        for (code, (count, sentence)) in others {
            self.failures.entry(code).or_insert((0, sentence)).0 += count;
        }
    }

    /// Adds the operations of another part of a run.
    pub fn add(&mut self, other: Self) {
        let added = self.latencies.add(other.latencies);
        added.expect("all histograms have the same bounds");
        self.add_failures(other.failures);
    }

    /// `None` without a successful operation.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| self.latencies.value_at_quantile(quantile) as f64 / 1e3;
        let percentiles = Percentiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.latencies.max() as f64 / 1e3,
        };
        (self.count() > 0).then_some(percentiles)
    }
}

impl Default for StatsRecorder {
    fn default() -> Self {
        Self(Mutex::new(OperationStats::default()))
    }
}

impl StatsRecorder {
    pub(crate) fn record(&self, time: Duration) {
        self.lock().record(time);
    }

    pub(crate) fn record_failure(&self, failure: &Failure) {
        self.lock().record_failure(failure);
    }

    pub(crate) fn record_failure_code(&self, code: &str, sentence: String) {
        self.lock().record_failure_code(code, sentence);
    }

    /// Number of successful operations so far.
    pub(crate) fn count(&self) -> u64 {
        self.lock().count()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.lock().failed()
    }

    pub(crate) fn snapshot(&self) -> OperationStats {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, OperationStats> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_match_the_recorded_latencies() {
        let recorder = StatsRecorder::default();
        assert!(recorder.snapshot().percentiles().is_none());
        (1..=1_000).for_each(|millis| recorder.record(Duration::from_millis(millis)));
        recorder.record_failure(&Failure::Timeout);
        let stats = recorder.snapshot();
        let percentiles = stats.percentiles().unwrap();
        for (measured, expected) in [
            (percentiles.p50, 500.0),
            (percentiles.p90, 900.0),
            (percentiles.p99, 990.0),
            (percentiles.p999, 999.0),
            (percentiles.max, 1_000.0),
        ] {
            assert!(
                (measured / expected - 1.0_f64).abs() < 0.002,
                "{percentiles:?}"
            );
        }
        assert_eq!((stats.count(), stats.failed()), (1_000, 1));
        let mut twice = stats.clone();
        twice.add(stats);
        assert_eq!((twice.count(), twice.failed()), (2_000, 2));
    }
}
