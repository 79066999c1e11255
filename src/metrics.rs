//! What a process counts of itself, as Prometheus reads it.
//!
//! Each part makes its own counters, which cost an atomic addition, and hands them to the [`Metrics`] of the process where there is one. What
//! can be asked for at any moment, such as the length of a queue, is a gauge that is read only when somebody looks. No label holds anything that
//! a client chooses, so that the number of series has a bound.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, HistogramOpts, Opts, PullingGauge, Registry, TextEncoder};

pub use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, TEXT_FORMAT};

/// Seconds, from a read in memory to the deadline of a request.
pub const LATENCIES: &[f64] =
    &[0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// How many of something go together.
pub const COUNTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// Bytes.
pub const SIZES: &[f64] = &[1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0];

const WELL_NAMED: &str = "the name and the labels are constants of this program, and good ones";

pub fn counter(name: &str, help: &str) -> IntCounter {
    IntCounter::new(name, help).expect(WELL_NAMED)
}

/// One of several that tell the same of different things: the label says of which.
pub fn counter_of(name: &str, help: &str, (label, value): (&str, &str)) -> IntCounter {
    IntCounter::with_opts(Opts::new(name, help).const_label(label, value)).expect(WELL_NAMED)
}

pub fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect(WELL_NAMED)
}

pub fn gauge(name: &str, help: &str) -> IntGauge {
    IntGauge::new(name, help).expect(WELL_NAMED)
}

pub fn gauges(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    IntGaugeVec::new(Opts::new(name, help), labels).expect(WELL_NAMED)
}

pub fn histogram(name: &str, help: &str, buckets: &[f64]) -> Histogram {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())).expect(WELL_NAMED)
}

pub fn histograms(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels).expect(WELL_NAMED)
}

/// How often a cache knew the answer.
#[derive(Clone)]
pub struct CacheCounts {
    hits: IntCounter,
    misses: IntCounter,
}

impl CacheCounts {
    /// `cache` tells it from the others.
    pub fn new(cache: &str) -> Self {
        let counter = |name: &str, help: &str| counter_of(name, help, ("cache", cache));
        Self {
            hits: counter("wideroom_cache_hits_total", "What was found in a cache."),
            misses: counter("wideroom_cache_misses_total", "What was asked of a cache and not found."),
        }
    }

    /// Counts what was found, or not, and hands it on.
    pub fn saw<T>(&self, found: Option<T>) -> Option<T> {
        if found.is_some() { &self.hits } else { &self.misses }.inc();
        found
    }

    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.hits.clone());
        metrics.add(self.misses.clone());
    }
}

/// Everything that one process tells of itself.
#[derive(Clone, Default)]
pub struct Metrics(Registry);

impl Metrics {
    /// From now on this is told too. No two parts tell the same.
    pub fn add(&self, collector: impl Collector + 'static) {
        self.0.register(Box::new(collector)).expect("each part is added once, and its names are its own");
    }

    /// A gauge that is read when somebody looks.
    pub fn read(&self, name: &str, help: &str, value: impl Fn() -> f64 + Send + Sync + 'static) {
        self.add(PullingGauge::new(name, help, Box::new(value)).expect(WELL_NAMED));
    }

    /// A counter that is kept elsewhere, and read when somebody looks.
    pub fn read_counter(&self, name: &str, help: &str, value: impl Fn() -> f64 + Send + Sync + 'static) {
        self.add(Elsewhere { counter: Counter::new(name, help).expect(WELL_NAMED), value });
    }

    /// As it is now, in [`TEXT_FORMAT`].
    pub fn text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.0.gather()).expect("counters are text and numbers")
    }
}

struct Elsewhere<F> {
    counter: Counter,
    value: F,
}

impl<F: Fn() -> f64 + Send + Sync> Collector for Elsewhere<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.counter.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.counter.inc_by(((self.value)() - self.counter.get()).max(0.0));
        self.counter.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_told() {
        let metrics = Metrics::default();
        let (sent, caches) = (counters("sent_total", "What was sent.", &["kind"]), ["a", "b"].map(CacheCounts::new));
        metrics.add(sent.clone());
        metrics.read("depth", "How deep.", || 7.0);
        caches.iter().for_each(|cache| cache.register(&metrics));
        sent.with_label_values(&["x"]).inc();
        assert_eq!(caches[0].saw(Some(1)), Some(1));
        assert_eq!(caches[1].saw(None::<u32>), None);
        let text = metrics.text();
        for line in [
            "# TYPE sent_total counter",
            "sent_total{kind=\"x\"} 1",
            "depth 7",
            "wideroom_cache_hits_total{cache=\"a\"} 1",
            "wideroom_cache_misses_total{cache=\"a\"} 0",
            "wideroom_cache_misses_total{cache=\"b\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
    }
}
