//! Metrics of requests to the cluster: latencies by kind, hedges, and batches that their log held
//! up.

use crate::metrics::{self, HistogramVec, IntCounter, IntCounterVec, LATENCIES, Metrics};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    /// A batch of writes to several partitions.
    Batch,
    /// A batch that a second coordinator logs.
    SecondBatch,
    Claim,
    /// Any other conditional write. It is never hedged.
    Conditional,
}

impl RequestKind {
    pub(crate) const LABELS: [&str; 4] = ["read", "write", "batch", "conditional"];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Batch | Self::SecondBatch => "batch",
            Self::Claim | Self::Conditional => "conditional",
        }
    }
}

pub(crate) struct RequestMetrics {
    seconds: HistogramVec,
    failures: IntCounterVec,
    hedges: IntCounterVec,
    won_hedges: IntCounterVec,
    pub(crate) unlogged_batches: IntCounter,
    pub(crate) refused_permits: IntCounter,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        // Every kind has a series from the start.
        let counters = |name: &str, help: &str| {
            let counters = metrics::counters(name, help, &["kind"]);
            for kind in RequestKind::LABELS {
                let _ = counters.with_label_values(&[kind]);
            }
            counters
        };
        Self {
            seconds: metrics::histograms(
                "wideroom_cql_request_seconds",
                "Duration of requests to the cluster, by kind of statement, with hedges and retries.",
                &["kind"],
                LATENCIES,
            ),
            failures: counters(
                "wideroom_cql_failures_total",
                "Failed requests to the cluster, by kind of statement.",
            ),
            hedges: counters(
                "wideroom_cql_hedges_total",
                "Requests that were sent to a second node because the first did not answer in time.",
            ),
            won_hedges: counters(
                "wideroom_cql_won_hedges_total",
                "Requests that the second node answered first.",
            ),
            unlogged_batches: metrics::counter(
                "wideroom_cql_unlogged_batches_total",
                "Batches that were written without the batch log, which waited for a silent node.",
            ),
            refused_permits: metrics::counter(
                "wideroom_cql_refused_requests_total",
                "Requests that found no free permit in time: too many were in flight.",
            ),
        }
    }
}

impl RequestMetrics {
    pub(crate) fn observe(&self, kind: RequestKind, took: std::time::Duration, is_ok: bool) {
        let label = [kind.label()];
        self.seconds
            .with_label_values(&label)
            .observe(took.as_secs_f64());
        if !is_ok {
            self.failures.with_label_values(&label).inc();
        }
    }

    pub(crate) fn count_hedge(&self, kind: RequestKind) {
        self.hedges.with_label_values(&[kind.label()]).inc();
    }

    pub(crate) fn count_won_hedge(&self, kind: RequestKind) {
        self.won_hedges.with_label_values(&[kind.label()]).inc();
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.add(self.seconds.clone());
        metrics.add(self.failures.clone());
        metrics.add(self.hedges.clone());
        metrics.add(self.won_hedges.clone());
        metrics.add(self.unlogged_batches.clone());
        metrics.add(self.refused_permits.clone());
    }
}
