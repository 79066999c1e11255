//! Unread counts on Cassandra: messages that count for nobody are read once, for all users and servers.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{IgnoredSenders, OrderKey, Unread, UserId};
use wideroom::store::cql::Cql;
use wideroom::store::{Store as _, StoreAdmin as _, UnreadQuery};

use super::ask::{make, only};
use super::stage::keyspace;
use crate::support::words::{
    NOW, conversation_id, deleted, id, id_with, message_row, new_salt_among_others, text, users,
};

const MINUTE: i64 = 60 * 1_000_000;
const SILENT: i64 = 2_500;

async fn counted(store: &Cql, user: &UserId) -> Unread {
    let query = UnreadQuery {
        conversation: conversation_id(1),
        after: OrderKey::MIN,
        up_to: None,
    };
    let nobody = IgnoredSenders::default();
    let answer = store.unread(user, &[query], 99, &nobody).await;
    only(answer.unwrap())
}

#[tokio::test]
async fn messages_that_count_for_nobody_are_read_once_for_everyone() {
    let Some(address) = keyspace().await else {
        return;
    };
    new_salt_among_others();
    let clock = Arc::new(ManualClock::at(NOW));
    let open = async || Cql::open(address.clone(), clock.clone()).await.unwrap();
    let (store, other) = (open().await, open().await);
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let on = conversation_id(1);
    make(&store, on, &[ann.clone(), ben.clone(), cat.clone()]).await;
    let silent = (1..=SILENT).map(|micros| deleted(on, id(micros), &ben));
    let last = text(on, id(SILENT + 1), &ben);
    let rows: Vec<_> = silent.chain([last]).map(message_row).collect();
    store.import(&rows).await.unwrap();
    clock.set(NOW.plus_micros(MINUTE));
    for is_capped in [true, true, false] {
        assert_eq!(counted(&store, &ann).await.is_capped, is_capped);
    }
    let exact = |count, first| Unread {
        count,
        is_capped: false,
        first: Some(first),
    };
    for server in [&store, &other] {
        assert_eq!(counted(server, &cat).await, exact(1, id(SILENT + 1)));
    }
    // A message that comes late, among them.
    let late = id_with(1_000, [0x80, 2, 1, 0, 0, 0, 0, 0]);
    let row = message_row(text(on, late, &ben));
    store.import(&[row]).await.unwrap();
    clock.set(NOW.plus_micros(2 * MINUTE));
    for server in [&other, &store] {
        let mut answer = Unread::default();
        for _ in 0..=SILENT / 1_000 {
            answer = counted(server, &cat).await;
        }
        assert_eq!(answer, exact(2, late));
    }
}
