//! Faults of the library's own handlers: the six reasons for which the transports of `server` are
//! ours.
//!
//! Each test asserts a fault of the library beside our behaviour. If one fails, a version of the
//! library has mended the fault, and the handlers of `server` that exist for it may go.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use axum::extract::FromRequestParts as _;
use axum::extract::ws::Message as SocketMessage;
use futures_util::{Sink, Stream, StreamExt as _, future, sink, stream};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::{self, Message};
use wideroom::auth::Auth;

use async_graphql_axum::{GraphQLProtocol, GraphQLWebSocket};

use super::schema::TestApi;
use super::world::{World, soon};
use crate::support::client::{self, Reply, Socket};
use crate::support::peer::{self, PreparedExecutor};

const JSON: (&str, &str) = ("content-type", "application/json");
const GRAPHQL: (&str, &str) = ("accept", "application/graphql-response+json");
/// Longer than every deadline of our transports.
const LONG: Duration = Duration::from_secs(3_600);
/// Messages of a client that takes no answers.
const MESSAGES: usize = 100;

fn api() -> Arc<TestApi> {
    Arc::new(TestApi::new(Arc::new(watch::channel(0).0)))
}

/// The library's handlers and ours, over the same small schema.
struct Pair {
    ours: World,
    library: SocketAddr,
}

impl Pair {
    async fn start() -> Self {
        let ours = World::start().await;
        let router = peer::router(api(), Arc::new(Auth::with_secret(super::world::SECRET)));
        let library = peer::serve(router, ours.stop_token());
        Self { ours, library }
    }

    /// Replies of ours and of the library to the same request.
    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> [Reply; 2] {
        [
            self.ours.http(method, path, headers, body).await,
            client::http(self.library, method, path, headers, body).await,
        ]
    }

    async fn post(&self, body: &Value) -> [Reply; 2] {
        let headers = [JSON, GRAPHQL];
        let body = body.to_string();
        self.ask("POST", "/graphql", &headers, body.as_bytes())
            .await
    }

    /// Sockets of ours and of the library, before `connection_init`.
    async fn sockets(&self) -> [Socket; 2] {
        let library = client::try_socket(self.library, Some("graphql-transport-ws")).await;
        [self.ours.socket().await, Socket(library.unwrap())]
    }

    /// Sockets of ours and of the library, after `connection_ack`.
    async fn open(&self) -> [Socket; 2] {
        let token = self.ours.token("alice", LONG);
        let mut sockets = self.sockets().await;
        for socket in &mut sockets {
            socket.init(Some(&token)).await;
        }
        sockets
    }
}

fn statuses(replies: &[Reply; 2]) -> [u16; 2] {
    [replies[0].status, replies[1].status]
}

#[tokio::test]
async fn the_library_answers_a_refused_document_with_200_and_null_data() {
    let pair = Pair::start().await;
    for (document, status) in [("{", 400), ("{ nothing }", 422)] {
        let replies = pair.post(&json!({ "query": document })).await;
        assert_eq!(statuses(&replies), [status, 200], "{document}");
        let [ours, library] = &replies;
        assert_eq!(
            (ours.body.get("data"), library.body.get("data")),
            (None, Some(&Value::Null)),
            "{document}"
        );
    }
    // A client that knows plain JSON alone gets a media type that it did not ask for.
    let body = json!({ "query": "{ number(n: 1) }" }).to_string();
    let headers = [JSON, ("accept", "application/json")];
    let [ours, library] = pair
        .ask("POST", "/graphql", &headers, body.as_bytes())
        .await;
    assert_eq!(
        [ours.header("content-type"), library.header("content-type")],
        [
            "application/json; charset=utf-8",
            "application/graphql-response+json"
        ]
    );
}

#[tokio::test]
async fn the_library_executes_mutations_over_get_and_ignores_the_operation_name() {
    let pair = Pair::start().await;
    let path = "/graphql?query=mutation%7Bsay(text%3A%22x%22)%7D";
    let [ours, library] = pair.ask("GET", path, &[], b"").await;
    assert_eq!((ours.status, ours.header("allow")), (405, "POST"));
    assert_eq!(library.body["data"], json!({ "say": "x" }));
    let path = "/graphql?query=query%20A%7Becho(text%3A%22a%22)%7D%20query%20B%7Bnumber(n%3A7)%7D&operationName=B";
    let [ours, library] = pair.ask("GET", path, &[], b"").await;
    assert_eq!(ours.body["data"], json!({ "number": 7 }));
    assert_eq!(library.body["data"], Value::Null, "{}", library.body);
}

/// A page of any origin can send such a form without a preflight.
#[tokio::test]
async fn the_library_takes_a_post_of_any_media_type() {
    let pair = Pair::start().await;
    let body = json!({ "query": "mutation { say(text: \"x\") }" }).to_string();
    for headers in [&[("content-type", "text/plain")][..], &[]] {
        let replies = pair.ask("POST", "/graphql", headers, body.as_bytes()).await;
        assert_eq!(statuses(&replies), [415, 200]);
        assert_eq!(replies[1].body["data"], json!({ "say": "x" }));
    }
}

