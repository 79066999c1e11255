//! Writes of one server on the other: at once in reads, soon in subscriptions, and never lost, whatever the clocks show, however late a
//! write is, and whichever server dies.

use std::time::{Duration, Instant};

use serde_json::json;
use wideroom::chat::{ConversationEvent, EntrySettings};
use wideroom::clock::{Clock as _, IdGenerator, SystemClock};
use wideroom::model::{ConversationId, InputHash, MessageId, UserId};

use super::keyspace::run_shared;
use super::pair::{Server, crowd, people, two, two_with_group};
use super::updates::{is_added, receive, receive_entry, receive_event, receive_last_message};
use super::watcher::entry;
use crate::support::client::soon;
use crate::support::words::content;
use crate::support::world::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_reads_the_writes_of_the_other_at_once() {
    let Some((one, other, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
    for number in 1..=20_u32 {
        let message = one.send(&anna, conversation, "hello").await;
        let (row, unread) = entry(&other, &ben, conversation).await;
        assert_eq!(row.unwrap().last_message, Some(message.id));
        assert_eq!(unread.unwrap().count, 1, "{number}");
        other.mark_read(&ben, conversation).await;
        assert_eq!(entry(&one, &ben, conversation).await.1.unwrap().count, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_receive_the_writes_of_the_other_server_soon() {
    let Some((one, other, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
    let mut messages = other.messages(&ben, conversation, None).await;
    let mut events = other.events(&ben, conversation, None).await;
    let mut inbox = other.inbox(&ben).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let message = one.send(&anna, conversation, "hello").await;
        let sent_at = Instant::now();
        receive(&mut messages, message.id).await;
        receive_event(&mut events, is_added(message.id)).await;
        receive_last_message(&mut inbox, (&other, &ben), &message).await;
        slowest = slowest.max(sent_at.elapsed());
    }
    println!("the slowest of ten sends was heard on the other server after {slowest:?}");

    let message = one.send(&anna, conversation, "to be changed").await;
    one.chat
        .writes
        .edit(&anna, conversation, message.id, "changed".to_owned())
        .await
        .unwrap();
    receive_event(&mut events, |event| {
        matches!(event, ConversationEvent::MessageChanged(_, there)
            if there.id == message.id && there.content.as_ref().is_some_and(|content| content.body.as_str() == "changed"))
    })
    .await;
    one.mark_read(&anna, conversation).await;
    one.chat
        .inbox
        .mark_delivered(&ben, conversation, Some(message.id))
        .await
        .unwrap();
    receive_event(
        &mut events,
        |event| matches!(event, ConversationEvent::MarkerMoved(user) if *user == ben),
    )
    .await;
    one.chat
        .writes
        .rename(&anna, conversation, "another name")
        .await
        .unwrap();
    receive_event(&mut events, |event| {
        matches!(event, ConversationEvent::Renamed)
    })
    .await;
    assert_eq!(
        other
            .chat
            .access
            .conversation(&ben, conversation)
            .await
            .unwrap()
            .unwrap()
            .name
            .as_ref()
            .unwrap()
            .as_str(),
        "another name"
    );
    let muted = EntrySettings {
        muted: Some(true),
        ..EntrySettings::default()
    };
    one.chat
        .inbox
        .update_entry(&ben, conversation, muted)
        .await
        .unwrap();
    soon(async {
        while !entry(&other, &ben, conversation)
            .await
            .0
            .unwrap()
            .flags
            .is_muted
        {
            receive_entry(&mut inbox, conversation).await;
        }
        receive_entry(&mut inbox, conversation).await;
    })
    .await;
}

/// One who is slow to write gives an id, and another one's later message is seen long before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_delayed_past_its_id_is_not_lost() {
    let Some((one, other, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
    let mut live = other.messages(&ben, conversation, None).await;
    let inbox_position = other.chat.streams.inbox_position(&ben);
    one.slow.set_delay(Duration::from_secs(13));
    let late = one.try_send(&anna, conversation, "late", None).await;
    assert_eq!(
        late.unwrap_err().to_string(),
        wideroom::chat::Error::OutcomeUnknown.to_string()
    );
    tokio::time::sleep(Duration::from_secs(7)).await;
    let early = other.send(&ben, conversation, "early").await;
    let history = wideroom::chat::HistoryRequest::Page {
        page: wideroom::model::PageRequest::first(5),
        from: None,
        until: None,
    };
    let late = soon(async {
        loop {
            let page = other
                .chat
                .history
                .page(conversation, wideroom::model::Floor::NONE, &history)
                .await
                .unwrap();
            if let Some(late) = page.items.iter().find(|message| message.sender == anna) {
                return late.id;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(
        early.id.moment().micros() - late.moment().micros() > 10_000_000,
        "older than streams look back"
    );
    receive(&mut live, late).await;
    // The log of what is late is written after it, and told of when it is there.
    let after = Some(early.id.order_key());
    for server in [&one, &other] {
        receive(&mut server.messages(&ben, conversation, after).await, late).await;
        receive_event(
            &mut server.events(&ben, conversation, after).await,
            is_added(late),
        )
        .await;
    }
    let mut inbox = one
        .chat
        .streams
        .inbox(&ben, Some(inbox_position))
        .await
        .unwrap();
    receive_entry(&mut inbox, conversation).await;
}

/// The claim is there, and nothing else: whoever made it is no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_whose_server_died_after_its_claim_is_finished_by_the_other() {
    let Some((one, other, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
    let mut live = [
        one.messages(&ben, conversation, None).await,
        other.messages(&ben, conversation, None).await,
    ];
    let id = IdGenerator::random().next(SystemClock.now().plus_micros(-30_000_000));
    let newest = other.send(&ben, conversation, "meanwhile").await;
    claim(conversation, &anna, "its-key", id, "finish me").await;
    let sent = other
        .try_send(&anna, conversation, "finish me", Some("its-key"))
        .await
        .unwrap();
    assert_eq!(sent.id, id, "the id of the first try");
    assert!(matches!(
        other
            .try_send(&anna, conversation, "another", Some("its-key"))
            .await,
        Err(wideroom::chat::Error::Conflict)
    ));
    for (server, live) in [&one, &other].into_iter().zip(&mut live) {
        assert_eq!(
            server
                .try_send(&anna, conversation, "finish me", Some("its-key"))
                .await
                .unwrap()
                .id,
            id
        );
        receive(live, id).await;
        let mut resumed = server
            .messages(&ben, conversation, Some(newest.id.order_key()))
            .await;
        receive(&mut resumed, id).await;
    }
}

async fn claim(
    conversation: ConversationId,
    sender: &UserId,
    key: &str,
    id: MessageId,
    body: &str,
) {
    let InputHash(hash) = InputHash::of_send(&content(body), None);
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    // The first of the four widths: ten days.
    let width = 10 * 24 * 3_600 * 1_000_000;
    let start = id.moment().micros() - id.moment().micros() % width;
    let statement = format!(
        "INSERT INTO {{}}.sends_by_key (conversation_id, sender_id, key, message_id, width, start, input_hash) \
         VALUES ({}, '{sender}', '{key}', {}, 0, {start}, 0x{hash}) IF NOT EXISTS",
        conversation.0,
        id.uuid()
    );
    run_shared(&statement).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_lies_after_what_it_answers_whatever_the_clocks_say() {
    let (Some(ahead), Some(behind)) = (Server::open(1_500_000).await, Server::open(0).await) else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = ahead.group(&anna, &[&ben]).await;
    for _ in 0..10 {
        let question = ahead.send(&anna, conversation, "why?").await;
        let answer = behind.send(&ben, conversation, "because").await;
        assert!(answer.id > question.id);
    }
}

/// Each of them has seen nothing else of what the one that is ahead has written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flag_is_later_than_a_write_by_a_clock_ahead() {
    let Some(ahead) = Server::open(1_500_000).await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = ahead.group(&anna, &[&ben]).await;
    let question = ahead.send(&anna, conversation, "why?").await;
    ahead.send(&ben, conversation, "because").await;
    let behind = Server::open(0).await.unwrap();
    behind
        .chat
        .inbox
        .mark_unread(&ben, conversation, question.id)
        .await
        .unwrap();
    assert_eq!(entry(&behind, &ben, conversation).await.1.unwrap().count, 1);
    let behind = Server::open(0).await.unwrap();
    let archive = EntrySettings {
        archived: Some(true),
        ..EntrySettings::default()
    };
    assert!(
        behind
            .chat
            .inbox
            .update_entry(&anna, conversation, archive)
            .await
            .unwrap()
            .is_archived()
    );
}

/// At the end, every participant has the newest message in the inbox entry, and removed users receive nothing more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_membership_changes_on_one_while_the_other_sends() {
    let Some((one, other)) = two().await else {
        return;
    };
    let names = ["anna", "ben", "gus", "hal", "ida", "jon"];
    let [anna, ben, guests @ ..] = people(names);
    let conversation = one.group(&anna, &[&ben]).await;
    let sends = async {
        for number in 0..60 {
            other.send(&ben, conversation, &format!("{number}")).await;
        }
    };
    let changes = async {
        for guest in &guests {
            one.add(&anna, conversation, guest).await;
        }
        for guest in &guests[..2] {
            one.remove(&anna, conversation, guest).await;
        }
    };
    tokio::join!(sends, changes);
    let newest = one
        .chat
        .history
        .last_messages(&[conversation])
        .await
        .unwrap()
        .pop()
        .flatten();
    for user in [&anna, &ben].into_iter().chain(&guests[2..]) {
        for server in [&one, &other] {
            assert_eq!(
                entry(server, user, conversation)
                    .await
                    .0
                    .unwrap()
                    .last_message,
                newest,
                "{user}"
            );
        }
    }
    for user in &guests[..2] {
        assert_eq!(entry(&other, user, conversation).await.0, None);
    }
    let ida = &guests[2];
    let mut messages = other.messages(ida, conversation, None).await;
    let mut events = other.events(ida, conversation, None).await;
    let mut inbox = other.inbox(ida).await;
    one.remove(&anna, conversation, ida).await;
    let removed_at = Instant::now();
    soon(async { while messages.next().await.unwrap().is_some() {} }).await;
    receive_event(
        &mut events,
        |event| matches!(event, ConversationEvent::ParticipantRemoved(user) if user == ida),
    )
    .await;
    println!(
        "one who was removed heard of it on the other server after {:?}",
        removed_at.elapsed()
    );
    soon(async { while events.next().await.unwrap().is_some() {} }).await;
    soon(async {
        loop {
            receive_entry(&mut inbox, conversation).await;
            if entry(&other, ida, conversation).await.0.is_none() {
                return;
            }
        }
    })
    .await;
}

/// Their heads are known to each server for a second, and what is told is never older than what it tells of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_conversation_is_seen_within_a_second_and_told_as_it_is() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let crowd = crowd(40, &anna);
    let everybody: Vec<_> = crowd.iter().chain([&ben]).collect();
    let conversation = one.group(&anna, &everybody).await;
    let mut inbox = other.inbox(&ben).await;
    for _ in 0..5 {
        // Known from now on, as it was.
        entry(&other, &ben, conversation).await;
        let message = one.send(&anna, conversation, "hello, all").await;
        let sent_at = Instant::now();
        receive_last_message(&mut inbox, (&other, &ben), &message).await;
        println!("told of a large conversation after {:?}", sent_at.elapsed());
        let after = one.send(&anna, conversation, "and again").await;
        let read_at = Instant::now();
        while entry(&other, &ben, conversation)
            .await
            .0
            .unwrap()
            .last_message
            != Some(after.id)
        {
            assert!(read_at.elapsed() < PATIENCE, "a head is known for a second");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_on_the_other_server_shows_it_too() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.actor(&anna).direct(ben.as_str()).await;
    let document = "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body } } } }";
    let mut stream = other
        .actor(&ben)
        .subscribe(document, json!({"c": conversation}));
    // It listens once it is asked for something; what came before it began is repeated.
    assert!(stream.is_quiet());
    let sent = one.actor(&anna).send(&conversation, "hello").await;
    assert!(!sent.id.is_empty());
    let heard = soon(stream.next()).await;
    assert_eq!(
        heard["messageAdded"]["messageEdge"]["node"]["body"],
        "hello"
    );
}

/// Its messages are told to no inbox any more: who listens to theirs on another server listens to the conversation from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_goes_on_hearing_of_a_conversation_that_becomes_large() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let crowd = crowd(30, &anna);
    let everybody: Vec<_> = crowd.iter().chain([&ben]).collect();
    let mut inbox = other.inbox(&ben).await;
    let conversation = one.group(&anna, &everybody).await;
    receive_entry(&mut inbox, conversation).await;
    assert!(
        !other
            .chat
            .access
            .conversation(&ben, conversation)
            .await
            .unwrap()
            .unwrap()
            .is_large
    );
    one.chat
        .writes
        .add_participants(&anna, conversation, &[format!("31-{anna}")], None)
        .await
        .unwrap();
    assert!(
        other
            .chat
            .access
            .conversation(&ben, conversation)
            .await
            .unwrap()
            .unwrap()
            .is_large
    );
    for _ in 0..3 {
        let message = one.send(&anna, conversation, "hello, all").await;
        receive_last_message(&mut inbox, (&other, &ben), &message).await;
    }
}
