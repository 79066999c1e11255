//! The directory and the mailboxes on Cassandra: the later write time wins whatever arrives last,
//! ends are final, and a lane is read by its ids across minutes.

use std::sync::{Arc, Mutex};

use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{ChangeId, ConversationId, OrderKey, TimeUuid, Timestamp, UserId};
use wideroom::store::Store;
use wideroom::store::cluster::{
    Beat, ClusterStore, CompletedChange, CompletionHandler, MailboxLane, MailboxRow, Registration,
    ServerId, ServerState, Session, SessionKind, WriteTime,
};
use wideroom::store::cql::Cql;

use super::ask::{make, row, send};
use super::membership::{govern, joins};
use super::stage::keyspace;
use crate::support::words::{conversation_id, crowd, new_salt_among_others};

async fn open() -> Option<Arc<dyn ClusterStore>> {
    let address = keyspace().await?;
    let store = Cql::open(address, Arc::new(SystemClock)).await.unwrap();
    Some(store.cluster().unwrap())
}

fn people(count: usize) -> Vec<UserId> {
    let salt = uuid::Uuid::new_v4().simple();
    let name = |number| UserId::parse(&format!("user{number}-{salt}")).unwrap();
    (0..count).map(name).collect()
}

fn now() -> i64 {
    SystemClock.now().micros()
}

#[tokio::test]
async fn of_two_writes_of_a_registration_the_later_one_wins_whatever_arrives_last() {
    let Some(store) = open().await else { return };
    let (server, people, start) = (ServerId::random(), people(40), now());
    let at = |step: i64| WriteTime(start + step);
    for user in &people {
        let session = Registration::Session(user.clone(), SessionKind::Present);
        store.register(server, &session, at(2)).await.unwrap();
        store.unregister(server, &session, at(1)).await.unwrap();
    }
    let found = store.sessions(&people).await.unwrap();
    assert_eq!(
        found.len(),
        people.len(),
        "in three statements of 16 at most"
    );
    let first = Session {
        user: people[0].clone(),
        kind: SessionKind::Present,
        server,
    };
    assert!(found.contains(&first));

    let session = Registration::Session(people[0].clone(), SessionKind::Present);
    let follows = Registration::Session(people[0].clone(), SessionKind::Follows);
    store.register(server, &follows, at(5)).await.unwrap();
    store.unregister(server, &session, at(4)).await.unwrap();
    store.register(server, &session, at(3)).await.unwrap();
    let found = store.sessions(&people[..1]).await.unwrap();
    assert_eq!(
        found,
        [Session {
            kind: SessionKind::Follows,
            ..first
        }]
    );

    let conversation = ConversationId::random();
    let listener = Registration::Listener(conversation);
    let other = ServerId::random();
    for one in [server, other] {
        store.register(one, &listener, at(6)).await.unwrap();
    }
    store.unregister(server, &listener, at(7)).await.unwrap();
    assert_eq!(store.listeners(conversation).await.unwrap(), [other]);
}

#[tokio::test]
async fn the_end_of_a_server_is_final_and_beats_go_with_it() {
    let Some(store) = open().await else { return };
    let (server, start) = (ServerId::random(), now());
    let at = |step: i64| WriteTime(start + step);
    assert_eq!(store.server(server).await.unwrap(), ServerState::Missing);
    store.put_server(server, at(1)).await.unwrap();
    assert_eq!(store.server(server).await.unwrap(), ServerState::Running);
    for number in 1..=2 {
        let beat = Beat { server, number };
        store.put_beat(beat, at(number)).await.unwrap();
    }
    let beat = Beat { server, number: 2 };
    assert!(store.beats().await.unwrap().contains(&beat));
    store.end_server(server, at(3)).await.unwrap();
    store.put_server(server, at(4)).await.unwrap();
    assert_eq!(store.server(server).await.unwrap(), ServerState::Ended);
    store.delete_beat(server, at(4)).await.unwrap();
    let beats = store.beats().await.unwrap();
    assert!(beats.iter().all(|beat| beat.server != server));
}

