//! Profiles of conversations: who sets them, who sees them, and who hears of it.

use serde_json::{Value, json};

use crate::support::door::Door;
use crate::support::world::{Actor, World, text};

const PROFILE: &str = "query($c: ID!) { conversation(id: $c) { description avatarUrl metadata } }";
const UPDATE: &str = "mutation($c: ID!, $d: String, $a: String, $m: JSON) {
    updateConversation(input: {conversationId: $c, description: $d, avatarUrl: $a, metadata: $m}) {
    conversation { description avatarUrl metadata } } }";
const CREATE: &str = "mutation($n: String!, $u: [String!]!, $k: String, $d: String, $a: String, $m: JSON) {
    createGroupConversation(input: {name: $n, usernames: $u, idempotencyKey: $k, description: $d, avatarUrl: $a, metadata: $m}) {
    conversation { id description avatarUrl metadata } } }";

async fn profile(viewer: &Actor, conversation: &str) -> Value {
    viewer.data(PROFILE, json!({"c": conversation})).await["conversation"].clone()
}

#[tokio::test]
async fn admins_set_the_profile_of_a_group_and_participants_see_it() {
    let world = World::open().await;
    let [alice, bob, eve] = ["alice", "bob", "eve"].map(|name| world.user(name));
    let group = alice.group("Us", &["bob"]).await;
    let none = json!({"description": null, "avatarUrl": null, "metadata": null});
    assert_eq!(profile(&bob, &group).await, none);
    let given = json!({"c": group, "d": "All of us\nand more", "a": "https://a.example/a.png"});
    alice.data(UPDATE, given.clone()).await;
    let seen = profile(&bob, &group).await;
    assert_eq!(text(&seen["description"]), "All of us\nand more");
    assert_eq!(text(&seen["avatarUrl"]), "https://a.example/a.png");
    assert_eq!(bob.ask(UPDATE, given.clone()).await.code(), "FORBIDDEN");
    assert_eq!(eve.ask(UPDATE, given).await.code(), "NOT_FOUND");
    let door = Door::of(&world.chat);
    let metadata = json!({"c": group, "m": {"order": 42}});
    let refused = door.ask(&door.user("alice"), UPDATE, &metadata).await;
    assert_eq!(refused.code(), "FORBIDDEN", "metadata is the app's");
    let clear = json!({"c": group, "d": null});
    alice.data(UPDATE, clear).await;
    let seen = profile(&alice, &group).await;
    assert_eq!(seen["description"], Value::Null);
    assert_eq!(
        text(&seen["avatarUrl"]),
        "https://a.example/a.png",
        "it stays"
    );
    let long = format!("https://a.example/{}", "x".repeat(2_031));
    for (fields, path) in [
        (json!({"d": "x".repeat(1_025)}), "description"),
        (json!({"d": " \u{2003}"}), "description"),
        (json!({"d": "bell\u{7}"}), "description"),
        (json!({"a": long}), "avatarUrl"),
        (json!({"a": "javascript:alert(1)"}), "avatarUrl"),
    ] {
        let mut variables = fields.clone();
        variables["c"] = json!(group);
        let refused = alice.ask(UPDATE, variables).await;
        assert_eq!(refused.code(), "BAD_USER_INPUT", "{fields}");
        let found = &refused.extensions()["inputPath"];
        assert_eq!(*found, json!(["input", path]), "{fields}");
    }
    let whole = json!({"c": group, "d": "é".repeat(512)});
    alice.data(UPDATE, whole).await;
    let direct = alice.direct("bob").await;
    let refused = alice
        .ask(UPDATE, json!({"c": direct, "d": "no group"}))
        .await;
    assert_eq!(refused.code(), "BAD_USER_INPUT");
    assert_eq!(
        refused.extensions()["inputPath"],
        json!(["input", "conversationId"])
    );
}

