//! Listener: accepts connections within their limits and serves HTTP/1 on each.

use std::future::{Future, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::permits::{Evicted, Permits};
use super::state::{ConnectionState, RequestBody, ResponseBody};
use super::transport::{HeadBounds, Transport};
use super::write_timeout::{PaceBounds, WriteTimeout};
use crate::server::admission::{Peer, TooManyConnections};

/// Wait after the system ran out of file descriptors.
const EXHAUSTED: Duration = Duration::from_millis(200);
/// Pause between two log lines about that.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Smallest read buffer of hyper.
const BUFFER_MIN: usize = 8 * 1024;

/// Limits and deadlines of a listener.
pub(crate) struct ListenerConfig {
    /// A further connection evicts the one that was idle longest, or waits while all are busy.
    pub(crate) connections: usize,
    pub(crate) head: HeadBounds,
    /// Longest wait of a write for the network.
    pub(crate) write: Duration,
    /// Slowest accepted reader.
    pub(crate) pace: PaceBounds,
    /// Token whose cancellation has each answer close its connection: the pools of balancers empty.
    pub(crate) leaving: CancellationToken,
    /// Token whose cancellation ends each connection after its running request.
    pub(crate) stop: CancellationToken,
}

/// Accepts connections until it is dropped. It closes a connection unread if its peer has too many.
pub(crate) async fn accept<P: Send + 'static>(
    listener: &TcpListener,
    router: &Router,
    connections: &TaskTracker,
    config: &ListenerConfig,
    permit_of: impl Fn(IpAddr) -> Result<P, TooManyConnections>,
) {
    let permits = Permits::new(config.connections);
    let mut exhaustion = Exhaustion::default();
    loop {
        let (stream, peer) = next(listener, &mut exhaustion).await;
        // First, so that an address over its limit evicts no connection of others.
        let Ok(peer_permit) = permit_of(peer.ip()) else {
            continue;
        };
        let state = ConnectionState::new(Peer(peer.ip()), permits.acquire().await);
        let stream = Transport::new(
            WriteTimeout::new(stream, config.write, config.pace),
            Arc::clone(&state),
            config.head,
        );
        let service = ConnectionService {
            state: Arc::clone(&state),
            router: TowerToHyperService::new(router.clone()),
            headers_max: config.head.headers,
            leaving: config.leaving.clone(),
        };
        let (head, stop) = (config.head, config.stop.clone());
        connections.spawn(async move {
            let eviction = state.eviction();
            tokio::select! {
                () = serve(stream, service, head, stop) => {}
                () = eviction.notified() => tracing::debug!("the server evicts an idle connection for another"),
            }
            state.release();
            drop(peer_permit);
        });
    }
}

/// Headers that hyper parses into an array on the stack. A bound of its own makes it allocate for
/// each request, so a smaller bound is checked after the parse.
const HEADERS_PARSED_MAX: usize = 100;

/// Router that also tracks the state of its connection.
struct ConnectionService {
    state: Arc<ConnectionState>,
    router: TowerToHyperService<Router>,
    headers_max: usize,
    leaving: CancellationToken,
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<ResponseBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let active = match self.state.begin() {
            Ok(active) => active,
            Err(Evicted) => {
                return Box::pin(ready(Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "evicted for another connection",
                ))));
            }
        };
        if request.headers().len() > self.headers_max {
            let refusal = Response::builder()
                .status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
                .header(header::CONNECTION, HeaderValue::from_static("close"))
                .body(ResponseBody::new(Body::empty(), active));
            return Box::pin(ready(refusal.map_err(io::Error::other)));
        }
        let mut request = request.map(|body| RequestBody::new(body, Arc::clone(&self.state)));
        request.extensions_mut().insert(Arc::clone(&self.state));
        let (answer, leaving) = (self.router.call(request), self.leaving.clone());
        Box::pin(async move {
            let Ok(mut answer) = answer.await;
            let is_upgrade = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
            // hyper decides to close only after it has written the head. Without this header a client would send its next
            // request on a closing connection.
            if active.has_unread() || leaving.is_cancelled() && !is_upgrade {
                answer
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer.map(|body| ResponseBody::new(body, active)))
        })
    }
}

/// Lack of descriptors for connections, as the log shows it: at most once a minute, and once when it is over.
#[derive(Default)]
struct Exhaustion {
    logged_at: Option<Instant>,
    is_logged: bool,
}

impl Exhaustion {
    fn begin(&mut self, error: &io::Error) {
        if self.logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            self.logged_at = Some(Instant::now());
            self.is_logged = true;
            tracing::error!(%error, "the server cannot accept connections and retries; check the limit of open files");
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_logged) {
            tracing::info!("the server accepts connections again");
        }
    }
}

async fn next(listener: &TcpListener, exhaustion: &mut Exhaustion) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                exhaustion.end();
                // Nagle's algorithm could delay a small answer by 40 ms, until the client's delayed acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "the server failed to disable Nagle's algorithm on a connection");
                }
                return (stream, peer);
            }
            // The client closed this connection before it was accepted.
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                exhaustion.begin(&error);
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
}

fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Serves one connection until it ends or becomes a WebSocket. On shutdown it answers the running request first.
async fn serve(
    stream: Transport<WriteTimeout<TcpStream>>,
    service: ConnectionService,
    head: HeadBounds,
    stop: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    if head.headers > HEADERS_PARSED_MAX {
        builder.max_headers(head.headers);
    }
    // The buffer bounds the memory of an incomplete head. hyper refuses a smaller buffer than this.
    builder
        .max_header_size(head.bytes)
        .max_buf_size(head.bytes.max(BUFFER_MIN));
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head.idle);
    let mut connection = pin!(
        builder
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended with an error");
    }
}
