//! Floors on every server: what a user clears, or an owner truncates, on one server, the streams of another follow.

use std::time::Duration;

use serde_json::{Value, json};

use super::pair::{people, two};
use crate::support::world::{Stream, text};

const EVENTS: &str = "subscription($c: ID!) { conversationEvents(conversationId: $c) { event { __typename
    ... on MessageAddedEvent { messageEdge { node { id } } } ... on ReactionsChangedEvent { message { id } } } } }";
const ENTRIES: &str = "subscription { inboxUpdated { event { ... on InboxEntryChangedEvent { inboxEntryEdge { node { visibleFrom } } } } } }";

async fn next_event(stream: &mut Stream) -> Value {
    loop {
        let event = stream.next().await["conversationEvents"]["event"].clone();
        if !event.is_null() && event["__typename"] != "MarkerMovedEvent" {
            return event;
        }
    }
}

async fn holds_on_the_other_server(size: usize) {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let (anna_here, ben_here, ben_there) = (one.actor(&anna), one.actor(&ben), other.actor(&ben));
    let mut names = vec![ben.as_str().to_owned()];
    names.extend((2..size).map(|n| format!("{n}-{anna}")));
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let c = anna_here.group("friends", &names).await;
    let old = anna_here.send(&c, "old").await;
    let mut stream = ben_there.subscribe(EVENTS, json!({"c": c}));
    stream.next().await;
    let mut device = ben_there.subscribe(ENTRIES, json!({}));
    device.next().await;
    let clear = "mutation($c: ID!) { clearHistory(input: {conversationId: $c}) { inboxEntry { visibleFrom } } }";
    let cleared = ben_here.data(clear, json!({"c": c})).await;
    let from = &cleared["clearHistory"]["inboxEntry"]["visibleFrom"];
    loop {
        let told = device.next().await["inboxUpdated"]["event"].clone();
        if told["inboxEntryEdge"]["node"]["visibleFrom"] == *from {
            break;
        }
    }
    // The lifetime of a membership that was read from a shared store.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let react = "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } }";
    anna_here.data(react, json!({"m": old.id})).await;
    let new = anna_here.send(&c, "new").await;
    let event = next_event(&mut stream).await;
    assert_eq!(event["messageEdge"]["node"]["id"], new.id, "{event}");
    let truncate = "mutation($c: ID!, $m: ID!) { truncateConversation(input: {conversationId: $c, upToMessageId: $m}) { conversation { id } } }";
    anna_here.data(truncate, json!({"c": c, "m": new.id})).await;
    let event = next_event(&mut stream).await;
    assert_eq!(text(&event["__typename"]), "HistoryExpiredEvent");
    let count = "query($c: ID!) { conversation(id: $c) { messageCount lastMessage { id } } }";
    let data = ben_there.data(count, json!({"c": c})).await;
    assert_eq!(
        data["conversation"],
        json!({"messageCount": 0, "lastMessage": null})
    );
}

#[tokio::test]
async fn a_floor_that_rises_on_one_server_holds_on_the_other() {
    holds_on_the_other_server(2).await;
}

#[tokio::test]
async fn a_floor_of_a_large_conversation_holds_on_the_other_server() {
    holds_on_the_other_server(40).await;
}
