//! The floor: what lies below it does not exist for the viewer, by any field, mutation or stream.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use uuid::Uuid;
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat};
use wideroom::clock::{Clock, ManualClock, SystemClock};
use wideroom::graphql::{Api, DocumentBounds};
use wideroom::metrics::Metrics;
use wideroom::model::{ConversationId, MessageId, TimeUuid, UserId};
use wideroom::store::InstrumentedStore;

use crate::support::words;
use crate::support::world::{Actor, Answer, Sent, Stream, World, text};

const EVENTS: &str = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { cursor event { __typename
    ... on MessageAddedEvent { messageEdge { node { id body } } } ... on ReactionsChangedEvent { message { id } }
    ... on HistoryExpiredEvent { before conversation { id } } } } }";

async fn clear(actor: &Actor, conversation: &str) -> Value {
    let document = "mutation($c: ID!) { clearHistory(input: {conversationId: $c}) {
        inboxEntry { visibleFrom unreadCount lastMessage { id } } } }";
    let data = actor.data(document, json!({"c": conversation})).await;
    data["clearHistory"]["inboxEntry"].clone()
}

async fn truncate(actor: &Actor, conversation: &str, up_to: &str) -> Answer {
    let document = "mutation($c: ID!, $m: ID!) { truncateConversation(input: {conversationId: $c, upToMessageId: $m}) { conversation { messageCount } } }";
    actor
        .ask(document, json!({"c": conversation, "m": up_to}))
        .await
}

async fn update(actor: &Actor, conversation: &str, settings: &str) -> Answer {
    let document = format!(
        "mutation($c: ID!) {{ updateConversation(input: {{conversationId: $c, {settings}}}) {{ conversation {{ historyVisibility messageTtlSeconds slowModeSeconds }} }} }}"
    );
    actor.ask(&document, json!({"c": conversation})).await
}

/// Bodies of the messages that the actor sees, the newest first, and their number.
async fn seen(actor: &Actor, conversation: &str) -> (Vec<String>, i64) {
    let document = "query($c: ID!) { conversation(id: $c) { messageCount messages(first: 100) { edges { node { body kind } } pageInfo { hasNextPage } } } }";
    let data = actor.data(document, json!({"c": conversation})).await;
    let page = &data["conversation"]["messages"];
    assert_eq!(page["pageInfo"]["hasNextPage"], false);
    let edges = page["edges"].as_array().unwrap();
    let bodies = edges
        .iter()
        .map(|edge| edge["node"]["body"].as_str().unwrap_or("-").to_owned());
    let count = data["conversation"]["messageCount"].as_i64().unwrap();
    assert_eq!(count, edges.len() as i64);
    (bodies.collect(), count)
}

async fn texts(actor: &Actor, conversation: &str) -> Vec<String> {
    let (bodies, _) = seen(actor, conversation).await;
    bodies.into_iter().filter(|body| !body.is_empty()).collect()
}

/// The id of no message, at the time of this one.
fn absent(message: &str) -> String {
    let mut bytes = URL_SAFE_NO_PAD.decode(message).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    URL_SAFE_NO_PAD.encode(bytes)
}

async fn next_event(stream: &mut Stream) -> Value {
    loop {
        let event = stream.next().await["conversationEvents"]["event"].clone();
        if !event.is_null() && event["__typename"] != "MarkerMovedEvent" {
            return event;
        }
    }
}

async fn react(actor: &Actor, message: &str) {
    let document = "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } }";
    actor.data(document, json!({"m": message})).await;
}

