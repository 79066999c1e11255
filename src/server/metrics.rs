//! Metrics of the server: requests by outcome, sockets, subscriptions and deliveries.

use std::sync::Arc;
use std::time::Duration;

use async_graphql::parser::types::OperationType;

use crate::metrics::{
    self, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, LATENCIES, Metrics,
};

pub(super) struct ServerMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    query_seconds: Histogram,
    mutation_seconds: Histogram,
    pub(super) subscriptions: IntGauge,
    pub(super) deliveries: IntCounter,
    /// Messages in the queues of all sockets.
    pub(super) waiting: IntGauge,
    pub(super) closes: IntCounterVec,
    pub(super) refusals: IntCounterVec,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let seconds = metrics::histograms(
            "wideroom_request_seconds",
            "Time from the arrival of a query or a mutation to its answer.",
            &["kind"],
            LATENCIES,
        );
        Self {
            requests: metrics::counters(
                "wideroom_requests_total",
                "Finished operations, by transport, kind and code of the first error.",
                &["transport", "kind", "code"],
            ),
            query_seconds: seconds.with_label_values(&["query"]),
            mutation_seconds: seconds.with_label_values(&["mutation"]),
            seconds,
            subscriptions: metrics::gauge(
                "wideroom_subscriptions",
                "Open subscriptions, over WebSockets and over HTTP.",
            ),
            deliveries: metrics::counter(
                "wideroom_deliveries_total",
                "Payloads delivered to subscriptions.",
            ),
            waiting: metrics::gauge(
                "wideroom_socket_queue_messages",
                "Messages waiting in the send queues of all WebSockets.",
            ),
            closes: metrics::counters(
                "wideroom_socket_closes_total",
                "WebSockets that the server closed, by close code.",
                &["code"],
            ),
            refusals: metrics::counters(
                "wideroom_limit_refusals_total",
                "WebSockets, streams, connections and answers refused at a limit, by limit.",
                &["limit"],
            ),
        }
    }
}

impl ServerMetrics {
    /// Records the end of an operation. `kind` is `None` for a request without a valid operation.
    pub(super) fn record(
        &self,
        transport: &str,
        kind: Option<OperationType>,
        code: &str,
        took: Duration,
    ) {
        let name = match kind {
            Some(OperationType::Query) => "query",
            Some(OperationType::Mutation) => "mutation",
            Some(OperationType::Subscription) => "subscription",
            None => "none",
        };
        self.requests
            .with_label_values(&[transport, name, code])
            .inc();
        match kind {
            Some(OperationType::Query) => self.query_seconds.observe(took.as_secs_f64()),
            Some(OperationType::Mutation) => self.mutation_seconds.observe(took.as_secs_f64()),
            // The duration of a subscription measures the client.
            Some(OperationType::Subscription) | None => {}
        }
    }

    pub(super) fn register(&self, metrics: &Metrics) {
        metrics.add(self.requests.clone());
        metrics.add(self.seconds.clone());
        metrics.add(self.subscriptions.clone());
        metrics.add(self.deliveries.clone());
        metrics.add(self.waiting.clone());
        metrics.add(self.closes.clone());
        metrics.add(self.refusals.clone());
    }
}

/// Open subscription in the gauge, until it is dropped.
pub(super) struct OpenSubscription(Arc<ServerMetrics>);

impl OpenSubscription {
    pub(super) fn new(metrics: &Arc<ServerMetrics>) -> Self {
        metrics.subscriptions.inc();
        Self(Arc::clone(metrics))
    }

    pub(super) fn record_delivery(&self) {
        self.0.deliveries.inc();
    }
}

impl Drop for OpenSubscription {
    fn drop(&mut self) {
        self.0.subscriptions.dec();
    }
}
