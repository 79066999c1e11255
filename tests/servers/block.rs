//! Blocks on every server: what one server writes, another follows within four seconds.

use std::time::{Duration, Instant};

use serde_json::json;

use super::pair::{people, two};
use crate::support::world::text;

/// The promise.
const WITHIN: Duration = Duration::from_secs(4);

const DEVICE: &str = "subscription { inboxUpdated { event { __typename ... on BlockChangedEvent { user { username viewerHasBlocked } }
    ... on InboxEntryRemovedEvent { conversationId } } } }";

#[tokio::test]
async fn a_block_on_one_server_holds_on_the_other_within_four_seconds() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let (here, there) = (one.actor(&anna), other.actor(&anna));
    let ben_there = other.actor(&ben);
    let c = here.direct(ben.as_str()).await;
    ben_there.send(&c, "hi").await;
    let mut device = there.subscribe(DEVICE, json!({}));
    device.next().await;
    let messages =
        "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { cursor } } }";
    let mut stream = there.subscribe(messages, json!({"c": c}));
    assert!(stream.is_quiet());
    // A stream that delivers is open.
    ben_there.send(&c, "first").await;
    stream.next().await;
    let before = device.next().await["inboxUpdated"]["event"].clone();
    assert_eq!(before["__typename"], "InboxEntryChangedEvent");
    for (mutation, has_blocked) in [("blockUser", true), ("unblockUser", false)] {
        let document = format!(
            "mutation($u: String!) {{ {mutation}(input: {{username: $u}}) {{ user {{ viewerHasBlocked }} }} }}"
        );
        let said = here.data(&document, json!({"u": ben.as_str()})).await;
        assert_eq!(said[mutation]["user"]["viewerHasBlocked"], has_blocked);
        let began = Instant::now();
        let event = device.next().await["inboxUpdated"]["event"].clone();
        let took = began.elapsed();
        let user = json!({"username": ben.as_str(), "viewerHasBlocked": has_blocked});
        assert_eq!(
            event,
            json!({"__typename": "BlockChangedEvent", "user": user})
        );
        assert!(took < WITHIN, "{took:?}");
        let event = device.next().await["inboxUpdated"]["event"].clone();
        if has_blocked {
            assert_eq!(text(&event["conversationId"]), c);
            assert!(stream.has_ended().await);
            let document = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"x\"}) { __typename } }";
            assert_eq!(
                there.ask(document, json!({"c": c})).await.code(),
                "FORBIDDEN"
            );
            ben_there.send(&c, "hello?").await;
            let inbox = "{ inbox { edges { node { id } } } }";
            let inbox = there.data(inbox, json!({})).await;
            assert_eq!(inbox["inbox"]["edges"], json!([]));
        } else {
            assert_eq!(event["__typename"], "InboxEntryChangedEvent");
            assert_eq!(there.unread(&c).await, 0);
        }
    }
}

/// A list that is held costs no statement, however often it is asked.
#[tokio::test]
async fn blocks_cost_a_send_and_a_page_no_statement() {
    let Some((one, _other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let lists = one.chat.access.blocks();
    lists.of(&anna).await.unwrap();
    let before = one.cql.statements_sent();
    for _ in 0..1_000 {
        assert!(!lists.of(&anna).await.unwrap().has(&ben));
    }
    let polls = one.cql.statements_sent() - before;
    assert!(polls < 100, "{polls} statements");
}
