//! Servers whose clocks are wrong, or are set while they serve: such a server refuses writes and
//! nobody else does, and no cursor that it gave misses an event elsewhere.

use std::time::{Duration, Instant};

use wideroom::chat::{ConversationEvent, ConversationUpdates, Error};
use wideroom::clock::{Clock as _, IdGenerator, SystemClock};
use wideroom::model::{ConversationId, Message, MessageId, MessageKind, OrderKey, UserId};
use wideroom::store::{NewMessage, Store as _};

use super::pair::{Server, people, two, two_with_group};
use crate::support::cost::least_time;
use crate::support::words::content;
use crate::support::world::{PATIENCE, group_of};

const SECOND: i64 = 1_000_000;
/// A server refuses at once what its clock forbids.
const AT_ONCE: Duration = Duration::from_millis(1_500);

/// Whether a send is refused at once, and certainly not done.
async fn is_refused(server: &Server, user: &UserId, conversation: ConversationId) -> bool {
    let mut are_all_refused = true;
    let took = least_time(AT_ONCE, async |_| {
        // One that was done is not measured again.
        if are_all_refused {
            let began = Instant::now();
            let sent = server.try_send(user, conversation, "hello", None).await;
            are_all_refused = matches!(sent, Err(Error::Busy));
            return began.elapsed();
        }
        Duration::ZERO
    })
    .await;
    assert!(took <= AT_ONCE, "{took:?}");
    are_all_refused
}

