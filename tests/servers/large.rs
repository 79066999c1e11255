//! Large conversations over two servers: what a message costs the readers who are online, and what happens to their marks.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use serde_json::{Value, json};
use wideroom::model::{ConversationId, Message, UserId};

use super::cost::at_rest;
use super::pair::{Server, crowd, people, two};
use crate::support::world::{PATIENCE, Stream};

/// Participants of a conversation, enough to make it large.
const CROWD: usize = 40;
/// Participants with an inbox stream on the other server.
const READERS: usize = 30;
const MESSAGES: u64 = 10;
/// Statements of one server for a message, however many readers it has: the head, the message, and the
/// version of the membership.
const STATEMENTS_MAX: u64 = 6;

const ENTRIES: &str = "subscription { inboxUpdated { event { __typename
    ... on InboxEntryChangedEvent { inboxEntryEdge { node { unreadCount unreadCountIsCapped firstUnreadMessage { body }
        lastMessage { body sender { username } } readUpTo { body } conversation { name participantCount } } } } } } }";

async fn group(server: &Server, owner: &UserId, crowd: &[UserId]) -> ConversationId {
    let conversation = server.group(owner, &crowd.iter().collect::<Vec<_>>()).await;
    let seen = server.chat.access.conversation(owner, conversation).await;
    assert!(seen.unwrap().unwrap().is_large);
    conversation
}

/// Streams of some users, which have begun.
async fn readers(server: &Server, users: &[UserId], document: &str) -> Vec<Stream> {
    join_all(users.iter().map(async |user| {
        let mut stream = server.actor(user).subscribe(document, json!({}));
        assert_eq!(stream.next().await["inboxUpdated"]["event"], Value::Null);
        stream
    }))
    .await
}

/// The entry once it shows this message as the last one.
async fn entry_with(reader: &mut Stream, body: &str) -> Value {
    let shown = async {
        loop {
            let mut payload = reader.next().await;
            let node = payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"].take();
            if node["lastMessage"]["body"] == body {
                return node;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shown)
        .await
        .expect("the entry never showed the message")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_to_a_crowd_costs_statements_for_each_server_and_none_for_a_reader() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna] = people(["anna"]);
    let crowd = crowd(CROWD, &anna);
    let conversation = group(&one, &anna, &crowd).await;
    // The sender's profile and the count of participants are read for each entry that asks for them.
    let document = "subscription { inboxUpdated { event { __typename ... on InboxEntryChangedEvent { inboxEntryEdge { node {
        unreadCount unreadCountIsCapped lastMessage { body sender { username } } conversation { name } } } } } } }";
    let mut readers = readers(&other, &crowd[..READERS], document).await;
    let deliver = async |readers: &mut [Stream], number: u64| {
        let body = number.to_string();
        one.send(&anna, conversation, &body).await;
        for entry in join_all(readers.iter_mut().map(|reader| entry_with(reader, &body))).await {
            assert_eq!(entry["unreadCount"], number, "{entry}");
            assert_eq!(entry["unreadCountIsCapped"], false);
            assert_eq!(entry["conversation"]["name"], "a group");
            assert_eq!(entry["lastMessage"]["sender"]["username"], anna.as_str());
        }
    };
    // The first ones read each reader's row, and count.
    deliver(&mut readers, 1).await;
    deliver(&mut readers, 2).await;
    let (began, before) = (Instant::now(), other.statements());
    for number in 3..3 + MESSAGES {
        deliver(&mut readers, number).await;
    }
    let statements = other.statements() - before;
    let resting = at_rest(began);
    println!(
        "{MESSAGES} messages to {READERS} readers on one server: {statements} statements, of which at most {resting} at rest"
    );
    assert!(
        statements <= resting + MESSAGES * STATEMENTS_MAX,
        "{statements}"
    );
}

