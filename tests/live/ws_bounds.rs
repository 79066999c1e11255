//! Bounds of a WebSocket: the end of a connection that exceeds each.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt as _};
use hyper::body::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{self, Message};
use wideroom::server::{AdmissionBounds, ServerBounds, SocketBounds};

use super::world::{Socket, World, soon};

async fn world(change: impl FnOnce(&mut SocketBounds)) -> World {
    let mut sockets = SocketBounds {
        close: Duration::from_millis(100),
        ..SocketBounds::default()
    };
    change(&mut sockets);
    let rates = AdmissionBounds {
        user_answer_bytes: usize::MAX,
        ..AdmissionBounds::default()
    };
    World::with(ServerBounds {
        sockets,
        rates,
        answer_bytes: usize::MAX,
        ..ServerBounds::default()
    })
    .await
}

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_client_without_connection_init_is_closed_4408() {
    let world = world(|bounds| bounds.init = SHORT).await;
    let mut socket = world.socket().await;
    assert_eq!(
        socket.closed().await,
        (4408, "Connection initialisation timeout".to_owned())
    );
}

#[tokio::test]
async fn an_idle_client_is_pinged_and_stays_while_it_answers() {
    let world = world(|bounds| {
        (bounds.init, bounds.ping, bounds.pong) =
            (Duration::from_secs(20), SHORT, Duration::from_secs(20))
    })
    .await;
    let mut socket = world.open().await;
    for _ in 0..3 {
        socket.pinged().await;
    }
    // Clients of another mind answer a frame with a message.
    socket.say(&json!({ "type": "pong" })).await;
    socket.pinged().await;
}

#[tokio::test]
async fn a_client_that_does_not_answer_a_ping_is_closed_4408() {
    let world = world(|bounds| (bounds.ping, bounds.pong) = (SHORT, SHORT)).await;
    // Below the library, which would answer.
    let head = "GET /graphql/ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: graphql-transport-ws\r\n\r\n";
    let init = r#"{"type":"connection_init"}"#;
    let frame = [
        &[0x81, 0x80 | init.len() as u8, 0, 0, 0, 0],
        init.as_bytes(),
    ]
    .concat();
    let mut tcp = world.tcp().await;
    tcp.write_all(&[head.as_bytes(), &frame].concat())
        .await
        .unwrap();
    let mut bytes = Vec::new();
    soon(tcp.read_to_end(&mut bytes)).await.unwrap();
    let reason = "Pong timeout";
    let close = [
        &[0x88, 2 + reason.len() as u8],
        &4408_u16.to_be_bytes()[..],
        reason.as_bytes(),
    ]
    .concat();
    assert!(
        bytes.ends_with(&[&[0x89, 0], &close[..]].concat()),
        "a ping, then the close"
    );
}

/// A message in fragments, so many of them after the first, and each with a ping behind it.
async fn fragments(socket: &mut Socket, count: usize) -> Result<(), tungstenite::Error> {
    let fragment = |opcode, text: &'static str| {
        Message::Frame(Frame::message(text, OpCode::Data(opcode), false))
    };
    socket.0.feed(fragment(Data::Text, "{")).await?;
    for _ in 0..count {
        socket.0.feed(fragment(Data::Continue, "")).await?;
        socket.0.feed(Message::Ping(Bytes::new())).await?;
    }
    socket.0.flush().await
}

#[tokio::test]
async fn a_message_of_endless_fragments_is_cut_by_its_bytes() {
    let world = world(|bounds| {
        (bounds.message_bytes, bounds.rate_burst) = (1_000, 10_000);
    })
    .await;
    let mut socket = world.open().await;
    // A few fragments are a message as any other.
    fragments(&mut socket, 20).await.unwrap();
    let end = Frame::message("\"type\":\"ping\"}", OpCode::Data(Data::Continue), true);
    socket.send(Message::Frame(end)).await;
    while !matches!(soon(socket.0.next()).await, Some(Ok(Message::Text(text))) if text.contains("pong"))
    {
    }
    // The server may have closed before the last.
    let _ = fragments(&mut socket, 1_000).await;
    let closed = socket.closed().await;
    assert_eq!(
        closed,
        (1009, "A message has at most 1000 bytes".to_owned())
    );
}

#[tokio::test]
async fn a_message_that_does_not_end_is_cut_by_its_time() {
    let world = World::with(ServerBounds {
        request: SHORT,
        ..ServerBounds::default()
    })
    .await;
    let mut socket = world.open().await;
    fragments(&mut socket, 1).await.unwrap();
    let (code, reason) = socket.closed().await;
    assert_eq!(
        (code, reason.contains("Message timeout")),
        (4408, true),
        "{reason}"
    );
}

