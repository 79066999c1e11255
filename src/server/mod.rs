//! The doors: GraphQL over HTTP, in one answer or as a stream, and over WebSocket; the bounds of what comes in, and the end of it all.
//!
//! Nothing here knows the schema. A request is read, bounded, given its viewer and handed to the [`Executor`]; its answer is written.

mod accept;
mod account;
mod address;
pub mod admin;
mod answer;
mod expiry;
mod gate;
mod http;
mod meter;
mod networks;
mod operation;
mod origin;
pub mod pages;
mod permits;
mod phase;
mod pieces;
mod request;
mod shield;
mod stall;
mod transport;
mod trusted;
mod ws;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::map_response;
use axum::routing::any;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::accept::Terms;
use self::account::Accounts;
pub use self::address::Proxies;
use self::gate::Gate;
pub use self::gate::RateBounds;
use self::meter::Meter;
pub use self::networks::NetworkFactors;
pub use self::origin::Origins;
use self::permits::Permits;
pub use self::transport::HeadBounds;
pub use self::trusted::{TrustedDocuments, TrustedError};
use crate::auth::Auth;
use crate::clock::Clock;
use crate::graphql::{ANSWER_BYTES_MAX, Executor};
use crate::metrics::Metrics;

/// What the doors let in, and how long they wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoorBounds {
    pub body_bytes: usize,
    pub variables_bytes: usize,
    /// Requests of one body, which are done one after the other. 0: a body is one request.
    pub batch: usize,
    /// Connections that are not WebSockets. For one more the connection that has been idle longest is closed.
    pub connections: usize,
    pub head: HeadBounds,
    /// The text of one answer, of one event of a subscription, or of all answers of one body.
    pub answer_bytes: usize,
    /// Who is read more slowly than this is cut off.
    pub pace: PaceBounds,
    /// From the head of a request to its answer.
    pub request: Duration,
    /// From the call to stop until what still runs is cut off.
    pub drain: Duration,
    pub streams: StreamBounds,
    pub sockets: SocketBounds,
    pub rates: RateBounds,
    /// Whose pages may use the API from a browser, beside our own.
    pub origins: Origins,
    /// Who may say for whom they speak.
    pub proxies: Proxies,
}

/// How fast what waits for a reader must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceBounds {
    pub bytes_per_second: usize,
    /// Over any so long a time in which bytes wait.
    pub window: Duration,
}

/// The same for subscriptions over HTTP, as Server-Sent Events or in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamBounds {
    /// Streams of this process. Each is also one of the connections, and should not be able to take them all.
    pub total: usize,
    /// After so long without a word there is a heartbeat.
    pub heartbeat: Duration,
}

/// The same for WebSockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketBounds {
    /// Sockets of this process. For one more the oldest that has no viewer is closed.
    pub total: usize,
    pub message_bytes: usize,
    /// Bytes that a socket may send until its `connection_init` is accepted.
    pub init_bytes: usize,
    /// Operations of one socket that run at once.
    pub operations: usize,
    /// Messages of one socket: so many a second, so many at once. Beyond that it is read more slowly.
    pub rate_per_second: u32,
    pub rate_burst: u32,
    /// A socket that has been over its rate for so long is closed.
    pub rate_patience: Duration,
    /// From the upgrade to a `connection_init` that names a viewer.
    pub init: Duration,
    pub ping: Duration,
    pub pong: Duration,
    /// The longest a written message may wait for the network; and what is written to any other connection, too.
    pub write: Duration,
    /// How long to wait for the other side's closing frame.
    pub close: Duration,
    pub queue_messages: usize,
    pub queue_bytes: usize,
}

impl Default for DoorBounds {
    fn default() -> Self {
        Self {
            body_bytes: 128 * 1024,
            variables_bytes: 64 * 1024,
            batch: 0,
            connections: 10_000,
            head: HeadBounds::default(),
            answer_bytes: ANSWER_BYTES_MAX,
            pace: PaceBounds::default(),
            request: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            streams: StreamBounds::default(),
            sockets: SocketBounds::default(),
            rates: RateBounds::default(),
            origins: Origins::default(),
            proxies: Proxies::default(),
        }
    }
}

impl Default for PaceBounds {
    fn default() -> Self {
        Self {
            bytes_per_second: 16 << 10,
            window: Duration::from_secs(30),
        }
    }
}

impl Default for StreamBounds {
    fn default() -> Self {
        // Proxies commonly hang up after 15, 30 or 60 seconds of silence.
        Self {
            total: 5_000,
            heartbeat: Duration::from_secs(12),
        }
    }
}

