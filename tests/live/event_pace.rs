//! Pace of subscriptions through a WebSocket: each execution of an event is paid, and waits where its user's bucket is empty.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wideroom::chat::Bounds;
use wideroom::server::{AdmissionBounds, ServerBounds};

use super::chat_server::ChatServer;
use crate::support::client::Socket;

/// Selects a field of the viewer, so that every subscriber executes it alone.
const OWN: &str = "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body conversation { directPeer { id } } } } } }";
/// Selects nothing of the viewer, so that equal subscribers share one execution.
const SHARED: &str =
    "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body } } } }";
const WAITS: &str = "wideroom_rate_waits_total{rate=\"queries\"}";

async fn server(per_second: u32, burst: u32) -> ChatServer {
    let rates = AdmissionBounds {
        queries_per_second: per_second,
        queries_burst: burst,
        ..AdmissionBounds::default()
    };
    let bounds = ServerBounds {
        rates,
        ..ServerBounds::default()
    };
    ChatServer::start(bounds, Bounds::default()).await
}

async fn subscribe(socket: &mut Socket, id: &str, document: &str, conversation: &str) {
    let payload = json!({ "query": document, "variables": { "c": conversation } });
    socket
        .say(&json!({ "type": "subscribe", "id": id, "payload": payload }))
        .await;
}

fn body(heard: &Value) -> &str {
    assert_eq!(heard["type"], "next", "{heard}");
    heard["payload"]["data"]["messageAdded"]["messageEdge"]["node"]["body"]
        .as_str()
        .unwrap_or_else(|| panic!("no body: {heard}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_an_empty_bucket_receives_every_event_later_and_in_order() {
    const PER_SECOND: u32 = 2;
    const EVENTS: u32 = 8;
    let server = server(PER_SECOND, 5).await;
    let carol = server.user("carol");
    let conversation = carol.group("friends", &["alice", "bob"]).await;
    let (mut alice, mut bob) = (server.socket("alice").await, server.socket("bob").await);
    for socket in [&mut alice, &mut bob] {
        subscribe(socket, "1", OWN, &conversation).await;
        // The server answers a ping after it has read the messages before it.
        socket.say(&json!({ "type": "ping" })).await;
        assert_eq!(socket.hear().await["type"], "pong");
    }
    // The opening of a subscription has paid for its first event.
    carol.send(&conversation, "first").await;
    assert_eq!(body(&alice.hear().await), "first");
    assert_eq!(body(&bob.hear().await), "first");

    let mut caller = server.caller("alice").await;
    while caller
        .ask("{ viewer { username } }", &json!({}))
        .await
        .unwrap()
        .status
        != 429
    {}
    let empty = Instant::now();
    let waits = server.metric(WAITS);
    let sent: Vec<_> = (0..EVENTS).map(|number| number.to_string()).collect();
    for text in &sent {
        carol.send(&conversation, text).await;
    }
    for text in &sent {
        assert_eq!(body(&alice.hear().await), text);
    }
    // Less than one token was left, so all but one event waited for a new token.
    let least = Duration::from_secs(1) * (EVENTS - 1) / PER_SECOND;
    assert!(empty.elapsed() >= least, "{:?}", empty.elapsed());
    assert!(server.metric(WAITS) > waits);
    // Bob's bucket is his own. It held the whole burst, and so he missed nothing either.
    for text in &sent {
        assert_eq!(body(&bob.hear().await), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_subscriptions_of_a_socket_pay_once_for_each_event() {
    const STREAMS: usize = 20;
    const EVENTS: usize = 10;
    // The openings take half of the bucket; the events may take the other half, and not twenty times as much.
    let server = server(1, 40).await;
    let bob = server.user("bob");
    let conversation = bob.direct("alice").await;
    let mut alice = server.socket("alice").await;
    for id in 0..STREAMS {
        subscribe(&mut alice, &id.to_string(), SHARED, &conversation).await;
    }
    alice.say(&json!({ "type": "ping" })).await;
    assert_eq!(alice.hear().await["type"], "pong");
    for number in 0..EVENTS {
        let text = number.to_string();
        bob.send(&conversation, &text).await;
        for _ in 0..STREAMS {
            assert_eq!(body(&alice.hear().await), text);
        }
    }
    assert_eq!(server.metric(WAITS), 0.0, "no execution waited for a token");
}
