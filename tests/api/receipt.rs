//! Receipts: how far a message has come, at each and at all.

use serde_json::{Value, json};
use wideroom::model::{
    Conversation, ConversationId, Membership, MembershipState, Role, Timestamp, UserId,
};
use wideroom::store::{ImportPositions, ImportRow};

use crate::support::world::{Actor, World, text};

const DELIVERED: &str = "mutation($c: ID!, $m: ID) { markDelivered(input: {conversationId: $c, messageId: $m, clientMutationId: \"m\"}) {
    clientMutationId inboxEntry { unreadCount conversation { id } } } }";
const RECEIPTS: &str = "query($m: ID!, $first: Int, $after: String, $last: Int, $before: String) { node(id: $m) { ... on Message {
    status receipts(first: $first, after: $after, last: $last, before: $before) {
        edges { cursor node { status user { username } } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } } }";

async fn delivered(actor: &Actor, conversation: &str, message: Option<&str>) {
    let data = actor
        .data(DELIVERED, json!({"c": conversation, "m": message}))
        .await;
    assert_eq!(data["markDelivered"]["clientMutationId"], "m");
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