impl Default for SocketBounds {
    fn default() -> Self {
        Self {
            total: 50_000,
            message_bytes: 128 * 1024,
            init_bytes: 16 * 1024,
            operations: 100,
            rate_per_second: 20,
            rate_burst: 60,
            rate_patience: Duration::from_secs(10),
            init: Duration::from_secs(10),
            ping: Duration::from_secs(25),
            pong: Duration::from_secs(10),
            write: Duration::from_secs(10),
            close: Duration::from_secs(2),
            queue_messages: 256,
            queue_bytes: 1024 * 1024,
        }
    }
}

/// Connections that may wait to be accepted: the usual 128 loses some of a burst, and they come back after a second.
const BACKLOG: u32 = 4_096;

/// What every door needs.
pub struct Doors {
    executor: Arc<dyn Executor>,
    auth: Arc<Auth>,
    clock: Arc<dyn Clock>,
    bounds: DoorBounds,
    gate: Gate,
    accounts: Accounts,
    socket_permits: Arc<Permits>,
    stream_places: Arc<Semaphore>,
    sockets: TaskTracker,
    stop: CancellationToken,
    trusted: Option<TrustedDocuments>,
    meter: Arc<Meter>,
    connections: TaskTracker,
}

impl Doors {
    pub fn new(
        executor: Arc<dyn Executor>,
        auth: Arc<Auth>,
        clock: Arc<dyn Clock>,
        bounds: DoorBounds,
    ) -> Self {
        let socket_permits = Permits::new(bounds.sockets.total);
        let stream_places = Arc::new(Semaphore::new(
            bounds.streams.total.min(Semaphore::MAX_PERMITS),
        ));
        let meter = Arc::new(Meter::default());
        let gate = Gate::new(bounds.rates.clone(), meter.refusals.clone());
        let most = bounds
            .rates
            .is_on
            .then_some((bounds.rates.user_answers, bounds.rates.user_answer_bytes));
        let accounts = Accounts::new(
            bounds.answer_bytes,
            most,
            meter.refusals.with_label_values(&["user_answers"]),
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
            bounds,
            gate,
            accounts,
            socket_permits,
            stream_places,
            sockets,
            stop,
            trusted: None,
            meter,
            connections,
        }
    }

    /// From now on only these documents are run, through every door.
    pub fn with_trusted(self, documents: TrustedDocuments) -> Self {
        Self {
            trusted: Some(documents),
            ..self
        }
    }

    /// Tells what it counts of itself.
    pub fn register(&self, metrics: &Metrics) {
        self.meter.register(metrics);
        self.gate.register(metrics);
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

    /// The sockets that are open now.
    pub fn open_sockets(&self) -> usize {
        self.sockets.len()
    }
}

/// `/graphql`, `/graphql/ws`, and the pages beside them.
pub fn router(doors: Arc<Doors>, pages: Router) -> Router {
    let graphql = any(http::graphql);
    let graphql = match doors.bounds.origins.cors() {
        Some(cors) => graphql.layer(cors),
        None => graphql,
    };
    Router::new()
        .route("/graphql", graphql)
        .route("/graphql/ws", any(ws::upgrade))
        .route("/graphql/", any(http::not_found))
        .route("/graphql/{*rest}", any(http::not_found))
        .with_state(doors)
        .merge(pages.layer(map_response(shield::shield)))
}

/// Listens. An address that is in use by a socket in its last minute can be had again.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `shutdown`, then lets what runs come to its end, for as long as the bounds allow.
pub async fn run(
    listener: TcpListener,
    doors: Arc<Doors>,
    pages: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = router(Arc::clone(&doors), pages);
    let connections = &doors.connections;
    let DoorBounds {
        connections: places,
        head,
        pace,
        sockets: SocketBounds { write, .. },
        ..
    } = doors.bounds;
    let terms = Terms {
        connections: places,
        head,
        write,
        pace,
        stop: doors.stop.clone(),
    };
    tokio::select! {
        () = shutdown => {}
        () = accept::accept(&listener, &router, connections, &terms, |peer| doors.connection_of(peer)) => {}
    }
    // From here on connections are refused, and go to another server.
    drop(listener);
    doors.stop.cancel();
    connections.close();
    doors.sockets.close();
    let drained = async {
        connections.wait().await;
        doors.sockets.wait().await;
    };
    if timeout(doors.bounds.drain, drained).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            sockets = doors.open_sockets(),
            "the drain exceeded its deadline; the server cuts off the remaining connections"
        );
    }
    Ok(())
}
