//! Nobody sees what is not theirs: a stranger is answered as if it did not exist.

use serde_json::json;

use crate::support::world::World;

#[tokio::test]
async fn a_stranger_cannot_read_a_conversation() {
    let world = World::open().await;
    let (alice, mallory) = (world.user("alice"), world.user("mallory"));
    let conversation = alice.direct("bob").await;
    let message = alice.send(&conversation, "a secret").await;
    let document = "query($c: ID!, $m: ID!) { conversation(id: $c) { id } c: node(id: $c) { id } m: node(id: $m) { id }
        nodes(ids: [$c, $m]) { id } }";
    let nothing = json!({"conversation": null, "c": null, "m": null, "nodes": [null, null]});
    assert_eq!(
        mallory
            .data(document, json!({"c": conversation, "m": message.id}))
            .await,
        nothing
    );
    assert_eq!(
        mallory
            .data(document, json!({"c": "no id", "m": "AQA"}))
            .await,
        nothing
    );
}

#[tokio::test]
async fn a_stranger_is_told_what_is_told_of_nothing() {
    let world = World::open().await;
    let (alice, mallory) = (world.user("alice"), world.user("mallory"));
    let conversation = alice.direct("bob").await;
    let message = alice.send(&conversation, "a secret").await;
    for (c, m) in [
        (conversation.as_str(), message.id.as_str()),
        ("nonsense", "nonsense"),
    ] {
        for document in [
            "mutation($c: ID!, $m: ID!) { sendMessage(input: {conversationId: $c, body: \"hi\", replyToId: $m}) { __typename } }",
            "mutation($c: ID!, $m: ID!) { markRead(input: {conversationId: $c, messageId: $m}) { __typename } }",
            "mutation($c: ID!, $m: ID!) { markUnread(input: {conversationId: $c, messageId: $m}) { __typename } }",
            "mutation($c: ID!, $m: ID!) { markDelivered(input: {conversationId: $c, messageId: $m}) { __typename } }",
            "mutation($c: ID!) { markDelivered(input: {conversationId: $c}) { __typename } }",
            "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, muted: true}) { __typename } }",
        ] {
            assert_eq!(
                mallory.ask(document, json!({"c": c, "m": m})).await.code(),
                "NOT_FOUND",
                "{document}"
            );
        }
        let mut stream = mallory.subscribe(
            "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { cursor } } }",
            json!({"c": c}),
        );
        assert_eq!(stream.answer().await.code(), "NOT_FOUND");
    }
}

#[tokio::test]
async fn an_entry_of_another_user_is_no_node() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let conversation = alice.direct("bob").await;
    let entry_id = "query($c: ID!) { conversation(id: $c) { inboxEntry { id } } }";
    let data = alice.data(entry_id, json!({"c": conversation})).await;
    let id = &data["conversation"]["inboxEntry"]["id"];
    let node = "query($id: ID!) { node(id: $id) { __typename id } }";
    assert_eq!(
        alice.data(node, json!({"id": id})).await["node"],
        json!({"__typename": "InboxEntry", "id": id})
    );
    assert_eq!(bob.data(node, json!({"id": id})).await["node"], json!(null));
}

#[tokio::test]
async fn without_a_token_only_the_schema_is_answered() {
    let world = World::open().await;
    let nobody = world.nobody();
    assert_eq!(
        nobody.data("{ __typename }", json!({})).await,
        json!({"__typename": "Query"})
    );
    assert_eq!(
        nobody.ask("{ viewer { id } }", json!({})).await.code(),
        "UNAUTHENTICATED"
    );
    assert_eq!(
        nobody
            .ask("{ inbox { edges { cursor } } }", json!({}))
            .await
            .code(),
        "UNAUTHENTICATED"
    );
    let send =
        "mutation { sendMessage(input: {conversationId: \"x\", body: \"x\"}) { __typename } }";
    assert_eq!(nobody.ask(send, json!({})).await.code(), "UNAUTHENTICATED");
    let mut stream = nobody.subscribe("subscription { inboxUpdated { cursor } }", json!({}));
    assert_eq!(stream.answer().await.code(), "UNAUTHENTICATED");
}
