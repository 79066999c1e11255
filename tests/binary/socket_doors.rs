//! Errors over a WebSocket: as an error of the operation, or as the code and reason of the close.

use futures_util::SinkExt as _;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::sample::{Sample, assert_speaks_plainly, assert_told, whole};
use crate::support::client::{Socket, soon, try_socket};

const BAD: &str = "BAD_USER_INPUT";
const GONE: &str = "NOT_FOUND";
const MUTE: &str = "UNAUTHENTICATED";

/// User (`nobody`: no token), document, code and sentence of each refusal. The variables are those of [`Sample`].
const REFUSED: &[(&str, &str, &str, &str)] = &[
    (
        "alice",
        "subscription messageAdded(conversationId: $nowhere) { messageEdge { cursor } }",
        GONE,
        "conversation was not found",
    ),
    (
        "alice",
        r#"subscription messageAdded(conversationId: "x") { messageEdge { cursor } }"#,
        GONE,
        "conversation was not found",
    ),
    (
        "alice",
        r#"subscription messageAdded(conversationId: "") { messageEdge { cursor } }"#,
        GONE,
        "conversation was not found",
    ),
    (
        "alice",
        "subscription messageAdded(conversationId: $message) { messageEdge { cursor } }",
        GONE,
        "conversation was",
    ),
    (
        "carol",
        "subscription messageAdded(conversationId: $direct) { messageEdge { cursor } }",
        GONE,
        "conversation was",
    ),
    (
        "carol",
        "subscription messageAdded(conversationId: $direct, after: $cursor) { messageEdge { cursor } }",
        GONE,
        "conversation was",
    ),
    (
        "alice",
        r#"subscription messageAdded(conversationId: $direct, after: "x") { messageEdge { cursor } }"#,
        BAD,
        "`after`",
    ),
    (
        "alice",
        "subscription messageAdded(conversationId: $direct, after: $otherCursor) { messageEdge { cursor } }",
        BAD,
        "`after`",
    ),
    (
        "alice",
        "subscription messageAdded(conversationId: $direct, after: $otherEvents) { messageEdge { cursor } }",
        BAD,
        "`after`",
    ),
    (
        "alice",
        "subscription messageAdded(conversationId: $direct, after: $updates) { messageEdge { cursor } }",
        BAD,
        "`after`",
    ),
    (
        "alice",
        "subscription messageAdded(conversationId: $direct, after: $huge) { messageEdge { cursor } }",
        BAD,
        "`after`",
    ),
    (
        "alice",
        r#"subscription inboxUpdated(after: "") { cursor }"#,
        BAD,
        "updatesCursor",
    ),
    (
        "alice",
        "subscription inboxUpdated(after: $cursor) { cursor }",
        BAD,
        "updatesCursor",
    ),
    (
        "alice",
        "subscription inboxUpdated(after: $entry) { cursor }",
        BAD,
        "updatesCursor",
    ),
    (
        "alice",
        "subscription inboxUpdated(after: $bobsUpdates) { cursor }",
        BAD,
        "updatesCursor",
    ),
    (
        "alice",
        "subscription inboxUpdated(after: $ancient) { cursor }",
        "CURSOR_EXPIRED",
        "read the list again",
    ),
    (
        "alice",
        "subscription messageAdded { messageEdge { cursor } }",
        BAD,
        "conversationId",
    ),
    (
        "alice",
        "subscription messageRemoved { cursor }",
        BAD,
        "messageRemoved",
    ),
    (
        "alice",
        "subscription inboxUpdated { cursors }",
        BAD,
        "cursors",
    ),
    ("alice", "subscription inboxUpdated", BAD, "inboxUpdated"),
    (
        "alice",
        r#"subscription inboxUpdated(before: "x") { cursor }"#,
        BAD,
        "before",
    ),
    (
        "alice",
        "subscription inboxUpdated { cursor } a: inboxUpdated { cursor }",
        BAD,
        "one",
    ),
    (
        "alice",
        "subscription($missing: ID!) { messageAdded(conversationId: $missing) { messageEdge { cursor } } }",
        BAD,
        "`$missing`",
    ),
    ("alice", "subscription {", BAD, "cannot be parsed"),
    ("alice", "{ viewer { age } }", BAD, "age"),
    (
        "alice",
        "mutation sendMessage(input: {conversationId: $direct, body: $long})",
        BAD,
        "16385 bytes",
    ),
    (
        "carol",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a"})"#,
        GONE,
        "conversation was",
    ),
    (
        "nobody",
        "subscription inboxUpdated { cursor }",
        MUTE,
        "a token is needed",
    ),
    (
        "nobody",
        "subscription messageAdded(conversationId: $direct) { messageEdge { cursor } }",
        MUTE,
        "a token is needed",
    ),
    ("nobody", "{ viewer { id } }", MUTE, "a token is needed"),
];

