//! Registrations over hours of virtual time: when a row is written, renewed and removed, and how
//! notices find a lane.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use wideroom::cluster::{Recipients, RemoteEvent, RemoteNotice};
use wideroom::model::{TimeUuid, Timestamp};
use wideroom::store::cluster::{MailboxLane, Registration, SessionKind};

use super::world::{Client, Mistakes, Node, World, conversation, user};

async fn server() -> (Arc<World>, Arc<Node>) {
    let world = World::new(1, Mistakes::default());
    let node = world.start(None).await;
    (world, node)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test(start_paused = true)]
async fn a_session_stays_5_s_after_its_last_lease_and_a_listener_60_s() {
    let (world, node) = server().await;
    let session = Node::registration_of(&user(1));
    let listener = Registration::Listener(conversation(1));
    let is_there = |registration| {
        world
            .directory
            .is_registered(node.cluster.server(), registration)
    };
    let leases = [
        node.cluster.lease(&session).await.unwrap(),
        node.cluster.lease(&session).await.unwrap(),
        node.cluster.lease(&listener).await.unwrap(),
    ];
    assert!(is_there(&session) && is_there(&listener));
    let [first, second, third] = leases;
    drop(first);
    sleep(seconds(30)).await;
    assert!(is_there(&session), "it is leased once more");
    drop((second, third));
    sleep(seconds(4)).await;
    assert!(is_there(&session));
    sleep(seconds(4)).await;
    assert!(!is_there(&session) && is_there(&listener));
    sleep(seconds(60)).await;
    assert!(!is_there(&listener));
}

#[tokio::test(start_paused = true)]
async fn a_row_is_there_whenever_it_is_leased_however_fast_users_come_and_go() {
    let (world, node) = server().await;
    let session = Node::registration_of(&user(1));
    for round in 0..400 {
        let lease = node.cluster.lease(&session).await.unwrap();
        for _ in 0..4 {
            assert!(
                world
                    .directory
                    .is_registered(node.cluster.server(), &session),
                "round {round}"
            );
            sleep(world.dice.millis(20)).await;
        }
        drop(lease);
        // Now and then as long as the removal takes to begin, and to arrive.
        sleep(Duration::from_millis(4_980) + world.dice.millis(90)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_is_renewed_before_it_expires() {
    let (world, node) = server().await;
    let session = Node::registration_of(&user(1));
    let lease = node.cluster.lease(&session).await.unwrap();
    world.directory.expire(node.cluster.server(), &session);
    sleep(seconds(17 * 3_600)).await;
    assert!(
        world
            .directory
            .is_registered(node.cluster.server(), &session)
    );
    drop(lease);
}

/// No renewal reaches the row for a day. The writer finds nobody, and acknowledges; the cursor of the stream
/// has stood still meanwhile.
#[tokio::test(start_paused = true)]
async fn a_stream_whose_session_row_has_expired_reads_what_it_missed() {
    let (world, reader) = server().await;
    let participants = [user(1)].into();
    world
        .directory
        .set_conversation(conversation(1), participants, false);
    let client = Client::new(user(1), conversation(1));
    reader.open(&client, CancellationToken::new());
    sleep(seconds(10)).await;
    world.directory.kill_user(&user(1), seconds(26 * 3_600));
    sleep(seconds(25 * 3_600)).await;
    let session = Node::registration_of(&user(1));
    world.directory.expire(reader.cluster.server(), &session);
    // Started only now, because a day of its polls takes a minute.
    let writer = world.start(None).await;
    writer.send(conversation(1), false);
    sleep(seconds(3_600 + 600)).await;
    assert!(
        world
            .directory
            .is_registered(reader.cluster.server(), &session)
    );
    let acknowledged = world.acknowledged.lock().unwrap().clone();
    assert_eq!(acknowledged.len(), 1);
    assert!(client.missed(&acknowledged).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_fails_is_an_error_and_its_row_is_removed_where_it_came_to_be() {
    let (world, node) = server().await;
    let session = Registration::Session(user(1), SessionKind::Present);
    world.directory.kill_user(&user(1), seconds(3));
    let refused = node.cluster.lease(&session).await;
    assert!(matches!(
        refused,
        Err(wideroom::store::Error::Unavailable(_))
    ));
    sleep(seconds(4)).await;
    let lease = node.cluster.lease(&session).await.unwrap();
    drop(lease);
    sleep(seconds(20)).await;
    assert!(
        !world
            .directory
            .is_registered(node.cluster.server(), &session)
    );
}

#[tokio::test(start_paused = true)]
async fn a_notice_takes_the_next_lane_where_one_refuses_and_costs_nothing_where_nobody_listens() {
    let (world, node) = server().await;
    let other = world.start(None).await;
    let recipients = Recipients::Users([user(1)].into());
    let notice = RemoteNotice::Events {
        conversation: conversation(1),
        events: vec![RemoteEvent::Message(TimeUuid::new(
            Timestamp::from_micros(1),
            [0; 8],
        ))],
        users: Vec::new(),
        is_large: false,
    };
    assert_eq!(node.cluster.deliver(&notice, &recipients).await, 0);
    assert_eq!(world.directory.notices(), 0);

    let _lease = other
        .cluster
        .lease(&Node::registration_of(&user(1)))
        .await
        .unwrap();
    for lane in MailboxLane::all().skip(1) {
        world
            .directory
            .kill_lane(other.cluster.server(), lane, seconds(600));
    }
    for sent in 1..=10 {
        let (began, before) = (Instant::now(), node.link.statements());
        assert_eq!(node.cluster.deliver(&notice, &recipients).await, 1);
        assert_eq!(world.directory.notices(), sent);
        assert!(began.elapsed() < seconds(8), "{:?}", began.elapsed());
        // The sessions, at most four lanes, and what the server does by itself meanwhile.
        assert!(node.link.statements() - before < 60);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_at_rest_asks_at_most_eight_statements_a_second() {
    let (world, node) = server().await;
    let mut leases = Vec::new();
    for number in 0..1_000 {
        leases.push(
            node.cluster
                .lease(&Node::registration_of(&user(number)))
                .await
                .unwrap(),
        );
    }
    let _other = world.start(None).await;
    sleep(seconds(10)).await;
    let before = node.link.statements();
    sleep(seconds(100)).await;
    let rate = (node.link.statements() - before) as f64 / 100.0;
    assert!(rate <= 8.0, "{rate} statements a second");
}

#[tokio::test(start_paused = true)]
async fn a_server_is_not_ready_while_no_lane_is_readable_for_a_minute() {
    let (world, node) = server().await;
    let kill = |lanes: &[MailboxLane]| {
        for lane in lanes {
            world
                .directory
                .kill_lane(node.cluster.server(), *lane, seconds(600));
        }
    };
    let lanes: Vec<_> = MailboxLane::all().collect();
    kill(&lanes[1..]);
    sleep(seconds(90)).await;
    assert_eq!(node.cluster.health(), Ok(()), "one lane answers");
    kill(&lanes);
    sleep(seconds(50)).await;
    assert_eq!(node.cluster.health(), Ok(()));
    sleep(seconds(20)).await;
    assert!(node.cluster.health().is_err());
    world.directory.heal();
    sleep(seconds(10)).await;
    assert_eq!(node.cluster.health(), Ok(()));
}