/// Everything that can show or touch a message, by its id.
const PROBES: &[&str] = &[
    "query($c: ID!, $m: ID!) { node(id: $m) { id } conversation(id: $c) { id } }",
    "query($c: ID!, $m: ID!) { nodes(ids: [$m]) { id } conversation(id: $c) { id } }",
    "query($c: ID!, $m: ID!) { conversation(id: $c) { messages(around: $m) { edges { node { id } } } } }",
    "mutation($c: ID!, $m: ID!) { markRead(input: {conversationId: $c, messageId: $m}) { inboxEntry { id } } }",
    "mutation($c: ID!, $m: ID!) { markUnread(input: {conversationId: $c, messageId: $m}) { inboxEntry { id } } }",
    "mutation($c: ID!, $m: ID!) { markDelivered(input: {conversationId: $c, messageId: $m}) { inboxEntry { id } } }",
    "mutation($c: ID!, $m: ID!) { sendMessage(input: {conversationId: $c, body: \"re\", replyToId: $m}) { messageEdge { cursor } } }",
    "mutation($c: ID!, $m: ID!) { writeLiveMessage(input: {conversationId: $c, key: \"k\", writer: \"w\", position: 0, text: \"re\", replyToId: $m}) { nextPosition } }",
    "mutation($c: ID!, $m: ID!) { editMessage(input: {messageId: $m, body: \"new\"}) { message { id } } setTyping(input: {conversationId: $c, typing: false}) { __typename } }",
    "mutation($c: ID!, $m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } setTyping(input: {conversationId: $c, typing: false}) { __typename } }",
    "mutation($c: ID!, $m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } setTyping(input: {conversationId: $c, typing: false}) { __typename } }",
    "mutation($c: ID!, $m: ID!) { removeReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } setTyping(input: {conversationId: $c, typing: false}) { __typename } }",
    "mutation($c: ID!, $m: ID!) { pinMessage(input: {messageId: $m}) { message { id } } setTyping(input: {conversationId: $c, typing: false}) { __typename } }",
    "mutation($c: ID!, $m: ID!) { unpinMessage(input: {messageId: $m}) { message { id } } setTyping(input: {conversationId: $c, typing: false}) { __typename } }",
    "mutation($c: ID!, $m: ID!) { truncateConversation(input: {conversationId: $c, upToMessageId: $m}) { conversation { id } } }",
    "mutation($c: ID!, $m: ID!) { reportMessage(input: {messageId: $m, reason: SPAM}) { __typename } setTyping(input: {conversationId: $c, typing: false}) { __typename } }",
];

#[test]
fn every_mutation_of_a_message_is_probed_with_one_below_the_floor() {
    let schema = include_str!("../../schema.graphql");
    let inputs = schema
        .split("\ninput ")
        .skip(1)
        .filter_map(|rest| rest.split_once("\n}"));
    let of_messages = inputs.filter(|(fields, _)| {
        ["messageId: ID", "MessageId: ID", "replyToId: ID"]
            .iter()
            .any(|field| fields.replace("liveMessageId", "").contains(field))
    });
    let mut count = 0;
    for (fields, _) in of_messages {
        let (name, _) = fields.split_once("Input ").unwrap();
        let (first, rest) = name.split_at(1);
        let mutation = format!("{}{rest}(", first.to_lowercase());
        assert!(
            PROBES.iter().any(|probe| probe.contains(&mutation)),
            "{mutation}"
        );
        count += 1;
    }
    assert!(count >= 12, "{count}");
}

/// Answers by the id of a message below the floor must be, in bytes, those by the id of none.
async fn assert_absent(actor: &Actor, conversation: &str, message: &str) {
    let none = absent(message);
    for probe in PROBES {
        let with = |message: &str| json!({"c": conversation, "m": message});
        let shown = actor.ask(probe, with(message)).await;
        let expected = actor.ask(probe, with(&none)).await;
        assert_eq!(shown.0.to_string(), expected.0.to_string(), "{probe}");
    }
}

/// Lists, counts and positions show nothing of these messages.
async fn assert_unlisted(actor: &Actor, conversation: &str, hidden: &[&Sent]) {
    let document = "query($c: ID!) { conversation(id: $c) { lastMessage { id } pinnedMessages { edges { node { id } } }
        messages(first: 100) { edges { node { id replyTo { id } } } }
        back: messages(last: 100) { edges { node { id } } }
        participants { edges { node { readUpTo { id } deliveredUpTo { id } } } }
        searchMessages(query: \"secret\") { edges { node { id } } }
        inboxEntry { lastMessage { id } firstUnreadMessage { id } readUpTo { id } firstUnreadMention { id } unreadCount unreadMentionCount } }
      searchMessages(query: \"secret\") { edges { node { id } } }
      inbox { edges { node { lastMessage { id } firstUnreadMessage { id } readUpTo { id } unreadCount } } } }";
    let answer = actor.data(document, json!({"c": conversation})).await;
    let shown = answer.to_string();
    for message in hidden {
        assert!(!shown.contains(&message.id), "{shown}");
    }
}

