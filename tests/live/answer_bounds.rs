//! Bounds of answers, through the server: the bytes of one, the number and bytes of those under way, and the pace of their reader.

use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use wideroom::server::{AdmissionBounds, PaceBounds, ServerBounds, SocketBounds};

use super::streams::{EVENTS, Reading};
use super::world::{World, soon};
use crate::support::client::Reply;

const LIFE: Duration = Duration::from_secs(600);
/// More than the buffers of a connection hold between a server and a client that does not read.
const UNREAD: usize = 30_000_000;

/// Answers of any size, and so much of them under way.
async fn world(fit: impl FnOnce(&mut ServerBounds)) -> World {
    let rates = AdmissionBounds {
        user_answer_bytes: UNREAD + 1_000_000,
        ..AdmissionBounds::default()
    };
    let mut bounds = ServerBounds {
        answer_bytes: usize::MAX,
        rates,
        ..ServerBounds::default()
    };
    fit(&mut bounds);
    World::with(bounds).await
}

async fn ask(world: &World, name: &str, query: &str) -> Reply {
    let authorization = format!("Bearer {}", world.token(name, LIFE));
    let headers = [
        ("content-type", "application/json"),
        ("authorization", authorization.as_str()),
    ];
    world
        .http(
            "POST",
            "/graphql",
            &headers,
            json!({ "query": query }).to_string().as_bytes(),
        )
        .await
}

