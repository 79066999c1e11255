//! Mentions on Cassandra: edits of one message by two servers at once, and the cost of a count in statements.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join;
use wideroom::clock::ManualClock;
use wideroom::model::{Content, IgnoredSenders, Mentions, Message, OrderKey, Revision, UserId};
use wideroom::store::cql::Cql;
use wideroom::store::{Store, StoreAdmin, UnreadQuery};

use super::ask::{assert_sound, findings, make, only, send_all};
use super::stage::{keyspace, keyspace_alone};
use crate::support::cassandra::shared;
use crate::support::words::{
    NOW, change, change_of, content, conversation_id, id, new, new_salt_among_others, text, users,
};

const NAMES: [&str; 5] = ["ben", "cat", "dan", "eve", "fay"];

/// Content that mentions the users whose bits are set, and everyone by the bit after theirs.
fn mentioning(people: &[UserId], bits: usize) -> Content {
    let named = (0..people.len()).filter(|index| bits >> index & 1 == 1);
    let named = named.map(|index| people[index].clone());
    Content {
        mentions: Mentions::new(named.collect(), bits >> people.len() & 1 == 1),
        ..content("hello")
    }
}

async fn counted(store: &Cql, user: &UserId) -> u32 {
    let query = UnreadQuery {
        conversation: conversation_id(1),
        after: OrderKey::MIN,
        up_to: None,
    };
    let ignored = IgnoredSenders::default();
    let found = store.mentions(user, &[query], 99, &ignored).await;
    only(found.unwrap()).count
}

#[tokio::test]
async fn edits_of_two_servers_at_once_leave_no_stale_mention() {
    let Some(address) = keyspace().await else {
        return;
    };
    new_salt_among_others();
    let open = async || {
        Cql::open(address.clone(), Arc::new(ManualClock::at(NOW)))
            .await
            .unwrap()
    };
    let (one, other) = (open().await, open().await);
    let [ann] = users(["ann"]);
    let people = users(NAMES);
    let mut all = people.to_vec();
    all.push(ann.clone());
    let group = conversation_id(1);
    make(&one, group, &all).await;
    let rounds = 60;
    for round in 0..rounds {
        let message = Message {
            content: Some(mentioning(&people, 11 * round % 64)),
            ..text(group, id(round as i64 + 1), &ann)
        };
        one.append_messages(group, &[new(message)]).await.unwrap();
    }
    for round in 0..rounds {
        let revise = async |store: &Cql, micros: i64, bits: usize| {
            let revision = if bits % 16 == 7 {
                Revision::Deletion
            } else {
                Revision::edit(mentioning(&people, bits))
            };
            let change = change_of(change(micros), revision.kind(), id(round as i64 + 1), &ann);
            store
                .revise_message(group, &revision, &change)
                .await
                .unwrap()
                .unwrap();
        };
        let at = 1_000 + 10 * round as i64;
        // The earlier change may arrive later.
        join(
            revise(&one, at + 2 * (round % 3) as i64, 13 * round % 64),
            revise(&other, at + 1, 29 * round % 64),
        )
        .await;
    }
    for store in [&one, &other] {
        for person in &people {
            let keys: Vec<_> = (1..=rounds as i64).map(|at| (group, id(at))).collect();
            let messages = store.messages(&keys).await.unwrap();
            let expected: BTreeSet<_> = messages
                .into_iter()
                .flatten()
                .filter(|message| message.counts_as_mention_for(person))
                .map(|message| message.id)
                .collect();
            assert_eq!(
                counted(store, person).await as usize,
                expected.len(),
                "{person}"
            );
        }
    }
    assert_sound(&one as &dyn StoreAdmin).await;
    one.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn an_entry_that_does_not_know_of_its_mention_is_found_and_repaired() {
    let Some((address, _alone)) = keyspace_alone().await else {
        return;
    };
    new_salt_among_others();
    let store = Cql::open(address.clone(), Arc::new(ManualClock::at(NOW)))
        .await
        .unwrap();
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let on = conversation_id(1);
    make(&store, on, &[ann.clone(), ben.clone()]).await;
    let message = Message {
        content: Some(mentioning(&[], 1)),
        ..text(on, id(5), &ann)
    };
    store.append_messages(on, &[new(message)]).await.unwrap();
    assert_eq!(findings(&store, on, "mention", false).await, []);
    // Cat takes part, as ben does, and nothing else was ever written for her.
    let session = shared().await.unwrap().session().await;
    let table = format!("{}.participants_by_conversation", address.keyspace);
    let select =
        format!("SELECT membership FROM {table} WHERE conversation_id = ? AND user_id = ?");
    let found = session.query_unpaged(select, (on.0, ben.as_str())).await;
    let rows = found.unwrap().into_rows_result().unwrap();
    let (membership,): (Vec<u8>,) = rows.single_row().unwrap();
    let insert =
        format!("INSERT INTO {table} (conversation_id, user_id, membership) VALUES (?, ?, ?)");
    let row = (on.0, cat.as_str(), membership);
    session.query_unpaged(insert, row).await.unwrap();
    assert_eq!(counted(&store, &cat).await, 0);
    let behind = "an inbox entry that does not know of its newest mention";
    let found = findings(&store, on, "mention", true).await;
    assert_eq!(found, [(behind, true)]);
    assert_eq!(findings(&store, on, "mention", false).await, []);
    assert_eq!(counted(&store, &cat).await, 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn mentions_cost_one_read_where_there_are_none_and_two_more_where_there_are() {
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
    let before = store.statements_sent();
    assert_eq!(counted(&store, &ben).await, 0);
    let without = store.statements_sent() - before;
    let message = Message {
        content: Some(mentioning(std::slice::from_ref(&ben), 1)),
        ..text(group, id(300), &ann)
    };
    store.append_messages(group, &[new(message)]).await.unwrap();
    let before = store.statements_sent();
    assert_eq!(counted(&store, &ben).await, 1);
    let with = store.statements_sent() - before;
    assert!(without <= 2 && with <= without + 2, "{without} {with}");
    store.close().await.unwrap();
}
