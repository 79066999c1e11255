//! Erasure of a user through the API: the job, the traces that go, and the conversations of others, which stay.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use wideroom::clock::{Clock as _, SystemClock};

use crate::support::door::{Badge, Door};
use crate::support::world::{Actor, PATIENCE, World, text};

const ERASE: &str = "mutation($u: String!) { eraseUser(input: {username: $u}) {
    job { id state doneCount startedAt finishedAt error } } }";
const JOB: &str =
    "query($i: ID!) { node(id: $i) { id ... on Job { state doneCount finishedAt error } } }";
const INBOX: &str = "{ inbox(first: 100) { edges { node {
    unreadCount lastActivityAt isPinned conversation { id participantCount lastMessage { id } } } } } }";
const HISTORY: &str = "query($c: ID!) { conversation(id: $c) {
    kind createdBy { username } directPeer { username } messageCount
    participants(first: 10) { edges { node { role user { username } } } }
    messages(first: 20) { edges { node {
        id kind body metadata deletedAt sender { username }
        reactions { emoji users(first: 3) { username } } isPinned } } } } }";

async fn erase(door: &Door, user: &str) -> Value {
    let said = door
        .ask(&door.service(), ERASE, &json!({"u": user}))
        .await
        .json();
    assert!(said.get("errors").is_none(), "{said}");
    said["data"]["eraseUser"]["job"].clone()
}

async fn job(door: &Door, badge: &Badge, id: &Value) -> Value {
    let said = door.ask(badge, JOB, &json!({"i": id})).await.json();
    said["data"]["node"].clone()
}

/// Erases a user, and waits for the end of the job.
async fn erase_to_the_end(door: &Door, user: &str) -> Value {
    let id = erase(door, user).await["id"].clone();
    ended(door, &id).await
}

