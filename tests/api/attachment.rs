//! Attachments: the fields that a sender gives come back, within their bounds.

use serde_json::{Value, json};

use crate::support::world::{Actor, Answer, World, text};

const SEND: &str = "mutation($c: ID!, $a: [AttachmentInput!], $k: String) {
    sendMessage(input: {conversationId: $c, body: \"Listen\", attachments: $a, idempotencyKey: $k}) {
    messageEdge { node { id attachments { url durationMs thumbnailUrl width } } } } }";

async fn send(actor: &Actor, conversation: &str, attachment: Value) -> Answer {
    let variables = json!({"c": conversation, "a": [attachment], "k": "once"});
    actor.ask(SEND, variables).await
}

fn sound(fields: Value) -> Value {
    let mut sound = json!({"url": "https://files.example/a.ogg", "mimeType": "audio/ogg"});
    for (name, value) in fields.as_object().unwrap() {
        sound[name] = value.clone();
    }
    sound
}

#[tokio::test]
async fn a_duration_and_a_thumbnail_come_back_and_an_edit_keeps_them() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let conversation = alice.direct("bob").await;
    let given =
        json!({"durationMs": 61_000, "thumbnailUrl": "https://files.example/a.png", "width": 3});
    let sent = send(&alice, &conversation, sound(given.clone()))
        .await
        .data();
    let node = &sent["sendMessage"]["messageEdge"]["node"];
    let mut shown = given.clone();
    shown["url"] = json!("https://files.example/a.ogg");
    assert_eq!(node["attachments"], json!([shown]));
    let again = send(&alice, &conversation, sound(given)).await.data();
    assert_eq!(
        again["sendMessage"]["messageEdge"]["node"]["id"],
        node["id"]
    );
    let other =
        json!({"durationMs": 61_001, "thumbnailUrl": "https://files.example/a.png", "width": 3});
    let conflict = send(&alice, &conversation, sound(other)).await;
    assert_eq!(
        conflict.code(),
        "CONFLICT",
        "the duration is part of the input"
    );
    let edit =
        "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"Look\"}) { __typename } }";
    alice.data(edit, json!({"m": node["id"]})).await;
    let read = "query($m: ID!) { node(id: $m) { ... on Message { body attachments { url durationMs thumbnailUrl width } } } }";
    let world = {
        drop((alice, bob));
        world.restarted().await
    };
    let seen = world.user("bob").data(read, json!({"m": node["id"]})).await;
    assert_eq!(text(&seen["node"]["body"]), "Look");
    assert_eq!(seen["node"]["attachments"], json!([shown]));
}

#[tokio::test]
async fn durations_and_thumbnails_have_bounds() {
    let world = World::open().await;
    let alice = world.user("alice");
    let conversation = alice.direct("bob").await;
    let long = format!("https://files.example/{}", "x".repeat(2_048));
    let url = |bytes: usize| format!("https://files.example/{}", "x".repeat(bytes - 22));
    for bad in [
        json!({"durationMs": -1}),
        json!({"thumbnailUrl": ""}),
        json!({"thumbnailUrl": "ftp://files.example/a"}),
        json!({"thumbnailUrl": "no url"}),
        json!({"thumbnailUrl": long}),
    ] {
        let refused = send(&alice, &conversation, sound(bad.clone())).await;
        assert_eq!(refused.code(), "BAD_USER_INPUT", "{bad}");
        let path = &refused.extensions()["inputPath"];
        assert_eq!(*path, json!(["input", "attachments"]), "{bad}");
    }
    // The thumbnails of a message count towards the bytes of its attachments.
    let attachment = sound(json!({"thumbnailUrl": url(2_000)}));
    let four = json!({"c": conversation, "a": vec![attachment.clone(); 4], "k": "four"});
    assert_eq!(alice.ask(SEND, four).await.code(), "BAD_USER_INPUT");
    let three = json!({"c": conversation, "a": vec![attachment; 3], "k": "three"});
    alice.data(SEND, three).await;
}
