//! Pins: who may pin, what everybody sees then, the bound, and what is told.

use serde_json::{Value, json};

use crate::support::door::Door;
use crate::support::world::{Actor, Answer, Stream, World, text};

const EDGE: &str = "cursor pinnedAt pinnedBy { username } node { id isPinned }";
const EVENTS: &str = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { cursor event {
    __typename ... on PinsChangedEvent { message { id isPinned } pinnedMessageEdge { pinnedBy { username } node { id } } }
    ... on MessageDeletedEvent { message { id isPinned } } } } }";

async fn pin(actor: &Actor, message: &str) -> Answer {
    let document = format!(
        "mutation($m: ID!) {{ pinMessage(input: {{messageId: $m}}) {{ message {{ id isPinned }} pinnedMessageEdge {{ {EDGE} }} }} }}"
    );
    actor.ask(&document, json!({"m": message})).await
}

async fn unpin(actor: &Actor, message: &str) -> Answer {
    let document =
        "mutation($m: ID!) { unpinMessage(input: {messageId: $m}) { message { id isPinned } } }";
    actor.ask(document, json!({"m": message})).await
}

/// The ids of a page of pinned messages.
async fn page(actor: &Actor, conversation: &str, arguments: &str) -> (Vec<String>, Value) {
    let document = format!(
        "query($c: ID!) {{ conversation(id: $c) {{ pinnedMessages{arguments} {{ edges {{ {EDGE} }} pageInfo {{ hasNextPage hasPreviousPage startCursor endCursor }} }} }} }}"
    );
    let data = actor.data(&document, json!({"c": conversation})).await;
    let page = data["conversation"]["pinnedMessages"].clone();
    let edges = page["edges"].as_array().unwrap();
    assert!(edges.iter().all(|edge| edge["node"]["isPinned"] == true));
    let ids = edges.iter().map(|edge| text(&edge["node"]["id"]));
    (ids.collect(), page["pageInfo"].clone())
}

async fn pinned(actor: &Actor, conversation: &str) -> Vec<String> {
    page(actor, conversation, "(first: 100)").await.0
}

async fn delete(actor: &Actor, message: &str) {
    let document =
        "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id isPinned } } }";
    let data = actor.data(document, json!({"m": message})).await;
    assert_eq!(data["deleteMessage"]["message"]["isPinned"], false);
}

async fn event(stream: &mut Stream) -> Value {
    stream.next().await["conversationEvents"]["event"].clone()
}

#[tokio::test]
async fn the_last_pinned_comes_first_until_it_is_unpinned_or_deleted() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let (one, two, three) = (
        alice.send(&c, "one").await,
        bob.send(&c, "two").await,
        alice.send(&c, "three").await,
    );
    assert_eq!(pinned(&bob, &c).await, [""; 0]);
    for message in [&two, &three, &one] {
        let data = pin(&bob, &message.id).await.data();
        assert_eq!(data["pinMessage"]["message"]["isPinned"], true);
        let edge = &data["pinMessage"]["pinnedMessageEdge"];
        assert_eq!(edge["pinnedBy"]["username"], "bob");
        assert_eq!(edge["node"]["id"], message.id);
    }
    assert_eq!(pinned(&alice, &c).await, [&*one.id, &three.id, &two.id]);
    let first = pin(&bob, &two.id).await.data();
    let again = pin(&alice, &two.id).await.data();
    assert_eq!(first, again, "pinning it again changes nothing");
    assert_eq!(pinned(&alice, &c).await, [&*one.id, &three.id, &two.id]);
    for _ in 0..2 {
        let data = unpin(&alice, &three.id).await.data();
        assert_eq!(data["unpinMessage"]["message"]["isPinned"], false);
    }
    delete(&alice, &one.id).await;
    assert_eq!(pinned(&alice, &c).await, [&*two.id]);
    let refused = pin(&alice, &one.id).await;
    assert_eq!(
        (refused.code().as_str(), &refused.extensions()["inputPath"]),
        ("BAD_USER_INPUT", &json!(["input", "messageId"]))
    );
    let data = unpin(&alice, &one.id).await.data();
    assert_eq!(data["unpinMessage"]["message"]["isPinned"], false);
}