async fn ended(door: &Door, id: &Value) -> Value {
    let ending = async {
        loop {
            let present = job(door, &door.service(), id).await;
            if present["state"] != "RUNNING" {
                return present;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ending)
        .await
        .expect("the job ends")
}

async fn react(actor: &Actor, message: &str) {
    let react = "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } }";
    actor.data(react, json!({"m": message})).await;
}

async fn history(actor: &Actor, conversation: &str) -> Value {
    actor.data(HISTORY, json!({"c": conversation})).await["conversation"].clone()
}

/// All strings of a value.
fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| strings(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| strings(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[tokio::test]
async fn a_service_alone_erases_a_user_and_a_second_call_finds_the_same_job() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    world.user("alice").group("Us", &["bob"]).await;
    let acting = door.service().acting_as("bob");
    for badge in [door.user("bob"), acting] {
        let said = door.ask(&badge, ERASE, &json!({"u": "alice"})).await;
        assert_eq!(said.code(), "FORBIDDEN");
        let said = door.ask(&badge, ERASE, &json!({"u": ""})).await;
        assert_eq!(said.code(), "FORBIDDEN", "before any look at the name");
    }
    for name in ["", "wideroom:erased", "a\u{7}"] {
        let said = door.ask(&door.service(), ERASE, &json!({"u": name})).await;
        assert_eq!(said.code(), "BAD_USER_INPUT", "{name:?}");
        let path = &said.json()["errors"][0]["extensions"]["inputPath"];
        assert_eq!(*path, json!(["input", "username"]));
    }
    let first = erase(&door, "alice").await;
    let again = erase(&door, "alice").await;
    assert_eq!(first["id"], again["id"]);
    let done = ended(&door, &first["id"]).await;
    assert_eq!(done["state"], "DONE");
    assert_eq!(done["error"], Value::Null);
    assert_ne!(done["finishedAt"], Value::Null);
    let again = erase(&door, "alice").await;
    assert_eq!(again["id"], first["id"]);
    assert_eq!(
        again["finishedAt"], done["finishedAt"],
        "it is the same job"
    );
    assert_eq!(
        job(&door, &door.user("bob"), &first["id"]).await,
        Value::Null
    );
    let alice = door.user("alice");
    let said = door.ask(&alice, "{ viewer { id } }", &json!({})).await;
    assert_eq!(said.code(), "FORBIDDEN", "the user is suspended");
}

#[tokio::test]
async fn nothing_of_an_erased_user_is_left_and_others_keep_their_conversations() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let profile =
        "mutation { updateProfile(input: {displayName: \"Alice in person\"}) { user { id } } }";
    alice.data(profile, json!({})).await;
    let group = alice.group("Us", &["bob", "carol"]).await;
    let direct = bob.direct("alice").await;
    let other = bob.group("Others", &["carol"]).await;
    let first = alice.send(&group, "said by her").await;
    let kept = bob.send(&group, "said by him").await;
    react(&alice, &kept.id).await;
    react(&carol, &kept.id).await;
    react(&alice, &first.id).await;
    let pin = "mutation($m: ID!) { pinMessage(input: {messageId: $m}) { message { id } } }";
    alice.data(pin, json!({"m": kept.id})).await;
    alice.send(&direct, "only for you").await;
    bob.send(&direct, "thank you").await;
    let add = "mutation($c: ID!) { addParticipants(input: {conversationId: $c, usernames: [\"dan\"]}) { conversation { id } } }";
    alice.data(add, json!({"c": group})).await;
    carol.send(&other, "elsewhere").await;
    bob.mark_read(&group, Some(&first.id)).await;
    let block = "mutation { blockUser(input: {username: \"carol\"}) { user { id } } }";
    alice.data(block, json!({})).await;
    let before = bob.data(INBOX, json!({})).await;

    let done = erase_to_the_end(&door, "alice").await;
    assert_eq!(done["state"], "DONE");
    assert_eq!(done["doneCount"], 5, "the messages of her conversations");

    let after = bob.data(INBOX, json!({})).await;
    let order = |inbox: &Value| {
        let edges = inbox["inbox"]["edges"].as_array().unwrap().clone();
        let each = edges.into_iter().map(|edge| {
            let node = &edge["node"];
            let activity = node["lastActivityAt"].clone();
            (node["conversation"]["id"].clone(), activity)
        });
        each.collect::<Vec<_>>()
    };
    assert_eq!(order(&after), order(&before), "nothing has moved");
    assert_eq!(
        [bob.unread(&group).await, bob.unread(&other).await],
        [0, 1],
        "unread counts are those of the messages that are left"
    );
    let seen = history(&bob, &group).await;
    let mut all = Vec::new();
    strings(&seen, &mut all);
    strings(&history(&bob, &direct).await, &mut all);
    for gone in ["alice", "said by her", "only for you", "Alice in person"] {
        assert!(
            all.iter().all(|text| !text.contains(gone)),
            "{gone}: {all:?}"
        );
    }
    assert!(all.contains(&"said by him".to_owned()) && all.contains(&"thank you".to_owned()));
    assert_eq!(seen["createdBy"]["username"], "wideroom:erased");
    let people = seen["participants"]["edges"].as_array().unwrap();
    assert_eq!(people.len(), 3);
    assert_eq!(people[0]["node"]["user"]["username"], "bob");
    assert_eq!(people[0]["node"]["role"], "OWNER", "he inherits the role");
    let messages = seen["messages"]["edges"].as_array().unwrap();
    assert_eq!(messages.len(), 3, "deleted ones and announcements stay");
    let node = |id: &str| {
        let mut nodes = messages.iter().map(|edge| &edge["node"]);
        nodes.find(|node| node["id"] == id).unwrap()
    };
    assert_eq!(node(&first.id)["sender"]["username"], "wideroom:erased");
    assert_ne!(node(&first.id)["deletedAt"], Value::Null);
    let reactions = node(&kept.id)["reactions"].clone();
    assert_eq!(reactions[0]["users"], json!([{"username": "carol"}]));
    assert_eq!(node(&kept.id)["isPinned"], true);
    assert_eq!(history(&bob, &direct).await["directPeer"], Value::Null);
    let user =
        "{ viewer { id } u: node(id: \"AXVhbGljZQ\") { ... on User { username displayName } } }";
    let profile = bob.data(user, json!({})).await["u"].clone();
    assert_eq!(profile["displayName"], Value::Null);
    crate::store::ask::assert_sound(&*world.store).await;
}

#[tokio::test]
async fn each_deleted_message_has_its_event_and_the_last_one_is_that_of_the_user() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let group = bob.group("Us", &["alice"]).await;
    let mut sent = Vec::new();
    for n in 0..3 {
        sent.push(alice.send(&group, &format!("text {n}")).await.id);
    }
    world
        .store
        .set_outbox(Some(SystemClock.now()))
        .await
        .unwrap();
    let outbox = "subscription { outbox { conversation { id } event { __typename
        ... on MessageDeletedEvent { message { id body sender { username } } }
        ... on ParticipantRemovedEvent { user { username } }
        ... on UserErasedEvent { username } } } }";
    let mut events = door.subscribe(&door.service(), outbox, &json!({}));
    let first = events.next().await.unwrap();
    assert_eq!(first["data"]["outbox"]["event"], Value::Null);
    let cursor = bob.events_cursor(&group).await;
    erase_to_the_end(&door, "alice").await;

    let mut kinds = Vec::new();
    let mut deleted = Vec::new();
    loop {
        let next = tokio::time::timeout(PATIENCE, events.next()).await.unwrap();
        let payload = next.unwrap()["data"]["outbox"].clone();
        let event = &payload["event"];
        kinds.push(text(&event["__typename"]));
        if event["__typename"] == "MessageDeletedEvent" {
            assert_eq!(event["message"]["body"], Value::Null);
            deleted.push(text(&event["message"]["id"]));
        }
        if event["__typename"] == "UserErasedEvent" {
            assert_eq!(event["username"], "alice");
            assert_eq!(payload["conversation"], Value::Null);
            break;
        }
    }
    deleted.sort();
    sent.sort();
    assert_eq!(deleted, sent);
    assert_eq!(kinds[0], "ParticipantRemovedEvent", "{kinds:?}");
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    // A resumed stream of a participant has the same. On a cluster it may repeat events.
    let stream =
        "subscription($c: ID!, $a: String) { conversationEvents(conversationId: $c, after: $a) {
        event { __typename ... on MessageDeletedEvent { message { id } } } } }";
    let mut heard = bob.subscribe(stream, json!({"c": group, "a": cursor}));
    let (mut has_left, mut seen) = (false, BTreeSet::new());
    while !has_left || seen.len() < sent.len() {
        let payload = heard.next().await;
        let event = &payload["conversationEvents"]["event"];
        has_left |= event["__typename"] == "ParticipantRemovedEvent";
        seen.extend(event["message"]["id"].as_str().map(str::to_owned));
    }
    assert!(seen.iter().eq(&sent));
}