#[tokio::test]
async fn what_a_user_has_cleared_is_gone_for_that_user_alone() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("friends", &["bob"]).await;
    let start = bob.events_cursor(&c).await;
    let one = alice.send(&c, "secret one").await;
    let two = bob.send(&c, "secret two").await;
    react(&alice, &one.id).await;
    let pin = "mutation($m: ID!) { pinMessage(input: {messageId: $m}) { message { id } } }";
    alice.data(pin, json!({"m": one.id})).await;
    bob.mark_read(&c, Some(&one.id)).await;
    alice.mark_read(&c, Some(&one.id)).await;
    let before = seen(&alice, &c).await;

    let entry = clear(&bob, &c).await;
    assert!(entry["visibleFrom"].is_string(), "{entry}");
    assert_eq!(
        (&entry["unreadCount"], &entry["lastMessage"]),
        (&json!(0), &Value::Null)
    );
    assert_eq!(seen(&bob, &c).await, (Vec::new(), 0));
    assert_eq!(seen(&alice, &c).await, before);
    assert_unlisted(&bob, &c, &[&one, &two]).await;
    assert_absent(&bob, &c, &one.id).await;
    assert_absent(&bob, &c, &two.id).await;
    assert_eq!(
        clear(&bob, &c).await,
        entry,
        "a second time changes nothing"
    );

    let document = "mutation($c: ID!, $r: ID!) { sendMessage(input: {conversationId: $c, body: \"reply\", replyToId: $r}) { messageEdge { node { id } } } }";
    alice.data(document, json!({"c": c, "r": one.id})).await;
    assert_eq!(texts(&bob, &c).await, ["reply"]);
    assert_unlisted(&bob, &c, &[&one, &two]).await;
    assert_eq!(bob.unread(&c).await, 1);

    // A resume from an old cursor begins at the floor.
    let mut resumed = bob.subscribe(EVENTS, json!({"c": c, "after": start}));
    let event = next_event(&mut resumed).await;
    assert_eq!(event["messageEdge"]["node"]["body"], "reply", "{event}");
    let added = "subscription($c: ID!, $a: String) { messageAdded(conversationId: $c, after: $a) { messageEdge { node { body replyTo { id } } } } }";
    let mut resumed = bob.subscribe(added, json!({"c": c, "a": start}));
    let node = resumed.next().await["messageAdded"]["messageEdge"]["node"].clone();
    assert_eq!(node, json!({"body": "reply", "replyTo": null}));
}

#[tokio::test]
async fn a_live_stream_is_silent_below_the_floor() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("friends", &["bob", "carol"]).await;
    let old = alice.send(&c, "old").await;
    let mut streams = [
        bob.subscribe(EVENTS, json!({"c": c})),
        alice.subscribe(EVENTS, json!({"c": c})),
    ];
    for stream in &mut streams {
        stream.next().await;
    }
    let entries = "subscription { inboxUpdated { event { ... on InboxEntryChangedEvent { inboxEntryEdge { node { visibleFrom unreadCount } } } } } }";
    let mut inbox = bob.subscribe(entries, json!({}));
    inbox.next().await;
    let entry = clear(&bob, &c).await;
    let told = inbox.next().await["inboxUpdated"]["event"].clone();
    assert_eq!(
        told["inboxEntryEdge"]["node"]["visibleFrom"],
        entry["visibleFrom"]
    );
    react(&alice, &old.id).await;
    let new = alice.send(&c, "new").await;
    let [of_bob, of_alice] = &mut streams;
    let event = next_event(of_bob).await;
    assert_eq!(event["messageEdge"]["node"]["id"], new.id, "{event}");
    let event = next_event(of_alice).await;
    assert_eq!(event["message"]["id"], old.id, "{event}");
}