#[tokio::test]
async fn pages_of_pins_go_both_ways() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let mut newest_first = Vec::new();
    for n in 0..5 {
        let sent = alice.send(&c, &n.to_string()).await;
        pin(&alice, &sent.id).await.data();
        newest_first.insert(0, sent.id);
    }
    let (ids, info) = page(&alice, &c, "(first: 2)").await;
    assert_eq!(ids, newest_first[..2]);
    assert_eq!(info["hasNextPage"], true);
    let after = text(&info["endCursor"]);
    let (ids, info) = page(&alice, &c, &format!("(first: 3, after: \"{after}\")")).await;
    assert_eq!(ids, newest_first[2..]);
    assert_eq!(
        (&info["hasNextPage"], &info["hasPreviousPage"]),
        (&json!(false), &json!(true))
    );
    let before = text(&info["startCursor"]);
    let (ids, _) = page(&alice, &c, &format!("(last: 1, before: \"{before}\")")).await;
    assert_eq!(ids, newest_first[1..2]);
    let other = alice.direct("carol").await;
    let document = "query($c: ID!, $a: String) { conversation(id: $c) { pinnedMessages(after: $a) { edges { cursor } } } }";
    let answer = alice.ask(document, json!({"c": other, "a": after})).await;
    assert_eq!(answer.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn a_conversation_has_at_most_100_pins() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.group("many", &["bob"]).await;
    let mut sent = Vec::new();
    for n in 0..101 {
        sent.push(alice.send(&c, &n.to_string()).await.id);
    }
    for message in &sent[..100] {
        pin(&alice, message).await.data();
    }
    assert_eq!(pin(&alice, &sent[100]).await.code(), "CONFLICT");
    pin(&alice, &sent[7]).await.data();
    delete(&alice, &sent[3]).await;
    pin(&alice, &sent[100]).await.data();
    let all = pinned(&alice, &c).await;
    assert_eq!((all.len(), &all[0]), (100, &sent[100]));
}

#[tokio::test]
async fn strangers_and_members_of_large_conversations_do_not_pin() {
    let world = World::open().await;
    let (alice, mallory) = (world.user("alice"), world.user("mallory"));
    let names: Vec<_> = (0..40).map(|i| format!("user-{i:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let c = alice.group("large", &names).await;
    let sent = alice.send(&c, "x").await;
    for message in [sent.id.as_str(), "nonsense"] {
        assert_eq!(pin(&mallory, message).await.code(), "NOT_FOUND");
        assert_eq!(unpin(&mallory, message).await.code(), "NOT_FOUND");
    }
    let member = world.user("user-07");
    assert_eq!(pin(&member, &sent.id).await.code(), "FORBIDDEN");
    pin(&alice, &sent.id).await.data();
    assert_eq!(unpin(&member, &sent.id).await.code(), "FORBIDDEN");
    assert_eq!(pinned(&member, &c).await, [&*sent.id]);
    let role = "mutation($c: ID!) { setParticipantRole(input: {conversationId: $c, username: \"user-07\", role: ADMIN}) { participant { id } } }";
    alice.data(role, json!({"c": c})).await;
    unpin(&member, &sent.id).await.data();
    assert_eq!(pinned(&member, &c).await, [""; 0]);
}

#[tokio::test]
async fn who_blocks_the_other_one_does_not_pin() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "x").await;
    let block = "mutation { blockUser(input: {username: \"bob\"}) { user { id } } }";
    alice.data(block, json!({})).await;
    assert_eq!(pin(&alice, &sent.id).await.code(), "FORBIDDEN");
    pin(&bob, &sent.id).await.data();
}

#[tokio::test]
async fn a_pin_is_told_once_live_and_resumed_and_in_no_inbox() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "one").await;
    let mut inbox = alice.subscribe(
        "subscription { inboxUpdated { event { __typename } } }",
        json!({}),
    );
    assert_eq!(inbox.next().await["inboxUpdated"]["event"], Value::Null);
    let mut live = alice.subscribe(EVENTS, json!({"c": c}));
    let start = live.next().await["conversationEvents"]["cursor"].clone();
    pin(&bob, &sent.id).await.data();
    pin(&bob, &sent.id).await.data();
    let on = json!({"__typename": "PinsChangedEvent", "message": {"id": sent.id, "isPinned": true},
        "pinnedMessageEdge": {"pinnedBy": {"username": "bob"}, "node": {"id": sent.id}}});
    assert_eq!(event(&mut live).await, on);
    let mut resumed = alice.subscribe(EVENTS, json!({"c": c, "after": start}));
    loop {
        let event = event(&mut resumed).await;
        if event["__typename"] == "PinsChangedEvent" {
            assert_eq!(event, on);
            break;
        }
    }
    unpin(&alice, &sent.id).await.data();
    let off = json!({"__typename": "PinsChangedEvent", "message": {"id": sent.id, "isPinned": false}, "pinnedMessageEdge": null});
    assert_eq!(event(&mut live).await, off);
    assert_eq!(event(&mut resumed).await, off);
    assert!(live.is_quiet() && inbox.is_quiet());
}

#[tokio::test]
async fn services_hear_of_pins() {
    let world = World::open().await;
    world
        .store
        .set_outbox(Some(wideroom::clock::Clock::now(
            &wideroom::clock::SystemClock,
        )))
        .await
        .unwrap();
    let door = Door::of(&world.chat);
    let document = "subscription { outbox(types: [PINS_CHANGED]) { event { __typename
        ... on PinsChangedEvent { message { id isPinned } pinnedMessageEdge { pinnedBy { username } } } } } }";
    let mut events = door.subscribe(&door.service(), document, &json!({}));
    let mut next = async || {
        use futures_util::StreamExt as _;
        events.next().await.unwrap()["data"]["outbox"]["event"].clone()
    };
    assert_eq!(next().await, Value::Null);
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "one").await;
    pin(&alice, &sent.id).await.data();
    let told = next().await;
    assert_eq!(told["message"], json!({"id": sent.id, "isPinned": true}));
    assert_eq!(told["pinnedMessageEdge"]["pinnedBy"]["username"], "alice");
}
