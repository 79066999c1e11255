//! What reactions cost on Cassandra, in statements: as little with much history as with little, and one read for each message that has any.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{Change, ChangeKind, Emoji};
use wideroom::store::Store;
use wideroom::store::cql::Cql;

use super::ask::{make, send_all};
use super::stage::keyspace;
use crate::support::words::{NOW, change, id, new_salt_among_others, room, users};

#[tokio::test]
async fn a_reaction_costs_few_statements_and_a_message_of_reactions_one() {
    let Some(address) = keyspace().await else { return };
    new_salt_among_others();
    let store = Cql::open(address, Arc::new(ManualClock::at(NOW))).await.unwrap();
    let [ann, ben] = users(["ann", "ben"]);
    make(&store, room(1), &[ann.clone(), ben.clone()]).await;
    send_all(&store, room(1), 1..200, &ann).await;
    let mut told = Vec::new();
    for (micros, message, text) in [(300, 150, "👍"), (301, 150, "❤"), (302, 7, "👍")] {
        let change = Change { id: change(micros), kind: ChangeKind::ReactionsChanged, message: id(message), user: ben.clone() };
        let before = store.statements_sent();
        store.react(room(1), &Emoji::parse(text).unwrap(), true, &change).await.unwrap().unwrap();
        told.push(store.statements_sent() - before);
    }
    assert!(told.iter().all(|spent| *spent <= 8), "{told:?}");
    let before = store.statements_sent();
    let asked = [(room(1), id(150)), (room(1), id(7))];
    let reactions = store.reactions(&ann, &asked).await.unwrap();
    assert_eq!(reactions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(store.statements_sent() - before, 2);
    store.close().await.unwrap();
}