#[tokio::test]
async fn subscribers_share_a_payload_that_shows_nothing_below_the_floor_of_one() {
    let world = World::open().await;
    let (alice, bob, carol) = (world.user("alice"), world.user("bob"), world.user("carol"));
    let c = alice.group("friends", &["bob", "carol"]).await;
    let old = alice.send(&c, "old").await;
    clear(&bob, &c).await;
    let after = alice.events_cursor(&c).await;
    let document = "subscription($c: ID!, $a: String) { messageAdded(conversationId: $c, after: $a) { messageEdge { node { body replyTo { id } conversation { messageCount } } } } }";
    let mut streams = [&bob, &carol, &bob, &carol]
        .map(|actor| actor.subscribe(document, json!({"c": c, "a": after})));
    let reply = "mutation($c: ID!, $r: ID!) { sendMessage(input: {conversationId: $c, body: \"reply\", replyToId: $r}) { messageEdge { node { id } } } }";
    alice.data(reply, json!({"c": c, "r": old.id})).await;
    for (index, stream) in streams.iter_mut().enumerate() {
        let mut next = async || stream.next().await["messageAdded"]["messageEdge"]["node"].clone();
        let mut node = next().await;
        // A resumed stream of a cluster may repeat what is younger than ten seconds, to those who see it.
        while index % 2 == 1 && node["body"] == "old" {
            node = next().await;
        }
        let (reply_to, count) = if index % 2 == 0 {
            (Value::Null, 1)
        } else {
            (json!({"id": old.id}), 2)
        };
        assert_eq!(
            node,
            json!({"body": "reply", "replyTo": reply_to, "conversation": {"messageCount": count}})
        );
    }
}

async fn add(actor: &Actor, conversation: &str, name: &str, visible_from: Option<&str>) {
    let document = "mutation($c: ID!, $u: String!, $v: DateTime) {
        addParticipants(input: {conversationId: $c, usernames: [$u], visibleFrom: $v}) { conversation { id } } }";
    let variables = json!({"c": conversation, "u": name, "v": visible_from});
    actor.data(document, variables).await;
}

async fn sent_at(actor: &Actor, message: &str) -> String {
    let document = "query($m: ID!) { node(id: $m) { ... on Message { createdAt } } }";
    let data = actor.data(document, json!({"m": message})).await;
    text(&data["node"]["createdAt"])
}

#[tokio::test]
async fn those_who_join_see_what_the_visibility_says() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.group("friends", &[]).await;
    alice.send(&c, "one").await;
    add(&alice, &c, "bob", None).await;
    let bob = world.user("bob");
    assert_eq!(texts(&bob, &c).await, ["one"], "ALL is the default");

    let data = update(&alice, &c, "historyVisibility: SINCE_JOINED")
        .await
        .data();
    let settings = &data["updateConversation"]["conversation"];
    assert_eq!(settings["historyVisibility"], "SINCE_JOINED");
    assert_eq!(texts(&bob, &c).await, ["one"], "it concerns those who join");
    let two = alice.send(&c, "two").await;
    add(&alice, &c, "carol", None).await;
    let carol = world.user("carol");
    let three = alice.send(&c, "three").await;
    assert_eq!(texts(&carol, &c).await, ["three"]);
    assert_absent(&carol, &c, &two.id).await;
    assert_unlisted(&carol, &c, &[&two]).await;

    // A given moment counts, but not before the adder's own bound.
    let from = sent_at(&alice, &two.id).await;
    add(&alice, &c, "dora", Some(&from)).await;
    let dora = world.user("dora");
    assert_eq!(texts(&dora, &c).await, ["three", "two"]);
    let admin = "mutation($c: ID!) { setParticipantRole(input: {conversationId: $c, username: \"carol\", role: ADMIN}) { participant { id } } }";
    alice.data(admin, json!({"c": c})).await;
    add(&carol, &c, "ed", Some("2000-01-01T00:00:00Z")).await;
    let ed = world.user("ed");
    assert_eq!(texts(&ed, &c).await, ["three"]);

    // Leaving and joining again sets the bound anew; what was cleared stays away.
    let leave = "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { leftConversationId } }";
    dora.data(leave, json!({"c": c})).await;
    add(&alice, &c, "dora", None).await;
    assert_eq!(texts(&dora, &c).await, [""; 0]);
    update(&alice, &c, "historyVisibility: null").await.data();
    clear(&ed, &c).await;
    ed.data(leave, json!({"c": c})).await;
    add(&alice, &c, "ed", None).await;
    assert_eq!(texts(&ed, &c).await, [""; 0]);
    let four = alice.send(&c, "four").await;
    assert_eq!(texts(&ed, &c).await, ["four"]);
    assert!(four.id != three.id);
    for (actor, settings, code) in [
        (&carol, "historyVisibility: ALL", "FORBIDDEN"),
        (&carol, "messageTtlSeconds: 60", "FORBIDDEN"),
        (&alice, "messageTtlSeconds: 59", "BAD_USER_INPUT"),
        (&alice, "messageTtlSeconds: 315576001", "BAD_USER_INPUT"),
        (
            &alice,
            "messageTtlSeconds: 60, slowModeSeconds: -1",
            "BAD_USER_INPUT",
        ),
    ] {
        assert_eq!(update(actor, &c, settings).await.code(), code, "{settings}");
    }
}

