//! Rates and counts, through the server: what is refused, how it is said, and that it ends.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};
use wideroom::server::{AdmissionBounds, ServerBounds};

use super::world::{World, soon};
use crate::support::client::Reply;

const LIFE: Duration = Duration::from_secs(600);

/// One more a second, which is slower than anybody here asks.
fn slow() -> AdmissionBounds {
    AdmissionBounds {
        queries_per_second: 1,
        queries_burst: 3,
        mutations_per_second: 1,
        mutations_burst: 3,
        ..AdmissionBounds::default()
    }
}

async fn world(rates: AdmissionBounds) -> World {
    World::with(ServerBounds {
        rates,
        ..ServerBounds::default()
    })
    .await
}

async fn ask(world: &World, token: Option<&str>, query: &str) -> Reply {
    let authorization = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(
        authorization
            .as_deref()
            .map(|authorization| ("authorization", authorization)),
    );
    world
        .http(
            "POST",
            "/graphql",
            &headers,
            json!({ "query": query }).to_string().as_bytes(),
        )
        .await
}

/// A refusal says in two ways when to come back, and that nothing was executed.
fn assert_too_fast(reply: &Reply) {
    assert_eq!(
        (reply.status, reply.code()),
        (429, "RATE_LIMITED"),
        "{}",
        reply.body
    );
    assert!(reply.body.get("data").is_none());
    let wait = reply.body["errors"][0]["extensions"]["retryAfterMs"]
        .as_u64()
        .unwrap();
    let seconds: u64 = reply.header("retry-after").parse().unwrap();
    assert!(wait > 0 && seconds * 1_000 >= wait, "{wait} {seconds}");
}

/// Asks until it is too much, and says how often it was not.
async fn exhaust(world: &World, token: Option<&str>, query: &str, status: u16) -> usize {
    for done in 0..100 {
        let reply = ask(world, token, query).await;
        if reply.status == 429 {
            assert_too_fast(&reply);
            return done;
        }
        assert_eq!(reply.status, status, "{}", reply.body);
    }
    panic!("it is never too much");
}

#[tokio::test]
async fn live_writes_have_a_rate_of_their_own() {
    let world = world(slow()).await;
    let alice = world.token("alice", LIFE);
    let write = "mutation { writeLiveMessage(text: \"x\") }";
    let done = exhaust(&world, Some(&alice), write, 200).await;
    assert!(
        done >= 20,
        "{done}: neither requests nor mutations are charged"
    );
    let refused = exhaust(&world, Some(&alice), "{ me }", 200).await;
    assert!(
        refused <= 3,
        "{refused}: a refused write gives nothing back"
    );
}

#[tokio::test]
async fn queries_of_a_user_have_a_rate_whichever_door_they_take() {
    let world = world(slow()).await;
    let (alice, bob) = (world.token("alice", LIFE), world.token("bob", LIFE));
    let mut socket = world.socket().await;
    socket.init(Some(&alice)).await;
    socket.subscribe("0", "{ me }").await;
    assert_eq!(socket.hear().await["type"], "next");
    assert_eq!(socket.hear().await["type"], "complete");
    assert!(exhaust(&world, Some(&alice), "{ me }", 200).await >= 2);
    let mut refused = json!(null);
    for id in 1..100 {
        socket.subscribe(&id.to_string(), "{ me }").await;
        let heard = socket.hear().await;
        if heard["type"] == "error" {
            assert_eq!(heard["id"], json!(id.to_string()));
            refused = heard["payload"][0]["extensions"].clone();
            break;
        }
        assert_eq!(socket.hear().await["type"], "complete");
    }
    assert_eq!(refused["code"], "RATE_LIMITED");
    assert!(refused["retryAfterMs"].as_u64().unwrap() > 0);
    assert_eq!(
        ask(&world, Some(&bob), "{ me }").await.status,
        200,
        "each user has a rate of their own"
    );
}

