//! Erasure on Cassandra: no cell keeps a name that no read shows.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{ChangeKind, Pin, Revision, UserId};
use wideroom::store::cql::Cql;
use wideroom::store::{ErasureStore as _, Store as _};

use super::ask::{make, send_all};
use super::stage::keyspace;
use crate::support::cassandra::shared;
use crate::support::words::{
    NOW, change, change_of, conversation_id, id, new_salt_among_others, users,
};

#[tokio::test]
async fn the_end_of_a_pin_by_a_deletion_names_nobody_and_another_end_nobody_erased() {
    let Some(address) = keyspace().await else {
        return;
    };
    new_salt_among_others();
    let (on, keyspace) = (conversation_id(1), address.keyspace.clone());
    let store = Cql::open(address, Arc::new(ManualClock::at(NOW)))
        .await
        .unwrap();
    let [ann, ben] = users(["ann", "ben"]);
    make(&store, on, &[ann.clone(), ben.clone()]).await;
    send_all(&store, on, 1..3, &ann).await;
    let session = shared().await.unwrap().session().await;
    let rows = async |select: String| {
        let rows = session.query_unpaged(select, ()).await.unwrap();
        rows.into_rows_result().unwrap()
    };
    let buckets = format!(
        "SELECT width, start FROM {keyspace}.buckets_by_conversation WHERE conversation_id = {} AND width IN (0, 1, 2, 3)",
        on.0
    );
    let (width, start) = rows(buckets).await.single_row::<(i8, i64)>().unwrap();
    // In the table of pins, and in the message itself.
    let pinners = async |number: i64| {
        let mut names = Vec::new();
        for (table, bucket) in [
            ("pins_by_conversation", String::new()),
            (
                "messages_by_conversation",
                format!("AND width = {width} AND start = {start}"),
            ),
        ] {
            let select = format!(
                "SELECT pin FROM {keyspace}.{table} WHERE conversation_id = {} {bucket} AND message_id = {}",
                on.0,
                id(number)
            );
            let found = rows(select).await.single_row::<(Vec<u8>,)>().unwrap();
            names.push(Pin::from_bytes(&found.0).unwrap().by);
        }
        names
    };
    let pin = async |micros, number, is_on| {
        let change = change_of(change(micros), ChangeKind::PinsChanged, id(number), &ben);
        let pinned = store.pin_message(on, is_on, &change).await;
        assert!(pinned.unwrap().is_some());
    };
    pin(300, 1, true).await;
    pin(301, 2, true).await;
    pin(302, 2, false).await;
    let deletion = change_of(change(310), ChangeKind::MessageDeleted, id(1), &ann);
    let deleted = store
        .revise_message(on, &Revision::Deletion, &deletion)
        .await;
    assert!(deleted.unwrap().is_some());
    assert_eq!(pinners(1).await, [UserId::erased(), UserId::erased()]);
    assert_eq!(pinners(2).await, [ben.clone(), ben.clone()]);
    let messages = [id(1), id(2)];
    let erased = store.erase_messages(on, &ben, &messages, change(320)).await;
    erased.unwrap();
    store
        .erase_participant(on, &ben, change(321))
        .await
        .unwrap();
    assert_eq!(pinners(2).await, [UserId::erased(), UserId::erased()]);
    store.close().await.unwrap();
}
