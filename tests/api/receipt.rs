//! Receipts: how far a message has come, at each and at all.

use serde_json::{Value, json};
use wideroom::model::{
    Conversation, ConversationId, Membership, MembershipState, Role, Timestamp, UserId,
};
use wideroom::store::{ImportPositions, ImportRow};

use crate::support::world::{Actor, World, text};

const DELIVERED: &str =
    "mutation($c: ID!, $m: ID) { markDelivered(input: {conversationId: $c, messageId: $m}) {
    inboxEntry { unreadCount conversation { id } } } }";
const RECEIPTS: &str = "query($m: ID!, $first: Int, $after: String, $last: Int, $before: String) { node(id: $m) { ... on Message {
    status receipts(first: $first, after: $after, last: $last, before: $before) {
        edges { cursor node { status user { username } } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } } }";

async fn delivered(actor: &Actor, conversation: &str, message: Option<&str>) {
    let data = actor
        .data(DELIVERED, json!({"c": conversation, "m": message}))
        .await;
    assert_eq!(
        data["markDelivered"]["inboxEntry"]["conversation"]["id"],
        conversation
    );
}

async fn receipts(actor: &Actor, mut arguments: Value, message: &str) -> Value {
    arguments["m"] = json!(message);
    actor.data(RECEIPTS, arguments).await["node"].clone()
}

/// The state of a message, and of its receipts: `bob READ`.
async fn states(actor: &Actor, message: &str) -> (Option<String>, Vec<String>) {
    let node = receipts(actor, json!({}), message).await;
    (node["status"].as_str().map(str::to_owned), listed(&node))
}

fn listed(node: &Value) -> Vec<String> {
    let receipt = |edge: &Value| {
        format!(
            "{} {}",
            text(&edge["node"]["user"]["username"]),
            text(&edge["node"]["status"])
        )
    };
    node["receipts"]["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(receipt)
        .collect()
}

fn expected(status: &str, receipts: &[&str]) -> (Option<String>, Vec<String>) {
    (
        Some(status.to_owned()),
        receipts
            .iter()
            .map(|receipt| (*receipt).to_owned())
            .collect(),
    )
}

#[tokio::test]
async fn a_message_is_sent_then_delivered_then_read() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    delivered(&bob, &c, None).await;
    let (one, two) = (alice.send(&c, "one").await, alice.send(&c, "two").await);
    assert_eq!(
        states(&alice, &one.id).await,
        expected("SENT", &["bob SENT"])
    );
    delivered(&bob, &c, Some(&one.id)).await;
    assert_eq!(
        states(&alice, &one.id).await,
        expected("DELIVERED", &["bob DELIVERED"])
    );
    assert_eq!(
        states(&alice, &two.id).await,
        expected("SENT", &["bob SENT"])
    );
    delivered(&bob, &c, None).await;
    delivered(&bob, &c, Some(&one.id)).await;
    assert_eq!(
        states(&alice, &two.id).await,
        expected("DELIVERED", &["bob DELIVERED"]),
        "it does not go back"
    );
    assert_eq!(bob.unread(&c).await, 2, "what was delivered is not read");
    bob.mark_read(&c, Some(&one.id)).await;
    assert_eq!(states(&bob, &one.id).await, expected("READ", &["bob READ"]));
    assert_eq!(
        states(&bob, &two.id).await,
        expected("DELIVERED", &["bob DELIVERED"])
    );
    bob.mark_read(&c, None).await;
    bob.mark_unread(&c, &one.id).await;
    assert_eq!(
        states(&alice, &two.id).await,
        expected("READ", &["bob READ"]),
        "marking unread takes no receipt back"
    );
    let three = bob.send(&c, "three").await;
    alice.mark_read(&c, None).await;
    assert_eq!(
        states(&bob, &three.id).await,
        expected("READ", &["alice READ"]),
        "what was read was delivered"
    );
}

#[tokio::test]
async fn the_least_advanced_of_the_others_counts() {
    let world = World::open().await;
    let (alice, bob, carol) = (world.user("alice"), world.user("bob"), world.user("Carol"));
    let c = alice.group("all", &["bob", "Carol"]).await;
    let sent = bob.send(&c, "hello").await;
    assert_eq!(
        states(&alice, &sent.id).await,
        expected("SENT", &["Carol SENT", "alice SENT"])
    );
    carol.mark_read(&c, None).await;
    assert_eq!(
        states(&alice, &sent.id).await,
        expected("SENT", &["Carol READ", "alice SENT"])
    );
    delivered(&alice, &c, None).await;
    assert_eq!(
        states(&carol, &sent.id).await,
        expected("DELIVERED", &["Carol READ", "alice DELIVERED"])
    );
    alice.mark_read(&c, None).await;
    assert_eq!(
        states(&bob, &sent.id).await,
        expected("READ", &["Carol READ", "alice READ"])
    );
    let alone = alice.direct("alice").await;
    let note = alice.send(&alone, "milk").await;
    assert_eq!(
        states(&alice, &note.id).await,
        (None, Vec::new()),
        "there is nobody else"
    );
}