/// Asks, and reads the head of the answer alone.
async fn unread(world: &World, name: &str, query: &str) -> TcpStream {
    let mut stream = world.tcp().await;
    let body = json!({ "query": query }).to_string();
    let head = format!(
        "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        world.token(name, LIFE),
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut start = [0; 15];
    soon(stream.read_exact(&mut start)).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    stream
}

/// Asks until it is not refused any more, as what was in the way has gone.
async fn until_let_in(world: &World, name: &str, query: &str) {
    let let_in = async { while ask(world, name, query).await.status == 429 {} };
    soon(let_in).await;
}

fn assert_too_large(error: &Value, bytes: usize) {
    assert_eq!(error["extensions"]["code"], "BAD_USER_INPUT", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains(&bytes.to_string()) && message.contains("smaller pages"),
        "{message}"
    );
}

#[tokio::test]
async fn an_answer_has_a_bound_whichever_door_it_takes() {
    let world = World::with(ServerBounds {
        answer_bytes: 10_000,
        ..ServerBounds::default()
    })
    .await;
    assert_eq!(
        ask(&world, "alice", "{ large(bytes: 9000) }").await.status,
        200
    );
    // A quote is two bytes of JSON.
    let quotes = format!("{{ echo(text: \"{}\") }}", "\\\"".repeat(5_001));
    for query in ["{ large(bytes: 10000) }", quotes.as_str()] {
        let reply = ask(&world, "alice", query).await;
        assert_eq!(reply.status, 422);
        assert!(reply.body.get("data").is_none());
        assert_too_large(&reply.body["errors"][0], 10_000);
        let events = Reading::of(&world, EVENTS, query).await.whole().await;
        assert!(
            events.contains("BAD_USER_INPUT") && events.ends_with("event: complete\ndata:\n\n"),
            "{events}"
        );
        let mut socket = world.open().await;
        socket.subscribe("1", query).await;
        let heard = socket.hear().await;
        assert_eq!(heard["type"], "error");
        assert_too_large(&heard["payload"][0], 10_000);
    }
}

#[tokio::test]
async fn a_mutation_whose_answer_is_too_large_does_not_say_that_it_was_not_done() {
    let world = World::with(ServerBounds {
        answer_bytes: 1_000,
        ..ServerBounds::default()
    })
    .await;
    let mutation = format!("mutation {{ say(text: \"{}\") }}", "x".repeat(1_000));
    let reply = ask(&world, "alice", &mutation).await;
    assert_eq!(
        (reply.status, reply.outcome()),
        (422, "UNKNOWN"),
        "{}",
        reply.body
    );
    assert_too_large(&reply.body["errors"][0], 1_000);
}

#[tokio::test]
async fn an_event_that_is_too_large_is_left_out_with_an_error_and_the_stream_goes_on() {
    let world = World::with(ServerBounds {
        answer_bytes: 1_000,
        ..ServerBounds::default()
    })
    .await;
    let mut socket = world.open().await;
    socket
        .subscribe("1", "subscription { flood(bytes: 1000) }")
        .await;
    for _ in 0..3 {
        let heard = socket.hear().await;
        assert_eq!(
            (&heard["type"], &heard["payload"]["data"]),
            (&json!("next"), &Value::Null),
            "{heard}"
        );
        assert_too_large(&heard["payload"]["errors"][0], 1_000);
    }
}

#[tokio::test]
async fn the_answers_of_a_batch_share_the_bound_of_one() {
    let world = World::with(ServerBounds {
        answer_bytes: 10_000,
        batch: 5,
        ..ServerBounds::default()
    })
    .await;
    let queries = [
        "{ large(bytes: 6000) }",
        "{ large(bytes: 6000) }",
        "{ number(n: 7) }",
    ];
    let reply = world
        .post(&queries.map(|query| json!({ "query": query })).into())
        .await;
    assert_eq!(
        reply.body[0]["data"]["large"].as_str().unwrap().len(),
        6_000
    );
    assert!(reply.body[1].get("data").is_none());
    assert_too_large(&reply.body[1]["errors"][0], 10_000);
    assert_eq!(reply.body[2], json!({ "data": { "number": 7 } }));
}

#[tokio::test]
async fn a_large_answer_comes_in_pieces_and_says_its_length() {
    let world = World::start().await;
    let body = json!({ "query": "{ large(bytes: 300000) }" }).to_string();
    let response = world
        .ask(
            "POST",
            "/graphql",
            &[("content-type", "application/json")],
            body.as_bytes(),
        )
        .await;
    assert_eq!(response.headers()["content-length"], "300021");
    let text = soon(response.collect()).await.unwrap().to_bytes();
    assert_eq!(
        text,
        format!("{{\"data\":{{\"large\":\"{}\"}}}}", "x".repeat(300_000))
    );
}

#[tokio::test]
async fn a_user_has_so_many_answers_under_way_and_no_more() {
    let world = world(|bounds| bounds.rates.user_answers = 2).await;
    let answer = format!("{{ large(bytes: {UNREAD}) }}");
    let first = unread(&world, "alice", &answer).await;
    let mut socket = world.socket().await;
    socket.init(Some(&world.token("alice", LIFE))).await;
    socket.subscribe("1", "{ wait }").await;
    // A ping is answered when what came before it was read.
    socket.say(&json!({ "type": "ping" })).await;
    assert_eq!(socket.hear().await["type"], "pong");
    let refused = ask(&world, "alice", "mutation { say(text: \"a\") }").await;
    assert_eq!(
        (refused.status, refused.code()),
        (429, "RATE_LIMITED"),
        "{}",
        refused.body
    );
    assert!(
        refused.header("retry-after").parse::<u64>().unwrap() > 0
            && refused.message().contains("at most 2 answers")
    );
    socket.subscribe("2", "{ number(n: 1) }").await;
    let heard = socket.hear().await;
    assert_eq!(
        (&heard["type"], &heard["payload"][0]["extensions"]["code"]),
        (&json!("error"), &json!("RATE_LIMITED"))
    );
    assert_eq!(
        ask(&world, "bob", "{ me }").await.status,
        200,
        "each user has an account of their own"
    );
    socket.say(&json!({ "type": "complete", "id": "1" })).await;
    until_let_in(&world, "alice", "{ me }").await;
    drop(first);
    let both = async {
        tokio::join!(
            ask(&world, "alice", "{ me }"),
            ask(&world, "alice", "{ me }")
        )
    };
    let (one, other) = both.await;
    assert!(one.status == 200 || other.status == 200);
}

#[tokio::test]
async fn without_a_token_the_address_has_the_account() {
    let world = world(|bounds| bounds.rates.user_answers = 1).await;
    let mut socket = world.socket().await;
    socket.init(None).await;
    socket.subscribe("1", "{ wait }").await;
    socket.say(&json!({ "type": "ping" })).await;
    assert_eq!(socket.hear().await["type"], "pong");
    assert_eq!(world.get("query=%7Bnumber(n:1)%7D").await.status, 429);
    assert_eq!(ask(&world, "alice", "{ me }").await.status, 200);
}

#[tokio::test]
async fn a_user_has_so_many_bytes_under_way_and_no_more() {
    let world = world(|_| {}).await;
    let answer = format!("{{ large(bytes: {UNREAD}) }}");
    let first = unread(&world, "alice", &answer).await;
    let refused = ask(&world, "alice", &answer).await;
    assert_eq!(
        (refused.status, refused.code()),
        (429, "RATE_LIMITED"),
        "{}",
        refused.message()
    );
    assert!(
        refused.body.get("data").is_none() && refused.message().contains("31000000 bytes"),
        "{}",
        refused.message()
    );
    assert!(
        refused.body["errors"][0]["extensions"]["retryAfterMs"]
            .as_u64()
            .unwrap()
            > 0
    );
    let mutation = format!("mutation {{ say(text: \"{}\") }}", "x".repeat(10_000));
    assert_eq!(
        ask(&world, "alice", &mutation).await.status,
        200,
        "a small one has room"
    );
    drop(first);
    until_let_in(&world, "alice", &answer).await;
}

#[tokio::test]
async fn unread_bytes_of_a_socket_count_towards_the_bound() {
    // No more than a client takes in one frame.
    let world = world(|bounds| bounds.rates.user_answer_bytes = 16_000_000).await;
    let answer = "{ large(bytes: 15000000) }";
    let mut socket = world.socket().await;
    socket.init(Some(&world.token("alice", LIFE))).await;
    socket.subscribe("1", answer).await;
    let refused = async {
        while ask(&world, "alice", "{ large(bytes: 2000000) }")
            .await
            .status
            != 429
        {}
    };
    soon(refused).await;
    let heard = socket.hear().await;
    assert_eq!(
        heard["payload"]["data"]["large"].as_str().unwrap().len(),
        15_000_000
    );
    until_let_in(&world, "alice", "{ large(bytes: 2000000) }").await;
}

#[tokio::test]
async fn a_subscription_waits_until_its_user_has_read_what_is_under_way() {
    let world = world(|bounds| bounds.rates.user_answer_bytes = UNREAD).await;
    let authorization = format!("Bearer {}", world.token("alice", LIFE));
    let first = unread(
        &world,
        "alice",
        &format!("{{ large(bytes: {}) }}", UNREAD - 21),
    )
    .await;
    let mut events = Reading::with(
        &world,
        &[("accept", EVENTS), ("authorization", &authorization)],
        "subscription { count(to: 3) }",
    )
    .await;
    events.until(":\n\n").await;
    assert!(events.is_quiet().await, "there is no room for an event");
    drop(first);
    assert!(
        events
            .whole()
            .await
            .ends_with("{\"count\":2}}\n\nevent: complete\ndata:\n\n")
    );
}

/// Faster than anybody who does not read, and long before the deadline of a write.
fn paced(bounds: &mut ServerBounds) {
    bounds.pace = PaceBounds {
        bytes_per_second: 1_000_000,
        window: Duration::from_millis(300),
    };
    bounds.sockets = SocketBounds {
        write: Duration::from_secs(60),
        ..SocketBounds::default()
    };
    bounds.request = Duration::from_secs(60);
}

#[tokio::test]
async fn a_slow_http_reader_is_cut_off() {
    let world = world(paced).await;
    let start = Instant::now();
    let mut stream = unread(&world, "alice", &format!("{{ large(bytes: {UNREAD}) }}")).await;
    until_let_in(&world, "alice", "{ large(bytes: 2000000) }").await;
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "it was not the deadline of writes"
    );
    let mut rest = Vec::new();
    let read = soon(stream.read_to_end(&mut rest)).await;
    assert!(read.is_err() || rest.len() < UNREAD, "it was cut");
}

#[tokio::test]
async fn a_slow_socket_reader_is_cut_off() {
    let world = world(paced).await;
    let mut socket = world.open().await;
    socket.subscribe("1", "subscription { forever }").await;
    world.alive(1).await;
    socket
        .subscribe("2", &format!("{{ large(bytes: {UNREAD}) }}"))
        .await;
    world.alive(0).await;
    socket.gone().await;
}