#[tokio::test]
async fn a_truncation_takes_messages_from_everyone() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("friends", &["bob"]).await;
    let after = bob.events_cursor(&c).await;
    let one = alice.send(&c, "secret one").await;
    let two = bob.send(&c, "secret two").await;
    alice.send(&c, "three").await;
    assert_eq!(truncate(&bob, &c, &one.id).await.code(), "FORBIDDEN");
    let mut events = bob.subscribe(EVENTS, json!({"c": c}));
    events.next().await;
    let entries = "subscription { inboxUpdated { event { ... on InboxEntryChangedEvent { inboxEntryEdge { node { visibleFrom unreadCount } } } } } }";
    let mut inbox = bob.subscribe(entries, json!({}));
    inbox.next().await;

    let data = truncate(&alice, &c, &two.id).await.data();
    let count = &data["truncateConversation"]["conversation"]["messageCount"];
    assert_eq!(*count, 1);
    let event = next_event(&mut events).await;
    assert_eq!(event["__typename"], "HistoryExpiredEvent", "{event}");
    let told = inbox.next().await["inboxUpdated"]["event"]["inboxEntryEdge"]["node"].clone();
    assert_eq!(told["visibleFrom"], event["before"]);
    for actor in [&alice, &bob] {
        assert_eq!(texts(actor, &c).await, ["three"]);
        assert_unlisted(actor, &c, &[&one, &two]).await;
        assert_absent(actor, &c, &two.id).await;
    }
    let answer = truncate(&alice, &c, &one.id).await;
    assert_eq!(answer.code(), "NOT_FOUND", "it is gone");
    let mut resumed = bob.subscribe(EVENTS, json!({"c": c, "after": after}));
    let event = next_event(&mut resumed).await;
    assert_eq!(event["messageEdge"]["node"]["body"], "three", "{event}");
    let event = next_event(&mut resumed).await;
    assert_eq!(event["__typename"], "HistoryExpiredEvent", "{event}");
    let direct = alice.direct("bob").await;
    let sent = alice.send(&direct, "hello").await;
    let answer = truncate(&alice, &direct, &sent.id).await;
    assert_eq!(answer.code(), "BAD_USER_INPUT", "no group");
}

