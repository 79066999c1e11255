//! The protocol graphql-transport-ws, message by message and close code by close code.

use std::time::Duration;

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::schema::REPLAY;
use super::world::{SHORT_LIFE, World, soon};

fn next(id: &str, data: &Value) -> Value {
    json!({ "type": "next", "id": id, "payload": { "data": data } })
}

fn complete(id: &str) -> Value {
    json!({ "type": "complete", "id": id })
}

fn init(token: &str) -> Value {
    json!({ "type": "connection_init", "payload": { "Authorization": format!("Bearer {token}") } })
}

#[tokio::test]
async fn a_subscription_tells_and_completes() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket.subscribe("1", "subscription { count(to: 3) }").await;
    for number in 0..3 {
        assert_eq!(socket.hear().await, next("1", &json!({ "count": number })));
    }
    assert_eq!(socket.hear().await, complete("1"));
}

#[tokio::test]
async fn a_replayed_event_arrives_whether_or_not_the_next_one_comes() {
    let world = World::start().await;
    let mut socket = world.open().await;
    let replay = format!("subscription {REPLAY} {{ forever }}");
    socket.subscribe("1", &replay).await;
    assert_eq!(socket.hear().await, next("1", &json!({ "forever": 0 })));
    let replay = format!("subscription {REPLAY} {{ count(to: 3) }}");
    socket.subscribe("2", &replay).await;
    for number in 0..3 {
        assert_eq!(socket.hear().await, next("2", &json!({ "count": number })));
    }
    assert_eq!(socket.hear().await, complete("2"));
}

/// A browser calls a close unclean that nobody answers.
#[tokio::test]
async fn a_client_that_closes_is_answered() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket.subscribe("1", "subscription { forever }").await;
    socket
        .send(Message::Close(Some(CloseFrame {
            code: CloseCode::Normal,
            reason: "bye".into(),
        })))
        .await;
    assert_eq!(socket.closed().await, (1000, "bye".to_owned()));
}

#[tokio::test]
async fn queries_and_mutations_work_over_the_socket_too() {
    let world = World::start().await;
    let mut socket = world.open().await;
    let payload = json!({ "query": "query E($t: String!) { echo(text: $t) }", "variables": { "t": "a" }, "operationName": "E" });
    socket
        .say(&json!({ "type": "subscribe", "id": "q", "payload": payload }))
        .await;
    assert_eq!(socket.hear().await, next("q", &json!({ "echo": "a" })));
    assert_eq!(socket.hear().await, complete("q"));
    socket.subscribe("m", "mutation { say(text: \"b\") }").await;
    assert_eq!(socket.hear().await, next("m", &json!({ "say": "b" })));
    assert_eq!(socket.hear().await, complete("m"));
}

#[tokio::test]
async fn an_answer_larger_than_any_buffer_arrives() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket.subscribe("1", "{ large(bytes: 3000000) }").await;
    assert_eq!(
        socket.hear().await["payload"]["data"]["large"]
            .as_str()
            .unwrap()
            .len(),
        3_000_000
    );
    assert_eq!(socket.hear().await, complete("1"));
}

#[tokio::test]
async fn fragments_at_the_root_of_a_subscription_are_followed() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket
        .subscribe(
            "1",
            "subscription { ...F } fragment F on Subscription { count(to: 1) }",
        )
        .await;
    assert_eq!(socket.hear().await, next("1", &json!({ "count": 0 })));
    assert_eq!(socket.hear().await, complete("1"));
}

#[tokio::test]
async fn a_refused_operation_gets_an_error_and_the_socket_stays_open() {
    let world = World::start().await;
    let mut socket = world.open().await;
    for query in [
        "{",
        "{ nothing }",
        "subscription { nothing }",
        "subscription { count(to: 1) a: count(to: 1) }",
        "query($n: Int!) { number(n: $n) }",
    ] {
        socket.subscribe("1", query).await;
        let heard = socket.hear().await;
        assert_eq!(
            (&heard["type"], &heard["id"]),
            (&json!("error"), &json!("1")),
            "{heard}"
        );
        assert_eq!(
            heard["payload"][0]["extensions"]["code"], "BAD_USER_INPUT",
            "{heard}"
        );
        assert!(!heard["payload"][0]["message"].as_str().unwrap().is_empty());
    }
    // The id is free again, and nothing else came.
    socket.subscribe("1", "{ number(n: 1) }").await;
    assert_eq!(socket.hear().await, next("1", &json!({ "number": 1 })));
}

