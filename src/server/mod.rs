//! The server: GraphQL over HTTP and WebSocket, the pages, and the admin endpoints.
//!
//! No module here knows the schema. The server reads a request within its bounds, identifies the viewer, passes the
//! operation to the [`OperationExecutor`](crate::graphql::OperationExecutor), and writes the answer.
//!
//! The transports are ours because the library's (`async-graphql-axum`) break the protocols in six
//! ways: an HTTP status that hides refusals, mutations over GET, POST of any media type, no bound
//! of bodies and batches, wrong close codes, and no deadline for a silent or slow client
//! (`tests/live/library_faults.rs` asserts each of them).

pub mod admin;
mod admission;
mod answer;
mod bounds;
mod chunks;
mod connection;
mod context;
mod http;
mod identification;
mod metrics;
mod operation;
mod origin;
pub mod pages;
mod request;
mod request_log;
mod security_headers;
mod token_expiry;
mod trace_context;
mod trusted_documents;
mod ws;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Request, State};
use axum::middleware::{from_fn, map_response};
use axum::response::Response;
use axum::routing::any;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;

pub use self::admission::{AdmissionBounds, NetworkFactors, TrustedProxies};
pub use self::bounds::{ServerBounds, SocketBounds, StreamBounds};
pub use self::connection::{HeadBounds, PaceBounds};
use self::connection::{ListenerConfig, accept};
pub use self::context::Server;
pub use self::origin::Origins;
pub use self::request_log::RequestLines;
pub use self::trusted_documents::{TrustedDocuments, TrustedError};

/// Length of the accept queue. The usual 128 drops part of a burst, and those clients retry only after a second.
const BACKLOG: u32 = 4_096;

/// Routes of `/graphql`, `/graphql/ws` and the pages. Every other path is answered as one that does not exist.
pub fn router(server: Arc<Server>, pages: Router) -> Router {
    let (cors, is_local) = (server.bounds.origins.cors(), server.bounds.is_local);
    let api = Router::new()
        .route("/graphql", any(graphql))
        .route("/graphql/ws", any(ws::upgrade))
        .fallback(http::not_found)
        .with_state(server);
    let (api, pages) = match cors {
        // A page of a listed origin gets the tokens of a demo, too.
        Some(cors) => (
            api.layer(cors.clone())
                .layer(map_response(origin::without_service_header)),
            pages.layer(cors),
        ),
        None => (api, pages),
    };
    let all = api.merge(pages.layer(map_response(security_headers::add)));
    if is_local {
        all.layer(from_fn(http::refuse_forwarded))
    } else {
        all
    }
}

/// Serves requests, and the WebSockets of clients that have one address for both.
async fn graphql(
    server: State<Arc<Server>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Response {
    if !ws::is_upgrade(request.headers()) {
        return http::graphql(server, request).await;
    }
    let (head, _) = request.into_parts();
    ws::upgrade(server, head.extensions, head.headers, upgrade).await
}

/// Listens on an address, also where an earlier socket is still in TIME_WAIT.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    accept_on(bind(address)?)
}

/// Takes an address and refuses its connections, until [`accept_on`].
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

pub(crate) fn accept_on(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)
}

/// Serves until `shutdown`, then drains: running requests finish within [`ServerBounds::drain`].
pub async fn run(
    listener: TcpListener,
    server: Arc<Server>,
    pages: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = router(Arc::clone(&server), pages);
    let connections = &server.connections;
    let ServerBounds {
        connections: connections_max,
        head,
        pace,
        sockets: SocketBounds { write, .. },
        ..
    } = server.bounds;
    let config = ListenerConfig {
        connections: connections_max,
        head,
        write,
        pace,
        leaving: server.leaving.clone(),
        stop: server.stop.clone(),
    };
    tokio::select! {
        () = shutdown => {}
        () = accept(&listener, &router, connections, &config, |peer| server.connection_permit(peer)) => {}
    }
    // The closed listener refuses new connections, so that clients go to another server.
    drop(listener);
    server.stop.cancel();
    connections.close();
    server.sockets.close();
    let drained = async {
        connections.wait().await;
        server.sockets.wait().await;
    };
    if timeout(server.bounds.drain, drained).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            sockets = server.open_sockets(),
            "the drain exceeded its deadline; the server cuts off the remaining connections"
        );
    }
    Ok(())
}
