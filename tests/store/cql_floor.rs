//! Histories with a floor on Cassandra: the two copies of their settings, and what a removal leaves on disk.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{ConversationId, HistorySettings};
use wideroom::store::cql::Cql;
use wideroom::store::{ImportRow, StoreAdmin};

use super::stage::keyspace;
use crate::support::cassandra::shared;
use crate::support::words::{
    NOW, conversation_id, group_row, id, new_salt_among_others, participant_row, user,
};

/// The findings about one conversation, each with whether it was repaired.
async fn findings(
    store: &dyn StoreAdmin,
    on: ConversationId,
    repair: bool,
) -> Vec<(&'static str, bool)> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let verified = store.verify(after.as_ref(), repair).await.unwrap();
        let of_this = verified
            .findings
            .into_iter()
            .filter(|one| one.example.contains(&on.to_string()));
        found.extend(of_this.map(|one| (one.what, one.is_repaired)));
        match verified.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

#[tokio::test]
async fn copies_of_settings_that_differ_are_found_and_repaired() {
    let (Some(address), Some(shared)) = (keyspace().await, shared().await) else {
        return;
    };
    new_salt_among_others();
    let clock = Arc::new(ManualClock::at(NOW));
    let store = Cql::open(address.clone(), clock).await.unwrap();
    let session = shared.session().await;
    session
        .use_keyspace(&address.keyspace, true)
        .await
        .unwrap();
    let settings = HistorySettings {
        ttl_seconds: Some(3_600),
        floor: id(5).order_key(),
        ..HistorySettings::default()
    };
    let on = conversation_id(1);
    let mut row = group_row(on, None);
    if let ImportRow::Conversation { conversation, .. } = &mut row {
        conversation.history = settings;
    }
    let rows = [row, participant_row(on, &user("ann"))];
    store.import(&rows).await.unwrap();
    assert_eq!(findings(&store, on, false).await, []);

    let cql = "UPDATE participants_by_conversation USING TIMESTAMP 2 SET history = ? WHERE conversation_id = ?";
    let copy = postcard::to_extend(&HistorySettings::default(), vec![1]).unwrap();
    session.query_unpaged(cql, (copy, on.0)).await.unwrap();
    let what = "a conversation whose two copies of its history's settings differ";
    assert_eq!(findings(&store, on, false).await, [(what, false)]);
    assert_eq!(findings(&store, on, true).await, [(what, true)]);
    assert_eq!(findings(&store, on, false).await, []);
    let repaired = store.membership_version(on).await.unwrap().unwrap();
    assert_eq!(repaired.conversation.history, settings);
}
