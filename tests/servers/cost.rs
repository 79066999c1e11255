//! Cost of a server at rest, and of a send, in statements.

use std::time::{Duration, Instant};

use wideroom::chat::{LiveUpdates, LiveWriteInput};
use wideroom::model::{ConversationId, UserId};

use super::pair::{Server, people, two};
use super::updates::receive;
use crate::support::world::PATIENCE;

/// A poll reads four lanes, each in one or two partitions, and the server's own row. Beats and the
/// check of the clock come to less than one.
const AT_REST_PER_SECOND: f64 = 10.0;

pub(super) fn at_rest(began: Instant) -> u64 {
    ((began.elapsed().as_secs_f64() + 1.0) * AT_REST_PER_SECOND) as u64
}

/// Longer than the time after which a server renews its leases.
const REST: Duration = Duration::from_secs(20);
/// Statements of a settler that holds all 16 shards, at most, in this time: a renewal of each, at the turn of a minute the reads of three
/// minutes and the new position of each, and two in each pass.
const SETTLER_MOST: u64 = 16 + 16 * (3 + 1) + 5 * 2;

/// However many streams a server has, of live messages too, it polls its own mailbox while nobody writes, and holds the leases of the
/// settler of live messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: a thousand streams"]
async fn an_idle_server_with_a_thousand_streams_reads_its_mailbox_only() {
    let Some((one, _other)) = two().await else {
        return;
    };
    let mut streams = Vec::new();
    for number in 0..1_000 {
        let [user] = people([format!("idle{number}").as_str()]);
        streams.push(one.inbox(&user).await);
    }
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let mut lives = Vec::new();
    for _ in 0..50 {
        lives.push(viewer(&one, &ben, conversation).await);
    }
    // The first pass also reads the last hour of a new store.
    let mut settler = one.chat.lives.settler();
    settler.pass().await.unwrap();
    let settler = tokio::spawn(settler.run());
    let counts = || {
        (
            one.cql.statements_sent(),
            one.cql.periodic_statements_sent(),
        )
    };
    let (began, (sent, periodic)) = (Instant::now(), counts());
    tokio::time::sleep(REST).await;
    let (sent, periodic) = (counts().0 - sent, counts().1 - periodic);
    println!("idle, 1,050 streams: {sent} statements and {periodic} periodic ones in {REST:?}");
    let most = at_rest(began) + SETTLER_MOST;
    assert!(sent + periodic <= most, "{sent} and {periodic}");
    settler.abort();
    drop((streams, lives));
}

/// A stream of live messages that has delivered its first update.
async fn viewer(server: &Server, user: &UserId, conversation: ConversationId) -> LiveUpdates {
    let streams = &server.chat.streams;
    let mut updates = streams.lives(user, conversation, None).await.unwrap();
    updates.next().await.unwrap().unwrap();
    updates
}

const LIVE_WRITES: usize = 16;

/// Statements of a server for viewers of a live message that another server writes for four seconds, without periodic ones.
async fn statements_of_viewers(one: &Server, other: &Server, viewers: usize) -> u64 {
    let [helper, ben] = people(["agent:helper", "ben"]);
    let conversation = one.group(&ben, &[&helper]).await;
    let mut streams = Vec::new();
    for _ in 0..viewers {
        streams.push(viewer(other, &ben, conversation).await);
    }
    let before = other.cql.statements_sent();
    let mut position = 0;
    for _ in 0..LIVE_WRITES {
        let input = LiveWriteInput {
            conversation,
            key: "answer".to_owned(),
            writer: "w".to_owned(),
            position,
            text: "word ".to_owned(),
            status: None,
            steps: None,
            reply_to: None,
        };
        let written = one.chat.lives.write(&helper, input).await.unwrap();
        position = i32::try_from(written.next_position).unwrap();
    }
    for stream in &mut streams {
        let mut bytes = 0;
        while bytes < 5 * LIVE_WRITES {
            let update = tokio::time::timeout(PATIENCE, stream.next()).await;
            let change = update.unwrap().unwrap().unwrap().change;
            bytes = change.map_or(bytes, |change| change.step.view.body.len());
        }
    }
    other.cql.statements_sent() - before
}

/// Four polls a second, whether one or 20 look on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_of_a_live_message_share_four_reads_a_second_of_their_server() {
    let Some((one, other)) = two().await else {
        return;
    };
    let mut all = Vec::new();
    for viewers in [1, 20] {
        let began = Instant::now();
        let statements = statements_of_viewers(&one, &other, viewers).await;
        let seconds = began.elapsed().as_secs_f64();
        println!("{viewers} viewers: {statements} statements in {seconds:.1} s");
        // Texts four times a second, and the list of writers with the registers once; what a new live message takes to load; and the
        // membership of each viewer.
        let most = (seconds + 1.0) * 5.0 + 10.0 + viewers as f64;
        assert!(statements as f64 <= most, "{viewers}: {statements}");
        all.push(statements);
    }
    let [one, twenty] = &all[..] else {
        panic!("two measurements: {all:?}")
    };
    assert!(*one > 8 && *twenty <= one + 2 * 20, "{all:?}");
}

const SENDS: u64 = 100;

async fn statements_of_sends(server: &Server, is_keyed: bool) -> f64 {
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = server.group(&anna, &[&ben]).await;
    server.send(&anna, conversation, "the first").await;
    let (began, before) = (Instant::now(), server.statements());
    for number in 0..SENDS {
        let key = is_keyed.then(|| number.to_string());
        let sent = server.try_send(&anna, conversation, "hello", key.as_deref());
        sent.await.unwrap();
    }
    let statements = server.statements() - before;
    statements.saturating_sub(at_rest(began)) as f64 / SENDS as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_without_remote_streams_takes_five_statements_and_six_with_a_key() {
    let Some((one, _other)) = two().await else {
        return;
    };
    let unkeyed = statements_of_sends(&one, false).await;
    let keyed = statements_of_sends(&one, true).await;
    println!("statements of a send: {unkeyed:.2}, with a key {keyed:.2}");
    assert!(unkeyed <= 5.0 && keyed <= 6.0, "{unkeyed} {keyed}");
}

/// Servers without a stream of its participants do nothing for a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: three servers on a cluster"]
async fn a_third_server_reads_nothing_for_a_message_between_two_others() {
    let (Some((one, other)), Some(third)) = (two().await, Server::open(0).await) else {
        return;
    };
    let [anna, ben, gus] = people(["anna", "ben", "gus"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let mut live = other.messages(&ben, conversation, None).await;
    let _stranger = third.inbox(&gus).await;
    let (began, before) = (Instant::now(), third.statements());
    // Each reaches the other server within a poll, a second.
    for _ in 0..12 {
        let sent = one.send(&anna, conversation, "hello").await;
        receive(&mut live, sent.id).await;
    }
    let statements = third.statements() - before;
    println!(
        "a third server: {statements} statements in {:.1?}",
        began.elapsed()
    );
    assert!(statements <= at_rest(began), "{statements} statements");
}
