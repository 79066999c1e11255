//! Large events of shared subscriptions: their payloads are kept for nobody who comes later.

use std::sync::Arc;

use serde_json::json;

use crate::support::world::World;

const SMALL: &str =
    "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body } } } }";
const LARGE: &str =
    "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { conversation {
    messages(first: 20) { edges { node { body } } } } } } } }";

#[tokio::test]
async fn a_payload_over_64_kib_is_kept_in_no_notice_and_no_memo() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    for _ in 0..8 {
        alice.send(&c, &"x".repeat(10_700)).await;
    }
    for (document, is_kept) in [(SMALL, true), (LARGE, false)] {
        let mut streams = [
            alice.subscribe(document, json!({"c": c})),
            bob.subscribe(document, json!({"c": c})),
        ];
        assert!(streams.iter_mut().all(|stream| stream.is_quiet()));
        alice.send(&c, "hello").await;
        let [first, second] = &mut streams;
        let (first, second) = (first.payload().await, second.payload().await);
        assert_eq!(first.get(), second.get());
        assert_eq!(first.get().len() > 64 << 10, !is_kept);
        drop(second);
        assert_eq!(Arc::strong_count(&first) > 1, is_kept, "{document}");
    }
}
