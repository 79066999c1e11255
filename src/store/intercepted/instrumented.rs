//! Interceptor of a store that measures the duration of each operation, and counts its failures.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::{InterceptedStore, StoreInterceptor, StoreOperation};
use crate::metrics::{self, Histogram, HistogramVec, IntCounterVec, LATENCIES, Metrics};
use crate::store::{Error, Result, StoreAdmin, StoreFuture};

/// A store with metrics. Its answers are those of the store in it.
pub type InstrumentedStore = InterceptedStore<OperationMetrics>;

pub struct OperationMetrics {
    operations: HashMap<StoreOperation, Histogram>,
    seconds: HistogramVec,
    failures: IntCounterVec,
}

impl InstrumentedStore {
    pub fn new(store: Arc<dyn StoreAdmin>) -> Self {
        let seconds = metrics::histograms(
            "wideroom_store_operation_seconds",
            "Duration of store operations, by operation.",
            &["operation"],
            LATENCIES,
        );
        let failures = metrics::counters(
            "wideroom_store_failures_total",
            "Failed store operations, by operation and reason.",
            &["operation", "why"],
        );
        let histogram = |operation: StoreOperation| {
            let histogram = seconds.with_label_values(&[operation.name()]);
            (operation, histogram)
        };
        let operations = StoreOperation::all().map(histogram).collect();
        let metrics = OperationMetrics {
            operations,
            seconds,
            failures,
        };
        Self::before(store, metrics)
    }

    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.interceptor.seconds.clone());
        metrics.add(self.interceptor.failures.clone());
    }
}

impl StoreInterceptor for OperationMetrics {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: StoreOperation,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let began = Instant::now();
            let answer: Result<T> = answer.await;
            let took = began.elapsed();
            self.operations[&operation].observe(took.as_secs_f64());
            metrics::add_store_time(took);
            if let Err(error) = &answer {
                let why = match error {
                    Error::Unavailable(_) => "unavailable",
                    Error::OutcomeUnknown(_) => "outcome_unknown",
                    Error::Corrupt { .. } => "corrupt",
                };
                self.failures
                    .with_label_values(&[operation.name(), why])
                    .inc();
            }
            answer
        })
    }
}
