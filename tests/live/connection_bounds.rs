//! Bounds of a connection before a request: bytes and time of a head, and its permit, which an idle one loses to a newcomer.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wideroom::server::{HeadBounds, ServerBounds};

use super::world::{World, soon};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(600);
const REQUEST: &str = "GET /graphql?query=%7Bnumber(n:1)%7D HTTP/1.1\r\nhost: x\r\n\r\n";

async fn world(change: impl FnOnce(&mut ServerBounds)) -> World {
    let mut bounds = ServerBounds::default();
    change(&mut bounds);
    World::with(bounds).await
}

/// The first bytes of an answer, up to its status. Empty where the connection was closed.
async fn status(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 12];
    match soon(stream.read_exact(&mut bytes)).await {
        Ok(_) => String::from_utf8_lossy(&bytes[9..]).into_owned(),
        Err(_) => String::new(),
    }
}

async fn ask(world: &World, request: &str) -> (TcpStream, String) {
    let mut stream = world.tcp().await;
    // The server may close while this is still written.
    let _ = soon(stream.write_all(request.as_bytes())).await;
    let status = status(&mut stream).await;
    (stream, status)
}

fn with_header(bytes: usize) -> String {
    REQUEST.replace(
        "host: x",
        &format!("host: x\r\nx-filler: {}", "a".repeat(bytes)),
    )
}

fn with_headers(count: usize) -> String {
    let headers: String = (1..count)
        .map(|number| format!("\r\nx-{number}: a"))
        .collect();
    REQUEST.replace("host: x", &format!("host: x{headers}"))
}

#[tokio::test]
async fn a_head_has_so_many_bytes_and_headers_and_more_are_431() {
    let world = World::start().await;
    for (request, expected) in [
        (with_header(47 * 1024), "200"),
        (with_header(48 * 1024), "431"),
        (with_header(400_000), "431"),
        (with_headers(64), "200"),
        (with_headers(65), "431"),
    ] {
        assert_eq!(
            ask(&world, &request).await.1,
            expected,
            "{} bytes",
            request.len()
        );
    }
    // Half a head is refused as soon as it is too large.
    let half = with_header(400_000);
    assert_eq!(ask(&world, &half[..half.len() - 4]).await.1, "431");
}

#[tokio::test]
async fn a_head_that_has_begun_ends_in_time_and_an_idle_connection_stays() {
    let world = world(|bounds| {
        bounds.head = HeadBounds {
            wait: SHORT,
            idle: LONG,
            ..HeadBounds::default()
        }
    })
    .await;
    let mut silent = world.tcp().await;
    let (mut kept, first) = ask(&world, REQUEST).await;
    assert_eq!(first, "200");
    let (mut pipelined, first) = ask(&world, &format!("{REQUEST}GET /graphql?query=%7Bnu")).await;
    assert_eq!(first, "200");
    let (_, closed) = ask(&world, "GET /gra").await;
    assert_eq!(closed, "", "a head that does not end");
    // The second head of a connection has a deadline too, also where it came with the first.
    kept.write_all(b"GET /gra").await.unwrap();
    let mut rest = Vec::new();
    soon(kept.read_to_end(&mut rest)).await.unwrap();
    let _ = pipelined.write_all(b"mber").await;
    let _ = soon(pipelined.read_to_end(&mut rest)).await;
    // It was silent for longer than a head may take.
    silent.write_all(REQUEST.as_bytes()).await.unwrap();
    assert_eq!(status(&mut silent).await, "200");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_time() {
    let world = world(|bounds| bounds.head.idle = SHORT).await;
    let mut silent = world.tcp().await;
    assert_eq!(soon(silent.read(&mut [0])).await.unwrap(), 0);
    let (mut kept, first) = ask(&world, REQUEST).await;
    assert_eq!(first, "200");
    soon(kept.read_to_end(&mut Vec::new())).await.unwrap();
}

#[tokio::test]
async fn where_connections_are_short_the_idlest_makes_room() {
    let world = world(|bounds| (bounds.connections, bounds.head.wait) = (3, LONG)).await;
    let mut silent = world.tcp().await;
    // Each is known to be accepted before the next one comes: it is answered, or what it sent is not.
    let (mut first, status_of_first) = ask(&world, REQUEST).await;
    let (mut second, status_of_second) = ask(&world, REQUEST).await;
    assert_eq!(
        (status_of_first.as_str(), status_of_second.as_str()),
        ("200", "200")
    );
    first.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"HTTP/1.1 200") {
        answer.push(soon(first.read_u8()).await.unwrap());
    }
    let (_newcomer, status_of_newcomer) = ask(&world, REQUEST).await;
    assert_eq!(status_of_newcomer, "200");
    assert_eq!(
        soon(silent.read(&mut [0])).await.unwrap(),
        0,
        "it never said anything, and is closed"
    );
    let (_other, status_of_other) = ask(&world, REQUEST).await;
    assert_eq!(status_of_other, "200");
    soon(second.read_to_end(&mut Vec::new())).await.unwrap();
    // The first had asked last. Half a head keeps nobody's permit.
    soon(first.write_all(b"GET /gra")).await.unwrap();
    let mut newcomers = Vec::new();
    for _ in 0..3 {
        let (newcomer, status) = ask(&world, REQUEST).await;
        assert_eq!(status, "200");
        newcomers.push(newcomer);
    }
    let _ = soon(first.read_to_end(&mut Vec::new())).await;
}

#[tokio::test]
async fn a_request_under_way_is_never_evicted() {
    let world = world(|bounds| bounds.connections = 1).await;
    let slow = json!({ "query": "mutation { slow(ms: 300) }" });
    let newcomer = async {
        world.alive(1).await;
        ask(&world, REQUEST).await.1
    };
    let (reply, newcomer) = tokio::join!(world.post(&slow), newcomer);
    assert_eq!(reply.body, json!({ "data": { "slow": true } }));
    assert_eq!(newcomer, "200");
    // Nor is a stream, which lasts.
    let headers = [
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
    ];
    let stream = world
        .ask(
            "POST",
            "/graphql",
            &headers,
            json!({ "query": "subscription { forever }" })
                .to_string()
                .as_bytes(),
        )
        .await;
    assert_eq!(stream.status(), 200);
    world.alive(1).await;
    let mut newcomer = world.tcp().await;
    newcomer.write_all(REQUEST.as_bytes()).await.unwrap();
    let early = tokio::time::timeout(4 * SHORT, newcomer.read(&mut [0])).await;
    assert!(early.is_err(), "{early:?}");
    drop(stream);
    assert_eq!(status(&mut newcomer).await, "200");
}

/// A few addresses hold every connection there is and say nothing.
#[tokio::test]
async fn silent_connections_lock_nobody_out() {
    let world = world(|bounds| bounds.connections = 100).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(world.tcp().await);
    }
    for _ in 0..10 {
        assert_eq!(ask(&world, REQUEST).await.1, "200");
    }
}
