//! A clock that was ahead and is set back: what compares the time of an id with the clock goes on.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use wideroom::clock::Clock as _;
use wideroom::metrics::Metrics;
use wideroom::model::UserId;

use crate::support::client::soon;
use crate::support::clocked_server::{ClockedServer, pass};
use crate::support::door::Badge;

const NOTIFICATIONS: &str = "subscription { outbox(types: [NOTIFICATION]) { event { ... on NotificationEvent { message { id } } } } }";

/// Sends as often as slow mode of two seconds allows, and no oftener.
async fn send_in_slow_mode(server: &ClockedServer, badge: &Badge, conversation: &Value) {
    for _ in 0..2 {
        let refused = server.try_send(badge, conversation, "x").await.unwrap_err();
        let extensions = &refused["extensions"];
        assert_eq!(extensions["code"], "RATE_LIMITED", "{refused}");
        let wait = extensions["retryAfterMs"].as_u64().unwrap();
        assert!(wait <= 2_001, "{wait}");
        pass(Duration::from_secs(2)).await;
        server.send(badge, conversation, "x").await;
    }
}

fn lead_metric(server: &ClockedServer) -> f64 {
    let metrics = Metrics::default();
    server.chat.register(&metrics);
    let text = metrics.text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("wideroom_ids_ahead_seconds "));
    line.expect("the gauge is there").parse().unwrap()
}

#[tokio::test]
async fn a_clock_that_is_set_back_holds_up_neither_slow_mode_nor_notifications() {
    let server = ClockedServer::new().await;
    let since = Some(server.clock.now());
    server.store.set_outbox(since).await.unwrap();
    let [alice, bob] = ["alice", "bob"].map(|name| server.door.user(name));
    let group = server.group(&alice, &["bob"]).await;
    let slow = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, slowModeSeconds: 2}) { conversation { id } } }";
    server.data(&alice, slow, json!({ "c": group })).await;
    server.send(&bob, &group, "x").await;
    assert!(lead_metric(&server) < 0.1);

    server.set_ahead(-30);
    assert!((29.0..31.0).contains(&lead_metric(&server)));
    send_in_slow_mode(&server, &bob, &group).await;

    // An hour ahead, and right again after a restart.
    server.set_ahead(3_630);
    server.send(&bob, &group, "x").await;
    server.set_ahead(-3_600);
    let server = server.restarted().await;
    send_in_slow_mode(&server, &bob, &group).await;

    let service = server.door.service();
    let mut outbox = server.door.subscribe(&service, NOTIFICATIONS, &json!({}));
    let begun = soon(outbox.next()).await.unwrap();
    assert_eq!(begun["data"]["outbox"]["event"], Value::Null, "{begun}");
    let last = server.send(&alice, &group, "x").await;
    pass(Duration::from_secs(3)).await;
    let notified = soon(async {
        loop {
            let payload = outbox.next().await.unwrap();
            if payload["data"]["outbox"]["event"]["message"]["id"] == last {
                return;
            }
        }
    });
    notified.await;
}

#[tokio::test]
async fn an_outbox_that_was_switched_on_by_a_clock_ahead_begins_at_once() {
    let server = ClockedServer::new().await;
    let switched = server.clock.now().plus_micros(3_600 * 1_000_000);
    server.store.set_outbox(Some(switched)).await.unwrap();
    let server = server.restarted().await;
    let service = server.door.service();
    let document = "subscription { outbox { event { __typename } } }";
    let mut outbox = server.door.subscribe(&service, document, &json!({}));
    soon(outbox.next()).await.unwrap();
    server.group(&server.door.user("alice"), &["bob"]).await;
    let created = soon(outbox.next()).await.unwrap();
    let kind = &created["data"]["outbox"]["event"]["__typename"];
    assert_eq!(kind, "ConversationCreatedEvent");
}

#[tokio::test]
async fn a_revocation_by_a_clock_ahead_is_not_undone_when_the_clock_is_set_back() {
    let mut server = ClockedServer::new().await;
    let begun = server.clock.now().micros() / 1_000_000;
    let status = async |server: &ClockedServer, at: i64| {
        let claims = json!({"sub": "bob", "iat": at, "exp": at + 7_200});
        let badge = server.door.signed(&claims);
        let document = "{ viewer { id } }";
        server.door.ask(&badge, document, &json!({})).await.status
    };
    let revoke = "mutation { revokeTokens(input: {username: \"bob\"}) { revokedBefore } }";
    server.set_ahead(3_600);
    let service = server.door.service();
    server.data(&service, revoke, json!({})).await;
    server.set_ahead(-3_610);
    // A restart reads the moment from the store again.
    for _ in 0..2 {
        assert_eq!(status(&server, begun - 60).await, 401);
        assert_eq!(status(&server, begun).await, 401);
        server = server.restarted().await;
    }
    server.set_ahead(3_620);
    assert_eq!(status(&server, begun).await, 401);
    assert_eq!(status(&server, begun + 3_605).await, 200);
}

#[tokio::test]
async fn nobody_was_last_seen_in_the_future() {
    let server = ClockedServer::new().await;
    let bob = server.door.user("bob");
    let ahead = server.clock.now().plus_micros(3_600 * 1_000_000);
    let user = UserId::parse("bob").unwrap();
    server.store.mark_seen(&user, ahead).await.unwrap();
    let seen = async || {
        let document = "{ viewer { presence { lastSeenAt } } }";
        let data = server.data(&bob, document, json!({})).await;
        data["viewer"]["presence"]["lastSeenAt"].clone()
    };
    assert_eq!(seen().await, Value::Null);
    server.set_ahead(3_600);
    assert!(seen().await.is_string());
}
