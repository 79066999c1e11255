//! GraphQL over WebSocket: the protocol `graphql-transport-ws`, with every close code of its own.

mod events;
mod message_rate;
mod messages;
mod operations;
mod protocol;
mod send_queue;
mod socket;
mod socket_permit;
mod timers;
mod wake_gate;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio::time::timeout;

use self::protocol::Close;
use self::socket::Socket;
use self::socket_permit::SocketPermit;
use crate::server::admission::{AddressPermit, Caller, ClientAddress};
use crate::server::answer::{Code, Problem};
use crate::server::bounds::SocketBounds;
use crate::server::connection::{ConnectionState, Permit};
use crate::server::context::Server;
use crate::server::http;
use crate::server::identification::authorization;
use crate::server::operation::LogLine;
use crate::server::origin::AS_HEADER;

const SUBPROTOCOL: &str = "graphql-transport-ws";

/// Small, because there are many sockets: the library would reserve 128 KiB for each at once. It replaces a buffer of 1 KiB
/// or more by one of that size at least.
const READ_BUFFER_BYTES: usize = 512;
const WRITE_BUFFER_BYTES: usize = 8 * 1024;
/// Factor by which a frame may exceed the bound of a message, so that the client reads a close code. A larger frame cuts
/// the socket.
const OVERSIZE_FACTOR: usize = 2;
/// Factor by which the bytes of a message may exceed those of the largest frame: fragments have heads of their own.
const FRAGMENTS_FACTOR: usize = 2;

/// Longest wait of a new socket for the close of an evicted one.
const EVICTION_WAIT: Duration = Duration::from_secs(5);

/// Whether a request asks for a WebSocket.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Opens a WebSocket within the limits of the address and the server.
pub(super) async fn upgrade(
    State(server): State<Arc<Server>>,
    extensions: Extensions,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let address = server.address(&extensions, &headers);
    // The token also pays for the verification of the one signature that a socket shows.
    if let Err(problem) = server.admission.enter(&Caller {
        viewer: None,
        address,
    }) {
        return refused(&server, problem);
    }
    // Ignored, it would make a service act under its own name.
    if headers.contains_key(AS_HEADER) {
        let sentence = "A socket names the user in whose name a service acts in connection_init, as `as`; \
                        the header Wideroom-As is for HTTP.";
        let problem = Problem::new(StatusCode::BAD_REQUEST, Code::BadUserInput, sentence);
        return refused(&server, problem);
    }
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return not_a_socket(&rejection),
    };
    let (address_permit, permit) = match admit(&server, address, &headers).await {
        Ok(permits) => permits,
        Err(problem) => return refused(&server, problem),
    };
    let bytes_max = frame_bytes_max(&server.bounds.sockets);
    let authorization = authorization(&headers).map(Box::from);
    // The write buffer is unbounded: a bound would also refuse an answer larger than it. It holds at most one message,
    // because the send queue hands over the next one after the flush of the last.
    let upgrade = upgrade
        .protocols([SUBPROTOCOL])
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(bytes_max)
        .max_frame_size(bytes_max);
    let has_subprotocol = upgrade.selected_protocol().is_some();
    // A test of the router alone has no connection, and counts no bytes.
    let connection = extensions.get::<Arc<ConnectionState>>().cloned();
    if let Some(connection) = &connection {
        connection.upgrade(server.bounds.sockets.init_bytes);
    }
    let counted = (address_permit, server.sockets.token());
    // The task of the handshake reserves room for each place that the socket moves through. It ends, and a task of the
    // socket's own is a third of its size.
    upgrade.on_upgrade(move |socket| {
        if has_subprotocol {
            let permit = SocketPermit { permit, connection };
            let socket = Socket::open(server, socket, address, authorization, permit);
            tokio::spawn(async move {
                socket.run().await;
                drop(counted);
            });
        } else {
            tokio::spawn(async move {
                refuse(socket, server).await;
                drop((permit, counted));
            });
        }
        ready(())
    })
}

fn frame_bytes_max(bounds: &SocketBounds) -> usize {
    bounds.message_bytes.saturating_mul(OVERSIZE_FACTOR)
}

/// Bytes that a client may send for one message, heads of fragments included.
fn message_budget(bounds: &SocketBounds) -> usize {
    frame_bytes_max(bounds).saturating_mul(FRAGMENTS_FACTOR)
}

/// Acquires the permits of a socket: of its address, then of the server.
async fn admit(
    server: &Server,
    address: ClientAddress,
    headers: &HeaderMap,
) -> Result<(Option<AddressPermit>, Permit), Problem> {
    let unavailable =
        |sentence| Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, sentence);
    if !server.bounds.origins.may_open(headers) {
        let sentence =
            "Pages of this origin may not open sockets here: the operator lists those that may.";
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            Code::Forbidden,
            sentence,
        ));
    }
    if server.stop.is_cancelled() {
        return Err(unavailable("This server is stopping; connect again."));
    }
    let address_permit = server.admission.socket_at(address)?;
    // Last, so that a client over a limit of its own evicts no other socket.
    match server.socket_permits.acquire_within(EVICTION_WAIT).await {
        Some(permit) => Ok((address_permit, permit)),
        None => {
            server
                .metrics
                .refusals
                .with_label_values(&["sockets"])
                .inc();
            Err(unavailable(
                "There are too many open sockets here; try again later.",
            ))
        }
    }
}

/// Logs and answers a refused upgrade.
fn refused(server: &Server, problem: Problem) -> Response {
    LogLine::start(server, "ws").end(problem.code.as_str());
    http::refuse(problem)
}

fn not_a_socket(rejection: &WebSocketUpgradeRejection) -> Response {
    let sentence = format!(
        "This path serves WebSockets of the subprotocol {SUBPROTOCOL}: {}.",
        rejection.body_text()
    );
    let mut response = http::refuse(Problem::new(
        StatusCode::UPGRADE_REQUIRED,
        Code::BadUserInput,
        sentence,
    ));
    response
        .headers_mut()
        .insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    response
}

/// Closes a socket without our subprotocol. A browser shows a close code, but not the response to a failed upgrade.
async fn refuse(mut socket: WebSocket, server: Arc<Server>) {
    let (close, bounds) = (Close::SUBPROTOCOL, &server.bounds.sockets);
    if timeout(
        bounds.write,
        socket.send(Message::Close(Some(close.frame()))),
    )
    .await
    .is_ok_and(|sent| sent.is_ok())
    {
        linger(
            async { while let Some(Ok(_)) = socket.recv().await {} },
            bounds,
        )
        .await;
    }
}

/// Reads on until the client closes too. A close with unread bytes resets the connection, and loses the last message.
async fn linger(read_on: impl Future<Output = ()>, bounds: &SocketBounds) {
    // A client that does not close in time is cut.
    let _ = timeout(bounds.close, read_on).await;
}