#[tokio::test]
async fn participants_who_joined_later_or_left_have_no_receipt() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.group("all", &["bob"]).await;
    let sent = alice.send(&c, "hello").await;
    world.user("bob").mark_read(&c, None).await;
    let uuid = alice
        .data(
            "query($c: ID!) { conversation(id: $c) { uuid } }",
            json!({"c": c}),
        )
        .await["conversation"]["uuid"]
        .clone();
    let conversation = ConversationId(text(&uuid).parse().unwrap());
    let came = |name: &str, state, since: Option<Timestamp>| ImportRow::Participant {
        conversation,
        user: UserId::parse(name).unwrap(),
        membership: Membership {
            state,
            since,
            ..Membership::joined(Role::Member)
        },
        positions: ImportPositions::default(),
        ban: None,
    };
    let later = Timestamp::parse("2200-01-01T00:00:00Z");
    let rows = [
        came("later", MembershipState::Joined, later),
        came("left", MembershipState::Left, None),
    ];
    world.store.import(&rows).await.unwrap();
    assert_eq!(
        states(&alice, &sent.id).await,
        expected("READ", &["bob READ"])
    );
    world
        .store
        .import(&[came("always", MembershipState::Joined, None)])
        .await
        .unwrap();
    assert_eq!(
        states(&alice, &sent.id).await,
        expected("SENT", &["always SENT", "bob READ"])
    );
}

#[tokio::test]
async fn a_message_of_a_large_conversation_has_receipts_and_no_state() {
    let world = World::open().await;
    let alice = world.user("alice");
    let names: Vec<_> = (0..Conversation::FAN_OUT_MAX + 8)
        .map(|i| format!("user-{i:02}"))
        .collect();
    let large = alice
        .group(
            "crowd",
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    let sent = alice.send(&large, "to all").await;
    world.user("user-01").mark_read(&large, None).await;
    delivered(&world.user("user-02"), &large, Some(&sent.id)).await;
    let node = receipts(&alice, json!({"first": 4}), &sent.id).await;
    assert_eq!(node["status"], Value::Null);
    assert_eq!(
        listed(&node),
        [
            "user-00 SENT",
            "user-01 READ",
            "user-02 DELIVERED",
            "user-03 SENT"
        ]
    );
    for (count, cursor, end, more, behind) in [
        (
            "first",
            "after",
            "endCursor",
            "hasNextPage",
            "hasPreviousPage",
        ),
        (
            "last",
            "before",
            "startCursor",
            "hasPreviousPage",
            "hasNextPage",
        ),
    ] {
        let (mut pages, mut place) = (Vec::new(), Value::Null);
        loop {
            let mut arguments = json!({});
            arguments[count] = json!(10);
            arguments[cursor] = place;
            let node = receipts(&alice, arguments, &sent.id).await;
            assert_eq!(node["receipts"]["pageInfo"][behind], !pages.is_empty());
            pages.push(listed(&node));
            if node["receipts"]["pageInfo"][more] == false {
                break;
            }
            place = node["receipts"]["pageInfo"][end].clone();
        }
        if count == "last" {
            pages.reverse();
        }
        let users: Vec<_> = pages
            .concat()
            .iter()
            .map(|receipt| receipt.split(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(users, names, "by {count}");
        assert_eq!(pages.len(), 4, "no page comes for nothing");
    }
    let other = alice.send(&large, "again").await;
    let cursor =
        receipts(&alice, json!({"first": 1}), &other.id).await["receipts"]["pageInfo"]["endCursor"]
            .clone();
    for wrong in [
        json!({"after": cursor}),
        json!({"first": 101}),
        json!({"first": 1, "last": 1}),
        json!({"before": sent.cursor}),
    ] {
        let mut wrong = wrong;
        wrong["m"] = json!(sent.id);
        assert_eq!(alice.ask(RECEIPTS, wrong).await.code(), "BAD_USER_INPUT");
    }
}

#[tokio::test]
async fn a_delivery_is_told_to_the_conversation_once() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let one = alice.send(&c, "one").await;
    let document = "subscription($c: ID!) { conversationEvents(conversationId: $c) { event {
        ... on MarkerMovedEvent { participant { user { username } deliveredUpTo { uuid } readUpTo { uuid } } }
        ... on MessageAddedEvent { messageEdge { node { uuid status } } } } } }";
    let mut stream = alice.subscribe(document, json!({"c": c}));
    assert_eq!(
        stream.next().await["conversationEvents"]["event"],
        Value::Null
    );
    // Twice: the second time nothing is new.
    delivered(&bob, &c, None).await;
    delivered(&bob, &c, None).await;
    let two = alice.send(&c, "two").await;
    let participant = &stream.next().await["conversationEvents"]["event"]["participant"];
    assert_eq!(
        *participant,
        json!({"user": {"username": "bob"}, "deliveredUpTo": {"uuid": one.uuid}, "readUpTo": null})
    );
    let event = &stream.next().await["conversationEvents"]["event"];
    assert_eq!(
        event["messageEdge"]["node"],
        json!({"uuid": two.uuid, "status": "SENT"})
    );
}