#[tokio::test]
async fn the_library_bounds_neither_bodies_nor_batches() {
    let pair = Pair::start().await;
    // axum's own bound is 2 MiB, and the library reads past it.
    let padding = "#".repeat(3 << 20);
    let body = json!({ "query": "{ number(n: 1) }", "extensions": { "padding": padding } });
    let [ours, library] = pair.post(&body).await;
    assert_eq!(ours.status, 413, "{}", ours.body);
    assert_eq!(library.body["data"], json!({ "number": 1 }));
    let batch = vec![json!({ "query": "{ number(n: 1) }" }); 1_000];
    let [ours, library] = pair.post(&Value::from(batch)).await;
    assert_eq!(ours.status, 422, "{}", ours.body);
    assert_eq!(library.body.as_array().unwrap().len(), 1_000);
}

#[tokio::test]
async fn the_library_closes_sockets_with_codes_of_no_protocol() {
    let pair = Pair::start().await;
    let subscribe =
        json!({ "type": "subscribe", "id": "1", "payload": { "query": "{ number(n: 1) }" } });
    let forged = json!({ "type": "connection_init", "payload": { "Authorization": format!("Bearer {}", pair.ours.forged()) } });
    for (first, codes) in [
        (Message::text("not JSON"), [4400, 1002]),
        (Message::text(subscribe.to_string()), [4401, 1011]),
        (Message::text(forged.to_string()), [4403, 1002]),
    ] {
        for (mut socket, code) in pair.sockets().await.into_iter().zip(codes) {
            socket.send(first.clone()).await;
            assert_eq!(socket.closed().await.0, code, "{first:?}");
        }
    }
    // The library's reason for this close is longer than a control frame may be, so the client sees
    // a broken protocol.
    let [mut ours, mut library] = pair.sockets().await;
    for socket in [&mut ours, &mut library] {
        socket.say(&json!({ "type": "unknown" })).await;
    }
    assert_eq!(ours.closed().await.0, 4400);
    let broken = soon(library.0.next()).await;
    assert!(
        matches!(
            broken,
            Some(Err(tungstenite::Error::Protocol(
                ProtocolError::ControlFrameTooBig
            )))
        ),
        "{broken:?}"
    );
    // The id of a running operation: the protocol closes the socket. The library replaces the
    // stream without a word.
    let [mut ours, mut library] = pair.open().await;
    for socket in [&mut ours, &mut library] {
        socket.subscribe("1", "subscription { forever }").await;
        assert_eq!(
            socket.hear().await["payload"]["data"],
            json!({ "forever": 0 })
        );
        socket.subscribe("1", "subscription { count(to: 1) }").await;
    }
    assert_eq!(ours.closed().await.0, 4409);
    assert_eq!(
        library.hear().await["payload"]["data"],
        json!({ "count": 0 })
    );
    // A refused document: the protocol has `error` for it, the library sends `next` and `complete`.
    for (mut socket, kind) in pair.open().await.into_iter().zip(["error", "next"]) {
        socket.subscribe("1", "{ nothing }").await;
        assert_eq!(socket.hear().await["type"], kind);
    }
}

/// Our deadlines for both have tests of their own in `ws_bounds`.
#[tokio::test]
async fn the_library_waits_for_ever_for_connection_init_and_for_a_reader() {
    // A client that says nothing.
    assert!(waits_for_ever(sink::drain(), stream::pending()).await);

    // A client that takes nothing: the library stops reading, so it sees neither a `complete` nor
    // the end of the client.
    let stuck = sink::unfold((), |(), _: SocketMessage| {
        future::pending::<Result<(), axum::Error>>()
    });
    let init = json!({ "type": "connection_init" }).to_string();
    let ping = json!({ "type": "ping" }).to_string();
    let read = AtomicUsize::new(0);
    let messages = stream::iter([init])
        .chain(stream::repeat(ping).take(MESSAGES))
        .map(|text| {
            read.fetch_add(1, Ordering::Relaxed);
            SocketMessage::text(text)
        });
    assert!(waits_for_ever(stuck, messages).await);
    assert!(read.load(Ordering::Relaxed) < MESSAGES, "it reads on");
}

/// Whether the library waits for the client alone: it has set no timer, so nothing else can wake
/// it.
async fn waits_for_ever(
    sink: impl Sink<SocketMessage>,
    messages: impl Stream<Item = SocketMessage>,
) -> bool {
    let request = axum::http::Request::builder()
        .header("sec-websocket-protocol", "graphql-transport-ws")
        .body(())
        .unwrap();
    let mut parts = request.into_parts().0;
    let protocol = GraphQLProtocol::from_request_parts(&mut parts, &())
        .await
        .unwrap();
    let messages = pin!(messages.map(Ok::<_, axum::Error>));
    let executor = PreparedExecutor(api());
    let serving = GraphQLWebSocket::new_with_pair(sink, messages, executor, protocol).serve();
    let alarm = Arc::new(Alarm);
    let waker = Waker::from(Arc::clone(&alarm));
    let is_pending = pin!(serving)
        .poll(&mut Context::from_waker(&waker))
        .is_pending();
    drop(waker);
    is_pending && Arc::strong_count(&alarm) == 1
}

/// Waker whose owners are counted.
struct Alarm;

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {}
}