#[tokio::test]
async fn a_client_that_waits_for_retry_after_is_let_in() {
    let rates = AdmissionBounds {
        queries_per_second: 4,
        queries_burst: 1,
        ..slow()
    };
    let world = world(rates).await;
    let alice = world.token("alice", LIFE);
    let mut waited = 0;
    let start = Instant::now();
    while waited < 3 && start.elapsed() < Duration::from_secs(20) {
        let reply = ask(&world, Some(&alice), "{ me }").await;
        if reply.status == 429 {
            let wait = reply.body["errors"][0]["extensions"]["retryAfterMs"]
                .as_u64()
                .unwrap();
            sleep(Duration::from_millis(wait)).await;
            assert_eq!(ask(&world, Some(&alice), "{ me }").await.status, 200);
            waited += 1;
        }
    }
    assert_eq!(waited, 3);
}

#[tokio::test]
async fn a_query_for_much_costs_more() {
    let world = world(AdmissionBounds {
        queries_per_second: 1,
        queries_burst: 100,
        ..slow()
    })
    .await;
    let alice = world.token("alice", LIFE);
    // Each five root fields beyond the first are a further token.
    let fields: String = (0..20).map(|n| format!("a{n}: number(n: {n}) ")).collect();
    let done = exhaust(&world, Some(&alice), &format!("{{ {fields} }}"), 200).await;
    assert!((25..=60).contains(&done), "{done}");
}

#[tokio::test]
async fn each_field_of_a_mutation_counts_and_none_is_done_when_one_is_too_many() {
    let world = world(AdmissionBounds {
        mutations_burst: 4,
        ..slow()
    })
    .await;
    let alice = world.token("alice", LIFE);
    let four = r#"mutation { a: say(text: "x") b: say(text: "x") ...more } fragment more on Mutation { c: say(text: "x") d: say(text: "x") }"#;
    assert!((1..=10).contains(&exhaust(&world, Some(&alice), four, 200).await));
    assert_eq!(
        ask(&world, Some(&alice), "{ me }").await.status,
        200,
        "queries have a rate of their own"
    );
}