#[tokio::test]
async fn operations_over_the_bound_are_refused_one_by_one() {
    let world = world(|bounds| bounds.operations = 2).await;
    let mut socket = world.open().await;
    for id in ["1", "2"] {
        socket.subscribe(id, "subscription { forever }").await;
        assert_eq!(socket.hear().await["type"], "next");
    }
    socket.subscribe("3", "{ number(n: 1) }").await;
    let heard = socket.hear().await;
    assert_eq!(
        (&heard["type"], &heard["payload"][0]["extensions"]["code"]),
        (&json!("error"), &json!("RATE_LIMITED"))
    );
    socket.say(&json!({ "type": "complete", "id": "1" })).await;
    world.alive(1).await;
    socket.subscribe("3", "{ number(n: 1) }").await;
    assert_eq!(socket.hear().await["type"], "next");
}

#[tokio::test]
async fn a_bound_of_one_operation_leaves_room_for_one_after_the_other() {
    let world = world(|bounds| bounds.operations = 1).await;
    let mut socket = world.open().await;
    for number in 0..5 {
        socket
            .subscribe(&number.to_string(), "{ number(n: 1) }")
            .await;
        assert_eq!(socket.hear().await["type"], "next");
        assert_eq!(socket.hear().await["type"], "complete");
    }
}

#[tokio::test]
async fn a_client_above_the_rate_is_read_more_slowly() {
    let world = world(|bounds| (bounds.rate_per_second, bounds.rate_burst) = (100, 5)).await;
    let mut socket = world.open().await;
    let start = Instant::now();
    for number in 0..25 {
        socket
            .subscribe(&number.to_string(), "{ number(n: 1) }")
            .await;
    }
    for _ in 0..50 {
        socket.hear().await;
    }
    // Four were left of the burst; the others came at a hundred a second.
    assert!(
        start.elapsed() >= Duration::from_millis(200),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_client_that_stays_above_the_rate_is_closed_4429() {
    let world = world(|bounds| bounds.rate_patience = SHORT).await;
    let mut socket = world.open().await;
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(Ok(Message::text(json!({ "type": "pong" }).to_string())));
    }
    soon(socket.0.send_all(&mut futures_util::stream::iter(flood)))
        .await
        .unwrap();
    assert_eq!(
        socket.closed().await,
        (
            4429,
            "Too many messages: send at most 20 a second".to_owned()
        )
    );
}

#[tokio::test]
async fn a_slow_consumer_is_closed_4290() {
    let world = world(|bounds| bounds.write = 20 * SHORT).await;
    let mut socket = world.open().await;
    socket.subscribe("1", "subscription { forever }").await;
    world.alive(1).await;
    socket
        .subscribe("2", "subscription { flood(bytes: 100000) }")
        .await;
    // It reads nothing until the server has given it up; then it finds what was under way, and why.
    world.alive(0).await;
    assert_eq!(
        socket.closed().await,
        (
            4290,
            "Slow consumer: resume from your last cursor".to_owned()
        )
    );
}

#[tokio::test]
async fn a_slow_reader_of_a_long_replay_gets_all_of_it() {
    let world = world(|bounds| (bounds.queue_messages, bounds.queue_bytes) = (8, 1_000)).await;
    let mut socket = world.open().await;
    socket
        .subscribe("1", "subscription { count(to: 5000) }")
        .await;
    for expected in 0..5000 {
        assert_eq!(socket.hear().await["payload"]["data"]["count"], expected);
    }
}

#[tokio::test]
async fn a_slow_reader_of_large_answers_gets_them_all() {
    let world = world(|bounds| bounds.queue_bytes = 100_000).await;
    let mut socket = world.open().await;
    for number in 0..30 {
        socket
            .subscribe(&number.to_string(), "{ large(bytes: 500000) }")
            .await;
    }
    let mut answers = 0;
    while answers < 30 {
        answers += usize::from(socket.hear().await["type"] == "next");
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off() {
    let world = world(|bounds| {
        (bounds.write, bounds.queue_messages, bounds.queue_bytes) = (SHORT, usize::MAX, usize::MAX)
    })
    .await;
    let mut socket = world.open().await;
    socket.subscribe("1", "subscription { forever }").await;
    world.alive(1).await;
    socket.subscribe("2", "{ large(bytes: 50000000) }").await;
    world.alive(0).await;
    socket.gone().await;
}

#[tokio::test]
async fn there_are_only_so_many_sockets() {
    let world = world(|bounds| bounds.total = 1).await;
    let first = world.open().await;
    match world.try_socket(Some("graphql-transport-ws")).await {
        Err(tungstenite::Error::Http(response)) => assert_eq!(response.status(), 503),
        other => panic!("{other:?}"),
    }
    drop(first);
    let freed = async {
        while world.server.open_sockets() > 0 {
            tokio::task::yield_now().await;
        }
    };
    soon(freed).await;
    world.open().await;
}
