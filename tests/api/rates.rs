//! Rates of what costs others something: sends, and conversations with somebody new. They are the chat's, whichever door is taken.

use serde_json::json;
use wideroom::chat::{Bounds, RateBounds};

use crate::support::door::Door;
use crate::support::world::{Answer, World};

const SEND: &str = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"Hello\"}) { messageEdge { node { id } } } }";
const START: &str = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }";

/// One more send a second, which is slower than they are sent here, and no more conversation while a test runs.
fn slow() -> RateBounds {
    RateBounds {
        sends_per_second: 1,
        sends_burst: 3,
        strangers_per_hour: 2,
        ..RateBounds::default()
    }
}

fn assert_too_fast(answer: &Answer) {
    let extensions = answer.extensions();
    assert_eq!(
        (&extensions["code"], &extensions["outcome"]),
        (&json!("RATE_LIMITED"), &json!("NOT_DONE"))
    );
    assert!(extensions["retryAfterMs"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn sends_of_a_user_have_a_rate_over_all_conversations() {
    let world = World::with_rates(slow()).await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let (one, other) = (alice.direct("bob").await, alice.direct("carol").await);
    let mut sent = 0;
    let refused = loop {
        let conversation = if sent % 2 == 0 { &one } else { &other };
        let answer = alice.ask(SEND, json!({"c": conversation})).await;
        if answer.is_refused() {
            break answer;
        }
        sent += 1;
        assert!(sent < 100, "it is never too much");
    };
    assert_too_fast(&refused);
    assert!(sent >= 3);
    assert_eq!(
        alice.message_count(&one).await + alice.message_count(&other).await,
        sent as i64,
        "who was refused has sent nothing"
    );
    bob.send(&one, "4").await;
}

#[tokio::test]
async fn a_send_to_an_invisible_conversation_takes_no_tokens() {
    let world = World::with_rates(slow()).await;
    let (alice, mallory) = (world.user("alice"), world.user("mallory"));
    let conversation = alice.direct("bob").await;
    for _ in 0..5 {
        assert_eq!(
            mallory.ask(SEND, json!({"c": conversation})).await.code(),
            "NOT_FOUND"
        );
    }
    let own = mallory.direct("alice").await;
    mallory.send(&own, "Hello").await;
}

#[tokio::test]
async fn new_direct_conversations_have_a_rate_and_known_ones_have_none() {
    let world = World::with_rates(slow()).await;
    let alice = world.user("alice");
    let known = alice.direct("bob").await;
    alice.direct("carol").await;
    assert_too_fast(&alice.ask(START, json!({"u": "dave"})).await);
    assert_eq!(alice.direct("bob").await, known);
    world.user("dave").direct("alice").await;
    alice.direct("dave").await;
}

#[tokio::test]
async fn streams_that_come_back_at_once_take_turns_and_all_get_there() {
    const MESSAGES: usize = 250;
    let world = World::with_bounds(Bounds {
        user_replays_max: 1,
        replays_max: 1,
        ..Bounds::default()
    })
    .await;
    let alice = world.user("alice");
    let conversation = alice.direct("bob").await;
    let first = alice.send(&conversation, "0").await;
    for number in 1..=MESSAGES {
        alice.send(&conversation, &number.to_string()).await;
    }
    let document = "subscription($c: ID!, $a: String!) { messageAdded(conversationId: $c, after: $a) { messageEdge { node { body } } } }";
    // Each page of the replay is a turn, and those who wait for their client hold none.
    let mut streams: Vec<_> = (0..5)
        .map(|_| alice.subscribe(document, json!({"c": conversation, "a": first.cursor})))
        .collect();
    for number in 1..=MESSAGES {
        for stream in &mut streams {
            assert_eq!(
                stream.next().await["messageAdded"]["messageEdge"]["node"]["body"],
                number.to_string()
            );
        }
    }
}

#[tokio::test]
async fn bytes_that_a_user_writes_have_a_rate() {
    let world = World::with_rates(RateBounds {
        written_bytes_per_hour: 16 << 10,
        ..RateBounds::default()
    })
    .await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let conversation = alice.direct("bob").await;
    let send = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { id } } } }";
    let edit = "mutation($m: ID!, $b: String!) { editMessage(input: {messageId: $m, body: $b}) { message { id } } }";
    let body = "x".repeat(7 << 10);
    let variables = json!({"c": conversation, "b": body});
    let sent = alice.data(send, variables.clone()).await;
    let message = &sent["sendMessage"]["messageEdge"]["node"]["id"];
    alice.data(edit, json!({"m": message, "b": body})).await;
    assert_too_fast(&alice.ask(send, variables.clone()).await);
    let edited = json!({"m": message, "b": "y".repeat(7 << 10)});
    assert_too_fast(&alice.ask(edit, edited).await);
    bob.data(send, variables).await;
}

/// A worker that reads the outbox has no reason to write much. One that acts as users, or moderates, writes for many.
#[tokio::test]
async fn a_service_writes_at_the_rates_of_services_by_the_right_to_act_or_moderate() {
    let world = World::with_rates(slow()).await;
    let door = Door::of(&world.chat);
    for (service, scope, is_bounded) in [
        ("push", "wideroom:outbox wideroom:read", true),
        ("users", "wideroom:users", true),
        ("mirror", "wideroom:act", false),
        ("guard", "wideroom:moderate", false),
    ] {
        let badge = door.scoped(service, scope);
        let started = door.ask(&badge, START, &json!({"u": "alice"})).await.json();
        let conversation = &started["data"]["startDirectConversation"]["conversation"]["id"];
        let mut refused = 0;
        for _ in 0..40 {
            let said = door.ask(&badge, SEND, &json!({"c": conversation})).await;
            refused += u32::from(said.json()["errors"][0]["extensions"]["code"] == "RATE_LIMITED");
        }
        assert_eq!(refused > 0, is_bounded, "{scope}");
    }
}
