//! Admin endpoints, on a listener of their own: metrics, health, readiness, and backups of a running store.
//!
//! A backup needs a token that only a reader of the data folder can sign. Every client that reaches the address reads the
//! rest; the default address is loopback.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{HeadBounds, ListenerConfig, PaceBounds, accept};
use crate::auth::Auth;
use crate::metrics::{IntGauge, Metrics, TEXT_FORMAT, gauge};

/// Connections of operators. A further one evicts the idlest.
const CONNECTIONS_MAX: usize = 64;
/// Longest stall of a backup's reader, because a backup holds a view of the store.
const WRITE_MAX: Duration = Duration::from_secs(60);
/// Longest readiness check; a slower one is "not ready".
pub(crate) const READY_MAX: Duration = Duration::from_secs(2);
/// Time for running responses once the server ends.
const END_MAX: Duration = Duration::from_secs(1);

/// Server and store behind the admin endpoints.
pub trait AdminBackend: Send + Sync + 'static {
    /// Liveness. `Err` holds one sentence on a fault that needs a restart.
    fn alive(&self) -> Result<(), String>;

    /// Readiness. `Err` holds one sentence: the reason to route requests elsewhere.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Fault that an operator must repair although the server still answers: one sentence.
    fn warning(&self) -> Option<String>;

    /// Positions and dead letters of the webhooks, as lines.
    fn webhooks(&self) -> BoxFuture<'_, Result<String, String>>;

    /// Sends the dead letters of a webhook again, or that of one event. The answer is a line.
    fn redeliver<'a>(
        &'a self,
        webhook: &'a str,
        event: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String, String>>;

    /// Stream of a consistent copy of the store. It ends with an error or with an end mark.
    fn backup(&self) -> Result<BackupStream, BackupRefusal>;
}

/// Chunks of a backup.
pub type BackupStream = BoxStream<'static, io::Result<Bytes>>;

/// Reason for a refused backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackupRefusal {
    #[error(
        "this server stores its messages on a cluster: use the backup tools of the cluster, or `wideroom export`"
    )]
    OnCluster,
    #[error("another backup is running: try again once it has ended")]
    UnderWay,
    #[error("the server waits for its store: try again once it is ready")]
    Starting,
}

/// State of the admin endpoints.
pub struct AdminContext {
    pub backend: Arc<dyn AdminBackend>,
    pub metrics: Metrics,
    /// Verifies the tokens of backups.
    pub auth: Auth,
}

/// Admin endpoints and the gauges that each scrape computes.
struct AdminEndpoints {
    context: AdminContext,
    ready: IntGauge,
    warnings: IntGauge,
}

impl AdminEndpoints {
    fn new(context: AdminContext) -> Self {
        let ready = gauge("wideroom_ready", "1 while /readyz answers 200, else 0.");
        let warnings = gauge(
            "wideroom_key_file_broken",
            "1 while a key file cannot be read and the server verifies tokens with the previous keys.",
        );
        context.metrics.add(ready.clone());
        context.metrics.add(warnings.clone());
        Self {
            context,
            ready,
            warnings,
        }
    }

    /// Readiness. A check without an answer in time is "not ready".
    async fn readiness(&self) -> Result<(), String> {
        timeout(READY_MAX, self.context.backend.ready())
            .await
            .unwrap_or_else(|_| {
                Err(format!(
                    "the store does not answer within {} s",
                    READY_MAX.as_secs()
                ))
            })
    }
}

/// Serves until `stop`, also during the drain of the public listener, so that operators see the drain.
pub async fn run(listener: TcpListener, admin: AdminContext, stop: CancellationToken) {
    // DNS rebinding: a web page can point its own name to this machine. Its requests still carry that name in `Host`.
    let is_loopback = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/backup", post(backup))
        .route("/webhooks", get(webhooks))
        .route("/webhooks/{name}/redeliver", post(redeliver))
        .with_state(Arc::new(AdminEndpoints::new(admin)));
    let router = if is_loopback {
        router.layer(from_fn(refuse_foreign_hosts))
    } else {
        router
    };
    let config = ListenerConfig {
        connections: CONNECTIONS_MAX,
        head: HeadBounds::default(),
        write: WRITE_MAX,
        pace: PaceBounds::default(),
        leaving: stop.clone(),
        stop: stop.clone(),
    };
    let connections = TaskTracker::new();
    tokio::select! {
        () = stop.cancelled() => {}
        () = accept(&listener, &router, &connections, &config, |_| Ok(())) => {}
    }
    drop(listener);
    connections.close();
    if timeout(END_MAX, connections.wait()).await.is_err() {
        tracing::warn!("the server stops and cuts off a backup; run the backup again");
    }
}

