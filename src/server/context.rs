//! Context that every request handler of the server shares.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, AnswerQuotas};
use super::bounds::ServerBounds;
use super::connection::Permits;
use super::metrics::ServerMetrics;
use super::request_log::RequestLog;
use super::trusted_documents::TrustedDocuments;
use crate::auth::Auth;
use crate::clock::Clock;
use crate::graphql::OperationExecutor;
use crate::metrics::Metrics;

/// Shared state of all request handlers.
pub struct Server {
    pub(super) executor: Arc<dyn OperationExecutor>,
    pub(super) auth: Arc<Auth>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) bounds: ServerBounds,
    pub(super) admission: Admission,
    pub(super) quotas: AnswerQuotas,
    pub(super) socket_permits: Arc<Permits>,
    pub(super) stream_permits: Arc<Semaphore>,
    pub(super) sockets: TaskTracker,
    /// Cancelled by [`Server::leave`].
    pub(super) leaving: CancellationToken,
    pub(super) stop: CancellationToken,
    pub(super) trusted_documents: Option<TrustedDocuments>,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) request_log: Arc<RequestLog>,
    pub(super) connections: TaskTracker,
    /// Time of the last warning of a proxy that is not named.
    pub(super) proxy_warned_at: Mutex<Option<Instant>>,
}

impl Server {
    pub fn new(
        executor: Arc<dyn OperationExecutor>,
        auth: Arc<Auth>,
        clock: Arc<dyn Clock>,
        bounds: ServerBounds,
    ) -> Self {
        let socket_permits = Permits::new(bounds.sockets.total);
        let stream_permits = Arc::new(Semaphore::new(
            bounds.streams.total.min(Semaphore::MAX_PERMITS),
        ));
        let metrics = Arc::new(ServerMetrics::default());
        let admission = Admission::new(bounds.rates.clone(), metrics.refusals.clone());
        let most = bounds
            .rates
            .is_on
            .then_some((bounds.rates.user_answers, bounds.rates.user_answer_bytes));
        let quotas = AnswerQuotas::new(
            bounds.answer_bytes,
            most,
            metrics.refusals.with_label_values(&["user_answers"]),
        );
        let (sockets, connections, stop) = (
            TaskTracker::new(),
            TaskTracker::new(),
            CancellationToken::new(),
        );
        Self {
            executor,
            auth,
            clock,
            request_log: Arc::new(RequestLog::new(bounds.log_requests)),
            bounds,
            admission,
            quotas,
            socket_permits,
            stream_permits,
            sockets,
            leaving: CancellationToken::new(),
            stop,
            trusted_documents: None,
            metrics,
            connections,
            proxy_warned_at: Mutex::default(),
        }
    }

    /// Restricts every transport to the documents of this list.
    pub fn with_trusted(self, documents: TrustedDocuments) -> Self {
        Self {
            trusted_documents: Some(documents),
            ..self
        }
    }

    /// Has each answer close its connection from now on: the pools of balancers empty before the server stops.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// Registers the metrics of the server.
    pub fn register(&self, metrics: &Metrics) {
        self.metrics.register(metrics);
        self.admission.register(metrics);
        let (sockets, connections, stop) = (
            self.sockets.clone(),
            self.connections.clone(),
            self.stop.clone(),
        );
        metrics.read("wideroom_sockets", "Open WebSockets.", move || {
            sockets.len() as f64
        });
        metrics.read(
            "wideroom_connections",
            "Open HTTP connections.",
            move || connections.len() as f64,
        );
        metrics.read(
            "wideroom_draining",
            "1 while the server drains and accepts no new work, else 0.",
            move || f64::from(u8::from(stop.is_cancelled())),
        );
    }

    /// Renews the quota of request lines, and logs how many were left out. Runs until it is dropped.
    pub async fn renew_request_log(&self) {
        self.request_log.renew().await;
    }

    /// Logs how many request lines were left out since the last renewal.
    pub fn log_left_out(&self) {
        self.request_log.log_left_out();
    }

    /// Number of open WebSockets.
    pub fn open_sockets(&self) -> usize {
        self.sockets.len()
    }
}
