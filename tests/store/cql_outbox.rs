//! The outbox on a cluster: events that are logged again, the cost of a row, and the switch that
//! other servers follow.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{ChangeKind, Mentions, OutboxEvent, OutboxEventKind};
use wideroom::store::cql::Cql;
use wideroom::store::{LateChange, Store as _, StoreAdmin as _};

use super::ask::{make, send};
use super::outbox::events_of;
use super::stage::keyspace;
use crate::support::words::{
    NOW, START, change, change_of, conversation_id, id, new_salt_among_others, users,
};

async fn open() -> Option<Cql> {
    let address = keyspace().await?;
    new_salt_among_others();
    let clock = Arc::new(ManualClock::at(NOW));
    Some(Cql::open(address, clock).await.unwrap())
}

#[tokio::test]
async fn a_late_event_keeps_its_id_in_a_row_of_its_own() {
    let Some(store) = open().await else { return };
    let [ann, ben] = users(["ann", "ben"]);
    store.set_outbox(Some(START)).await.unwrap();
    let on = conversation_id(1);
    make(&store, on, &[ann.clone(), ben]).await;
    send(&store, on, 1, &ann).await;
    send(&store, on, 2, &ann).await;
    let late = |micros, kind, event: OutboxEvent| LateChange {
        change: change_of(change(micros), kind, event.message, &ann),
        event,
    };
    let edited = OutboxEvent {
        id: change(5),
        kind: OutboxEventKind::MessageEdited,
        message: id(2),
        user: None,
        newly_mentioned: Mentions::new(vec![ann.clone()], false),
    };
    let logged = [
        late(
            90,
            ChangeKind::MessageLate,
            OutboxEvent::message_added(id(1)),
        ),
        late(91, ChangeKind::MessageEdited, edited.clone()),
    ];
    store.log_late(on, &logged).await.unwrap();
    let created = OutboxEvent::conversation_created(change(0));
    let again = late(95, ChangeKind::MessageLate, created.clone());
    store.log_late(on, &[again]).await.unwrap();
    assert_eq!(
        events_of(&store, on).await,
        [
            created.clone(),
            OutboxEvent::message_added(id(1)),
            OutboxEvent::message_added(id(2)),
            OutboxEvent::message_added(id(1)),
            edited,
            created,
        ]
    );
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_row_of_the_outbox_costs_no_statement() {
    let Some(store) = open().await else { return };
    let [ann, ben] = users(["ann", "ben"]);
    let on = conversation_id(1);
    make(&store, on, &[ann.clone(), ben]).await;
    // The least of some: now and then a send also looks how full its bucket is.
    let mut costs = [u64::MAX; 2];
    for number in 0..8 {
        let is_on = number % 2 == 1;
        store.set_outbox(is_on.then_some(START)).await.unwrap();
        let at = number * 10;
        // The first send after a while reads what later ones know.
        send(&store, on, at + 1, &ann).await;
        let before = store.statements_sent();
        send(&store, on, at + 2, &ann).await;
        let cost = store.statements_sent() - before;
        costs[usize::from(is_on)] = costs[usize::from(is_on)].min(cost);
    }
    assert_eq!(costs[0], costs[1], "without an outbox and with one");
    store.close().await.unwrap();
}

#[tokio::test]
async fn another_server_follows_the_switch_when_it_reads_it() {
    let Some(one) = open().await else { return };
    let address = keyspace().await.unwrap();
    let clock = Arc::new(ManualClock::at(NOW));
    let [ann] = users(["ann"]);
    let on = conversation_id(1);
    make(&one, on, std::slice::from_ref(&ann)).await;
    one.set_outbox(Some(START)).await.unwrap();
    // Other cases share the switch: what counts is what this server has read.
    let other = Cql::open(address, clock).await.unwrap();
    let is_on = other.outbox_since().await.unwrap().is_some();
    send(&other, on, 1, &ann).await;
    let expected = [OutboxEvent::message_added(id(1))];
    let found = events_of(&one, on).await;
    let found: Vec<_> = found
        .into_iter()
        .filter(|event| event.kind == OutboxEventKind::MessageAdded)
        .collect();
    assert_eq!(found, if is_on { &expected[..] } else { &[] });
    for store in [one, other] {
        store.close().await.unwrap();
    }
}
