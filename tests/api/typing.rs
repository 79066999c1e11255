//! Typing: told as it happens, and over by itself.

use std::time::Duration;

use serde_json::json;
use wideroom::chat::{Bounds, RateBounds};

use crate::support::world::{Actor, Answer, Stream, World};

const TYPING: &str =
    "subscription($c: ID!) { typingChanged(conversationId: $c) { user { username } isTyping } }";

async fn set(actor: &Actor, conversation: &str, typing: bool) -> Answer {
    let document = "mutation($c: ID!, $t: Boolean!) {
        setTyping(input: {conversationId: $c, typing: $t}) { conversation { id } } }";
    actor
        .ask(document, json!({"c": conversation, "t": typing}))
        .await
}

async fn next(stream: &mut Stream) -> (String, bool) {
    let told = stream.next().await["typingChanged"].clone();
    (
        told["user"]["username"].as_str().unwrap().to_owned(),
        told["isTyping"].as_bool().unwrap(),
    )
}

fn told(name: &str, is_typing: bool) -> (String, bool) {
    (name.to_owned(), is_typing)
}

/// World in which typing does not expire during a test.
async fn patient() -> World {
    World::with_bounds(Bounds {
        typing_lifetime: Duration::from_secs(3_600),
        ..Bounds::default()
    })
    .await
}

/// It listens as soon as it was asked for the first time.
async fn listen(actor: &Actor, conversation: &str) -> Stream {
    let mut stream = actor.subscribe(TYPING, json!({"c": conversation}));
    assert!(stream.is_quiet());
    stream
}

#[tokio::test]
async fn a_typing_user_is_published_once_until_they_stop() {
    let world = patient().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    set(&alice, &c, true).await.data();
    let mut stream = listen(&bob, &c).await;
    for _ in 0..2 {
        let data = set(&alice, &c, true).await.data();
        assert_eq!(data["setTyping"], json!({"conversation": {"id": c}}));
    }
    assert_eq!(next(&mut stream).await, told("alice", true));
    set(&bob, &c, true).await.data();
    assert_eq!(
        next(&mut stream).await,
        told("bob", true),
        "the second sign of alice was no news"
    );
    set(&alice, &c, false).await.data();
    assert_eq!(next(&mut stream).await, told("alice", false));
    set(&alice, &c, false).await.data();
    set(&bob, &c, false).await.data();
    assert_eq!(next(&mut stream).await, told("bob", false));
}

#[tokio::test]
async fn a_message_ends_typing() {
    let world = patient().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let mut stream = listen(&bob, &c).await;
    set(&alice, &c, true).await.data();
    assert_eq!(next(&mut stream).await, told("alice", true));
    bob.send(&c, "mine").await;
    alice.send(&c, "Soup?").await;
    assert_eq!(next(&mut stream).await, told("alice", false));
    assert!(stream.is_quiet());
}

#[tokio::test]
async fn typing_ends_by_itself() {
    let world = World::with_bounds(Bounds {
        typing_lifetime: Duration::from_millis(50),
        ..Bounds::default()
    })
    .await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let mut stream = listen(&bob, &c).await;
    for _ in 0..2 {
        set(&alice, &c, true).await.data();
        assert_eq!(next(&mut stream).await, told("alice", true));
        assert_eq!(next(&mut stream).await, told("alice", false));
    }
}

#[tokio::test]
async fn strangers_neither_type_nor_see_who_does() {
    let world = patient().await;
    let (alice, bob, mallory) = (
        world.user("alice"),
        world.user("bob"),
        world.user("mallory"),
    );
    let c = alice.group("three", &["bob", "mallory"]).await;
    let mut stream = listen(&mallory, &c).await;
    set(&bob, &c, true).await.data();
    assert_eq!(next(&mut stream).await, told("bob", true));
    let document = "mutation($c: ID!) { removeParticipant(input: {conversationId: $c, username: \"mallory\"}) { conversation { id } } }";
    alice.data(document, json!({"c": c})).await;
    set(&bob, &c, false).await.data();
    assert!(stream.has_ended().await, "who is out hears no more");
    for id in [c.as_str(), "nonsense"] {
        assert_eq!(set(&mallory, id, true).await.code(), "NOT_FOUND");
        assert_eq!(
            mallory
                .subscribe(TYPING, json!({"c": id}))
                .answer()
                .await
                .code(),
            "NOT_FOUND"
        );
    }
}

#[tokio::test]
async fn signs_of_typing_have_a_rate_in_each_conversation() {
    let every = Duration::from_secs(3_600);
    let world = World::with_rates(RateBounds {
        typing_interval: every,
        ..RateBounds::default()
    })
    .await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let (one, other) = (alice.direct("bob").await, alice.direct("carol").await);
    set(&alice, &one, true).await.data();
    set(&alice, &one, false).await.data();
    let refused = set(&alice, &one, true).await;
    assert_eq!(refused.code(), "RATE_LIMITED");
    assert!(refused.extensions()["retryAfterMs"].as_u64().unwrap() > 3_000_000);
    set(&alice, &other, true).await.data();
    set(&bob, &one, true).await.data();
}
