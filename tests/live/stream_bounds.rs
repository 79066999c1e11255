//! How long a stream over HTTP lives, and what it may cost.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wideroom::server::{ServerBounds, SocketBounds, StreamBounds};

use super::streams::{EVENTS, PARTS, Reading, part};
use super::world::{SHORT_LIFE, World, soon};

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_silent_stream_has_heartbeats() {
    let streams = StreamBounds {
        heartbeat: SHORT,
        ..StreamBounds::default()
    };
    let world = World::with(ServerBounds {
        streams,
        ..ServerBounds::default()
    })
    .await;
    let mut events = Reading::of(&world, EVENTS, "subscription { forever }").await;
    events
        .until("data: {\"data\":{\"forever\":0}}\n\n:\n\n:\n\n")
        .await;
    let mut parts = Reading::of(&world, PARTS, "subscription { forever }").await;
    let heartbeats = part("{}").repeat(2);
    parts.until(&format!("}}}}\r\n--graphql{heartbeats}")).await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_its_subscription_does_not() {
    let world = World::start().await;
    let authorization = format!("Bearer {}", world.token("alice", SHORT_LIFE));
    let said = async |accept| {
        let reading = Reading::with(
            &world,
            &[("accept", accept), ("authorization", &authorization)],
            "subscription { forever }",
        )
        .await;
        reading.whole().await
    };
    let (events, parts) = tokio::join!(said(EVENTS), said(PARTS));
    // No `complete`, which would tell the client not to come back.
    assert!(
        events.ends_with("data: {\"data\":{\"forever\":0}}\n\n"),
        "{events}"
    );
    assert!(parts.contains("{\"payload\":null,\"errors\":["), "{parts}");
    assert!(
        parts.ends_with("{\"code\":\"UNAUTHENTICATED\"}}]}\r\n--graphql--\r\n"),
        "{parts}"
    );
    world.alive(0).await;
}

#[tokio::test]
async fn a_server_that_stops_ends_its_streams_and_not_their_subscriptions() {
    let world = World::start().await;
    let mut events = Reading::of(&world, EVENTS, "subscription { forever }").await;
    let mut parts = Reading::of(&world, PARTS, "subscription { forever }").await;
    events.until("}\n\n").await;
    parts.until("}\r\n--graphql").await;
    world.stop();
    let (events, parts) = (events.whole().await, parts.whole().await);
    assert!(
        events.ends_with("data: {\"data\":{\"forever\":0}}\n\n"),
        "{events}"
    );
    assert!(
        parts.contains("{\"payload\":null,\"errors\":[")
            && parts.ends_with("{\"code\":\"UNAVAILABLE\"}}]}\r\n--graphql--\r\n"),
        "{parts}"
    );
    world.alive(0).await;
    world.stopped().await;
}

#[tokio::test]
async fn a_disconnected_client_ends_its_stream() {
    let world = World::start().await;
    for accept in [EVENTS, PARTS] {
        let mut reading = Reading::of(&world, accept, "subscription { forever }").await;
        reading
            .until(if accept == EVENTS {
                "}\n\n"
            } else {
                "}\r\n--graphql"
            })
            .await;
        world.alive(1).await;
        drop(reading);
        // Long before there is a heartbeat.
        world.alive(0).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_stream_is_cut_off() {
    let sockets = SocketBounds {
        write: SHORT,
        ..SocketBounds::default()
    };
    let world = World::with(ServerBounds {
        sockets,
        ..ServerBounds::default()
    })
    .await;
    for accept in [EVENTS, PARTS] {
        let mut stream = world.tcp().await;
        let request = format!(
            "GET /graphql?query=subscription%7Bflood(bytes:100000)%7D HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nauthorization: Bearer {}\r\n\r\n",
            world.token("alice", Duration::from_secs(60))
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        // It has begun to flow, and from here on nothing is read.
        let mut start = vec![0; 50_000];
        soon(stream.read_exact(&mut start)).await.unwrap();
        assert!(start.starts_with(b"HTTP/1.1 200") && start.ends_with(b"xxx"));
        world.alive(0).await;
    }
}

#[tokio::test]
async fn there_are_only_so_many_streams_and_queries_need_no_place() {
    let world = World::with(ServerBounds {
        streams: StreamBounds {
            total: 1,
            ..StreamBounds::default()
        },
        ..ServerBounds::default()
    })
    .await;
    let mut first = Reading::of(&world, EVENTS, "subscription { forever }").await;
    first.until("}\n\n").await;
    let refused = Reading::of(&world, EVENTS, "subscription { forever }").await;
    assert_eq!(refused.status(), 503);
    assert!(refused.whole().await.contains("too many open streams"));
    assert_eq!(
        Reading::of(&world, EVENTS, "{ number(n: 1) }")
            .await
            .status(),
        200
    );
    drop(first);
    let freed = async {
        while Reading::of(&world, EVENTS, "subscription { count(to: 1) }")
            .await
            .status()
            != 200
        {
            tokio::task::yield_now().await;
        }
    };
    soon(freed).await;
}
