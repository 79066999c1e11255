//! Unfinished writes of a dead server: another server completes or hides them.

use serde_json::json;
use wideroom::chat::HistoryRequest;
use wideroom::clock::{Clock as _, IdGenerator, SystemClock};
use wideroom::model::id::pair_key;
use wideroom::model::{ConversationId, Message, PageRequest, UserId};

use super::keyspace::run_shared;
use super::pair::{Server, people, two};
use super::watcher::entry;

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

async fn claim_pair(one: &UserId, other: &UserId) -> ConversationId {
    let id = ConversationId::random();
    let pair = hex(&pair_key(one, other));
    run_shared(&format!(
        "INSERT INTO {{}}.direct_by_pair (pair_key, conversation_id) VALUES ({pair}, {})",
        id.0
    ))
    .await;
    id
}

/// With or without the row of the conversation; its people are there in neither case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_conversation_whose_maker_died_is_made_by_whoever_asks_next() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben, gus] = people(["anna", "ben", "gus"]);
    let with_ben = claim_pair(&anna, &ben).await;
    let with_gus = claim_pair(&anna, &gus).await;
    let (made, now) = (
        IdGenerator::random().next(SystemClock.now()),
        SystemClock.now().micros(),
    );
    run_shared(&format!(
        "INSERT INTO {{}}.conversations (conversation_id, kind, created_at, created_by, made) VALUES ({}, 0, {now}, '{anna}', {})",
        with_gus.0,
        made.uuid()
    ))
    .await;
    for (peer, id) in [(&ben, with_ben), (&gus, with_gus)] {
        assert_eq!(
            one.chat
                .writes
                .start_direct(&anna, peer.as_str())
                .await
                .unwrap()
                .id,
            id
        );
        assert_eq!(
            other
                .chat
                .writes
                .start_direct(peer, anna.as_str())
                .await
                .unwrap()
                .id,
            id
        );
        let message = one.send(&anna, id, "hello").await;
        assert_eq!(
            entry(&other, peer, id).await.0.unwrap().last_message,
            Some(message.id)
        );
    }
}

/// Taken out, and the row of their inbox never told; or written into a group that was never made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_without_a_place_in_its_conversation_is_neither_shown_nor_counted() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let (conversation, left) = (
        one.group(&anna, &[&ben]).await,
        one.group(&anna, &[&ben]).await,
    );
    for conversation in [conversation, left] {
        one.send(&anna, conversation, "hello").await;
    }
    let entry_id = "query($c: ID!) { conversation(id: $c) { id inboxEntry { id } } }";
    let inbox =
        "{ inbox { edges { node { unreadCount conversation { uuid } } } pageInfo { hasNextPage } }
        unread: inbox(filter: {unreadOnly: true}) { edges { node { conversation { uuid } } } }
        inboxSummary { unreadConversationCount } }";
    let ids = "{ inbox { edges { node { id conversation { id uuid } } } } }";
    let before = other.actor(&ben).data(ids, json!({})).await;
    let nodes: Vec<_> = before["inbox"]["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| &edge["node"])
        .collect();
    let of_left = nodes
        .iter()
        .find(|node| node["conversation"]["uuid"] == left.0.to_string())
        .unwrap();

    one.remove(&anna, left, &ben).await;
    let at = SystemClock.now().plus_micros(5_000_000).micros();
    for ghost in [left, ConversationId::random()] {
        run_shared(&format!(
            "UPDATE {{}}.inbox_by_user USING TIMESTAMP {at} SET membership = 0x0002, last_activity = {at} \
             WHERE user_id = '{ben}' AND conversation_id = {}",
            ghost.0
        ))
        .await;
        assert!(
            other.chat.inbox.entry(&ben, ghost).await.unwrap().is_some(),
            "the row says otherwise"
        );
    }
    let data = other.actor(&ben).data(inbox, json!({})).await;
    let shown = json!([{"node": {"unreadCount": 1, "conversation": {"uuid": conversation.0}}}]);
    assert_eq!(
        data["inbox"],
        json!({"edges": shown, "pageInfo": {"hasNextPage": false}})
    );
    assert_eq!(
        data["unread"]["edges"],
        json!([{"node": {"conversation": {"uuid": conversation.0}}}])
    );
    assert_eq!(data["inboxSummary"], json!({"unreadConversationCount": 1}));
    let node = other
        .actor(&ben)
        .data(
            "query($i: ID!) { node(id: $i) { id } }",
            json!({"i": of_left["id"]}),
        )
        .await;
    assert_eq!(node, json!({"node": null}));
    let gone = other
        .actor(&ben)
        .data(entry_id, json!({"c": of_left["conversation"]["id"]}))
        .await;
    assert_eq!(gone, json!({"conversation": null}));
}

