//! Prometheus metrics of this process.
//!
//! Each module creates its own counters, which cost one atomic addition, and registers them with the [`Metrics`] of the process. A value that
//! is available at any time, such as the length of a queue, is a gauge that is read on each scrape. No label holds a value that a client
//! chooses, so the number of series is bounded.

use std::cell::Cell;
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, HistogramOpts, Opts, PullingGauge, Registry, TextEncoder};

pub use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, TEXT_FORMAT,
};

/// Buckets in seconds, from a read in memory to the deadline of a request.
pub const LATENCIES: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];
/// Buckets for the number of items in a batch.
pub const COUNTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// Buckets in bytes.
pub const SIZES: &[f64] = &[
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
];

const VALID_NAME: &str = "names and labels are valid constants";

pub fn counter(name: &str, help: &str) -> IntCounter {
    IntCounter::new(name, help).expect(VALID_NAME)
}

/// One of several counters of the same name, told apart by a constant label.
pub fn counter_of(name: &str, help: &str, (label, value): (&str, &str)) -> IntCounter {
    IntCounter::with_opts(Opts::new(name, help).const_label(label, value)).expect(VALID_NAME)
}

pub fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect(VALID_NAME)
}

pub fn gauge(name: &str, help: &str) -> IntGauge {
    IntGauge::new(name, help).expect(VALID_NAME)
}

/// A gauge with a constant label and a value that is set once.
pub fn gauge_of(name: &str, help: &str, (label, text): (&str, &str), value: i64) -> IntGauge {
    let gauge = IntGauge::with_opts(Opts::new(name, help).const_label(label, text));
    let gauge = gauge.expect(VALID_NAME);
    gauge.set(value);
    gauge
}

pub fn gauges(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID_NAME)
}

pub fn histogram(name: &str, help: &str, buckets: &[f64]) -> Histogram {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))
        .expect(VALID_NAME)
}

pub fn histograms(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    HistogramVec::new(
        HistogramOpts::new(name, help).buckets(buckets.to_vec()),
        labels,
    )
    .expect(VALID_NAME)
}

tokio::task_local! {
    /// Time that the current request has waited for its store.
    static STORE_TIME: Cell<Duration>;
}

/// Runs a request, and returns how long it waited for its store: for reads, and for its writes to
/// be persisted. Concurrent waits add up.
pub async fn with_store_time<T>(request: impl Future<Output = T>) -> (T, Duration) {
    let measured = async {
        let output = request.await;
        (output, STORE_TIME.with(Cell::get))
    };
    STORE_TIME.scope(Cell::default(), measured).await
}

/// Adds a wait to the store time of the current request, if there is one.
pub fn add_store_time(waited: Duration) {
    // Work outside of requests has no store time.
    let _ = STORE_TIME.try_with(|spent| spent.set(spent.get() + waited));
}

/// Hits and misses of a cache.
#[derive(Clone)]
pub struct CacheCounts {
    hits: IntCounter,
    misses: IntCounter,
}

impl CacheCounts {
    /// `cache` is the label of this cache.
    pub fn new(cache: &str) -> Self {
        let counter = |name: &str, help: &str| counter_of(name, help, ("cache", cache));
        Self {
            hits: counter(
                "wideroom_cache_hits_total",
                "Cache lookups that found an entry.",
            ),
            misses: counter(
                "wideroom_cache_misses_total",
                "Cache lookups that found no entry.",
            ),
        }
    }

    /// Counts a lookup as a hit or a miss, and returns its result.
    pub fn count<T>(&self, found: Option<T>) -> Option<T> {
        if found.is_some() {
            &self.hits
        } else {
            &self.misses
        }
        .inc();
        found
    }

    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.hits.clone());
        metrics.add(self.misses.clone());
    }
}

/// Registry of all metrics of a process.
#[derive(Clone, Default)]
pub struct Metrics(Registry);

impl Metrics {
    /// Registers a collector. Names are unique within a process.
    pub fn add(&self, collector: impl Collector + 'static) {
        self.0
            .register(Box::new(collector))
            .expect("each collector is registered once, under unique names");
    }

    /// A gauge whose value is read on each scrape.
    pub fn read(&self, name: &str, help: &str, value: impl Fn() -> f64 + Send + Sync + 'static) {
        self.add(PullingGauge::new(name, help, Box::new(value)).expect(VALID_NAME));
    }

    /// A counter that another library maintains, and whose value is read on each scrape.
    pub fn read_counter(
        &self,
        name: &str,
        help: &str,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.add(ReadCounter {
            counter: Counter::new(name, help).expect(VALID_NAME),
            value,
        });
    }

    /// All metrics in [`TEXT_FORMAT`].
    pub fn text(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.0.gather())
            .expect("metrics encode as text")
    }
}

struct ReadCounter<F> {
    counter: Counter,
    value: F,
}

impl<F: Fn() -> f64 + Send + Sync> Collector for ReadCounter<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.counter.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.counter
            .inc_by(((self.value)() - self.counter.get()).max(0.0));
        self.counter.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_metrics_are_exposed() {
        let metrics = Metrics::default();
        let (sent, caches) = (
            counters("sent_total", "Messages sent.", &["kind"]),
            ["a", "b"].map(CacheCounts::new),
        );
        metrics.add(sent.clone());
        metrics.read("depth", "Depth.", || 7.0);
        caches.iter().for_each(|cache| cache.register(&metrics));
        sent.with_label_values(&["x"]).inc();
        assert_eq!(caches[0].count(Some(1)), Some(1));
        assert_eq!(caches[1].count(None::<u32>), None);
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