/// The row of a reader is cached for the stream: every act of the reader must evict it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_a_crowd_shows_what_its_reader_did_on_another_server() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna] = people(["anna"]);
    let crowd = crowd(CROWD, &anna);
    let ben = &crowd[0];
    let conversation = group(&one, &anna, &crowd).await;
    let mut reader = readers(&other, &crowd[..1], ENTRIES).await.remove(0);
    for number in 1..=3 {
        one.send(&anna, conversation, &format!("early {number}"))
            .await;
    }
    let entry = entry_with(&mut reader, "early 3").await;
    assert_eq!(entry["unreadCount"], 3, "{entry}");
    assert_eq!(entry["firstUnreadMessage"]["body"], "early 1");
    one.mark_read(ben, conversation).await;
    // Both change the entry; whichever state comes first, the last one is the truth.
    one.send(&anna, conversation, "later").await;
    let settled = async {
        loop {
            let entry = entry_with(&mut reader, "later").await;
            if entry["unreadCount"] == 1 {
                return entry;
            }
        }
    };
    let entry = tokio::time::timeout(PATIENCE, settled).await.unwrap();
    assert_eq!(entry["readUpTo"]["body"], "early 3");
    assert_eq!(entry["firstUnreadMessage"]["body"], "later");
    // The reader's own message counts as read.
    one.send(ben, conversation, "mine").await;
    let entry = entry_with(&mut reader, "mine").await;
    assert_eq!(entry["unreadCount"], 0, "{entry}");
    one.send(&anna, conversation, "the last").await;
    let entry = entry_with(&mut reader, "the last").await;
    assert_eq!(entry["unreadCount"], 1, "{entry}");
    // A deletion makes the count unknown, and it is computed again.
    let deleted = one.send(&anna, conversation, "a mistake").await;
    entry_with(&mut reader, "a mistake").await;
    let gone = one
        .chat
        .writes
        .delete(&anna, conversation, deleted.id)
        .await;
    assert!(gone.unwrap().deleted_at.is_some());
    one.send(&anna, conversation, "corrected").await;
    let entry = entry_with(&mut reader, "corrected").await;
    assert_eq!(entry["unreadCount"], 2, "{entry}");
}

/// Only the user whom a change has moved reads the membership again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_who_is_removed_hears_no_more_and_the_others_do() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna] = people(["anna"]);
    let crowd = crowd(CROWD, &anna);
    let conversation = group(&one, &anna, &crowd).await;
    let mut readers = readers(&other, &crowd[..READERS], ENTRIES).await;
    one.send(&anna, conversation, "to all").await;
    join_all(
        readers
            .iter_mut()
            .map(|reader| entry_with(reader, "to all")),
    )
    .await;
    one.remove(&anna, conversation, &crowd[0]).await;
    one.send(&anna, conversation, "to the others").await;
    let rest = &mut readers[1..];
    let entries = join_all(
        rest.iter_mut()
            .map(|reader| entry_with(reader, "to the others")),
    )
    .await;
    let count = CROWD; // With the owner, and without the one who was removed.
    let counted = |entry: &Value| entry["conversation"]["participantCount"] == count;
    assert!(entries.iter().all(counted), "{entries:?}");
    let removed = async {
        loop {
            let payload = readers[0].next().await;
            let event = &payload["inboxUpdated"]["event"];
            let body = &event["inboxEntryEdge"]["node"]["lastMessage"]["body"];
            assert_ne!(*body, "to the others");
            if event["__typename"] == "InboxEntryRemovedEvent" {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, removed).await.unwrap();
}

const MARKS: usize = 20;

async fn read_up_to(server: &Server, user: &UserId, conversation: ConversationId) -> Arc<Message> {
    let row = server.chat.inbox.entry(user, conversation).await;
    let position = row.unwrap().unwrap().marker.up_to;
    let found = server.cql.as_ref();
    let found = wideroom::store::Store::messages_at(found, &[(conversation, position)]).await;
    found.unwrap().remove(0).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_of_a_crowds_reader_share_writes_and_each_answer_is_of_what_is_stored() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna] = people(["anna"]);
    let crowd = crowd(CROWD, &anna);
    let ben = &crowd[0];
    let conversation = group(&one, &anna, &crowd).await;
    let mut messages = Vec::new();
    for number in 0..MARKS {
        messages.push(one.send(&anna, conversation, &number.to_string()).await);
    }
    let (began, moves) = (Instant::now(), one.slow.moves());
    let marks = messages.iter().map(async |message| {
        let marked = one
            .chat
            .inbox
            .mark_read(ben, conversation, Some(message.id));
        let answered = marked.await.unwrap();
        assert!(answered.marker.up_to >= message.id.order_key());
        // Another server reads at least what was answered.
        let stored = read_up_to(&other, ben, conversation).await;
        assert!(stored.id.order_key() >= message.id.order_key());
    });
    join_all(marks).await;
    let moves = one.slow.moves() - moves;
    println!(
        "{MARKS} marks at once: {moves} writes in {:.1?}",
        began.elapsed()
    );
    assert!(moves <= 3, "{moves} writes");
    let last = read_up_to(&other, ben, conversation).await;
    assert_eq!(last.id, messages[MARKS - 1].id);
    // A mark as unread is not coalesced, and wins over the marks before it.
    let unread = one
        .chat
        .inbox
        .mark_unread(ben, conversation, messages[5].id);
    unread.await.unwrap();
    let last = read_up_to(&other, ben, conversation).await;
    assert_eq!(last.id, messages[4].id);
}
