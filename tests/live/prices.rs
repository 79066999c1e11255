//! Every request pays before anything in it is read, through each door: so every refusal is paid.

use std::time::Duration;

use serde_json::{Value, json};
use wideroom::server::{AdmissionBounds, ServerBounds};

use super::world::{Reply, World};

const LIFE: Duration = Duration::from_secs(600);
const JSON: (&str, &str) = ("content-type", "application/json");
const BURST: u32 = 8;

/// So many at once, and then one in a second.
fn slow() -> AdmissionBounds {
    AdmissionBounds {
        queries_per_second: 1,
        queries_burst: BURST,
        address_per_second: 1,
        address_burst: BURST,
        ..AdmissionBounds::default()
    }
}

async fn world() -> World {
    World::with(ServerBounds {
        rates: slow(),
        batch: 10,
        ..ServerBounds::default()
    })
    .await
}

/// Asks until it is too much, and counts how often it was not.
async fn exhaust(status: u16, ask: impl AsyncFn() -> Reply) -> u32 {
    for done in 0..100 {
        let reply = ask().await;
        if reply.status == 429 {
            assert_eq!(reply.code(), "RATE_LIMITED", "{}", reply.body);
            return done;
        }
        assert_eq!(reply.status, status, "{}", reply.body);
    }
    panic!("{status} is never too much");
}

fn body(query: &str) -> Vec<u8> {
    json!({ "query": query }).to_string().into_bytes()
}

/// Its name, the status of the refusal, the method, the path, the headers and the body.
type Case = (
    &'static str,
    u16,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    Vec<u8>,
);

#[tokio::test]
async fn every_refusal_of_a_request_without_a_token_is_paid_by_its_address() {
    let broken = json!({ "query": "query($n: Int!) { number(n: $n) }", "variables": [7] })
        .to_string()
        .into_bytes();
    let unknown = json!({ "query": "query A { number(n: 1) }", "operationName": "B" })
        .to_string()
        .into_bytes();
    let wanting = body("query($n: Int!) { number(n: $n) }");
    let cases: [Case; 12] = [
        (
            "a subscription without a stream",
            400,
            "POST",
            "/graphql",
            &[JSON],
            body("subscription { forever }"),
        ),
        ("broken variables", 422, "POST", "/graphql", &[JSON], broken),
        (
            "a variable that is not given",
            400,
            "POST",
            "/graphql",
            &[JSON],
            wanting,
        ),
        (
            "an unknown operation",
            422,
            "POST",
            "/graphql",
            &[JSON],
            unknown,
        ),
        (
            "no document",
            422,
            "POST",
            "/graphql",
            &[JSON],
            b"{}".to_vec(),
        ),
        ("no JSON", 400, "POST", "/graphql", &[JSON], b"{".to_vec()),
        (
            "no content type",
            415,
            "POST",
            "/graphql",
            &[],
            body("{ number(n: 1) }"),
        ),
        (
            "nothing acceptable",
            406,
            "POST",
            "/graphql",
            &[JSON, ("accept", "image/png")],
            body("{ number(n: 1) }"),
        ),
        (
            "a method",
            405,
            "PUT",
            "/graphql",
            &[JSON],
            body("{ number(n: 1) }"),
        ),
        (
            "a mutation by GET",
            405,
            "GET",
            "/graphql?query=mutation%7Bsay(text%3A%22x%22)%7D",
            &[],
            Vec::new(),
        ),
        ("a path", 404, "GET", "/graphql/nothing", &[], Vec::new()),
        ("no WebSocket", 426, "GET", "/graphql/ws", &[], Vec::new()),
    ];
    for (what, status, method, path, headers, body) in cases {
        let world = world().await;
        let done = exhaust(status, async || {
            world.http(method, path, headers, &body).await
        })
        .await;
        // A second or two may pass meanwhile.
        assert!((BURST..BURST + 8).contains(&done), "{what}: {done}");
    }
}

