//! Presence: who is here, as those see it who have something to do with them, and nobody else.

use std::time::Duration;

use serde_json::{Value, json};
use wideroom::chat::{Bounds, PresenceGuard, RateBounds};
use wideroom::model::UserId;

use crate::support::world::{Actor, Stream, World, text};

const CHANGED: &str = "subscription($u: [String!]!) { presenceChanged(usernames: $u) { user { username } presence { isOnline lastSeenAt } } }";

/// World without a grace period after a disconnect.
async fn hasty() -> World {
    World::with_bounds(Bounds {
        presence_grace: Duration::ZERO,
        ..Bounds::default()
    })
    .await
}

fn come(world: &World, name: &str) -> PresenceGuard {
    world.chat.presence.connect(&UserId::parse(name).unwrap())
}

/// Whether a user of a conversation is here, as the viewer sees it; null where they do not.
async fn online(viewer: &Actor, conversation: &str, name: &str) -> Value {
    let document = "query($c: ID!) { conversation(id: $c) { participants(first: 100) { edges { node { user { username presence { isOnline } } } } } } }";
    let data = viewer.data(document, json!({"c": conversation})).await;
    let edges = data["conversation"]["participants"]["edges"]
        .as_array()
        .unwrap();
    let user = edges
        .iter()
        .map(|edge| &edge["node"]["user"])
        .find(|user| user["username"] == name)
        .unwrap();
    user["presence"]["isOnline"].clone()
}

/// Starts a direct conversation in which the peer has sent a message.
async fn meet(world: &World, viewer: &Actor, name: &str) -> String {
    let conversation = viewer.direct(name).await;
    world.user(name).send(&conversation, "Hello").await;
    conversation
}

async fn next(stream: &mut Stream) -> (String, bool) {
    let told = stream.next().await["presenceChanged"].clone();
    (
        text(&told["user"]["username"]),
        told["presence"]["isOnline"].as_bool().unwrap(),
    )
}

fn told(name: &str, is_online: bool) -> (String, bool) {
    (name.to_owned(), is_online)
}

#[tokio::test]
async fn presence_shows_to_those_of_a_direct_conversation_or_a_small_group() {
    let world = World::open().await;
    let (alice, bob, carol) = (world.user("alice"), world.user("bob"), world.user("carol"));
    let direct = alice.direct("bob").await;
    let group = carol.group("three", &["alice", "dave"]).await;
    alice.send(&direct, "Hello").await;
    bob.send(&direct, "Hello").await;
    carol.send(&group, "Hello").await;
    let _here = (come(&world, "bob"), come(&world, "carol"));
    assert_eq!(online(&alice, &direct, "bob").await, json!(true));
    assert_eq!(
        online(&bob, &direct, "alice").await,
        json!(false),
        "alice was never here"
    );
    assert_eq!(online(&alice, &group, "carol").await, json!(true));
    assert_eq!(
        online(&alice, &group, "alice").await,
        json!(false),
        "one's own shows too"
    );
    let viewer = alice
        .data("{ viewer { presence { isOnline lastSeenAt } } }", json!({}))
        .await;
    assert_eq!(
        viewer["viewer"]["presence"],
        json!({"isOnline": false, "lastSeenAt": null})
    );
}

#[tokio::test]
async fn users_who_share_only_a_large_group_are_strangers() {
    let world = World::open().await;
    let names: Vec<_> = (0..33).map(|n| format!("user{n:02}")).collect();
    let alice = world.user("alice");
    let large = alice
        .group("all", &names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let _here = come(&world, "user07");
    assert_eq!(online(&alice, &large, "user07").await, Value::Null);
    let few = alice.group("few", &["user07", "user08"]).await;
    world.user("user07").send(&few, "Hello").await;
    assert_eq!(online(&alice, &large, "user07").await, json!(true));
    assert_eq!(online(&alice, &large, "user09").await, Value::Null);
}

#[tokio::test]
async fn coming_and_going_is_told_after_the_present_state() {
    let world = hasty().await;
    let alice = world.user("alice");
    for name in ["bob", "carol"] {
        meet(&world, &alice, name).await;
    }
    let bob = come(&world, "bob");
    let mut stream = alice.subscribe(CHANGED, json!({"u": ["carol", "bob", "carol"]}));
    assert_eq!(next(&mut stream).await, told("carol", false));
    assert_eq!(next(&mut stream).await, told("bob", true));
    let (carol, again) = (come(&world, "carol"), come(&world, "carol"));
    assert_eq!(next(&mut stream).await, told("carol", true));
    drop(again);
    drop(bob);
    assert_eq!(
        next(&mut stream).await,
        told("bob", false),
        "carol is here by another socket"
    );
    drop(carol);
    assert_eq!(next(&mut stream).await, told("carol", false));
    assert!(stream.is_quiet());
}

#[tokio::test]
async fn a_reconnect_does_not_flicker() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = meet(&world, &alice, "bob").await;
    let bob = come(&world, "bob");
    let mut stream = alice.subscribe(CHANGED, json!({"u": ["bob"]}));
    assert_eq!(next(&mut stream).await, told("bob", true));
    drop(bob);
    assert_eq!(online(&alice, &c, "bob").await, json!(true));
    let _back = come(&world, "bob");
    assert!(stream.is_quiet());
}