#[tokio::test]
async fn an_expiry_takes_the_past_and_brings_nothing_back() {
    // The messages of this import are of 1970.
    let world = World::with_import(include_bytes!("pair.jsonl")).await;
    let (one, other) = (world.user("2249"), world.user("9111"));
    let c = one.direct("9111").await;
    assert_eq!(texts(&one, &c).await.len(), 2);
    let fresh = one.send(&c, "fresh").await;
    let data = update(&one, &c, "messageTtlSeconds: 3600").await.data();
    let held = &data["updateConversation"]["conversation"]["messageTtlSeconds"];
    assert_eq!(*held, Value::Null, "never is longer");
    assert_eq!(texts(&one, &c).await.len(), 3);
    let asked = "query($c: ID!) { conversation(id: $c) { participants { edges { node { askedMessageTtlSeconds } } } messageTtlSeconds } }";
    let data = other.data(asked, json!({"c": c})).await;
    let edges = &data["conversation"]["participants"]["edges"];
    assert_eq!(edges[0]["node"]["askedMessageTtlSeconds"], 3600);
    assert_eq!(edges[1]["node"]["askedMessageTtlSeconds"], Value::Null);

    let mut events = one.subscribe(EVENTS, json!({"c": c}));
    events.next().await;
    let data = update(&other, &c, "messageTtlSeconds: 7200").await.data();
    let held = &data["updateConversation"]["conversation"]["messageTtlSeconds"];
    assert_eq!(*held, 7200, "the longer one holds");
    let mut kinds = Vec::new();
    for _ in 0..4 {
        kinds.push(text(&next_event(&mut events).await["__typename"]));
    }
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "ConversationUpdatedEvent",
            "HistoryExpiredEvent",
            "MessageAddedEvent",
            "ParticipantUpdatedEvent"
        ]
    );
    for actor in [&one, &other] {
        assert_eq!(texts(actor, &c).await, ["fresh"]);
    }
    let document =
        "query($c: ID!, $m: ID!) { node(id: $m) { ... on Message { createdAt expiresAt } }
        conversation(id: $c) { lastMessage { kind metadata } inboxEntry { visibleFrom } } }";
    let data = one.data(document, json!({"c": c, "m": fresh.id})).await;
    assert_eq!(
        data["conversation"]["lastMessage"],
        json!({"kind": "SYSTEM", "metadata": {"event": "expiryChanged", "usernames": [], "seconds": 7200}})
    );
    assert_eq!(
        data["conversation"]["inboxEntry"]["visibleFrom"],
        Value::Null,
        "expiry comes on top"
    );
    let moment = |value: &Value| {
        wideroom::model::Timestamp::parse(value.as_str().unwrap())
            .unwrap()
            .micros()
    };
    let expires_in = moment(&data["node"]["expiresAt"]) - moment(&data["node"]["createdAt"]);
    assert_eq!(expires_in, 7_200_000_000);
    for settings in ["messageTtlSeconds: null", "messageTtlSeconds: 315576000"] {
        update(&one, &c, settings).await.data();
        assert_eq!(texts(&one, &c).await, ["fresh"], "nothing comes back");
    }
}

#[tokio::test]
async fn an_entry_whose_last_message_has_expired_shows_none() {
    let world = World::with_bounds(Bounds {
        retention: Some(Duration::from_secs(10)),
        ..Bounds::default()
    })
    .await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "secret").await;
    assert_eq!(bob.unread(&c).await, 1);
    let document = "query($m: ID!) { node(id: $m) { ... on Message { expiresAt } } }";
    let data = bob.data(document, json!({"m": sent.id})).await;
    assert!(data["node"]["expiresAt"].is_string());
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    for actor in [&alice, &bob] {
        assert_eq!(seen(actor, &c).await, (Vec::new(), 0));
        assert_unlisted(actor, &c, &[&sent]).await;
        assert_absent(actor, &c, &sent.id).await;
        assert_eq!(actor.unread(&c).await, 0);
    }
    let summary = "{ inboxSummary { unreadConversationCount } inbox(filter: {unreadOnly: true}) { edges { cursor } } }";
    let data = bob.data(summary, json!({})).await;
    assert_eq!(
        data,
        json!({"inboxSummary": {"unreadConversationCount": 0}, "inbox": {"edges": []}})
    );
}

async fn send_keyed(actor: &Actor, conversation: &str, body: &str, key: &str) -> Answer {
    let document = "mutation($c: ID!, $b: String!, $k: String!) { sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { id } } } }";
    let variables = json!({"c": conversation, "b": body, "k": key});
    actor.ask(document, variables).await
}