#[tokio::test]
async fn an_error_while_executing_is_told_beside_the_data() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket
        .subscribe("1", "subscription { broken { fault } }")
        .await;
    let heard = socket.hear().await;
    assert_eq!(
        (
            &heard["type"],
            &heard["payload"]["errors"][0]["extensions"]["code"]
        ),
        (&json!("next"), &json!("UNAVAILABLE")),
        "{heard}"
    );
    assert_eq!(
        heard["payload"]["errors"][0]["path"],
        json!(["broken", "fault"])
    );
    assert_eq!(socket.hear().await, complete("1"));
    socket.subscribe("2", "subscription { refused }").await;
    let heard = socket.hear().await;
    assert_eq!(
        (
            &heard["type"],
            &heard["payload"]["errors"][0]["extensions"]["code"]
        ),
        (&json!("next"), &json!("NOT_FOUND")),
        "{heard}"
    );
    assert_eq!(socket.hear().await, complete("2"));
}

#[tokio::test]
async fn a_panic_ends_its_operation_and_no_other() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket.subscribe("other", "subscription { forever }").await;
    assert_eq!(socket.hear().await, next("other", &json!({ "forever": 0 })));
    socket.subscribe("1", "subscription { panic }").await;
    assert_eq!(socket.hear().await, next("1", &json!({ "panic": 0 })));
    let heard = socket.hear().await;
    assert_eq!(
        (&heard["type"], &heard["payload"][0]["extensions"]["code"]),
        (&json!("error"), &json!("INTERNAL"))
    );
    socket.subscribe("2", "{ panic }").await;
    assert_eq!(socket.hear().await["type"], "error");
    world.alive(1).await;
}

#[tokio::test]
async fn complete_stops_a_stream_without_an_echo_and_frees_its_id() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket.subscribe("1", "subscription { forever }").await;
    assert_eq!(socket.hear().await, next("1", &json!({ "forever": 0 })));
    world.alive(1).await;
    socket.say(&complete("1")).await;
    world.alive(0).await;
    socket.say(&complete("unknown")).await;
    socket.subscribe("1", "subscription { count(to: 1) }").await;
    assert_eq!(socket.hear().await, next("1", &json!({ "count": 0 })));
    assert_eq!(socket.hear().await, complete("1"));
}

#[tokio::test]
async fn a_socket_that_goes_away_drops_its_streams() {
    let world = World::start().await;
    let mut socket = world.open().await;
    for id in ["1", "2", "3"] {
        socket.subscribe(id, "subscription { forever }").await;
        assert_eq!(socket.hear().await["type"], "next");
    }
    world.alive(3).await;
    drop(socket);
    world.alive(0).await;
}

#[tokio::test]
async fn one_busy_operation_does_not_starve_the_others() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket
        .subscribe("loud", "subscription { flood(bytes: 10) }")
        .await;
    socket
        .subscribe("quiet", "subscription { count(to: 1) }")
        .await;
    socket.subscribe("query", "{ number(n: 1) }").await;
    socket.say(&json!({ "type": "ping" })).await;
    let mut awaited = vec!["quiet", "query", "pong"];
    while !awaited.is_empty() {
        let heard = socket.hear().await;
        awaited.retain(|word| heard["id"] != *word && heard["type"] != *word);
    }
}

#[tokio::test]
async fn a_ping_is_answered_with_its_payload_even_before_the_init() {
    let world = World::start().await;
    let mut socket = world.socket().await;
    socket
        .say(&json!({ "type": "ping", "payload": { "a": [1] } }))
        .await;
    assert_eq!(
        socket.hear().await,
        json!({ "type": "pong", "payload": { "a": [1] } })
    );
    socket.say(&json!({ "type": "ping" })).await;
    assert_eq!(socket.hear().await, json!({ "type": "pong" }));
    socket.say(&json!({ "type": "pong" })).await;
    socket.say(&json!({ "type": "connection_init" })).await;
    assert_eq!(socket.hear().await, json!({ "type": "connection_ack" }));
}

#[tokio::test]
async fn the_viewer_is_who_the_token_of_the_init_names() {
    let world = World::start().await;
    let token = world.token("alice", Duration::from_secs(60));
    for key in ["Authorization", "authorization"] {
        let mut socket = world.socket().await;
        socket.say(&json!({ "type": "connection_init", "payload": { key: format!("Bearer {token}") } })).await;
        assert_eq!(socket.hear().await["type"], "connection_ack");
        socket.subscribe("1", "{ me }").await;
        assert_eq!(socket.hear().await, next("1", &json!({ "me": "alice" })));
    }
    let mut stranger = world.socket().await;
    stranger.init(None).await;
    stranger.subscribe("1", "{ me }").await;
    assert_eq!(
        stranger.hear().await["payload"]["errors"][0]["extensions"]["code"],
        "UNAUTHENTICATED"
    );
}

