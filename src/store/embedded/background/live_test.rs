//! Tests of live messages that expire: the sweep deletes all their rows, and none of those that were written to since.

use std::sync::Arc;

use futures_util::future::join_all;

use super::*;
use crate::clock::ManualClock;
use crate::model::{
    IdempotencyKey, LiveMessageId, LiveStart, LiveWriters, UserId, WriterName, WriterNumber,
};
use crate::store::Store as _;
use crate::store::embedded::Options;
use crate::store::embedded::admin::maintenance::Sweep;

const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
const HOUR_MICROS: i64 = 3_600 * 1_000_000;

fn at(hours: i64) -> Timestamp {
    START.plus_micros(hours * HOUR_MICROS)
}

fn live(number: u128) -> LiveKey {
    LiveKey {
        conversation: ConversationId(uuid::Uuid::from_u128(7)),
        id: LiveMessageId(uuid::Uuid::from_u128(number)),
    }
}

fn user() -> UserId {
    UserId::parse("agent").unwrap()
}

fn key() -> IdempotencyKey {
    IdempotencyKey::parse("k").unwrap()
}

async fn open() -> (tempfile::TempDir, Arc<ManualClock>, Embedded) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(START));
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let store = Embedded::open(options, clock.clone()).await.unwrap();
    (folder, clock, store)
}

async fn begin(store: &Embedded, live: LiveKey, at: Timestamp) {
    let name = WriterName::parse("writer").unwrap();
    let claim = WriterClaim::First {
        start: LiveStart {
            sender: user(),
            key: key(),
            reply_to: None,
            at,
        },
        writers: LiveWriters::default().with_writer(name, at).unwrap(),
    };
    assert!(store.claim_live_writer(live, &claim).await.unwrap());
}

async fn append(store: &Embedded, live: LiveKey, position: u32, at: Timestamp) {
    let write = LiveWrite {
        writer: WriterNumber::new(1).unwrap(),
        text: LiveText::new(position, "x".to_owned()),
        status: None,
        steps: None,
        at,
    };
    store.write_live(live, &write).await.unwrap();
}

/// Rows of a live message, and entries in the expiry index.
fn count(store: &Embedded, live: LiveKey) -> (usize, usize) {
    let view = store.inner.context.view();
    let rows = |span| view.scan(span, Direction::Forward).count();
    let rows_left = rows(key::live_rows(live));
    (rows_left, rows(key::expired(Timestamp::MAX)))
}

#[tokio::test]
async fn an_expired_live_message_is_swept_whole() {
    let (_folder, clock, store) = open().await;
    begin(&store, live(1), at(0)).await;
    let appends = (0..2_500).map(|position| append(&store, live(1), position, at(0)));
    join_all(appends).await;
    let mut sweep = Sweep::default();
    // Three cells, and the texts.
    for (hours, left) in [(23, (2_503, 1)), (26, (0, 0))] {
        clock.set(at(hours));
        sweep.run(&store.inner).await.unwrap();
        assert_eq!(count(&store, live(1)), left, "after {hours} hours");
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_live_message_that_was_written_to_since_is_left() {
    let (_folder, clock, store) = open().await;
    begin(&store, live(1), at(0)).await;
    append(&store, live(1), 0, at(0)).await;
    append(&store, live(1), 1, at(10)).await;
    let mut sweep = Sweep::default();
    for (hours, left) in [(26, (5, 1)), (33, (5, 1)), (36, (0, 0))] {
        clock.set(at(hours));
        sweep.run(&store.inner).await.unwrap();
        assert_eq!(count(&store, live(1)), left, "after {hours} hours");
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn lists_and_the_due_queue_are_swept() {
    let (_folder, clock, store) = open().await;
    let listing = LiveListing {
        minute: crate::store::live::minute_of(START),
        live: live(1),
        sender: user(),
        key: key(),
    };
    store.list_live(&listing, listing.minute + 2).await.unwrap();
    let mut sweep = Sweep::default();
    for (hours, left) in [(0, 2), (2, 1), (47, 1), (50, 0)] {
        clock.set(at(hours));
        sweep.run(&store.inner).await.unwrap();
        assert_eq!(count(&store, live(1)).1, left, "after {hours} hours");
    }
    let listed = store.listed_lives(listing.live.conversation, 0, 9);
    assert_eq!(listed.await.unwrap(), []);
    store.close().await.unwrap();
}
