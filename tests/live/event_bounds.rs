//! Byte bound of an event through Server-Sent Events: an error with its cursor takes the place of the event, and the stream goes on.

use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use wideroom::chat::Bounds;
use wideroom::server::ServerBounds;

use super::chat_server::ChatServer;
use crate::support::client::soon;

const ANSWER_BYTES: usize = 20_000;
const LARGE: &str = "subscription($c: ID!, $a: String) { messageAdded(conversationId: $c, after: $a) { messageEdge { node {
    conversation { messages(first: 10) { edges { node { body } } } } } } } }";
const SMALL: &str =
    "subscription($c: ID!, $a: String) { messageAdded(conversationId: $c, after: $a) {
    messageEdge { cursor node { body } } } }";

struct Events {
    response: Response<Incoming>,
    text: String,
}

impl Events {
    async fn open(server: &ChatServer, document: &str, variables: Value) -> Self {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let body = json!({ "query": document, "variables": variables }).to_string();
        let request = hyper::Request::post("/graphql")
            .header("host", "localhost")
            .header("accept", "text/event-stream")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", server.token("alice")))
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let mut events = Self {
            response: soon(sender.send_request(request)).await.unwrap(),
            text: String::new(),
        };
        assert_eq!(events.part().await, ":");
        events
    }

    /// Next part of the stream, up to its empty line.
    async fn part(&mut self) -> String {
        loop {
            if let Some((part, rest)) = self.text.split_once("\n\n") {
                let (part, rest) = (part.to_owned(), rest.to_owned());
                self.text = rest;
                return part;
            }
            let frame = soon(self.response.frame()).await.unwrap().unwrap();
            self.text
                .push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// Payload of the next event. Skips heartbeats.
    async fn next(&mut self) -> Value {
        loop {
            let part = self.part().await;
            if let Some(payload) = part.strip_prefix("event: next\ndata: ") {
                return serde_json::from_str(payload).unwrap();
            }
            assert_eq!(part, ":");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_over_the_bound_is_an_error_with_its_cursor_and_the_stream_goes_on() {
    let bounds = ServerBounds {
        answer_bytes: ANSWER_BYTES,
        ..ServerBounds::default()
    };
    let server = ChatServer::start(bounds, Bounds::default()).await;
    let bob = server.user("bob");
    let conversation = bob.direct("alice").await;
    for _ in 0..5 {
        bob.send(&conversation, &"x".repeat(5_000)).await;
    }
    let mut events = Events::open(&server, LARGE, json!({ "c": conversation })).await;
    let mut cursors = Vec::new();
    for text in ["one", "two"] {
        let sent = bob.send(&conversation, text).await;
        let payload = events.next().await;
        let error = &payload["errors"][0];
        assert_eq!(payload["data"], Value::Null, "{payload}");
        assert_eq!(error["extensions"]["code"], "BAD_USER_INPUT", "{payload}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(&ANSWER_BYTES.to_string()) && message.contains("smaller pages"),
            "{message}"
        );
        assert_eq!(error["extensions"]["cursor"], sent.cursor.as_str());
        cursors.push(sent.cursor);
    }
    // A client that resumes after the first cursor receives the second message, and not the first again.
    let variables = json!({ "c": conversation, "a": cursors[0] });
    let mut events = Events::open(&server, SMALL, variables).await;
    let payload = events.next().await;
    let edge = &payload["data"]["messageAdded"]["messageEdge"];
    assert_eq!(
        (&edge["node"]["body"], &edge["cursor"]),
        (&json!("two"), &json!(cursors[1])),
        "{payload}"
    );
}
