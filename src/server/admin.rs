//! The operator's door, on a listener of its own: metrics, health, readiness, and the backup of a running store.
//!
//! Nobody's messages are to be had here without a token that only who can read the data folder can make. The rest is told to whoever can reach
//! the address, which is this machine's own unless somebody says otherwise.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::BoxStream;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{HeadBounds, ListenerConfig, PaceBounds, accept};
use crate::auth::Auth;
use crate::metrics::{Metrics, TEXT_FORMAT};

/// Those who look after a server are few. Silent connections make room for them.
const CONNECTIONS_MAX: usize = 64;
/// A reader of a backup who takes nothing for so long is cut off: a view of the store is held for them.
const WRITE_MAX: Duration = Duration::from_secs(60);
/// Who does not know within this time whether it is ready is not.
const READY_MAX: Duration = Duration::from_secs(2);
/// What an answer may take to end once the server does.
const END_MAX: Duration = Duration::from_secs(1);

/// What is looked after.
#[async_trait]
pub trait AdminBackend: Send + Sync + 'static {
    /// `Err` says in one sentence what only a restart heals.
    fn alive(&self) -> Result<(), String>;

    /// `Err` says in one sentence why requests should go elsewhere.
    async fn ready(&self) -> Result<(), String>;

    /// What an operator must repair though requests are still answered: one sentence.
    fn warning(&self) -> Option<String>;

    /// The store as it is now, in pieces that end with an error or say that they were all.
    fn backup(&self) -> Result<BackupStream, BackupRefusal>;
}

/// Of a backup.
pub type BackupStream = BoxStream<'static, io::Result<Bytes>>;

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackupRefusal {
    #[error(
        "this server keeps its messages on a cluster: back them up with the tools of the cluster, or by `wideroom export`"
    )]
    OnCluster,
    #[error("another backup is under way: try again when it is done")]
    UnderWay,
}

/// What the operator's door needs.
pub struct AdminContext {
    pub backend: Arc<dyn AdminBackend>,
    pub metrics: Metrics,
    /// Good for backups and nothing else.
    pub auth: Auth,
}

/// Serves until `stop`, beyond the drain of the other server: that a server drains is to be seen.
pub async fn run(listener: TcpListener, admin: AdminContext, stop: CancellationToken) {
    // A page that a browser loaded under a name of its own may make that name stand for this machine (DNS rebinding). Its requests still say it.
    let is_loopback = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/backup", post(backup))
        .with_state(Arc::new(admin));
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

/// On loopback only hosts of loopback are asked for. A request without `Host` is no browser's.
async fn refuse_foreign_hosts(request: Request, next: Next) -> Response {
    let mut hosts = request
        .headers()
        .get_all(header::HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or_default());
    if hosts.all(is_loopback) && request.uri().host().is_none_or(is_loopback) {
        return next.run(request).await;
    }
    told(
        StatusCode::MISDIRECTED_REQUEST,
        "ask for localhost or an address of this machine's loopback: `Host` names another",
    )
}

/// Whether a host is this machine by every reading. Its port does not matter.
fn is_loopback(host: &str) -> bool {
    let Ok(host) = host.parse::<Authority>() else {
        return false;
    };
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    match name.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            // RFC 6761: names below it are never looked up elsewhere.
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

async fn metrics(State(admin): State<Arc<AdminContext>>) -> Response {
    // What the disk is asked for may block.
    match tokio::task::spawn_blocking(move || admin.metrics.text()).await {
        Ok(text) => (
            [(header::CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT))],
            text,
        )
            .into_response(),
        Err(_) => told(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the counters cannot be read",
        ),
    }
}

async fn healthz(State(admin): State<Arc<AdminContext>>) -> Response {
    match admin.backend.alive() {
        Ok(()) => told(StatusCode::OK, "alive"),
        Err(why) => told(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

async fn readyz(State(admin): State<Arc<AdminContext>>) -> Response {
    match timeout(READY_MAX, admin.backend.ready()).await {
        // Still 200: a load balancer that took every server away would make an outage of a broken rotation.
        Ok(Ok(())) => match admin.backend.warning() {
            None => told(StatusCode::OK, "ready"),
            Some(warning) => told(StatusCode::OK, &format!("ready, but {warning}")),
        },
        Ok(Err(why)) => told(StatusCode::SERVICE_UNAVAILABLE, &why),
        Err(_) => told(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the store does not answer within {} s", READY_MAX.as_secs()),
        ),
    }
}

async fn backup(State(admin): State<Arc<AdminContext>>, headers: HeaderMap) -> Response {
    let authorization = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let token = authorization
        .and_then(|authorization| authorization.strip_prefix("Bearer "))
        .unwrap_or_default();
    if let Err(why) = admin.auth.verify(token) {
        return told(
            StatusCode::UNAUTHORIZED,
            &format!("not with the key of this server's data folder: {why}"),
        );
    }
    match admin.backend.backup() {
        Ok(pieces) => {
            tracing::info!("a backup has started");
            Body::from_stream(pieces).into_response()
        }
        Err(why) => told(StatusCode::CONFLICT, &why.to_string()),
    }
}

/// One line.
fn told(status: StatusCode, sentence: &str) -> Response {
    (status, format!("{sentence}\n")).into_response()
}