#[tokio::test]
async fn a_lane_is_read_by_its_ids_across_minutes() {
    let Some(store) = open().await else { return };
    let server = ServerId::random();
    let [lane, other] = [0, 1].map(|number| MailboxLane::from(number).next().unwrap());
    // The last second of a minute, and the first ones of the next.
    let minute = now() - now() % 60_000_000;
    let row = |step: i64| MailboxRow {
        id: TimeUuid::new(Timestamp::from_micros(minute + step * 1_000_000), [3; 8]),
        payload: vec![step.unsigned_abs() as u8; 3],
    };
    let rows = [row(-1), row(0), row(1), row(2)];
    for row in &rows {
        store.put_notice(server, lane, row).await.unwrap();
    }
    store.put_notice(server, other, &row(5)).await.unwrap();
    let read = async |from: i64, to: i64| {
        let place = |step: i64| OrderKey::first_at(Timestamp::from_micros(minute + step));
        store
            .notices(server, lane, place(from), place(to))
            .await
            .unwrap()
    };
    assert_eq!(read(-8_000_000, 3_000_000).await, rows);
    assert_eq!(read(-500_000, 1_500_000).await, rows[1..3]);
    assert_eq!(read(3_000_000, 9_000_000).await, []);
    let place = OrderKey::first_at(Timestamp::from_micros(minute + 9_000_000));
    let none = store.notices(ServerId::random(), lane, OrderKey::MIN, place);
    assert_eq!(none.await.unwrap(), []);
}

/// A handler whose notices are never delivered, as while a mailbox cannot be written.
#[derive(Default)]
struct Unheard {
    growths: Mutex<Vec<(ChangeId, usize)>>,
    completed: Mutex<usize>,
}

impl CompletionHandler for Unheard {
    fn on_growth(&self, _: ConversationId, change: ChangeId, participants: Vec<UserId>) {
        self.growths
            .lock()
            .unwrap()
            .push((change, participants.len()));
    }

    fn on_change_completed(&self, _: CompletedChange) {
        *self.completed.lock().unwrap() += 1;
    }

    fn on_creation_completed(&self, _: ConversationId, _: ChangeId, _: Vec<UserId>) {}
}

/// The queue of a conversation that grows does not wait for its notices. Until they are delivered, its
/// participants are notified one by one, also by a server that knows nothing of the growth.
#[tokio::test]
async fn a_conversation_that_grows_is_written_to_before_its_notices_are_delivered() {
    let Some(address) = keyspace().await else {
        return;
    };
    new_salt_among_others();
    let open = || Cql::open(address.clone(), Arc::new(SystemClock));
    let (store, other) = (open().await.unwrap(), open().await.unwrap());
    let directory = store.cluster().unwrap();
    let handler = Arc::new(Unheard::default());
    let weak = Arc::downgrade(&handler);
    directory.set_completion_handler(weak);
    let (id, people) = (conversation_id(1), crowd(36));
    make(&store, id, &people[..32]).await;
    govern(&store, id, 1_000, &[joins(&people[32], 1_000)]).await;
    assert_eq!(handler.growths.lock().unwrap().len(), 1);
    let everybody = |directory: Arc<dyn ClusterStore>| async move {
        let users = directory.recipients(id).await.unwrap().users;
        users.map(|users| users.len())
    };
    send(&store, id, 2_000, &people[0]).await;
    assert_eq!(everybody(directory.clone()).await, Some(33));
    assert_eq!(everybody(other.cluster().unwrap()).await, Some(33));
    // A change before that grows again, with all who take part then.
    govern(&store, id, 3_000, &[joins(&people[33], 3_000)]).await;
    let growths = handler.growths.lock().unwrap().clone();
    let counts: Vec<_> = growths.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [33, 34]);
    assert_eq!(
        *handler.completed.lock().unwrap(),
        0,
        "nothing was left to complete"
    );
    directory.settle_growth(id, growths[0].0).await.unwrap();
    assert_eq!(
        everybody(directory.clone()).await,
        Some(34),
        "the second one is not delivered yet"
    );
    directory.settle_growth(id, growths[1].0).await.unwrap();
    assert_eq!(
        everybody(directory.clone()).await,
        None,
        "listeners from now on"
    );
    assert_eq!(everybody(other.cluster().unwrap()).await, None);
    // Nothing of it is lost to those who have joined.
    govern(&store, id, 4_000, &[joins(&people[34], 4_000)]).await;
    assert_eq!(handler.growths.lock().unwrap().len(), 2, "it was large");
    for user in &people[32..35] {
        assert!(row(&store, user, id).await.last_message.is_some());
        let large = store.large_conversations(user).await.unwrap();
        assert_eq!(large, [id]);
    }
    store.close().await.unwrap();
}
