//! Work in the background through quiet and outages: removal of what has expired, erasure of users, the search index.

use serde_json::json;
use wideroom::model::{UserId, Viewer};

use super::world::{Ground, quiet, stored_id};

const HOUR: u64 = 3_600;

/// A message with an expiry of a minute leaves the disk within four hours of quiet, also if the store was away when it was due.
#[tokio::test(start_paused = true)]
#[ignore = "gate: a large store in virtual time"]
async fn what_has_expired_leaves_the_disk_in_the_quiet_after_it() {
    let ground = Ground::of_one().await;
    let server = ground.server().await;
    let removal = tokio::spawn(server.chat.removals.worker().run());
    let alice = server.user("alice");
    let group = alice.group("a group", &["bob"]).await;
    let update = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, messageTtlSeconds: 60}) { conversation { id } } }";
    alice.data(update, json!({"c": group})).await;
    let id = stored_id(&alice, &group).await;
    for away in [0, 600, 3 * HOUR] {
        alice.send(&group, "gone before long").await;
        quiet(61).await;
        server.still.set_away(true);
        quiet(away).await;
        server.still.set_away(false);
        quiet(4 * HOUR).await;
        assert_eq!(ground.messages_on_disk(id).await, 0, "{away}");
    }
    removal.abort();
}

/// Users are erased by jobs that the store's outage interrupts, one after another.
#[tokio::test(start_paused = true)]
async fn erasures_go_on_after_an_outage() {
    let ground = Ground::of_one().await;
    let server = ground.server().await;
    let service = Viewer::service(UserId::parse("backend").unwrap());
    for (name, away) in [("anna", 0), ("bert", 61), ("carl", HOUR)] {
        let user = server.user(name);
        let direct = user.direct("bob").await;
        user.send(&direct, "to be erased").await;
        server.chat.erasure.erase(&service, name).await.unwrap();
        server.still.set_away(true);
        quiet(away).await;
        server.still.set_away(false);
        // Its next look, after the last try and the lease of the step.
        quiet(240).await;
        let running = server.store.running_jobs(10).await.unwrap();
        assert!(running.is_empty(), "{name} after {away} s: {running:?}");
    }
}

/// A conversation whose segment could not be built gets it without a further message.
#[tokio::test(start_paused = true)]
async fn the_search_index_is_built_after_an_outage_without_another_message() {
    let ground = Ground::of_one().await;
    let server = ground.server().await;
    let alice = server.user("alice");
    let direct = alice.direct("bob").await;
    for _ in 0..63 {
        alice.send(&direct, "soup at noon").await;
    }
    quiet(10).await;
    let segments = "wideroom_search_segments_total";
    assert_eq!(server.metric(segments), 0.0);
    server.still.refuse("search_directories", true);
    alice.send(&direct, "the last one").await;
    quiet(60).await;
    server.still.refuse("search_directories", false);
    quiet(60).await;
    assert_eq!(server.metric(segments), 1.0);
}
