//! Backpressure of subscriptions: each execution of an event is paid for, and waits where its user was too fast.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::poll;
use serde_json::{Value, json};
use wideroom::graphql::OperationExecutor as _;
use wideroom::rate::{Buckets, Pace, Pacing, Rate};

use crate::support::world::{Stream, World};

const MESSAGES: &str =
    "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body } } } }";
/// The same, and something of the viewer's own: it is executed for each.
const OWN: &str = "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body conversation { directPeer { id } } } } } }";

/// Buckets that are empty from now on, but for what comes.
fn poor(every: Duration) -> Arc<Pacing> {
    let pacing = Pacing::new(
        "test",
        Buckets::new(
            "test",
            Rate {
                count: 1,
                per: every,
                burst: 1,
            },
        ),
    );
    pacing
        .buckets()
        .take("alice", 1, tokio::time::Instant::now())
        .unwrap();
    pacing
}

/// Without the execution that the opening paid for.
fn pace(pacing: &Arc<Pacing>) -> Pace {
    let mut pace = pacing.pace("alice", 1);
    assert!(pace.try_pay());
    pace
}

fn text(told: &Value) -> String {
    let edge = [&told["messageAdded"], &told["conversationEvents"]["event"]]
        .into_iter()
        .find(|edge| !edge.is_null())
        .unwrap();
    edge["messageEdge"]["node"]["body"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The same messages. Its first payload is a position, which each subscriber executes alone.
const EVENTS: &str = "subscription($c: ID!) { conversationEvents(conversationId: $c) { event { ... on MessageAddedEvent { messageEdge {
    node { body } } } } } }";

/// Drives equal streams until each of them is open, and has spent the execution that its opening paid for.
async fn open(streams: &mut [Stream]) {
    for told in join_all(streams.iter_mut().map(Stream::next)).await {
        assert!(told["conversationEvents"]["event"].is_null());
    }
}

async fn texts(stream: &mut Stream, count: usize) -> Vec<String> {
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        texts.push(text(&stream.next().await));
    }
    texts
}

const NEVER: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_stream_of_one_who_is_too_fast_comes_more_slowly_and_whole() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    for document in [MESSAGES, OWN] {
        let every = Duration::from_millis(2);
        let mut stream =
            alice.subscribe_at(document, json!({"c": c}), poor(every).pace("alice", 1));
        assert!(stream.is_quiet());
        bob.send(&c, "first").await;
        assert_eq!(
            texts(&mut stream, 1).await,
            ["first"],
            "it is open, and that was paid for"
        );
        // More than the bus keeps for a slow reader.
        let sent: Vec<_> = (0..400).map(|number| number.to_string()).collect();
        for body in &sent {
            bob.send(&c, body).await;
        }
        let start = Instant::now();
        assert_eq!(texts(&mut stream, sent.len()).await, sent);
        assert!(start.elapsed() >= every * 300, "{:?}", start.elapsed());
        assert!(stream.is_quiet());
    }
}

#[tokio::test]
async fn one_who_cannot_pay_takes_what_others_execute_and_keeps_nobody_waiting() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let pacing = poor(NEVER);
    let mut poor: Vec<_> = (0..10)
        .map(|_| alice.subscribe_at(EVENTS, json!({"c": c}), pacing.pace("alice", 1)))
        .collect();
    open(&mut poor).await;
    let mut rich = [bob.subscribe(EVENTS, json!({"c": c}))];
    open(&mut rich).await;
    let [mut rich] = rich;
    for number in 0..5 {
        let body = number.to_string();
        bob.send(&c, &body).await;
        // They are there first, and begin to wait.
        assert!(
            poor.iter_mut().all(Stream::is_quiet),
            "none of them can pay"
        );
        assert_eq!(texts(&mut rich, 1).await, [body.as_str()]);
        for stream in &mut poor {
            assert_eq!(texts(stream, 1).await, [body.as_str()]);
        }
    }
}

