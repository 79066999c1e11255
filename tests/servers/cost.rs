//! Cost of a server at rest, and of a send, in statements.

use std::time::{Duration, Instant};

use super::pair::{Server, people, two};

/// A poll reads four lanes, each in one or two partitions, and the server's own row. Beats and the
/// check of the clock come to less than one.
const AT_REST_PER_SECOND: f64 = 10.0;

pub(super) fn at_rest(began: Instant) -> u64 {
    ((began.elapsed().as_secs_f64() + 1.0) * AT_REST_PER_SECOND) as u64
}

/// However many streams a server has, it polls its own mailbox and nothing else while nobody writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_with_a_thousand_streams_reads_its_mailbox_only() {
    let Some((one, _other)) = two().await else {
        return;
    };
    let mut streams = Vec::new();
    for number in 0..1_000 {
        let [user] = people([format!("idle{number}").as_str()]);
        streams.push(one.chat.streams.inbox(&user, None).await.unwrap());
    }
    let (began, before) = (Instant::now(), one.statements());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let statements = one.statements() - before;
    println!("idle, 1,000 streams: {statements} statements in 10 s");
    assert!(statements <= at_rest(began), "{statements} statements");
    drop(streams);
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
async fn a_third_server_reads_nothing_for_a_message_between_two_others() {
    let (Some((one, other)), Some(third)) = (two().await, Server::open(0).await) else {
        return;
    };
    let [anna, ben, gus] = people(["anna", "ben", "gus"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let mut live = other
        .chat
        .streams
        .messages(&ben, conversation, None)
        .await
        .unwrap();
    let _stranger = third.chat.streams.inbox(&gus, None).await.unwrap();
    let (began, before) = (Instant::now(), third.statements());
    // Each reaches the other server within a poll, a second.
    for _ in 0..12 {
        let sent = one.send(&anna, conversation, "hello").await;
        while live.next().await.unwrap().unwrap().message.id != sent.id {}
    }
    let statements = third.statements() - before;
    println!(
        "a third server: {statements} statements in {:.1?}",
        began.elapsed()
    );
    assert!(statements <= at_rest(began), "{statements} statements");
}
