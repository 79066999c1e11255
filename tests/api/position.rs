//! Acts that mean one position: no message lies between two moments of the same act.

use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use crate::support::world::{Actor, World, text};

/// Number of messages that the actor sees, with the unread count and the oldest message of both.
async fn seen_and_unread(actor: &Actor, conversation: &str) -> [Value; 4] {
    let document = "query($c: ID!) { conversation(id: $c) { messageCount messages(last: 1) { edges { node { id } } }
        inboxEntry { unreadCount firstUnreadMessage { id } } } }";
    let data = actor.data(document, json!({"c": conversation})).await;
    let (shown, entry) = (&data["conversation"], &data["conversation"]["inboxEntry"]);
    let oldest = &shown["messages"]["edges"][0]["node"]["id"];
    let first = &entry["firstUnreadMessage"]["id"];
    [&shown["messageCount"], oldest, &entry["unreadCount"], first].map(Value::clone)
}

#[tokio::test]
async fn what_a_clear_leaves_is_unread() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    for _ in 0..20 {
        let c = alice.group("friends", &["bob"]).await;
        alice.send(&c, "before").await;
        let sends = (0..4).map(async |_| {
            for _ in 0..4 {
                alice.send(&c, "meanwhile").await;
            }
        });
        let clear = async {
            alice.send(&c, "first").await;
            let document = "mutation($c: ID!) { clearHistory(input: {conversationId: $c}) { inboxEntry { id } } }";
            bob.data(document, json!({"c": c})).await;
        };
        join(join_all(sends), clear).await;
        alice.send(&c, "after").await;
        let [count, oldest, unread, first] = seen_and_unread(&bob, &c).await;
        assert_eq!((unread, first), (count, oldest));
    }
}

#[tokio::test]
async fn a_message_that_an_archiving_did_not_show_ends_it() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    alice.send(&c, "before").await;
    let archive = "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, archived: true}) { inboxEntry { lastMessage { id } } } }";
    let entry = "query($c: ID!) { conversation(id: $c) { inboxEntry { isArchived } } }";
    for _ in 0..100 {
        let variables = json!({"c": c});
        let (sent, archived) = join(
            alice.send(&c, "meanwhile"),
            bob.data(archive, variables.clone()),
        )
        .await;
        let shown = text(&archived["updateInboxEntry"]["inboxEntry"]["lastMessage"]["id"]);
        let data = bob.data(entry, variables).await;
        let is_archived = &data["conversation"]["inboxEntry"]["isArchived"];
        assert_eq!(*is_archived, shown == sent.id);
    }
}