#[tokio::test]
async fn an_erasure_goes_on_after_a_restart() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let group = bob.group("Us", &["alice"]).await;
    for n in 0..150 {
        alice.send(&group, &format!("text {n}")).await;
    }
    let id = erase(&Door::of(&world.chat), "alice").await["id"].clone();
    drop((alice, bob));
    let world = world.restarted().await;
    let door = Door::of(&world.chat);
    let done = ended(&door, &id).await;
    assert_eq!(done["state"], "DONE");
    assert_eq!(done["doneCount"], 150);
    let bob = world.user("bob");
    let mut all = Vec::new();
    strings(&history(&bob, &group).await, &mut all);
    assert!(
        all.iter()
            .all(|text| !text.contains("alice") && !text.contains("text"))
    );
}

#[tokio::test]
async fn reports_by_the_user_go_and_those_about_the_user_are_emptied() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let group = bob.group("Us", &["alice"]).await;
    let rude = alice.send(&group, "rude words").await;
    let about =
        "mutation($m: ID!) { reportMessage(input: {messageId: $m, reason: HATE}) { reportId } }";
    let about = bob.data(about, json!({"m": rude.id})).await["reportMessage"]["reportId"].clone();
    let by = "mutation { reportUser(input: {username: \"bob\", reason: SPAM, note: \"her words\"}) { reportId } }";
    let by = alice.data(by, json!({})).await["reportUser"]["reportId"].clone();
    erase_to_the_end(&door, "alice").await;
    let node = "query($i: ID!) { node(id: $i) { ... on Report { id bodyThen reporter { username } user { username } } } }";
    let found = async |id: &Value| {
        let said = door.ask(&door.service(), node, &json!({"i": id})).await;
        said.json()["data"]["node"].clone()
    };
    assert_eq!(found(&by).await, Value::Null);
    let emptied = json!({"id": about, "bodyThen": null,
        "reporter": {"username": "bob"}, "user": {"username": "wideroom:erased"}});
    assert_eq!(found(&about).await, emptied);
}

#[tokio::test]
async fn a_user_who_was_restored_begins_anew_and_may_be_erased_again() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let direct = bob.direct("alice").await;
    alice.send(&direct, "before").await;
    let first = erase_to_the_end(&door, "alice").await;
    let restore = "mutation { restoreUser(input: {username: \"alice\"}) { user { id } } }";
    let said = door.ask(&door.service(), restore, &json!({})).await.json();
    assert!(said.get("errors").is_none(), "{said}");
    let anew = alice.direct("bob").await;
    assert_ne!(anew, direct, "the old conversation stays with bob alone");
    assert_eq!(bob.direct("alice").await, anew);
    alice.send(&anew, "after").await;
    assert_eq!(
        history(&bob, &anew).await["directPeer"]["username"],
        "alice"
    );
    let again = erase_to_the_end(&door, "alice").await;
    assert_eq!(again["id"], first["id"]);
    assert_ne!(again["finishedAt"], first["finishedAt"], "it began again");
    let mut all = Vec::new();
    strings(&history(&bob, &anew).await, &mut all);
    assert!(all.iter().all(|text| text != "after" && text != "alice"));
    crate::store::ask::assert_sound(&*world.store).await;
}

#[tokio::test]
async fn nobody_is_named_as_erased_users_are() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let bob = world.user("bob");
    let group = bob.group("Us", &["carol"]).await;
    let start = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }";
    let make = "mutation($u: String!) { createGroupConversation(input: {name: \"x\", usernames: [$u]}) { conversation { id } } }";
    let add = "mutation($u: String!, $c: ID!) { addParticipants(input: {conversationId: $c, usernames: [$u]}) { conversation { id } } }";
    for document in [start, make, add] {
        let mut variables = json!({"u": "wideroom:erased"});
        if document == add {
            variables["c"] = json!(group);
        }
        assert_eq!(bob.ask(document, variables).await.code(), "BAD_USER_INPUT");
    }
    let badge = door.signed(&json!({"sub": "wideroom:erased", "exp": 4_000_000_000_i64}));
    let said = door.ask(&badge, "{ viewer { id } }", &json!({})).await;
    assert_eq!(said.code(), "UNAUTHENTICATED");
    let badge = door.service().acting_as("wideroom:erased");
    let said = door.ask(&badge, "{ viewer { id } }", &json!({})).await;
    assert_eq!(said.code(), "BAD_USER_INPUT");
}
