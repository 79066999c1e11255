//! The outbox of two servers: each reader receives the events of both, those that are late too.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wideroom::bus::Bus;
use wideroom::chat::{OutboxFilter, OutboxTypes, OutboxUpdates};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{ConversationId, Cut, MessageId, OrderKey, PageRequest, UserId, Viewer};
use wideroom::store::{Store as _, StoreAdmin as _};

use super::pair::{Server, people};
use crate::support::cassandra::shared;
use crate::support::ground::Keyspace;
use crate::support::words::new_salt_among_others;
use crate::support::world::PATIENCE;

/// Longer than an event may take without being late.
const LATE: Duration = Duration::from_secs(6);

/// Two servers on a keyspace with an outbox: no other case switches it.
async fn two() -> Option<(Keyspace, [Server; 2])> {
    let authority = shared().await?.authority().to_owned();
    new_salt_among_others();
    let keyspace = Keyspace::empty(authority, &SystemClock).await;
    let address = || keyspace.url().parse().unwrap();
    let one = Server::at(address(), Bus::default(), 0).await;
    one.cql.set_outbox(Some(SystemClock.now())).await.unwrap();
    // It reads the switch when it opens.
    let other = Server::at(address(), Bus::default(), 0).await;
    Some((keyspace, [one, other]))
}

async fn read(server: &Server, after: Option<OrderKey>) -> OutboxUpdates {
    let [service] = people(["backend"]);
    let filter = OutboxFilter::parse(
        OutboxTypes::parse(&["MESSAGE_ADDED".to_owned()]).unwrap(),
        None,
        None,
    );
    let service = Viewer::service(service);
    let updates = server.chat.outbox.updates(&service, after, filter.unwrap());
    updates.await.unwrap()
}

/// Reads until all of these messages have come. Returns the position then, and how many came twice.
async fn receive(updates: &mut OutboxUpdates, ids: &[MessageId]) -> (OrderKey, usize) {
    let mut missing: BTreeSet<_> = ids.iter().copied().collect();
    let mut repeated = 0;
    let mut position = OrderKey::MIN;
    let receive = async {
        while !missing.is_empty() {
            let update = updates.next().await.unwrap();
            assert!(update.position >= position, "positions never go back");
            position = update.position;
            let Some(event) = update.event else { continue };
            let id = event.item.event.id;
            assert_eq!(event.message.unwrap().id, id);
            if !missing.remove(&id) {
                repeated += 1;
            }
        }
    };
    let received = tokio::time::timeout(PATIENCE, receive).await;
    assert!(received.is_ok(), "missing: {missing:?}");
    (position, repeated)
}

/// Sends a message that is written long after its id was given. The caller is told that the outcome is
/// not known; the server goes on.
async fn send_late(server: &Server, user: &UserId, conversation: ConversationId) -> MessageId {
    let _ = server.try_send(user, conversation, "late", None).await;
    let find = async {
        loop {
            let request = PageRequest::first(1);
            let cut = Cut::default();
            let page = server.cql.history(conversation, &cut, &request).await;
            let newest = page.unwrap().items.into_iter().next().unwrap();
            let content = newest.content.as_ref().unwrap();
            if content.body.as_str() == "late" {
                return newest.id;
            }
        }
    };
    tokio::time::timeout(PATIENCE, find)
        .await
        .expect("the message is written")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_receives_the_events_of_all_servers() {
    let Some((_keyspace, [one, other])) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let mut readers = [read(&one, None).await, read(&other, None).await];
    let mut ids = Vec::new();
    for _ in 0..15 {
        ids.push(one.send(&anna, conversation, "hello").await.id);
        ids.push(other.send(&ben, conversation, "hello").await.id);
    }
    for reader in &mut readers {
        let (_, repeated) = receive(reader, &ids).await;
        assert_eq!(repeated, 0, "a live reader drops rows by identity");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_event_reaches_live_readers_and_those_who_resume() {
    let Some((_keyspace, [one, other])) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let elsewhere = other.group(&ben, &[&anna]).await;
    let first = one.send(&anna, conversation, "first").await.id;
    let mut live = read(&other, None).await;
    let mut early = read(&other, None).await;
    // Its id is given now, and it is written when readers have long passed that.
    one.slow.set_delay(LATE);
    let late = send_late(&one, &anna, conversation);
    let passing = async {
        let mut positions = Vec::new();
        for _ in 0..8 {
            let id = other.send(&ben, elsewhere, "passes").await.id;
            positions.push((id, receive(&mut early, &[id]).await.0));
        }
        positions
    };
    let (late, passed) = tokio::join!(late, passing);
    one.slow.set_delay(Duration::ZERO);
    assert!(
        passed.iter().any(|(id, _)| *id > late),
        "readers have passed the id of the late event"
    );
    let passed_ids: Vec<_> = passed.iter().map(|(id, _)| *id).collect();
    receive(&mut live, &[&passed_ids[..], &[late]].concat()).await;
    // A reader may have stopped at any of these positions, and comes back to either server.
    for (index, (_, position)) in passed.iter().enumerate().step_by(3) {
        for server in [&one, &other] {
            let mut resumed = read(server, Some(*position)).await;
            receive(&mut resumed, &[&passed_ids[index + 1..], &[late]].concat()).await;
        }
    }
    let mut whole = read(&one, Some(first.order_key())).await;
    receive(&mut whole, &[late]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: two servers and many readers"]
async fn a_reader_at_rest_follows_another_server() {
    let Some((_keyspace, [one, other])) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let mut reader = read(&other, None).await;
    let first = one.send(&anna, conversation, "first").await.id;
    receive(&mut reader, &[first]).await;
    // Its pauses have become long by then.
    let quiet = tokio::time::timeout(Duration::from_secs(12), reader.next()).await;
    assert!(quiet.is_err(), "nothing happens");
    let second = one.send(&anna, conversation, "second").await.id;
    receive(&mut reader, &[second]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_server_share_their_reads() {
    const READERS: usize = 8;
    const SENDS: usize = 20;
    let Some((_keyspace, [one, other])) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let reads_of = |server: &Server| server.slow.outbox_reads.load(Ordering::SeqCst);
    let mut counts = Vec::new();
    for count in [1, READERS] {
        let mut readers = Vec::new();
        for _ in 0..count {
            readers.push(read(&other, None).await);
        }
        let (before, mut ids) = (reads_of(&other), Vec::new());
        let tasks: Vec<_> = readers
            .into_iter()
            .map(|mut reader| {
                tokio::spawn(async move {
                    let mut seen = Vec::new();
                    let follow = async {
                        while seen.len() < SENDS {
                            let event = reader.next().await.unwrap().event;
                            seen.extend(event.map(|event| event.item.event.id));
                        }
                    };
                    tokio::time::timeout(PATIENCE, follow)
                        .await
                        .expect("one is lost");
                    let again = tokio::time::timeout(Duration::from_secs(2), async {
                        while reader.next().await.unwrap().event.is_none() {}
                    });
                    assert!(again.await.is_err(), "one comes twice");
                    seen
                })
            })
            .collect();
        for _ in 0..SENDS {
            ids.push(one.send(&anna, conversation, "hello").await.id);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), ids, "each reader receives all, once");
        }
        counts.push(reads_of(&other) - before);
    }
    assert!(
        counts[1] < 2 * counts[0],
        "{READERS} readers read {} shards, one reads {}",
        counts[1],
        counts[0]
    );
}