#[tokio::test]
async fn strangers_are_silent_until_they_are_none() {
    let world = hasty().await;
    let (alice, dave) = (world.user("alice"), world.user("dave"));
    meet(&world, &alice, "bob").await;
    let _here = (come(&world, "bob"), come(&world, "dave"));
    let mut stream = alice.subscribe(CHANGED, json!({"u": ["dave", "nobody", "bob"]}));
    assert_eq!(
        next(&mut stream).await,
        told("bob", true),
        "and nothing of dave"
    );
    let few = dave.group("few", &["alice"]).await;
    dave.send(&few, "Hello").await;
    assert_eq!(next(&mut stream).await, told("dave", true));
    let second = come(&world, "nobody");
    drop(second);
    drop(_here.1);
    assert_eq!(next(&mut stream).await, told("dave", false));
}

#[tokio::test]
async fn a_user_who_left_the_group_receives_nothing_more() {
    let world = hasty().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("few", &["bob"]).await;
    alice.send(&c, "Hello").await;
    meet(&world, &bob, "carol").await;
    let mut stream = bob.subscribe(CHANGED, json!({"u": ["alice", "carol"]}));
    assert_eq!(next(&mut stream).await, told("alice", false));
    assert_eq!(next(&mut stream).await, told("carol", false));
    let alice_here = come(&world, "alice");
    assert_eq!(next(&mut stream).await, told("alice", true));
    bob.data("mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { leftConversationId } }", json!({"c": c})).await;
    drop(alice_here);
    let _again = come(&world, "alice");
    let _carol = come(&world, "carol");
    assert_eq!(next(&mut stream).await, told("carol", true));
}

#[tokio::test]
async fn names_have_a_bound_and_must_be_names() {
    let world = World::open().await;
    let alice = world.user("alice");
    let many: Vec<_> = (0..101).map(|n| n.to_string()).collect();
    for names in [json!(many), json!([""]), json!(["bell\u{7}"])] {
        let answer = alice.subscribe(CHANGED, json!({"u": names})).answer().await;
        assert_eq!(
            (answer.code().as_str(), &answer.extensions()["inputPath"]),
            ("BAD_USER_INPUT", &json!(["usernames"]))
        );
    }
    assert!(alice.subscribe(CHANGED, json!({"u": []})).has_ended().await);
}

#[tokio::test]
async fn when_a_user_was_last_here_outlives_the_server() {
    let world = World::open().await;
    let alice = world.user("alice");
    meet(&world, &alice, "bob").await;
    let bob = come(&world, "bob");
    let document = "query { inbox { edges { node { conversation { directPeer { presence { isOnline lastSeenAt } } } } } } }";
    let seen = async |alice: &Actor| {
        let data = alice.data(document, json!({})).await;
        data["inbox"]["edges"][0]["node"]["conversation"]["directPeer"]["presence"].clone()
    };
    let before = seen(&alice).await;
    assert_eq!(before["isOnline"], true);
    drop((bob, alice));
    let world = world.restarted().await;
    let after = seen(&world.user("alice")).await;
    assert_eq!(after["isOnline"], false);
    assert!(
        after["lastSeenAt"].as_str() >= before["lastSeenAt"].as_str()
            && after["lastSeenAt"].is_string(),
        "{before} {after}"
    );
}