#[tokio::test]
async fn services_set_metadata_of_any_conversation_and_in_the_name_of_any_participant() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let direct = alice.direct("bob").await;
    let group = alice.group("Us", &["bob"]).await;
    for (badge, value) in [
        (door.service(), json!({"order": 42})),
        (door.service().acting_as("bob"), json!([1, null, "ж"])),
    ] {
        for conversation in [&direct, &group] {
            let variables = json!({"c": conversation, "m": value});
            let said = door.ask(&badge, UPDATE, &variables).await;
            assert_eq!(said.code(), "", "{said:?}");
            assert_eq!(profile(&bob, conversation).await["metadata"], value);
        }
    }
    let long = json!({"c": group, "m": "x".repeat(2_047)});
    let said = door.ask(&door.service(), UPDATE, &long).await;
    assert_eq!(said.code(), "BAD_USER_INPUT");
    let path = &said.json()["errors"][0]["extensions"]["inputPath"];
    assert_eq!(*path, json!(["input", "metadata"]));
    let clear = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, metadata: null}) { __typename } }";
    let said = door
        .ask(&door.service(), clear, &json!({"c": direct}))
        .await;
    assert_eq!(said.code(), "");
    assert_eq!(profile(&alice, &direct).await["metadata"], Value::Null);
}

#[tokio::test]
async fn a_new_profile_is_an_event_and_moves_no_entry() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let group = alice.group("Us", &["bob"]).await;
    let sent = alice.send(&group, "Hello").await;
    let mut events = bob.subscribe(
        "subscription($c: ID!) { conversationEvents(conversationId: $c) { event { __typename ... on ConversationUpdatedEvent { conversation { description } } } } }",
        json!({"c": group}),
    );
    let mut inbox = bob.subscribe(
        "subscription { inboxUpdated { event { __typename ... on InboxEntryChangedEvent { inboxEntryEdge { node { conversation { id description } lastMessage { id } unreadCount } } } } } }",
        json!({}),
    );
    assert_eq!(
        events.next().await["conversationEvents"]["event"],
        Value::Null
    );
    assert_eq!(inbox.next().await["inboxUpdated"]["event"], Value::Null);
    alice
        .data(UPDATE, json!({"c": group, "d": "About us"}))
        .await;
    let event = events.next().await["conversationEvents"]["event"].clone();
    assert_eq!(event["__typename"], "ConversationUpdatedEvent");
    assert_eq!(event["conversation"]["description"], "About us");
    let entry = inbox.next().await["inboxUpdated"]["event"]["inboxEntryEdge"]["node"].clone();
    assert_eq!(
        entry["conversation"],
        json!({"id": group, "description": "About us"})
    );
    assert_eq!(
        entry["lastMessage"]["id"],
        json!(sent.id),
        "no message tells it"
    );
    assert_eq!(entry["unreadCount"], 1);
    alice
        .data(UPDATE, json!({"c": group, "d": "About us"}))
        .await;
    assert!(events.is_quiet(), "the same again changes nothing");
    assert!(inbox.is_quiet());
}

#[tokio::test]
async fn a_group_is_made_with_a_profile_which_its_key_covers() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let alice = world.user("alice");
    let given = json!({"n": "Us", "u": ["bob"], "k": "once", "d": "About us", "a": "https://a.example/a.png"});
    let made = alice.data(CREATE, given.clone()).await["createGroupConversation"].clone();
    let made = &made["conversation"];
    assert_eq!(made["description"], "About us");
    let again = alice.data(CREATE, given.clone()).await["createGroupConversation"].clone();
    assert_eq!(again["conversation"]["id"], made["id"]);
    let mut other = given.clone();
    other["d"] = json!("About others");
    assert_eq!(alice.ask(CREATE, other).await.code(), "CONFLICT");
    let mut with_metadata = given;
    with_metadata["m"] = json!({"order": 42});
    with_metadata["k"] = json!("twice");
    let refused = door.ask(&door.user("alice"), CREATE, &with_metadata).await;
    assert_eq!(refused.code(), "FORBIDDEN");
    let badge = door.service().acting_as("alice");
    let said = door.ask(&badge, CREATE, &with_metadata).await;
    assert_eq!(said.code(), "", "{said:?}");
    let world = {
        let id = text(&made["id"]);
        drop((alice, door));
        let world = world.restarted().await;
        let seen = profile(&world.user("bob"), &id).await;
        assert_eq!(seen["avatarUrl"], "https://a.example/a.png");
        world
    };
    drop(world);
}