#[tokio::test]
async fn an_address_has_a_rate_while_no_user_is_known() {
    let world = world(AdmissionBounds {
        address_per_second: 1,
        address_burst: 4,
        ..slow()
    })
    .await;
    let alice = world.token("alice", LIFE);
    assert_eq!(
        ask(&world, Some(&alice), "{ me }").await.status,
        200,
        "the address pays for the first look at a token"
    );
    assert!(exhaust(&world, None, "{ number(n: 1) }", 200).await >= 3);
    exhaust(&world, Some(&world.forged()), "{ me }", 401).await;
    exhaust(&world, None, "{ what cannot be read", 400).await;
    soon(async { while world.socket_with(&[]).await.is_ok() {} }).await;
    assert_eq!(
        ask(&world, Some(&alice), "{ me }").await.status,
        200,
        "a user does not pay for the neighbours"
    );
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_client_is_an_address() {
    let rates = AdmissionBounds {
        address_sockets: 1,
        ..AdmissionBounds::default()
    };
    let world = World::with(ServerBounds {
        rates,
        proxies: "127.0.0.0/8".parse().unwrap(),
        ..ServerBounds::default()
    })
    .await;
    let from = |client: &'static str| [("x-forwarded-for", client)];
    let one = world.socket_with(&from("198.51.100.1")).await.unwrap();
    let _other = world.socket_with(&from("198.51.100.2")).await.unwrap();
    let refusal = world
        .socket_with(&from("6.6.6.6, 198.51.100.1"))
        .await
        .err()
        .unwrap();
    assert_eq!(
        (refusal.status, &refusal.error["code"]),
        (429, &json!("RATE_LIMITED"))
    );
    assert!(refusal.error["retryAfterMs"].as_u64().is_some());
    drop(one);
    soon(async { while world.socket_with(&from("198.51.100.1")).await.is_err() {} }).await;
}

/// Whether another connection is served.
async fn is_answered(world: &World) -> bool {
    let mut stream = world.tcp().await;
    let asked = stream
        .write_all(b"GET /graphql HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    asked.is_ok() && soon(stream.read_exact(&mut [0; 12])).await.is_ok()
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let rates = AdmissionBounds {
        address_connections: 2,
        ..AdmissionBounds::default()
    };
    let world = World::with(ServerBounds {
        rates: rates.clone(),
        ..ServerBounds::default()
    })
    .await;
    let held = [world.tcp().await, world.tcp().await];
    assert!(!is_answered(&world).await, "it is hung up on");
    drop(held);
    soon(async { while !is_answered(&world).await {} }).await;
    let world = World::with(ServerBounds {
        rates,
        proxies: "127.0.0.0/8".parse().unwrap(),
        ..ServerBounds::default()
    })
    .await;
    let _held = [world.tcp().await, world.tcp().await];
    assert_eq!(
        ask(&world, None, "{ number(n: 1) }").await.status,
        200,
        "a proxy speaks for many"
    );
}

#[tokio::test]
async fn without_a_trusted_proxy_nobody_makes_up_an_address() {
    let world = world(AdmissionBounds {
        address_sockets: 1,
        ..AdmissionBounds::default()
    })
    .await;
    let _one = world
        .socket_with(&[("x-forwarded-for", "198.51.100.1")])
        .await
        .unwrap();
    assert_eq!(
        world
            .socket_with(&[("x-forwarded-for", "198.51.100.2")])
            .await
            .err()
            .unwrap()
            .status,
        429
    );
}

#[tokio::test]
async fn a_user_has_only_so_many_sockets() {
    let world = world(AdmissionBounds {
        user_sockets: 2,
        ..AdmissionBounds::default()
    })
    .await;
    let (alice, bob) = (world.token("alice", LIFE), world.token("bob", LIFE));
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut socket = world.socket().await;
        socket.init(Some(&alice)).await;
        open.push(socket);
    }
    let mut third = world.socket().await;
    let init = json!({ "type": "connection_init", "payload": { "Authorization": format!("Bearer {alice}") } });
    third.say(&init).await;
    let expected = "Too many sockets: a user has at most 2; close another one and connect again";
    assert_eq!(third.closed().await, (4291, expected.to_owned()));
    world.socket().await.init(Some(&bob)).await;
    open.pop();
    // The place is free as soon as the server has noticed.
    soon(async {
        loop {
            let mut socket = world.socket().await;
            socket.say(&init).await;
            if socket.hear_or_close().await == Some(json!({ "type": "connection_ack" })) {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_user_has_only_so_many_streams() {
    let world = world(AdmissionBounds {
        user_streams: 1,
        ..AdmissionBounds::default()
    })
    .await;
    let (alice, bob) = (
        format!("Bearer {}", world.token("alice", LIFE)),
        format!("Bearer {}", world.token("bob", LIFE)),
    );
    let body = json!({ "query": "subscription { forever }" }).to_string();
    let listen = async |authorization: &str| {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
            ("authorization", authorization),
        ];
        world
            .ask("POST", "/graphql", &headers, body.as_bytes())
            .await
    };
    let first = listen(&alice).await;
    assert_eq!(first.status(), 200);
    assert_eq!(listen(&alice).await.status(), 429);
    assert_eq!(listen(&bob).await.status(), 200);
    drop(first);
    soon(async { while listen(&alice).await.status() != 200 {} }).await;
}

#[tokio::test]
async fn rates_that_are_off_bound_nobody() {
    let none = AdmissionBounds {
        is_on: false,
        address_per_second: 1,
        address_burst: 1,
        user_sockets: 1,
        address_sockets: 1,
        user_streams: 1,
        ..slow()
    };
    let world = world(none).await;
    let alice = world.token("alice", LIFE);
    let mut open = Vec::new();
    for _ in 0..5 {
        assert_eq!(ask(&world, Some(&alice), "{ me }").await.status, 200);
        assert_eq!(ask(&world, None, "{ number(n: 1) }").await.status, 200);
        let mut socket = world.socket().await;
        socket.init(Some(&alice)).await;
        open.push(socket);
    }
}