#[tokio::test]
async fn a_bad_token_closes_4403() {
    let world = World::start().await;
    for token in [world.forged(), world.expired(), "x".to_owned()] {
        let mut socket = world.socket().await;
        socket.say(&init(&token)).await;
        let (code, reason) = socket.closed().await;
        assert_eq!(code, 4403);
        assert!(reason.starts_with("Forbidden: The token "), "{reason}");
    }
    let mut socket = world.socket().await;
    socket
        .say(&json!({ "type": "connection_init", "payload": { "Authorization": "x" } }))
        .await;
    assert_eq!(socket.closed().await.0, 4403);
}

#[tokio::test]
async fn a_token_that_ends_closes_4403() {
    let world = World::start().await;
    let mut socket = world.socket().await;
    socket.say(&init(&world.token("alice", SHORT_LIFE))).await;
    assert_eq!(socket.hear().await["type"], "connection_ack");
    socket.subscribe("1", "subscription { forever }").await;
    assert_eq!(socket.hear().await["type"], "next");
    assert_eq!(
        socket.closed().await,
        (4403, "Forbidden: the token has expired".to_owned())
    );
    world.alive(0).await;
}

#[tokio::test]
async fn a_protocol_violation_closes_with_its_code() {
    let world = World::start().await;
    let subscribe = json!({ "type": "subscribe", "id": "1", "payload": { "query": "subscription { forever }" } });
    let (init, signed) = (
        json!({ "type": "connection_init" }),
        init(&world.token("alice", Duration::from_secs(60))),
    );
    for (messages, code, part) in [
        (vec!["{".to_owned()], 4400, "EOF"),
        (vec!["hello".to_owned()], 4400, "expected value"),
        (
            vec![json!({ "type": "start", "id": "1" }).to_string()],
            4400,
            "`type`",
        ),
        (
            vec![json!({ "type": "subscribe", "id": "1" }).to_string()],
            4400,
            "`payload`",
        ),
        (
            vec![
                init.to_string(),
                json!({ "type": "subscribe", "id": "1", "payload": {} }).to_string(),
            ],
            4400,
            "`query`",
        ),
        (
            vec![
                init.to_string(),
                json!({ "type": "subscribe", "id": "1", "payload": { "query": 1 } }).to_string(),
            ],
            4400,
            "string",
        ),
        (
            vec![
                signed.to_string(),
                json!({ "type": "ping", "payload": "x".repeat(140_000) }).to_string(),
            ],
            1009,
            "131072 bytes",
        ),
        (vec![subscribe.to_string()], 4401, "Unauthorized"),
        (
            vec![
                init.to_string(),
                subscribe.to_string(),
                subscribe.to_string(),
            ],
            4409,
            "Subscriber for 1 already exists",
        ),
        (
            vec![init.to_string(), init.to_string()],
            4429,
            "Too many initialisation requests",
        ),
    ] {
        let mut socket = world.socket().await;
        for message in &messages {
            socket.send(Message::text(message.clone())).await;
        }
        let (closed, reason) = socket.closed().await;
        assert_eq!(closed, code, "{messages:?}: {reason}");
        assert!(reason.contains(part), "{reason}");
    }
    // A frame far over the bound is not even read.
    let mut socket = world.socket().await;
    let _ = soon(socket.0.send(Message::text("x".repeat(1_000_000)))).await;
    socket.gone().await;
    let mut socket = world.socket().await;
    socket.send(Message::binary(vec![1])).await;
    assert_eq!(socket.closed().await.0, 4400);
}

#[tokio::test]
async fn another_subprotocol_or_none_closes_4406() {
    let world = World::start().await;
    let mut socket = world.socket_of(None).await;
    assert_eq!(socket.closed().await.0, 4406);
    // A client that offered others only gets no answer it could accept, and ends the handshake itself.
    assert!(world.try_socket(Some("graphql-ws")).await.is_err());
    world
        .socket_of(Some("graphql-ws, graphql-transport-ws"))
        .await;
}

#[tokio::test]
async fn a_close_of_the_client_is_answered_and_ends_everything() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket.subscribe("1", "subscription { forever }").await;
    assert_eq!(socket.hear().await["type"], "next");
    soon(socket.0.close(None)).await.unwrap();
    socket.gone().await;
    world.alive(0).await;
    let _ = socket.0.flush().await;
}
