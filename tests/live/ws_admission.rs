//! A socket that has not shown a token: what it may send, how long it may stay, and that it makes room for others.

use std::time::Duration;

use futures_util::SinkExt as _;
use serde_json::json;
use tokio_tungstenite::tungstenite::{self, Message};
use wideroom::server::{AdmissionBounds, ServerBounds, SocketBounds};

use super::world::{World, soon};

const SHORT: Duration = Duration::from_millis(50);
const LIFE: Duration = Duration::from_secs(600);

async fn world(change: impl FnOnce(&mut SocketBounds)) -> World {
    let mut sockets = SocketBounds {
        close: Duration::from_secs(1),
        ..SocketBounds::default()
    };
    change(&mut sockets);
    World::with(ServerBounds {
        sockets,
        ..ServerBounds::default()
    })
    .await
}

#[tokio::test]
async fn a_socket_without_a_viewer_is_closed_4403() {
    let world = world(|bounds| bounds.init = SHORT).await;
    let mut socket = world.socket().await;
    socket.init(None).await;
    let (code, reason) = socket.closed().await;
    assert_eq!(
        (code, reason.contains("no token was shown")),
        (4403, true),
        "{reason}"
    );
}

#[tokio::test]
async fn a_socket_with_a_viewer_stays() {
    let world = world(|bounds| {
        (bounds.init, bounds.ping) = (Duration::from_secs(1), Duration::from_millis(1_200))
    })
    .await;
    let mut socket = world.socket().await;
    socket.init(Some(&world.token("alice", LIFE))).await;
    // The ping comes later than a socket without a viewer would be closed.
    socket.pinged().await;
}

#[tokio::test]
async fn the_token_of_the_handshake_counts_where_the_init_has_none() {
    let world = world(|_| {}).await;
    let [alice, bob] = ["alice", "bob"].map(|name| format!("Bearer {}", world.token(name, LIFE)));
    for path in ["/graphql", "/graphql/ws"] {
        for (payload, viewer) in [
            (json!({}), "alice"),
            (json!({ "headers": { "authorization": bob } }), "bob"),
            (json!({ "AUTHORIZATION": bob }), "bob"),
        ] {
            let mut socket = world
                .socket_at(path, &[("authorization", alice.as_str())])
                .await;
            let init = json!({ "type": "connection_init", "payload": payload });
            socket.say(&init).await;
            assert_eq!(socket.hear().await["type"], "connection_ack");
            socket.subscribe("1", "{ me }").await;
            assert_eq!(socket.hear().await["payload"]["data"]["me"], viewer);
        }
    }
    let mut forged = world
        .socket_at("/graphql", &[("authorization", "Bearer x")])
        .await;
    forged.say(&json!({ "type": "connection_init" })).await;
    assert_eq!(forged.closed().await.0, 4403);
}

#[tokio::test]
async fn before_the_init_little_is_read() {
    let world = world(|_| {}).await;
    let ping = |bytes: usize| json!({ "type": "ping", "payload": { "x": "x".repeat(bytes) } });
    let expected = "Until connection_init is accepted a socket takes at most 16384 bytes";
    // One message, one that is within every other bound, and many small ones.
    for messages in [
        vec![ping(17_000)],
        vec![ping(120_000)],
        vec![ping(3_000); 6],
    ] {
        let mut socket = world.socket().await;
        for message in &messages {
            // The server may have closed already.
            let _ = soon(socket.0.send(Message::text(message.to_string()))).await;
        }
        assert_eq!(socket.closed().await, (1009, expected.to_owned()));
    }
    let mut socket = world.socket().await;
    socket.say(&ping(15_000)).await;
    assert_eq!(socket.hear().await["type"], "pong");
    socket.init(Some(&world.token("alice", LIFE))).await;
    socket.say(&ping(100_000)).await;
    assert_eq!(
        socket.hear().await["payload"]["x"].as_str().unwrap().len(),
        100_000
    );
}

#[tokio::test]
async fn where_sockets_are_short_the_oldest_without_a_viewer_makes_room() {
    let world = world(|bounds| bounds.total = 2).await;
    let mut silent = world.socket().await;
    let mut viewer = world.socket().await;
    viewer.init(Some(&world.token("alice", LIFE))).await;
    let (mut unnamed, evicted) = tokio::join!(world.socket(), silent.closed());
    assert_eq!(evicted.0, 1013, "{}", evicted.1);
    unnamed.init(None).await;
    let (mut other, evicted) = tokio::join!(world.socket(), unnamed.closed());
    assert_eq!(evicted.0, 1013, "{}", evicted.1);
    other.init(Some(&world.token("bob", LIFE))).await;
    // Viewers make room for nobody.
    match world.try_socket(Some("graphql-transport-ws")).await {
        Err(tungstenite::Error::Http(response)) => assert_eq!(response.status(), 503),
        other => panic!("{other:?}"),
    }
    viewer.subscribe("1", "{ me }").await;
    assert_eq!(viewer.hear().await["payload"]["data"]["me"], "alice");
}

fn from(net: usize) -> String {
    format!("2001:db8:1:{net:x}::1")
}

#[tokio::test]
async fn networks_of_ipv6_are_bounded_too() {
    let rates = AdmissionBounds {
        address_sockets: 1,
        address_per_second: 1,
        address_burst: 3,
        ..AdmissionBounds::default()
    };
    let world = World::with(ServerBounds {
        rates,
        proxies: "127.0.0.0/8".parse().unwrap(),
        ..ServerBounds::default()
    })
    .await;
    let mut held = Vec::new();
    for net in 0..4 {
        held.push(
            world
                .socket_with(&[("x-forwarded-for", &from(net))])
                .await
                .unwrap(),
        );
    }
    let refusal = world
        .socket_with(&[("x-forwarded-for", &from(4))])
        .await
        .err()
        .unwrap();
    assert_eq!(
        (refusal.status, &refusal.error["code"]),
        (429, &json!("RATE_LIMITED")),
        "the fifth /64 of a /56"
    );
    held.push(
        world
            .socket_with(&[("x-forwarded-for", &from(0x100))])
            .await
            .unwrap(),
    );
    // The rate of the /56 is four times that of a /64: 12 at once, and four more a second.
    let ask = async |net: usize| {
        world
            .http(
                "GET",
                "/graphql?query=%7Bnumber(n:1)%7D",
                &[("x-forwarded-for", &from(net))],
                b"",
            )
            .await
            .status
    };
    let mut answered = 0;
    for net in 0x200..0x280 {
        answered += usize::from(ask(net).await == 200);
    }
    assert!((12..100).contains(&answered), "{answered}");
}