#[tokio::test]
async fn a_retry_whose_message_lies_below_the_floor_finds_none_and_sends_none() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("friends", &["bob"]).await;
    let first = send_keyed(&alice, &c, "secret", "k1").await.data();
    let first = text(&first["sendMessage"]["messageEdge"]["node"]["id"]);
    let of_bob = send_keyed(&bob, &c, "from bob", "k1").await.data();
    let of_bob = &of_bob["sendMessage"]["messageEdge"]["node"]["id"];

    truncate(&alice, &c, &first).await.data();
    for _ in 0..2 {
        let answer = send_keyed(&alice, &c, "secret", "k1").await;
        assert_eq!(answer.code(), "NOT_FOUND");
    }
    let answer = send_keyed(&alice, &c, "another", "k1").await;
    assert_eq!(answer.code(), "CONFLICT", "the key stays taken");
    let again = send_keyed(&bob, &c, "from bob", "k1").await.data();
    assert_eq!(again["sendMessage"]["messageEdge"]["node"]["id"], *of_bob);

    clear(&bob, &c).await;
    let answer = send_keyed(&bob, &c, "from bob", "k1").await;
    assert_eq!(answer.code(), "NOT_FOUND", "bob has cleared it");
    for actor in [&alice, &bob] {
        let new = texts(actor, &c).await;
        assert!(!new.contains(&"secret".to_owned()), "{new:?}");
    }
    assert_eq!(texts(&alice, &c).await, ["from bob"]);
}

/// Names of the events that a stream delivers before its next text.
async fn events_before_a_text(stream: &mut Stream) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let event = next_event(stream).await;
        let body = &event["messageEdge"]["node"]["body"];
        if body.as_str().is_some_and(|body| !body.is_empty()) {
            return names;
        }
        names.push(text(&event["__typename"]));
    }
}

#[tokio::test]
async fn a_resumed_stream_brings_what_is_no_message_from_below_the_floor_too() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("friends", &["bob"]).await;
    let start = bob.events_cursor(&c).await;
    let one = alice.send(&c, "one").await;
    add(&alice, &c, "carol", None).await;
    react(&alice, &one.id).await;
    for document in [
        "mutation($c: ID!) { setParticipantRole(input: {conversationId: $c, username: \"bob\", role: ADMIN}) { participant { id } } }",
        "mutation($c: ID!) { renameConversation(input: {conversationId: $c, name: \"foes\"}) { conversation { id } } }",
        "mutation($c: ID!) { silenceParticipant(input: {conversationId: $c, username: \"carol\"}) { participant { id } } }",
        "mutation($c: ID!) { updateConversation(input: {conversationId: $c, slowModeSeconds: 5}) { conversation { id } } }",
        "mutation($c: ID!) { removeParticipant(input: {conversationId: $c, username: \"carol\"}) { removedParticipantId } }",
        "mutation($c: ID!) { updateConversation(input: {conversationId: $c, historyVisibility: SINCE_JOINED}) { conversation { id } } }",
    ] {
        alice.data(document, json!({"c": c})).await;
    }
    let changes = [
        "ParticipantAddedEvent",
        "RoleChangedEvent",
        "ConversationRenamedEvent",
        "ParticipantUpdatedEvent",
        "ConversationUpdatedEvent",
        "ParticipantRemovedEvent",
        "ConversationUpdatedEvent",
    ];
    let last = alice.send(&c, "two").await;
    let resume = |actor: &Actor| actor.subscribe(EVENTS, json!({"c": c, "after": start}));
    add(&alice, &c, "dora", None).await;
    let dora = world.user("dora");
    clear(&bob, &c).await;
    alice.send(&c, "three").await;
    let mut of_bob = events_before_a_text(&mut resume(&bob)).await;
    assert_eq!(of_bob.pop().unwrap(), "ParticipantAddedEvent", "dora");
    assert_eq!(
        of_bob, changes,
        "he cleared the messages, and their reactions"
    );
    let of_dora = events_before_a_text(&mut resume(&dora)).await;
    assert_eq!(of_dora, ["MessageAddedEvent"], "she has joined since");

    truncate(&alice, &c, &last.id).await.data();
    let mut of_alice = events_before_a_text(&mut resume(&alice)).await;
    assert_eq!(
        of_alice.split_off(changes.len()),
        ["ParticipantAddedEvent", "MessageAddedEvent"]
    );
    assert_eq!(of_alice, changes, "a truncation takes messages alone");
}