#[tokio::test]
async fn a_bad_operation_is_told_and_the_socket_goes_on() {
    let sample = Sample::serve().await;
    for asker in ["alice", "carol", "nobody"] {
        let mut socket = knock(&sample).await;
        let token = (asker != "nobody").then(|| sample.program.token(asker));
        socket.init(token.as_deref()).await;
        for (_, document, code, part) in REFUSED.iter().filter(|(user, ..)| *user == asker) {
            let document = whole(document);
            let payload = json!({ "query": document, "variables": sample.named });
            socket
                .say(&json!({ "type": "subscribe", "id": "1", "payload": payload }))
                .await;
            let heard = socket.hear().await;
            // Refused before it began, or by what it asked for.
            let errors = if heard["type"] == "error" {
                &heard["payload"]
            } else {
                &heard["payload"]["errors"]
            };
            assert_told(errors, code, part, &document);
            if heard["type"] == "next" {
                assert_eq!(
                    socket.hear().await,
                    json!({ "type": "complete", "id": "1" })
                );
            }
        }
    }
}

#[tokio::test]
async fn a_protocol_violation_closes_with_its_code_and_a_reason() {
    let sample = Sample::serve().await;
    let good = json!({ "Authorization": format!("Bearer {}", sample.program.token("alice")) });
    let init = json!({ "type": "connection_init", "payload": good }).to_string();
    let subscribe = r#"{"type":"subscribe","id":"1","payload":{"query":"subscription { inboxUpdated { cursor } }"}}"#;
    let with = |authorization: &str| {
        json!({ "type": "connection_init", "payload": { "Authorization": authorization } })
            .to_string()
    };
    let large = json!({ "type": "ping", "payload": { "x": "x".repeat(130 * 1024) } }).to_string();
    let rows: &[(&[&str], u16, &str)] = &[
        (&["hello"], 4400, "Invalid message"),
        (&["{"], 4400, "Invalid message"),
        (&["[]"], 4400, "JSON object"),
        (&["{}"], 4400, "type"),
        (&[r#"{"type":"hello"}"#], 4400, "`type`"),
        (
            &[&init, r#"{"type":"subscribe","id":"1"}"#],
            4400,
            "payload",
        ),
        (
            &[&init, r#"{"type":"subscribe","payload":{"query":"{a}"}}"#],
            4400,
            "`id`",
        ),
        (
            &[&init, r#"{"type":"subscribe","id":"1","payload":{}}"#],
            4400,
            "`query`",
        ),
        (
            &[
                &init,
                r#"{"type":"subscribe","id":"1","payload":{"query":7}}"#,
            ],
            4400,
            "GraphQL request",
        ),
        (&[&init, &large], 1009, "131072 bytes"),
        (&[subscribe], 4401, "connection_ack"),
        (&[&with("Bearer x")], 4403, "token"),
        (&[&with("alice")], 4403, "`Bearer` and a token"),
        (&[&with("")], 4403, "`Bearer` and a token"),
        (&[&init, subscribe, subscribe], 4409, "already exists"),
        (&[&init, &init], 4429, "Too many"),
    ];
    for (messages, code, part) in rows {
        let mut socket = knock(&sample).await;
        for message in *messages {
            soon(socket.0.send(Message::text(*message))).await.unwrap();
        }
        let (is, reason) = socket.closed().await;
        assert_eq!(is, *code, "{messages:?}: {reason}");
        assert!(reason.contains(part), "{messages:?}: {reason}");
        assert_speaks_plainly(&reason);
    }
}

async fn knock(sample: &Sample) -> Socket {
    Socket(
        try_socket(sample.address, Some("graphql-transport-ws"))
            .await
            .unwrap(),
    )
}
