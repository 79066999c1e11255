//! Keys of an app for its conversations: one conversation for each, whoever asks how often.

use serde_json::{Value, json};

use crate::support::door::{Badge, Door, Said};
use crate::support::world::{World, text};

const CREATE: &str = "mutation($k: String, $n: String!, $u: [String!]!) {
    createGroupConversation(input: {name: $n, usernames: $u, appKey: $k, metadata: {order: 42}}) {
    conversation { id appKey participantCount viewerParticipant { role } } inboxEntryEdge { cursor } } }";
const FIND: &str = "query($k: String!) { conversationByAppKey(appKey: $k) { id appKey metadata } }";

/// A key that no other case has: some share a store.
fn new_key() -> String {
    format!("order:{}", uuid::Uuid::new_v4())
}

async fn create(door: &Door, badge: &Badge, key: &str, name: &str) -> Said {
    let variables = json!({"k": key, "n": name, "u": ["courier"]});
    door.ask(badge, CREATE, &variables).await
}

async fn found(door: &Door, badge: &Badge, key: &str) -> Value {
    let said = door.ask(badge, FIND, &json!({"k": key})).await.json();
    assert!(said.get("errors").is_none(), "{said}");
    said["data"]["conversationByAppKey"].clone()
}

#[tokio::test]
async fn the_same_call_of_a_service_makes_one_conversation() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let key = new_key();
    let for_anna = door.service().acting_as("anna");
    assert_eq!(found(&door, &for_anna, &key).await, Value::Null);
    let made = create(&door, &for_anna, &key, "Order 42").await.json();
    let conversation = &made["data"]["createGroupConversation"]["conversation"];
    let shown = json!({"id": conversation["id"], "appKey": key, "participantCount": 2,
        "viewerParticipant": {"role": "OWNER"}});
    assert_eq!(*conversation, shown, "{made}");
    for _ in 0..3 {
        let again = create(&door, &for_anna, &key, "Order 42").await.json();
        assert_eq!(again, made);
    }
    for (badge, name) in [
        (&for_anna, "Order 43"),
        (&door.service().acting_as("ben"), "Order 42"),
        (&door.service(), "Order 42"),
    ] {
        let refused = create(&door, badge, &key, name).await;
        assert_eq!(refused.code(), "CONFLICT", "{name}: {}", refused.text);
    }
    for badge in [
        door.user("anna"),
        door.user("courier"),
        door.service(),
        for_anna.clone(),
    ] {
        let seen = found(&door, &badge, &key).await;
        assert_eq!(seen["id"], conversation["id"], "{badge:?}");
        assert_eq!(seen["metadata"], json!({"order": 42}));
    }
    let stranger = door.user("stranger");
    assert_eq!(found(&door, &stranger, &key).await, Value::Null);
    assert_eq!(found(&door, &stranger, &new_key()).await, Value::Null);
    // A restart keeps the key.
    drop((door, stranger));
    let world = world.restarted().await;
    let door = Door::of(&world.chat);
    let seen = found(&door, &door.user("anna"), &key).await;
    assert_eq!(text(&seen["appKey"]), key);
    let again = create(&door, &door.service().acting_as("anna"), &key, "Order 42").await;
    assert_eq!(
        again.json()["data"]["createGroupConversation"]["conversation"],
        shown
    );
}

#[tokio::test]
async fn a_service_makes_a_keyed_conversation_under_its_own_name() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let key = new_key();
    let made = create(&door, &door.service(), &key, "Order").await.json();
    let conversation = &made["data"]["createGroupConversation"]["conversation"];
    assert_eq!(conversation["viewerParticipant"]["role"], "OWNER", "{made}");
    let again = create(&door, &door.service(), &key, "Order").await.json();
    assert_eq!(again, made);
}

#[tokio::test]
async fn app_keys_are_for_services_and_have_bounds() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let anna = door.user("anna");
    let refused = create(&door, &anna, &new_key(), "Mine").await;
    assert_eq!(refused.code(), "FORBIDDEN", "users would squat");
    for bad in ["", " ", "a\tb", &"x".repeat(129)] {
        let refused = create(&door, &door.service(), bad, "Order").await;
        let error = &refused.json()["errors"][0]["extensions"];
        assert_eq!(error["code"], "BAD_USER_INPUT", "{bad:?}");
        assert_eq!(error["inputPath"], json!(["input", "appKey"]), "{bad:?}");
        let refused = door.ask(&anna, FIND, &json!({"k": bad})).await.json();
        let error = &refused["errors"][0]["extensions"];
        assert_eq!(error["code"], "BAD_USER_INPUT", "{bad:?}");
        assert_eq!(error["inputPath"], json!(["appKey"]), "{bad:?}");
    }
    let key = new_key();
    let longest = format!("{key}{}", "x".repeat(128 - key.len()));
    let made = create(&door, &door.service(), &longest, "Order").await;
    assert_eq!(made.code(), "", "{}", made.text);
    // Without a key there is none.
    let plain = world.user("anna").group("Plain", &["ben"]).await;
    let document = "query($c: ID!) { conversation(id: $c) { appKey } }";
    let seen = door.ask(&anna, document, &json!({"c": plain})).await.json();
    assert_eq!(seen["data"]["conversation"]["appKey"], Value::Null);
}