/// Sends many messages, as their store takes them.
async fn fill(world: &World, c: &str, first: TimeUuid, count: i64) {
    const BATCH: i64 = 250;
    let bytes = URL_SAFE_NO_PAD.decode(c).unwrap();
    let on = ConversationId(Uuid::from_slice(&bytes[2..]).unwrap());
    let sender = UserId::parse("alice").unwrap();
    for batch in 0..count / BATCH {
        let messages = (1..=BATCH).map(|number| {
            let moment = first.moment().plus_micros(batch * BATCH + number);
            words::new(words::text(on, MessageId::new(moment, [0; 8]), &sender))
        });
        let messages: Vec<_> = messages.collect();
        world.store.append_messages(on, &messages).await.unwrap();
    }
}

/// A server on the store of a world, by this clock, and the metrics of its reads.
async fn measured(world: &World, clock: Arc<dyn Clock>) -> (Arc<Api>, Metrics) {
    let store = InstrumentedStore::new(Arc::clone(&world.store));
    let metrics = Metrics::default();
    store.register(&metrics);
    let (bus, bounds) = (Bus::default(), Bounds::default());
    let chat = Chat::open(Arc::new(store), bus, clock, bounds).await;
    let api = Api::new(chat.unwrap(), DocumentBounds::default());
    (Arc::new(api), metrics)
}

/// Pages of a hundred rows that were read so far.
fn pages(metrics: &Metrics, operation: &str) -> u64 {
    let name = format!("operation_seconds_count{{operation=\"{operation}\"}} ");
    let told = metrics.text();
    let (_, count) = told.split_once(&name).unwrap();
    count.lines().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_replay_reads_none_of_the_messages_below_the_floor() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.group("friends", &["bob"]).await;
    let start = alice.events_cursor(&c).await;
    let first = TimeUuid::parse(&alice.send(&c, "first").await.uuid).unwrap();
    fill(&world, &c, first, 6_000).await;
    let newest =
        "query($c: ID!) { conversation(id: $c) { messages(first: 1) { edges { node { id } } } } }";
    let data = alice.data(newest, json!({"c": c})).await;
    let last = text(&data["conversation"]["messages"]["edges"][0]["node"]["id"]);
    truncate(&alice, &c, &last).await.data();
    alice.send(&c, "second").await;

    let (api, metrics) = measured(&world, Arc::new(SystemClock)).await;
    let variables = json!({"c": c, "after": start});
    let sender = UserId::parse("alice").unwrap();
    let mut resumed = Actor::of(&api, &sender).subscribe(EVENTS, variables);
    let names = events_before_a_text(&mut resumed).await;
    assert_eq!(names, ["HistoryExpiredEvent"]);
    for operation in ["history", "changes"] {
        let count = pages(&metrics, operation);
        assert!(count <= 2, "{count} pages of {operation}");
    }
}

/// The store of one server, whose clock is moved past the expiry.
#[tokio::test]
async fn a_replay_reads_none_of_the_expired_messages_however_many_there_are() {
    let mut read = Vec::new();
    for count in [1_000, 100_000] {
        let world = World::open().await;
        let alice = world.user("alice");
        let c = alice.group("friends", &["bob"]).await;
        update(&alice, &c, "messageTtlSeconds: 60").await.data();
        let start = alice.events_cursor(&c).await;
        let first = TimeUuid::parse(&alice.send(&c, "first").await.uuid).unwrap();
        fill(&world, &c, first, count).await;
        let later = SystemClock.now().plus_micros(120_000_000);
        let (api, metrics) = measured(&world, Arc::new(ManualClock::at(later))).await;
        let sender = UserId::parse("alice").unwrap();
        let alice = Actor::of(&api, &sender);
        alice.send(&c, "second").await;
        let before = ["history", "changes"].map(|operation| pages(&metrics, operation));
        let mut resumed = alice.subscribe(EVENTS, json!({"c": c, "after": start}));
        let names = events_before_a_text(&mut resumed).await;
        assert_eq!(names, [""; 0], "nothing but the message that lives");
        let after = ["history", "changes"].map(|operation| pages(&metrics, operation));
        let told = [after[0] - before[0], after[1] - before[1]];
        assert!(told.iter().all(|pages| *pages <= 2), "{told:?}");
        read.push(told);
    }
    assert_eq!(read[0], read[1]);
}
