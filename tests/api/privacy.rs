//! Privacy: facts that a stranger must not learn of the conversations of others, by an answer, by its id, or by the work that it took.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;
use wideroom::chat::Bounds;
use wideroom::clock::SystemClock;
use wideroom::graphql::{Api, DocumentBounds};
use wideroom::metrics::Metrics;
use wideroom::model::{ConversationId, UserId};
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{InstrumentedStore, NOTE_DIRECT_SECRET, StoreAdmin};

use crate::support::world::{Actor, World, chat_on};

const UUID: &str = "query($c: ID!) { conversation(id: $c) { uuid } }";

/// Counters of the store: its answers by operation, and the hits and misses of its caches.
fn work(metrics: &Metrics) -> Vec<(String, f64)> {
    let text = metrics.text();
    let of_store = |line: &&str| {
        line.starts_with("wideroom_cache")
            || line.starts_with("wideroom_store_operation_seconds_count")
    };
    let counts = text
        .lines()
        .filter(of_store)
        .filter_map(|line| line.rsplit_once(' '));
    counts
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_strangers_question_takes_the_same_work_whether_two_talk_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let embedded = Arc::new(
        Embedded::open(options, Arc::new(SystemClock))
            .await
            .unwrap(),
    );
    let metrics = Metrics::default();
    embedded.register(&metrics);
    let measured = InstrumentedStore::new(Arc::clone(&embedded) as Arc<dyn StoreAdmin>);
    measured.register(&metrics);
    let chat = chat_on(Arc::new(measured), Arc::new(SystemClock), Bounds::default()).await;
    let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
    let actor = |name: &str| Actor::of(&api, &UserId::parse(name).unwrap());
    let (alice, bob) = (actor("alice"), actor("bob"));
    let direct = alice.direct("bob").await;
    bob.send(&direct, "Hello").await;
    let names: Vec<_> = (0..40).map(|n| format!("user{n}")).collect();
    let large = bob
        .group(
            "large",
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    // Made in another store: there is none in this one.
    let absent = World::open().await.user("alice").direct("bob").await;
    for document in [
        "query($c: ID!) { conversation(id: $c) { uuid } }",
        "query($c: ID!) { node(id: $c) { id } }",
        "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"Hello\"}) { __typename } }",
    ] {
        let mut works = Vec::new();
        for conversation in [&direct, &large, &absent] {
            let before = work(&metrics);
            actor("eve").ask(document, json!({"c": conversation})).await;
            let after = work(&metrics);
            let changed = after.iter().filter_map(|(name, count)| {
                let earlier = before
                    .iter()
                    .find(|(other, _)| other == name)
                    .map_or(0.0, |(_, count)| *count);
                (count - earlier > 0.0).then(|| (name.clone(), count - earlier))
            });
            works.push(changed.collect::<Vec<_>>());
        }
        assert!(!works[0].is_empty());
        assert!(
            works.iter().all(|one| *one == works[0]),
            "{document}: {works:#?}"
        );
    }
}

#[tokio::test]
async fn ids_of_direct_conversations_follow_from_no_names_alone() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let made = alice.direct("bob").await;
    assert_eq!(
        bob.direct("alice").await,
        made,
        "both sides make the same one"
    );
    let uuid = alice.data(UUID, json!({"c": made})).await["conversation"]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let [one, other] = ["alice", "bob"].map(|name| UserId::parse(name).unwrap());
    assert_ne!(
        uuid,
        ConversationId::direct(&one, &other).to_string(),
        "anybody could compute that"
    );
    assert_eq!(Uuid::parse_str(&uuid).unwrap().get_version_num(), 8);
    assert_eq!(
        world
            .store
            .note(NOTE_DIRECT_SECRET)
            .await
            .unwrap()
            .map(|text| text.len()),
        Some(64),
        "its secret is kept"
    );
    drop((alice, bob));
    let world = world.restarted().await;
    assert_eq!(world.user("bob").direct("alice").await, made);
}