/// Refuses a `Host` that is not loopback (421). A request without `Host` comes from no browser.
async fn refuse_foreign_hosts(request: Request, next: Next) -> Response {
    let mut hosts = request
        .headers()
        .get_all(header::HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or_default());
    if hosts.all(is_loopback) && request.uri().host().is_none_or(is_loopback) {
        return next.run(request).await;
    }
    line(
        StatusCode::MISDIRECTED_REQUEST,
        "`Host` must be localhost or a loopback address",
    )
}

/// Whether a host is loopback. The port does not matter.
fn is_loopback(host: &str) -> bool {
    let Ok(host) = host.parse::<Authority>() else {
        return false;
    };
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    match name.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            // RFC 6761: names below `localhost` always resolve to loopback.
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

async fn metrics(State(admin): State<Arc<AdminEndpoints>>) -> Response {
    admin.ready.set(i64::from(admin.readiness().await.is_ok()));
    let warning = admin.context.backend.warning();
    admin.warnings.set(i64::from(warning.is_some()));
    // Metrics of the disk may block.
    match tokio::task::spawn_blocking(move || admin.context.metrics.text()).await {
        Ok(text) => (
            [(header::CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT))],
            text,
        )
            .into_response(),
        Err(_) => line(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server cannot read its metrics",
        ),
    }
}

async fn healthz(State(admin): State<Arc<AdminEndpoints>>) -> Response {
    match admin.context.backend.alive() {
        Ok(()) => line(StatusCode::OK, "alive"),
        Err(why) => line(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

async fn readyz(State(admin): State<Arc<AdminEndpoints>>) -> Response {
    match admin.readiness().await {
        // Still 200: a failed key rotation must not make a load balancer remove every server.
        Ok(()) => match admin.context.backend.warning() {
            None => line(StatusCode::OK, "ready"),
            Some(warning) => line(StatusCode::OK, &format!("ready, but {warning}")),
        },
        Err(why) => line(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

async fn webhooks(State(admin): State<Arc<AdminEndpoints>>, headers: HeaderMap) -> Response {
    let admin = &admin.context;
    if let Err(refusal) = admin.check_token(&headers) {
        return refusal;
    }
    lines(admin.backend.webhooks().await)
}

/// Query of a redelivery.
#[derive(serde::Deserialize)]
struct RedeliverQuery {
    event: Option<String>,
}

async fn redeliver(
    State(admin): State<Arc<AdminEndpoints>>,
    Path(name): Path<String>,
    Query(query): Query<RedeliverQuery>,
    headers: HeaderMap,
) -> Response {
    let admin = &admin.context;
    if let Err(refusal) = admin.check_token(&headers) {
        return refusal;
    }
    let event = query.event.as_deref();
    lines(admin.backend.redeliver(&name, event).await)
}

fn lines(answer: Result<String, String>) -> Response {
    match answer {
        Ok(text) => text.into_response(),
        Err(why) => line(StatusCode::CONFLICT, &why),
    }
}

impl AdminContext {
    /// Whether the token of a request is one of this server's data folder.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the response, returned as it is"
    )]
    fn check_token(&self, headers: &HeaderMap) -> Result<(), Response> {
        let authorization = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let token = authorization
            .and_then(|authorization| authorization.strip_prefix("Bearer "))
            .unwrap_or_default();
        self.auth.verify(token).map(drop).map_err(|why| {
            line(
                StatusCode::UNAUTHORIZED,
                &format!("the request needs a token of this server's data folder: {why}"),
            )
        })
    }
}

async fn backup(State(admin): State<Arc<AdminEndpoints>>, headers: HeaderMap) -> Response {
    let admin = &admin.context;
    if let Err(refusal) = admin.check_token(&headers) {
        return refusal;
    }
    match admin.backend.backup() {
        Ok(chunks) => {
            tracing::info!("a backup has started");
            Body::from_stream(chunks).into_response()
        }
        Err(why) => line(StatusCode::CONFLICT, &why.to_string()),
    }
}

/// Response of one line.
fn line(status: StatusCode, sentence: &str) -> Response {
    (status, format!("{sentence}\n")).into_response()
}