/// Waits until a server takes part again. Its next poll compares the clocks.
async fn is_well_soon(server: &Server) {
    let wait = async {
        while server.chat.health().is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("it is well");
}

/// Receives this message, and the position of the stream after it.
async fn receive(updates: &mut ConversationUpdates, id: MessageId) -> OrderKey {
    let wait = async {
        loop {
            let update = updates.next().await.unwrap().unwrap();
            if matches!(&update.event, Some(ConversationEvent::MessageAdded(message)) if message.id == id)
            {
                return update.position;
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("it is lost")
}

fn ahead_of_now(position: OrderKey) -> i64 {
    position.moment().micros() - SystemClock.now().micros()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_clock_is_a_minute_off_refuses_writes_and_nobody_else_does() {
    let Some((one, other, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
    let first = one.send(&anna, conversation, "first").await;
    for skew in [60 * SECOND, -3_600 * SECOND] {
        let wrong = Server::open(skew).await.unwrap();
        let fault = wrong.chat.health().unwrap_err();
        assert!(fault.contains("the cluster's"), "{fault}");
        assert!(is_refused(&wrong, &anna, conversation).await);
        let (writes, inbox) = (&wrong.chat.writes, &wrong.chat.inbox);
        let others: &[String] = &[ben.as_str().to_owned()];
        let group = writes
            .create_group(&anna, group_of("a group", others, None))
            .await;
        assert!(matches!(group, Err(Error::Busy)), "{group:?}");
        let mark = inbox.mark_read(&ben, conversation, Some(first.id)).await;
        assert!(matches!(mark, Err(Error::Busy)), "{mark:?}");
        // It goes on serving who is there, on time.
        let streams = &wrong.chat.streams;
        let mut live = streams
            .conversation(&ben, conversation, None)
            .await
            .unwrap();
        for server in [&one, &other] {
            let sent = server.send(&anna, conversation, "hello").await;
            let position = receive(&mut live, sent.id).await;
            assert!(ahead_of_now(position) <= 3 * SECOND);
        }
        wrong.clock.set(0);
        is_well_soon(&wrong).await;
        wrong.send(&anna, conversation, "well again").await;
    }
}

/// Its count would otherwise stand for a minute that is still being written, for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_by_a_server_whose_clock_is_ahead_covers_no_message_of_now() {
    let Some((one, wrong, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
    one.send(&anna, conversation, "before").await;
    wrong.clock.set(120 * SECOND);
    let count = async |server: &Server| {
        let counts = server.cql.message_counts(&[conversation]).await;
        counts.unwrap()[0]
    };
    assert_eq!(count(&wrong).await, 1);
    one.send(&ben, conversation, "after").await;
    assert_eq!([count(&one).await, count(&wrong).await], [2, 2]);
}

/// An old version, or a server that was not fenced in time, has left an id of the next minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_of_the_future_stops_the_writes_of_its_own_conversation_only() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let raised = one.group(&anna, &[&ben]).await;
    let quiet = one.group(&anna, &[&ben]).await;
    let future = |seconds: i64| {
        let id = IdGenerator::random().next(SystemClock.now().plus_micros(seconds * SECOND));
        message(raised, &ben, id)
    };
    // A little ahead: the next one is greater, at once.
    let slightly = future(1);
    one.cql
        .append_messages(raised, std::slice::from_ref(&slightly))
        .await
        .unwrap();
    let answer = other.send(&anna, raised, "an answer").await;
    assert!(answer.id > slightly.message.id);
    let elsewhere = other.send(&anna, quiet, "elsewhere").await;
    assert!(
        ahead_of_now(elsewhere.id.order_key()) < SECOND / 2,
        "the clock of the process was not raised"
    );

    one.cql
        .append_messages(raised, &[future(60)])
        .await
        .unwrap();
    for server in [&one, &other] {
        assert!(is_refused(server, &anna, raised).await);
        for number in 0..5 {
            server.send(&anna, quiet, &format!("{number}")).await;
        }
        assert_eq!(server.chat.health(), Ok(()));
        assert!(ahead_of_now(server.chat.streams.inbox_position(&anna)) <= 3 * SECOND);
        let position = server.chat.history.events_position(raised).await.unwrap();
        assert!(ahead_of_now(position) <= 3 * SECOND);
    }
}

fn message(conversation: ConversationId, sender: &UserId, id: MessageId) -> NewMessage {
    let message = Message::new(
        conversation,
        id,
        sender.clone(),
        MessageKind::Text,
        content("of the future"),
    );
    NewMessage {
        message: message.into(),
        input_hash: None,
        is_by_service: false,
    }
}

/// While it serves: a step of a minute, of an hour, and back. Every cursor that it gave goes on
/// elsewhere, where nothing is missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: many steps of a clock"]
async fn no_cursor_of_a_server_whose_clock_steps_misses_an_event() {
    let Some((one, other, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
    let (here, there) = (&one.chat.streams, &other.chat.streams);
    let mut live = here.conversation(&ben, conversation, None).await.unwrap();
    for step in [60, -60, 3_600, 0] {
        one.clock.set(step * SECOND);
        assert!(is_refused(&one, &anna, conversation).await, "{step}");
        let mut sent = Vec::new();
        let mut cursors = vec![here.inbox_position(&ben)];
        for number in 0..4 {
            let message = other.send(&anna, conversation, &format!("{number}")).await;
            cursors.push(receive(&mut live, message.id).await);
            sent.push(message.id);
        }
        let late = other.send(&anna, conversation, "the last").await;
        sent.push(late.id);
        for (number, cursor) in cursors.into_iter().enumerate() {
            assert!(ahead_of_now(cursor) <= 3 * SECOND, "{step}");
            let after = Some(cursor);
            let mut resumed = there.conversation(&ben, conversation, after).await.unwrap();
            for id in sent.iter().skip(number) {
                receive(&mut resumed, *id).await;
            }
        }
    }
    is_well_soon(&one).await;
    one.send(&anna, conversation, "well again").await;
}

/// A cursor that no server gives is refused, by the cluster's clock and not by a server's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_of_the_future_has_expired_whatever_the_clock_shows() {
    let (Some(right), Some(ahead)) = (Server::open(0).await, Server::open(60 * SECOND).await)
    else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = right.group(&anna, &[&ben]).await;
    let at = |seconds: i64| {
        let moment = SystemClock.now().plus_micros(seconds * SECOND);
        Some(OrderKey::first_at(moment))
    };
    for streams in [&right.chat.streams, &ahead.chat.streams] {
        let expired = |error: Option<Error>| matches!(error, Some(Error::CursorExpired));
        let messages = streams.messages(&ben, conversation, at(30)).await;
        assert!(expired(messages.err()));
        let events = streams.conversation(&ben, conversation, at(30)).await;
        assert!(expired(events.err()));
        assert!(expired(streams.inbox(&ben, at(30)).await.err()));
        assert!(streams.messages(&ben, conversation, at(2)).await.is_ok());
    }
}