#[tokio::test]
async fn equal_subscriptions_pay_once_for_what_they_share() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    // Ten executions, and no more.
    let pacing = Pacing::new(
        "test",
        Buckets::new(
            "test",
            Rate {
                count: 1,
                per: NEVER,
                burst: 10,
            },
        ),
    );
    let mut streams: Vec<_> = (0..20)
        .map(|_| alice.subscribe_at(EVENTS, json!({"c": c}), pacing.pace("alice", 1)))
        .collect();
    open(&mut streams).await;
    for number in 0..10 {
        let body = number.to_string();
        alice.send(&c, &body).await;
        for stream in &mut streams {
            assert_eq!(texts(stream, 1).await, [body.as_str()]);
        }
    }
    alice.send(&c, "one too many").await;
    assert!(streams.iter_mut().all(Stream::is_quiet));
}

#[tokio::test]
async fn one_who_left_while_they_waited_is_shown_nothing_more() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    for document in [MESSAGES, OWN] {
        let c = bob.group("friends", &["alice"]).await;
        let pacing = poor(NEVER);
        let mut stream = alice.subscribe_at(document, json!({"c": c}), pace(&pacing));
        assert!(stream.is_quiet());
        // It waits in front of the stream, so that the stream's wait ends when this test says so.
        let mut first = pace(&pacing);
        let mut first = Box::pin(first.pay());
        assert!(poll!(&mut first).is_pending());
        bob.send(&c, "not for one who left").await;
        assert!(stream.is_quiet(), "it waits");
        let remove = "mutation($c: ID!) { removeParticipant(input: {conversationId: $c, username: \"alice\"}) { __typename } }";
        bob.data(remove, json!({"c": c})).await;
        pacing.buckets().give_back("alice", 1);
        drop(first);
        assert!(stream.has_ended().await);
    }
}

#[tokio::test]
async fn inbox_and_presence_are_paid_for_too() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let mut inbox = alice.subscribe_at(
        "subscription { inboxUpdated { event { __typename } } }",
        json!({}),
        poor(NEVER).pace("alice", 1),
    );
    inbox.next().await;
    bob.send(&c, "hello").await;
    assert!(inbox.is_quiet(), "only the first was paid for");
    let names =
        "subscription { presenceChanged(usernames: [\"alice\", \"bob\"]) { user { username } } }";
    let mut presence = alice.subscribe_at(names, json!({}), poor(NEVER).pace("alice", 1));
    presence.next().await;
    assert!(presence.is_quiet(), "only the first was paid for");
}

#[tokio::test]
async fn what_is_done_with_each_event_is_bounded() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let pages: String = (0..24)
        .map(|number| format!("p{number}: messages(first: 50) {{ edges {{ cursor }} }} "))
        .collect();
    let event = format!(
        "subscription($c: ID!) {{ messageAdded(conversationId: $c) {{ messageEdge {{ node {{ conversation {{ {pages} }} }} }} }} }}"
    );
    let refusal = alice.refused(&event, json!({"c": c}));
    assert!(refusal.contains("at most 1000"), "{refusal}");
    let payload = format!(
        "mutation($c: ID!) {{ sendMessage(input: {{conversationId: $c, body: \"x\"}}) {{ messageEdge {{ node {{ conversation {{ {pages} }} }} }} }} }}"
    );
    let refusal = alice.refused(&payload, json!({"c": c}));
    assert!(refusal.contains("at most 1000"), "{refusal}");
    alice
        .data(
            &format!("query($c: ID!) {{ conversation(id: $c) {{ {pages} }} }}"),
            json!({"c": c}),
        )
        .await;
}

/// A client without a token leaves nothing in the cache of documents, whatever it sends.
#[tokio::test]
async fn documents_of_clients_without_a_token_evict_nobody_elses() {
    let world = World::open().await;
    let (alice, nobody) = (world.user("alice"), world.nobody());
    let document = "{ viewer { username } }";
    let is_cached = || world.api.prepare(document, None).unwrap().is_cached;
    assert!(!is_cached());
    alice.data(document, json!({})).await;
    for number in 0..70 {
        let long = format!(
            "{{ __typename a{number}: __typename }} #{}",
            "x".repeat(16_000)
        );
        nobody.data(&long, json!({})).await;
    }
    assert!(is_cached());
}