/// Decided on one server, which dies; the other one would have put the message into another bucket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_membership_is_finished_where_it_was_decided() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben, gus, hal] = people(["anna", "ben", "gus", "hal"]);
    let conversation = one.group(&anna, &[&ben]).await;
    other.send(&ben, conversation, "before").await;
    one.add(&anna, conversation, &gus).await;
    other.send(&ben, conversation, "after").await;

    let (message, day) = undo(conversation).await;
    assert_eq!(
        bodies(&one, conversation).await,
        ["after", "before"],
        "it is as though it was not written"
    );
    other.add(&anna, conversation, &hal).await;
    let there = format!(
        "SELECT message_id FROM {{}}.messages_by_conversation WHERE conversation_id = {} AND width = 1 AND start = {day} AND message_id = {}",
        conversation.0,
        message.id.uuid()
    );
    assert_eq!(
        run_shared(&there)
            .await
            .into_rows_result()
            .unwrap()
            .rows_num(),
        1,
        "in the bucket that was decided on"
    );
    assert_eq!(
        bodies(&one, conversation).await,
        ["", "after", "", "before"]
    );
}

/// The bodies of a history, the newest first; none of what the server said.
async fn bodies(server: &Server, conversation: ConversationId) -> Vec<String> {
    let request = HistoryRequest::Page {
        page: PageRequest::first(20),
        from: None,
        until: None,
    };
    let page = server
        .chat
        .history
        .page(conversation, wideroom::model::Floor::NONE, &request)
        .await
        .unwrap();
    page.items
        .iter()
        .map(|message| message.content.as_ref().unwrap().body.as_str().to_owned())
        .collect()
}

/// Takes the message of the last change of membership away, and lets that change be one that is not settled, whose message goes into the
/// bucket of a day. Answers with the message, and with when the day begins. The change then has no version, as earlier versions wrote it.
async fn undo(conversation: ConversationId) -> (Message, i64) {
    let pending = run_shared(&format!(
        "SELECT pending FROM {{}}.participants_by_conversation WHERE conversation_id = {} LIMIT 1",
        conversation.0
    ))
    .await;
    let (pending,) = pending
        .into_rows_result()
        .unwrap()
        .single_row::<(Vec<u8>,)>()
        .unwrap();
    let ((message, (width, start)), rest) =
        postcard::take_from_bytes::<(Message, (i8, i64))>(&pending[1..]).unwrap();
    let micros = message.id.moment().micros();
    let day = micros - micros % (24 * 3_600 * 1_000_000);
    assert_eq!(width, 0, "the widest, as there are few messages");
    let mut pending = postcard::to_stdvec(&(&message, (1_i8, day))).unwrap();
    pending.extend_from_slice(rest);
    run_shared(&format!(
        "UPDATE {{}}.participants_by_conversation SET pending = {} WHERE conversation_id = {}",
        hex(&pending),
        conversation.0
    ))
    .await;
    run_shared(&format!("DELETE settled FROM {{}}.participants_by_conversation USING TIMESTAMP 1 WHERE conversation_id = {}", conversation.0))
        .await;
    run_shared(&format!(
        "DELETE FROM {{}}.messages_by_conversation WHERE conversation_id = {} AND width = 0 AND start = {start} AND message_id = {}",
        conversation.0,
        message.id.uuid()
    ))
    .await;
    (message, day)
}
