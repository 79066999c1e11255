//! Introductions: users who are brought into conversations by somebody with whom they share none, and the bounds that protect them.

use serde_json::{Value, json};
use wideroom::chat::{Bounds, RateBounds};

use crate::support::world::{Actor, Answer, World};

const START: &str = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }";
const MAKE: &str = "mutation($u: [String!]!, $k: String) {
    createGroupConversation(input: {name: \"us\", usernames: $u, idempotencyKey: $k}) { conversation { id } } }";
const ADD: &str = "mutation($c: ID!, $u: [String!]!) {
    addParticipants(input: {conversationId: $c, usernames: $u}) { conversation { participantCount } } }";

async fn world(strangers_per_hour: u32) -> World {
    let most = 10_000;
    World::with_rates(RateBounds {
        sends_per_second: most,
        sends_burst: most,
        strangers_per_hour,
        ..RateBounds::default()
    })
    .await
}

fn assert_too_fast(answer: &Answer) {
    let extensions = answer.extensions();
    assert_eq!(
        (&extensions["code"], &extensions["outcome"]),
        (&json!("RATE_LIMITED"), &json!("NOT_DONE"))
    );
    assert!(extensions["retryAfterMs"].as_u64().unwrap() > 0);
}

async fn inbox_count(actor: &Actor) -> usize {
    let data = actor
        .data("{ inbox(first: 100) { edges { node { id } } } }", json!({}))
        .await;
    data["inbox"]["edges"].as_array().map_or(0, Vec::len)
}

fn names(from: usize, count: usize) -> Value {
    (from..from + count)
        .map(|n| format!("stranger{n:03}"))
        .collect()
}

#[tokio::test]
async fn one_user_brings_so_many_strangers_into_conversations_in_an_hour_and_no_more() {
    let world = world(60).await;
    let (mallory, victim) = (world.user("mallory"), world.user("victim"));
    for _ in 0..80 {
        mallory.ask(MAKE, json!({"u": ["victim"]})).await;
    }
    assert_eq!(
        inbox_count(&victim).await,
        60,
        "each group costs one, as the victim has acted in none of them"
    );
    assert_too_fast(&mallory.ask(START, json!({"u": "victim"})).await);
    assert_too_fast(&mallory.ask(MAKE, json!({"u": names(0, 1)})).await);
    mallory.ask(MAKE, json!({"u": []})).await.data();
}

#[tokio::test]
async fn a_call_that_names_too_many_strangers_is_refused_whole_and_costs_nothing() {
    let world = world(5).await;
    let alice = world.user("alice");
    let group = alice.group("us", &["stranger000", "stranger001"]).await;
    assert_too_fast(&alice.ask(ADD, json!({"c": group, "u": names(1, 5)})).await);
    assert_too_fast(&alice.ask(MAKE, json!({"u": names(10, 6)})).await);
    assert_eq!(
        inbox_count(&world.user("stranger003")).await,
        0,
        "nobody was brought in"
    );
    // Those who are there cost nothing: three are new, and three are left.
    let added = alice
        .ask(ADD, json!({"c": group, "u": names(0, 5)}))
        .await
        .data()
        .clone();
    assert_eq!(
        added["addParticipants"]["conversation"]["participantCount"],
        6
    );
    assert_too_fast(&alice.ask(START, json!({"u": "bob"})).await);
    alice
        .ask(ADD, json!({"c": group, "u": names(0, 5)}))
        .await
        .data();
    alice.ask(START, json!({"u": "alice"})).await.data();
}

#[tokio::test]
async fn a_retry_costs_nothing_and_finds_the_same_group() {
    let world = world(3).await;
    let alice = world.user("alice");
    let variables = json!({"u": names(0, 3), "k": "a key"});
    let made = alice.ask(MAKE, variables.clone()).await.data().clone();
    for _ in 0..3 {
        assert_eq!(
            alice.ask(MAKE, variables.clone()).await.data().clone(),
            made
        );
    }
    assert_too_fast(
        &alice
            .ask(MAKE, json!({"u": names(0, 3), "k": "another"}))
            .await,
    );
}

#[tokio::test]
async fn whoever_has_acted_in_a_shared_conversation_is_no_stranger_any_more() {
    let world = world(3).await;
    let (alice, bob, carol) = (world.user("alice"), world.user("bob"), world.user("carol"));
    let direct = alice.direct("bob").await;
    let group = alice.group("us", &["carol"]).await;
    bob.send(&direct, "Hello").await;
    let sent = alice.send(&group, "Hello").await;
    carol.mark_read(&group, Some(&sent.id)).await;
    // A delivery is no consent, and neither is what one says oneself.
    alice.group("we", &["dave"]).await;
    for _ in 0..3 {
        alice.ask(MAKE, json!({"u": ["bob", "carol"]})).await.data();
    }
    assert_too_fast(&alice.ask(MAKE, json!({"u": ["bob", "dave"]})).await);
    // Those whom a third user brought together know each other.
    world.user("host").group("party", &["alice", "eve"]).await;
    alice.ask(START, json!({"u": "eve"})).await.data();
}

#[tokio::test]
async fn a_user_is_in_a_bounded_number_of_conversations() {
    let world = World::with_bounds(Bounds {
        conversations_max: 3,
        ..Bounds::default()
    })
    .await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    for name in ["one", "two", "three"] {
        alice.group(name, &["carol"]).await;
    }
    let group = bob.group("us", &[]).await;
    let refused = async |actor: &Actor, document: &str, variables: Value, path: Value| {
        let answer = actor.ask(document, variables).await;
        assert_eq!(
            (answer.code().as_str(), &answer.extensions()["inputPath"]),
            ("BAD_USER_INPUT", &path)
        );
    };
    let usernames = json!(["input", "usernames"]);
    refused(&alice, MAKE, json!({"u": []}), usernames.clone()).await;
    refused(
        &alice,
        START,
        json!({"u": "bob"}),
        json!(["input", "username"]),
    )
    .await;
    refused(&bob, MAKE, json!({"u": ["carol"]}), usernames.clone()).await;
    refused(
        &bob,
        ADD,
        json!({"c": group, "u": ["dave", "carol"]}),
        usernames,
    )
    .await;
    bob.ask(ADD, json!({"c": group, "u": ["dave"]}))
        .await
        .data();
    assert_eq!(inbox_count(&alice).await, 3);
}

#[tokio::test]
async fn large_conversations_of_others_take_no_room_until_one_acts_there() {
    let world = World::with_bounds(Bounds {
        large_conversations_max: 1,
        ..Bounds::default()
    })
    .await;
    let (victim, mallory) = (world.user("victim"), world.user("mallory"));
    let crowd: Vec<_> = (0..33).map(|n| format!("user-{n:02}")).collect();
    let hostile = |n: usize| {
        let users: Vec<_> = crowd.iter().cloned().chain(["victim".to_owned()]).collect();
        (json!({"u": users}), world.user(&format!("mallory-{n}")))
    };
    for n in 0..5 {
        let (variables, maker) = hostile(n);
        maker.ask(MAKE, variables).await.data();
    }
    // The victim's own group grows, although the victim is in five large ones already.
    let own = victim
        .group(
            "own",
            &crowd[..30].iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    victim.send(&own, "Hello").await;
    let grown = victim
        .ask(ADD, json!({"c": own, "u": ["x", "y", "z"]}))
        .await;
    assert_eq!(
        grown.data()["addParticipants"]["conversation"]["participantCount"],
        34
    );
    // It is the one that the victim may have.
    let users: Vec<_> = crowd.iter().map(String::as_str).collect();
    assert_eq!(
        victim.ask(MAKE, json!({"u": users})).await.code(),
        "BAD_USER_INPUT"
    );
    mallory.ask(MAKE, hostile(9).0).await.data();
}