#[tokio::test]
async fn presence_shows_only_after_an_act_of_the_other_side() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let _here = come(&world, "bob");
    let sent = alice.send(&c, "Are you there?").await;
    assert_eq!(
        online(&alice, &c, "bob").await,
        Value::Null,
        "whoever writes to a stranger learns nothing"
    );
    let delivered = "mutation($c: ID!, $m: ID!) { markDelivered(input: {conversationId: $c, messageId: $m}) { __typename } }";
    bob.ask(delivered, json!({"c": c, "m": sent.id})).await;
    assert_eq!(
        online(&alice, &c, "bob").await,
        Value::Null,
        "a delivery is no act"
    );
    let mut stream = alice.subscribe(CHANGED, json!({"u": ["bob"]}));
    assert!(stream.is_quiet());
    bob.mark_read(&c, Some(&sent.id)).await;
    assert_eq!(
        next(&mut stream).await,
        told("bob", true),
        "of what begins later the stream hears by itself"
    );
    assert_eq!(online(&alice, &c, "bob").await, json!(true));
    bob.data(
        "mutation($c: ID!, $m: ID!) { markUnread(input: {conversationId: $c, messageId: $m}) { __typename } }",
        json!({"c": c, "m": sent.id}),
    )
    .await;
    assert_eq!(
        online(&alice, &c, "bob").await,
        json!(true),
        "it was read once"
    );
}

#[tokio::test]
async fn presence_of_a_closed_app_needs_a_common_conversation_and_no_act() {
    let rates = RateBounds {
        strangers_per_hour: 40,
        ..RateBounds::default()
    };
    let world = World::with_rates_and_bounds(Bounds {
        needs_presence_consent: false,
        presence_grace: Duration::ZERO,
        rates,
        ..Bounds::default()
    })
    .await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let _here = (come(&world, "bob"), come(&world, "user7"));
    let mut stream = alice.subscribe(CHANGED, json!({"u": ["bob", "user7"]}));
    assert!(stream.is_quiet(), "without a conversation nothing shows");
    let direct = alice.direct("bob").await;
    assert_eq!(next(&mut stream).await, told("bob", true));
    assert_eq!(online(&alice, &direct, "bob").await, json!(true));
    let small = alice.group("small", &["bob"]).await;
    assert_eq!(online(&bob, &small, "alice").await, json!(false));
    let names: Vec<_> = (0..37).map(|n| format!("user{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let large = alice.group("large", &names).await;
    assert_eq!(
        online(&alice, &large, "user7").await,
        Value::Null,
        "a large group is no relationship"
    );
    assert!(stream.is_quiet());
    let more = "mutation { createGroupConversation(input: {name: \"more\", usernames: [\"bob\", \"carol\"]}) { __typename } }";
    assert_eq!(
        alice.ask(more, Value::Null).await.code(),
        "RATE_LIMITED",
        "bob has not acted, so he is a stranger to invitations as before"
    );
    let block = "mutation($u: String!) { blockUser(input: {username: $u}) { __typename } }";
    bob.data(block, json!({"u": "alice"})).await;
    assert_eq!(online(&alice, &direct, "bob").await, json!(false));
    assert_eq!(online(&bob, &direct, "alice").await, Value::Null);
}

#[tokio::test]
async fn strangers_have_no_topic_and_names_are_bounded_over_all_streams() {
    let world = World::with_bounds(Bounds {
        presence_names_max: 150,
        ..Bounds::default()
    })
    .await;
    let alice = world.user("alice");
    meet(&world, &alice, "bob").await;
    let _bob = come(&world, "bob");
    let invented = |from: usize, count: usize| {
        (from..from + count)
            .map(|n| format!("nobody{n}"))
            .collect::<Vec<_>>()
    };
    let topics = || world.chat.topic_count();
    let before = topics();
    let names: Vec<_> = invented(0, 99)
        .into_iter()
        .chain(["bob".to_owned()])
        .collect();
    let mut first = alice.subscribe(CHANGED, json!({"u": names}));
    assert_eq!(next(&mut first).await, told("bob", true));
    assert_eq!(topics() - before, 2, "bob's, and the inbox of alice");
    let beyond = alice
        .subscribe(CHANGED, json!({"u": invented(100, 51)}))
        .answer()
        .await;
    assert_eq!(beyond.code(), "RATE_LIMITED");
    let mut second = alice.subscribe(CHANGED, json!({"u": invented(100, 50)}));
    assert!(second.is_quiet());
    drop((first, second));
    let mut again = alice.subscribe(CHANGED, json!({"u": names}));
    assert_eq!(
        next(&mut again).await,
        told("bob", true),
        "names that are followed no more count no more"
    );
}
