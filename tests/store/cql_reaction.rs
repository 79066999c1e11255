//! Cost of reactions on Cassandra, in statements: independent of the length of the history, and one read for each message with reactions.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{Change, ChangeKind, Emoji};
use wideroom::store::Store;
use wideroom::store::cql::Cql;

use super::ask::{make, send_all};
use super::stage::keyspace;
use crate::support::words::{NOW, change, conversation_id, id, new_salt_among_others, users};

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
    make(&store, conversation_id(1), &[ann.clone(), ben.clone()]).await;
    send_all(&store, conversation_id(1), 1..200, &ann).await;
    let mut told = Vec::new();
    for (micros, message, text) in [(300, 150, "👍"), (301, 150, "❤"), (302, 7, "👍")] {
        let change = Change {
            id: change(micros),
            kind: ChangeKind::ReactionsChanged,
            message: id(message),
            user: ben.clone(),
        };
        let before = store.statements_sent();
        store
            .react(
                conversation_id(1),
                &Emoji::parse(text).unwrap(),
                true,
                &change,
            )
            .await
            .unwrap()
            .unwrap();
        told.push(store.statements_sent() - before);
    }
    assert!(told.iter().all(|spent| *spent <= 8), "{told:?}");
    let before = store.statements_sent();
    let asked = [(conversation_id(1), id(150)), (conversation_id(1), id(7))];
    let reactions = store.reactions(&ann, &asked).await.unwrap();
    assert_eq!(reactions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(store.statements_sent() - before, 2);
    store.close().await.unwrap();
}
