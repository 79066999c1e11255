//! GraphQL over WebSocket: the protocol `graphql-transport-ws`, with every close code of its own.

mod admission;
mod connection;
mod operations;
mod outbox;
mod protocol;
mod rate;
mod source;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio::time::timeout;

use self::admission::Admission;
use self::connection::Connection;
use self::protocol::Close;
use super::answer::{Code, Problem};
use super::gate::Caller;
use super::operation::LogLine;
use super::phase::ConnectionPhase;
use super::{Doors, SocketBounds, http};

const SUBPROTOCOL: &str = "graphql-transport-ws";

/// Small, because there are many sockets: the library would take 128 KiB for each, at once.
const READ_BUFFER_BYTES: usize = 1024;
const WRITE_BUFFER_BYTES: usize = 8 * 1024;
/// A frame may be by so much larger than a message, so that who goes over is told so; beyond that the socket is cut.
const OVERSIZE_FACTOR: usize = 2;

/// How long a newcomer waits for a socket without a viewer to be closed for it.
const EVICTION_WAIT: Duration = Duration::from_secs(5);

/// Opens a socket, where there is still a place for it.
pub(super) async fn upgrade(
    State(doors): State<Arc<Doors>>,
    extensions: Extensions,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let address = doors.address(&extensions, &headers);
    // It covers the verification of the one token that a socket shows, too.
    if let Err(problem) = doors.gate.enter(&Caller {
        viewer: None,
        address,
    }) {
        return refused(&doors, problem);
    }
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return not_a_socket(&rejection),
    };
    if !doors.bounds.origins.may_open(&headers) {
        let sentence =
            "Pages of this origin may not open sockets here: the operator lists those that may.";
        return refused(
            &doors,
            Problem::new(StatusCode::FORBIDDEN, Code::Forbidden, sentence),
        );
    }
    if doors.stop.is_cancelled() {
        let sentence = "This server is stopping; connect again.";
        return refused(
            &doors,
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, sentence),
        );
    }
    let counted = match doors.gate.socket_at(address) {
        Ok(counted) => counted,
        Err(problem) => return refused(&doors, problem),
    };
    // Asked last, so that a client over a bound of its own evicts nobody.
    let Some(permit) = doors.socket_permits.acquire_within(EVICTION_WAIT).await else {
        doors.meter.refusals.with_label_values(&["sockets"]).inc();
        let sentence = "There are too many open sockets here; try again later.";
        return refused(
            &doors,
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, sentence),
        );
    };
    let bytes_max = doors
        .bounds
        .sockets
        .message_bytes
        .saturating_mul(OVERSIZE_FACTOR);
    // The write buffer has no bound of its own, because an answer larger than it could then never be sent. It holds one message at most: the
    // next one is handed over when the last one is with the system.
    let upgrade = upgrade
        .protocols([SUBPROTOCOL])
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(bytes_max)
        .max_frame_size(bytes_max);
    let is_spoken = upgrade.selected_protocol().is_some();
    // Without a connection there are no bytes to count: as in a test of the router alone.
    let phase = extensions.get::<Arc<ConnectionPhase>>().cloned();
    if let Some(phase) = &phase {
        phase.upgrade(doors.bounds.sockets.init_bytes);
    }
    let counted = (counted, doors.sockets.token());
    upgrade.on_upgrade(move |socket| async move {
        if is_spoken {
            Connection::open(doors, socket, address, Admission { permit, phase })
                .run()
                .await;
        } else {
            Box::pin(refuse(socket, doors)).await;
            drop(permit);
        }
        drop(counted);
    })
}

/// A socket that is not opened has its line in the log.
fn refused(doors: &Doors, problem: Problem) -> Response {
    LogLine::start(doors, "ws").end(problem.code.as_str());
    http::refuse(problem)
}

fn not_a_socket(rejection: &WebSocketUpgradeRejection) -> Response {
    let sentence = format!(
        "This is the place of a WebSocket of the subprotocol {SUBPROTOCOL}: {}.",
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

/// Whoever does not speak our subprotocol is let in to be told so: a browser shows close codes, and no answers to a failed upgrade.
async fn refuse(mut socket: WebSocket, doors: Arc<Doors>) {
    let (close, bounds) = (Close::subprotocol(), &doors.bounds.sockets);
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

/// Reads on until the other side closes too. Going away with bytes unread would reset the connection, and with it what was just sent.
async fn linger(read_on: impl Future<Output = ()>, bounds: &SocketBounds) {
    // Whoever does not close in time is left behind.
    let _ = timeout(bounds.close, read_on).await;
}
