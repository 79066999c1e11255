//! Editing and deleting: who may, and what everybody sees then.

use serde_json::{Value, json};

use crate::support::world::{Actor, Answer, World};

const EDIT: &str =
    "mutation($m: ID!, $b: String!) { editMessage(input: {messageId: $m, body: $b}) {
    message { id body editedAt deletedAt createdAt attachments { url } } } }";
const DELETE: &str = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) {
    message { id body editedAt deletedAt metadata attachments { url } } } }";

async fn edit(actor: &Actor, message: &str, body: &str) -> Answer {
    actor.ask(EDIT, json!({"m": message, "b": body})).await
}

async fn delete(actor: &Actor, message: &str) -> Answer {
    actor.ask(DELETE, json!({"m": message})).await
}

async fn entry(actor: &Actor, conversation: &str) -> Value {
    let document = "query($c: ID!) { conversation(id: $c) { messageCount inboxEntry { unreadCount lastMessage { body deletedAt } } } }";
    actor.data(document, json!({"c": conversation})).await["conversation"].clone()
}

#[tokio::test]
async fn an_edit_shows_in_history_and_in_every_inbox() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "Lunhc?").await;
    let edited = edit(&alice, &sent.id, "Lunch?").await.data()["editMessage"].clone();
    assert_eq!(edited["message"]["body"], "Lunch?");
    assert!(edited["message"]["editedAt"].as_str() > edited["message"]["createdAt"].as_str());
    assert_eq!(
        entry(&bob, &c).await["inboxEntry"],
        json!({"unreadCount": 1, "lastMessage": {"body": "Lunch?", "deletedAt": null}})
    );
    let again = edit(&alice, &sent.id, "Lunch?").await.data()["editMessage"].clone();
    assert_eq!(
        again["message"]["editedAt"], edited["message"]["editedAt"],
        "the same text again changes nothing"
    );
}

#[tokio::test]
async fn a_deleted_message_keeps_its_place_and_loses_its_content() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let (one, two) = (alice.send(&c, "one").await, alice.send(&c, "two").await);
    let deleted = delete(&alice, &two.id).await.data()["deleteMessage"]["message"].clone();
    assert_eq!(
        (
            &deleted["body"],
            &deleted["metadata"],
            &deleted["attachments"]
        ),
        (&Value::Null, &Value::Null, &json!([]))
    );
    assert_eq!(
        delete(&alice, &two.id).await.data()["deleteMessage"]["message"],
        deleted,
        "once more changes nothing"
    );
    let seen = entry(&bob, &c).await;
    assert_eq!(
        (&seen["messageCount"], &seen["inboxEntry"]["unreadCount"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(
        seen["inboxEntry"]["lastMessage"],
        json!({"body": null, "deletedAt": deleted["deletedAt"]})
    );
    assert_eq!(edit(&alice, &two.id, "back").await.code(), "BAD_USER_INPUT");
    delete(&alice, &one.id).await.data();
    assert_eq!(entry(&bob, &c).await["inboxEntry"]["unreadCount"], 0);
}

#[tokio::test]
async fn only_the_sender_edits_and_a_groups_owner_may_delete() {
    let world = World::open().await;
    let (alice, bob, carol) = (world.user("alice"), world.user("bob"), world.user("carol"));
    let c = alice.group("moderated", &["bob", "carol"]).await;
    let sent = bob.send(&c, "spam").await;
    assert_eq!(edit(&alice, &sent.id, "ham").await.code(), "FORBIDDEN");
    assert_eq!(delete(&carol, &sent.id).await.code(), "FORBIDDEN");
    delete(&alice, &sent.id).await.data();
    let direct = bob.direct("carol").await;
    let sent = bob.send(&direct, "mine").await;
    assert_eq!(delete(&carol, &sent.id).await.code(), "FORBIDDEN");
    for id in [sent.id.as_str(), "nonsense"] {
        assert_eq!(edit(&alice, id, "x").await.code(), "NOT_FOUND");
        assert_eq!(delete(&alice, id).await.code(), "NOT_FOUND");
    }
}

#[tokio::test]
async fn an_edit_keeps_the_bounds_of_a_send() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "text").await;
    for body in ["", " ", &"x".repeat(16 * 1024 + 1)] {
        let answer = edit(&alice, &sent.id, body).await;
        assert_eq!(
            (answer.code().as_str(), &answer.extensions()["inputPath"]),
            ("BAD_USER_INPUT", &json!(["input", "body"]))
        );
    }
    let picture = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"look\", attachments: [
        {url: \"https://example.org/a.png\", mimeType: \"image/png\"}]}) { messageEdge { node { id } } } }";
    let data = alice.data(picture, json!({"c": c})).await;
    let id = data["sendMessage"]["messageEdge"]["node"]["id"]
        .as_str()
        .unwrap();
    let edited = edit(&alice, id, "").await.data()["editMessage"]["message"].clone();
    assert_eq!(
        (&edited["body"], &edited["attachments"]),
        (&json!(""), &json!([{"url": "https://example.org/a.png"}]))
    );
}
