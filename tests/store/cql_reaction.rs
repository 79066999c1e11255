//! Reactions on Cassandra: when they expire, and their cost in statements: independent of the length of the history, and one read for each message with reactions.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{ChangeKind, Emoji, Reaction};
use wideroom::store::Store;
use wideroom::store::cql::Cql;

use super::ask::{make, send_all};
use super::stage::keyspace;
use crate::support::cassandra::shared;
use crate::support::words::{
    NOW, change, change_of, conversation_id, id, new_salt_among_others, users,
};

#[tokio::test]
async fn a_reaction_costs_few_statements_and_a_message_of_reactions_one() {
    let Some(address) = keyspace().await else {
        return;
    };
    new_salt_among_others();
    let store = Cql::open(address, Arc::new(ManualClock::at(NOW)))
        .await
        .unwrap();
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(&store, group, &[ann.clone(), ben.clone()]).await;
    send_all(&store, group, 1..200, &ann).await;
    let mut told = Vec::new();
    for (micros, message, text) in [(300, 150, "👍"), (301, 150, "❤"), (302, 7, "👍")] {
        let change = change_of(
            change(micros),
            ChangeKind::ReactionsChanged,
            id(message),
            &ben,
        );
        let before = store.statements_sent();
        store
            .react(group, &Emoji::parse(text).unwrap(), true, &change)
            .await
            .unwrap()
            .unwrap();
        told.push(store.statements_sent() - before);
    }
    assert!(told.iter().all(|spent| *spent <= 8), "{told:?}");
    let before = store.statements_sent();
    let asked = [(group, id(150)), (group, id(7))];
    let reactions = store.reactions(&ann, &asked).await.unwrap();
    assert_eq!(reactions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(store.statements_sent() - before, 2);
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_reaction_expires_after_35_days_and_one_that_is_on_never() {
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
    send_all(&store, on, 1..2, &ann).await;
    let session = shared().await.unwrap().session().await;
    let of_message = format!("conversation_id = {} AND message_id = {}", on.0, id(1));
    let living =
        format!("SELECT TTL(is_on) FROM {keyspace}.reactions_by_message WHERE {of_message}");
    let ended =
        format!("SELECT user_id FROM {keyspace}.ended_reactions_by_message WHERE {of_message}");
    let rows = async |select: &str| {
        let rows = session.query_unpaged(select, ()).await;
        rows.unwrap().into_rows_result().unwrap()
    };
    let lifetime = format!(
        "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = '{keyspace}' AND table_name = 'ended_reactions_by_message'"
    );
    let whole = i32::try_from(Reaction::END_LIFETIME_MICROS / 1_000_000).unwrap();
    let (seconds,) = rows(&lifetime).await.single_row::<(i32,)>().unwrap();
    assert_eq!((seconds, whole), (35 * 24 * 3_600, 35 * 24 * 3_600));
    let emoji = Emoji::parse("👍").unwrap();
    for (micros, is_on) in (300..).zip([true, false, true, false]) {
        let change = change_of(change(micros), ChangeKind::ReactionsChanged, id(1), &ben);
        let reacted = store.react(on, &emoji, is_on, &change).await;
        assert!(reacted.unwrap().is_some());
        let living = rows(&living).await;
        assert_eq!(living.rows_num(), usize::from(is_on));
        if is_on {
            let (ttl,) = living.single_row::<(Option<i32>,)>().unwrap();
            assert_eq!(ttl, None, "a reaction that is on never expires");
        } else {
            assert_eq!(rows(&ended).await.rows_num(), 1);
        }
    }
    store.close().await.unwrap();
}