const WATERMARKS: &str = "query($c: ID!) { viewer { username } conversation(id: $c) { deliveredToAllUpTo { orderKey } readByAllUpTo { orderKey }
    messages(first: 100) { edges { node { orderKey status sender { username } } } } } }";

/// The watermarks say of each message of the viewer what its status says. Returns how many are delivered, and how many read.
async fn watermarks_agree(actor: &Actor, conversation: &str) -> (usize, usize) {
    let data = actor.data(WATERMARKS, json!({"c": conversation})).await;
    let (viewer, data) = (&data["viewer"]["username"], &data["conversation"]);
    let is_up_to = |watermark: &str, key: &str| {
        data[watermark]["orderKey"]
            .as_str()
            .is_some_and(|up_to| key <= up_to)
    };
    let (mut delivered, mut read) = (0, 0);
    let mut keys = Vec::new();
    for edge in data["messages"]["edges"].as_array().unwrap() {
        let node = &edge["node"];
        let key = text(&node["orderKey"]);
        keys.push(key.clone());
        let status = node["status"].as_str();
        if node["sender"]["username"] != *viewer || status.is_none() {
            continue;
        }
        let is_read = status == Some("READ");
        let is_delivered = is_read || status == Some("DELIVERED");
        assert_eq!(is_up_to("readByAllUpTo", &key), is_read, "{data}");
        assert_eq!(is_up_to("deliveredToAllUpTo", &key), is_delivered, "{data}");
        read += usize::from(is_read);
        delivered += usize::from(is_delivered);
    }
    assert!(
        keys.is_sorted_by(|newer, older| newer > older),
        "newest first: {keys:?}"
    );
    (delivered, read)
}

#[tokio::test]
async fn the_watermarks_of_a_conversation_say_what_each_status_says() {
    let world = World::open().await;
    let [alice, bob, carol, dora] = ["alice", "bob", "carol", "dora"].map(|name| world.user(name));
    let c = alice.group("friends", &["bob", "carol"]).await;
    let mut sent = Vec::new();
    for body in ["1", "2", "3", "4"] {
        sent.push(alice.send(&c, body).await);
    }
    assert_eq!(watermarks_agree(&alice, &c).await, (0, 0));
    delivered(&bob, &c, Some(&sent[2].id)).await;
    carol.mark_read(&c, Some(&sent[1].id)).await;
    assert_eq!(watermarks_agree(&alice, &c).await, (2, 0));
    bob.mark_read(&c, Some(&sent[0].id)).await;
    assert_eq!(watermarks_agree(&alice, &c).await, (2, 1));
    // The messages from before do not wait for a participant who has joined since.
    alice
        .data(
            "mutation($c: ID!) { addParticipants(input: {conversationId: $c, usernames: [\"dora\"]}) { __typename } }",
            json!({"c": c}),
        )
        .await;
    sent.push(alice.send(&c, "5").await);
    for actor in [&bob, &carol] {
        actor.mark_read(&c, None).await;
    }
    assert_eq!(watermarks_agree(&alice, &c).await, (4, 4));
    assert_eq!(watermarks_agree(&bob, &c).await, (0, 0));
    delivered(&dora, &c, None).await;
    // The message that says so is hers, too.
    assert_eq!(watermarks_agree(&alice, &c).await, (6, 4));

    // A blocked sender learns of nothing.
    let direct = alice.direct("bob").await;
    alice.send(&direct, "before").await;
    bob.mark_read(&direct, None).await;
    bob.data(
        "mutation { blockUser(input: {username: \"alice\"}) { user { id } } }",
        json!({}),
    )
    .await;
    alice.send(&direct, "after").await;
    bob.ask(DELIVERED, json!({"c": direct})).await;
    assert_eq!(watermarks_agree(&alice, &direct).await, (1, 1));
    let note = alice.direct("alice").await;
    alice.send(&note, "to myself").await;
    assert_eq!(watermarks_agree(&alice, &note).await, (0, 0));
}
