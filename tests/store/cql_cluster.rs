//! The directory and the mailboxes on Cassandra: the later write time wins whatever arrives last,
//! ends are final, and a lane is read by its ids across minutes.

use std::sync::Arc;

use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{ConversationId, OrderKey, TimeUuid, Timestamp, UserId};
use wideroom::store::Store as _;
use wideroom::store::cluster::{
    Beat, ClusterStore, MailboxLane, MailboxRow, Registration, ServerId, ServerState, Session,
    SessionKind, WriteTime,
};
use wideroom::store::cql::Cql;

use super::stage::keyspace;

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
    store.put_server(server, 1, at(1)).await.unwrap();
    assert_eq!(store.server(server).await.unwrap(), ServerState::Running);
    for number in 1..=2 {
        let beat = Beat { server, number };
        store.put_beat(beat, at(number)).await.unwrap();
    }
    let beat = Beat { server, number: 2 };
    assert!(store.beats().await.unwrap().contains(&beat));
    store.end_server(server, at(3)).await.unwrap();
    store.put_server(server, 1, at(4)).await.unwrap();
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
