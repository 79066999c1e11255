//! Presence through hours of quiet, and when the store is away as a user leaves.

use serde_json::json;
use wideroom::model::UserId;

use super::world::{Ground, around, quiet};

const ONLINE: &str =
    "query($c: ID!) { conversation(id: $c) { directPeer { presence { isOnline } } } }";

#[tokio::test(start_paused = true)]
async fn a_user_is_online_through_any_quiet_and_offline_after_the_grace() {
    for ground in [Ground::of_one().await, Ground::shared().await] {
        let (one, other) = (ground.server().await, ground.server().await);
        let (alice, bob) = (one.user("alice"), UserId::parse("bob").unwrap());
        let direct = alice.direct("bob").await;
        alice.send(&direct, "hello").await;
        one.user("bob").send(&direct, "hello").await;
        let connected = if ground.is_shared() { &other } else { &one };
        let is_online = async || {
            let data = alice.data(ONLINE, json!({"c": direct})).await;
            data["conversation"]["directPeer"]["presence"]["isOnline"].clone()
        };
        for seconds in [around(&[1, 5, 15, 60, 900]), vec![3_600]].concat() {
            let here = connected.chat.presence.connect(&bob);
            quiet(seconds + 3).await;
            assert_eq!(is_online().await, true, "{seconds}");
            drop(here);
            quiet(90).await;
            assert_eq!(is_online().await, false, "{seconds}");
        }
    }
}

/// The last-seen time of a user who leaves while the store is away is persisted afterwards.
#[tokio::test(start_paused = true)]
async fn a_user_who_leaves_during_an_outage_was_seen_then() {
    let ground = Ground::of_one().await;
    let server = ground.server().await;
    let bob = UserId::parse("bob").unwrap();
    let here = server.chat.presence.connect(&bob);
    quiet(100).await;
    server.still.set_away(true);
    let left = ground.clock.now();
    drop(here);
    quiet(60).await;
    server.still.set_away(false);
    quiet(15 * 60).await;
    let profile = server
        .store
        .profiles(&[bob])
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    assert!(profile.last_seen_at >= Some(left), "{profile:?}");
}