#[tokio::test]
async fn an_address_pays_for_a_signature_once_and_the_user_for_all_that_follows() {
    let world = world().await;
    let ask = async |token: &str, query: &str| {
        let authorization = format!("Bearer {token}");
        world
            .http(
                "POST",
                "/graphql",
                &[JSON, ("authorization", &authorization)],
                &body(query),
            )
            .await
    };
    let alice = world.token("alice", LIFE);
    assert_eq!(ask(&alice, "{ me }").await.status, 200);
    let forged = world.forged();
    let done = exhaust(401, async || ask(&forged, "{ me }").await).await;
    assert!(
        done >= BURST - 1,
        "alice's signature was verified once: {done}"
    );
    assert_eq!(
        ask(&alice, "{ me }").await.status,
        200,
        "her token is known, and the address has nothing left"
    );
    assert_eq!(
        ask(&world.token("bob", LIFE), "{ me }").await.status,
        429,
        "his is not"
    );
    exhaust(400, async || ask(&alice, "{ what cannot be read").await).await;
    exhaust(401, async || ask(&world.expired(), "{ me }").await).await;
}

#[tokio::test]
async fn each_request_of_a_batch_pays() {
    let world = world().await;
    let authorization = format!("Bearer {}", world.token("alice", LIFE));
    let batch = Value::Array(vec![json!({ "query": "{ me" }); 10])
        .to_string()
        .into_bytes();
    let headers = [JSON, ("authorization", authorization.as_str())];
    let reply = world.http("POST", "/graphql", &headers, &batch).await;
    let codes = reply
        .body
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| &answer["errors"][0]["extensions"]["code"]);
    let refused = codes.filter(|code| **code == "RATE_LIMITED").count();
    assert!((1..=2).contains(&refused), "{}", reply.body);
}

#[tokio::test]
async fn a_mutation_pays_for_its_payload_beside_its_root_fields() {
    let world = world().await;
    let authorization = format!("Bearer {}", world.token("alice", LIFE));
    let say = body(r#"mutation { say(text: "x") }"#);
    let done = exhaust(200, async || {
        world
            .http(
                "POST",
                "/graphql",
                &[JSON, ("authorization", &authorization)],
                &say,
            )
            .await
    })
    .await;
    assert!(
        (BURST..BURST + 8).contains(&done),
        "of 60 mutations at once: {done}"
    );
}

#[tokio::test]
async fn what_a_socket_asks_for_is_paid_before_it_is_read() {
    let world = world().await;
    let mut socket = world.socket().await;
    socket.init(Some(&world.token("alice", LIFE))).await;
    let mut codes = Vec::new();
    for id in 0..20 {
        let payload =
            json!({ "query": "query($n: Int!) { number(n: $n) }", "variables": { "n": "x" } });
        socket
            .say(&json!({ "type": "subscribe", "id": id.to_string(), "payload": payload }))
            .await;
        let heard = socket.hear().await;
        assert_eq!(heard["type"], "error");
        codes.push(heard["payload"][0]["extensions"]["code"].clone());
    }
    let refused = codes.iter().filter(|code| **code == "RATE_LIMITED").count();
    assert!(
        (20 - usize::try_from(BURST).unwrap() - 8..=12).contains(&refused),
        "{codes:?}"
    );
}

/// A dear operation is let in when the client comes back as late as it was told.
#[tokio::test]
async fn what_costs_as_much_as_a_bucket_holds_is_let_in() {
    let rates = AdmissionBounds {
        queries_per_second: 100,
        queries_burst: 20,
        ..AdmissionBounds::default()
    };
    let world = World::with(ServerBounds {
        rates,
        ..ServerBounds::default()
    })
    .await;
    let authorization = format!("Bearer {}", world.token("alice", LIFE));
    let dear = body(
        "{ list(first: 100) { edges { node { a b c d e f g h i j k l m n o p q r s t u v w x y z } } } }",
    );
    let ask = async || {
        world
            .http(
                "POST",
                "/graphql",
                &[JSON, ("authorization", &authorization)],
                &dear,
            )
            .await
    };
    // The schema here has no lists, and refuses it; it is paid for like everything that is executed.
    let (mut let_in, mut refused) = (0, 0);
    while let_in < 3 {
        let reply = ask().await;
        if reply.status == 422 {
            let_in += 1;
            continue;
        }
        assert_eq!(reply.status, 429, "{}", reply.body);
        let wait = reply.body["errors"][0]["extensions"]["retryAfterMs"]
            .as_u64()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        refused += 1;
        assert!(
            refused < 10,
            "it comes back as late as it is told, and is let in {let_in} times"
        );
    }
}
