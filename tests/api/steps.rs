//! Steps of the work behind a message: they come back as given, within their bounds.

use serde_json::{Value, json};

use crate::support::world::{Actor, Answer, World, text};

const SEND: &str = "mutation($c: ID!, $s: [MessageStepInput!], $b: String!, $k: String) {
    sendMessage(input: {conversationId: $c, body: $b, steps: $s, idempotencyKey: $k}) {
    messageEdge { node { id isInterrupted steps { key title state detail } } } } }";
const READ: &str = "query($m: ID!) { node(id: $m) { ... on Message {
    body isInterrupted steps { key title state detail } } } }";

async fn send(actor: &Actor, conversation: &str, steps: Value) -> Answer {
    let variables = json!({"c": conversation, "s": steps, "b": "It rains.", "k": "once"});
    actor.ask(SEND, variables).await
}

fn step(key: &str, fields: Value) -> Value {
    let mut step = json!({"key": key, "title": "Ask the weather", "state": "DONE", "detail": null});
    for (name, value) in fields.as_object().unwrap() {
        step[name] = value.clone();
    }
    step
}

fn node(answer: &Value) -> &Value {
    &answer["sendMessage"]["messageEdge"]["node"]
}

#[tokio::test]
async fn steps_come_back_in_their_order_and_an_edit_keeps_them() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let conversation = alice.direct("bob").await;
    let given = json!([
        step(
            "b",
            json!({"state": "FAILED", "detail": "no answer\nafter 20 s"})
        ),
        step("a", json!({"state": "WAITING"})),
    ]);
    let sent = send(&alice, &conversation, given.clone()).await.data();
    let sent = node(&sent);
    assert_eq!(sent["steps"], given);
    assert_eq!(sent["isInterrupted"], false);
    let again = send(&alice, &conversation, given.clone()).await.data();
    assert_eq!(node(&again)["id"], sent["id"]);
    for other in [
        Value::Null,
        json!([]),
        json!([given[1], given[0]]),
        json!([given[0]]),
    ] {
        let conflict = send(&alice, &conversation, other).await;
        assert_eq!(
            conflict.code(),
            "CONFLICT",
            "the steps are part of the input"
        );
    }
    let edit = "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"It pours.\"}) { __typename } }";
    alice.data(edit, json!({"m": sent["id"]})).await;
    let world = {
        drop((alice, bob));
        world.restarted().await
    };
    let seen = world.user("bob").data(READ, json!({"m": sent["id"]})).await;
    assert_eq!(text(&seen["node"]["body"]), "It pours.");
    assert_eq!(seen["node"]["steps"], given);
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { __typename } }";
    let alice = world.user("alice");
    alice.data(delete, json!({"m": sent["id"]})).await;
    let seen = alice.data(READ, json!({"m": sent["id"]})).await;
    let gone = json!({"body": null, "isInterrupted": false, "steps": []});
    assert_eq!(seen["node"], gone);
}

#[tokio::test]
async fn a_message_without_steps_is_that_of_before() {
    let world = World::open().await;
    let alice = world.user("alice");
    let conversation = alice.direct("bob").await;
    let sent = send(&alice, &conversation, json!([])).await.data();
    assert_eq!(node(&sent)["steps"], json!([]));
    let plain = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"It rains.\", idempotencyKey: \"once\"}) {
        messageEdge { node { id } } } }";
    let again = alice.data(plain, json!({"c": conversation})).await;
    assert_eq!(node(&again)["id"], node(&sent)["id"]);
}

#[tokio::test]
async fn steps_have_bounds() {
    let world = World::open().await;
    let alice = world.user("alice");
    let conversation = alice.direct("bob").await;
    let detail = json!({"detail": "x".repeat(512)});
    let many = |count: usize, fields: &Value| -> Value {
        let steps = (0..count).map(|number| step(&number.to_string(), fields.clone()));
        steps.collect()
    };
    for bad in [
        many(21, &json!({})),
        many(8, &detail),
        json!([step("", json!({}))]),
        json!([step(&"k".repeat(65), json!({}))]),
        json!([step("a", json!({"title": ""}))]),
        json!([step("a", json!({"title": "x".repeat(129)}))]),
        json!([step("a", json!({"title": "two\nlines"}))]),
        json!([step("a", json!({"detail": "x".repeat(513)}))]),
        json!([step("a", json!({"detail": "bell\u{7}"}))]),
        json!([step("a", json!({})), step("a", json!({}))]),
    ] {
        let refused = send(&alice, &conversation, bad.clone()).await;
        assert_eq!(refused.code(), "BAD_USER_INPUT", "{bad}");
        let path = &refused.extensions()["inputPath"];
        assert_eq!(*path, json!(["input", "steps"]), "{bad}");
    }
    for (body, steps) in [
        ("x".repeat(16 * 1024), many(7, &detail)),
        ("x".to_owned(), many(20, &json!({}))),
    ] {
        let variables = json!({"c": conversation, "s": steps, "b": body});
        let sent = alice.data(SEND, variables).await;
        assert_eq!(node(&sent)["steps"], steps);
    }
}

/// A subscriber without a read of its own receives the steps, and so does the outbox.
#[tokio::test]
async fn steps_arrive_with_the_message() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let conversation = alice.direct("bob").await;
    let document = "subscription($c: ID!) { messageAdded(conversationId: $c) {
        messageEdge { node { isInterrupted steps { title } } } } }";
    let mut added = bob.subscribe(document, json!({"c": conversation}));
    assert!(added.is_quiet());
    send(&alice, &conversation, json!([step("a", json!({}))]))
        .await
        .data();
    let event = added.next().await;
    let expected = json!({"isInterrupted": false, "steps": [{"title": "Ask the weather"}]});
    assert_eq!(event["messageAdded"]["messageEdge"]["node"], expected);
}
