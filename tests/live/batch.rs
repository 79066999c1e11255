//! Several requests in one body: not served unless it is asked for, and then bounded.

use std::time::Duration;

use serde_json::{Value, json};
use wideroom::server::ServerBounds;

use super::world::{Reply, World, soon};

async fn post(world: &World, accept: &str, body: &Value) -> Reply {
    let headers = [("content-type", "application/json"), ("accept", accept)];
    world
        .http("POST", "/graphql", &headers, body.to_string().as_bytes())
        .await
}

async fn world() -> World {
    World::with(ServerBounds {
        batch: 3,
        ..ServerBounds::default()
    })
    .await
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order() {
    let world = world().await;
    let batch = json!([
        { "query": "{ number(n: 1) }" },
        { "query": "mutation A($t: String!) { say(text: $t) }", "variables": { "t": "ä" }, "operationName": "A" },
        { "query": "{ missing }" },
    ]);
    for (accept, media) in [
        ("*/*", "application/json; charset=utf-8"),
        (
            "application/graphql-response+json",
            "application/graphql-response+json; charset=utf-8",
        ),
    ] {
        let reply = post(&world, accept, &batch).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, media));
        assert_eq!(reply.body[0], json!({ "data": { "number": 1 } }));
        assert_eq!(reply.body[1], json!({ "data": { "say": "ä" } }));
        assert_eq!(
            reply.body[2]["errors"][0]["extensions"]["code"],
            "NOT_FOUND"
        );
        assert_eq!(reply.body.as_array().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn a_failed_operation_of_a_batch_does_not_affect_the_others() {
    let world = world().await;
    let batch = json!([{ "query": "{ nothing }" }, { "query": "subscription { forever }" }, { "query": "{ number(n: 1) }" }]);
    let reply = post(&world, "application/json, text/event-stream", &batch).await;
    for refused in [0, 1] {
        assert_eq!(
            reply.body[refused]["errors"][0]["extensions"]["code"], "BAD_USER_INPUT",
            "{}",
            reply.body
        );
        assert!(reply.body[refused].get("data").is_none());
    }
    assert_eq!(reply.body[2], json!({ "data": { "number": 1 } }));
    world.alive(0).await;
}

#[tokio::test]
async fn a_batch_is_bounded_and_off_unless_asked_for() {
    let batch = |count: usize| Value::Array(vec![json!({ "query": "{ number(n: 1) }" }); count]);
    let refusal = async |world: &World, batch: &Value, part: &str| {
        let reply = post(world, "application/graphql-response+json", batch).await;
        assert_eq!(
            (reply.status, reply.code()),
            (422, "BAD_USER_INPUT"),
            "{}",
            reply.body
        );
        assert!(reply.message().contains(part), "{}", reply.body);
    };
    refusal(&World::start().await, &batch(1), "Batches are not served").await;
    let world = world().await;
    assert_eq!(post(&world, "*/*", &batch(3)).await.status, 200);
    for wrong in [batch(0), batch(4)] {
        refusal(&world, &wrong, "1 to 3").await;
    }
    refusal(
        &world,
        &json!([[{ "query": "{ number(n: 1) }" }]]),
        "Batches are not served",
    )
    .await;
    refusal(&world, &json!([7]), "JSON object").await;
    let reply = post(&world, "text/event-stream", &batch(1)).await;
    assert_eq!((reply.status, reply.code()), (406, "BAD_USER_INPUT"));
}

#[tokio::test]
async fn a_batch_has_one_deadline() {
    let world = World::with(ServerBounds {
        batch: 3,
        request: Duration::from_millis(50),
        ..ServerBounds::default()
    })
    .await;
    let reply = soon(post(
        &world,
        "*/*",
        &json!([{ "query": "{ wait }" }, { "query": "{ wait }" }]),
    ))
    .await;
    for answer in reply.body.as_array().unwrap() {
        assert_eq!(answer["errors"][0]["extensions"]["code"], "UNAVAILABLE");
    }
}
