//! Histories with a floor on Cassandra: the two copies of their settings, and what a removal leaves on disk.

use std::sync::Arc;

use wideroom::clock::{Clock as _, ManualClock};
use wideroom::model::{ConversationId, HistorySettings, OrderKey, OutboxShard, TimeUuid};
use wideroom::store::cql::Cql;
use wideroom::store::{
    DueQuery, HistoryRemoval, ImportRow, REMOVAL_DELAY_MICROS, RemovalStore as _, Store as _,
    StoreAdmin, hour_of,
};

use super::ask::make;
use super::stage::keyspace_alone;
use crate::support::cassandra::shared;
use crate::support::words::{
    HOUR, NOW, conversation_id, group_row, id, new, new_salt_among_others, participant_row, text,
    user,
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

async fn import(store: &Cql, on: ConversationId, settings: HistorySettings) {
    let mut row = group_row(on, None);
    if let ImportRow::Conversation { conversation, .. } = &mut row {
        conversation.history = settings;
    }
    let rows = [row, participant_row(on, &user("ann"))];
    store.import(&rows).await.unwrap();
}

#[tokio::test]
async fn copies_of_settings_that_differ_are_found_and_repaired() {
    let (Some((address, _alone)), Some(shared)) = (keyspace_alone().await, shared().await) else {
        return;
    };
    new_salt_among_others();
    let clock = Arc::new(ManualClock::at(NOW));
    let store = Cql::open(address.clone(), clock).await.unwrap();
    let session = shared.session().await;
    session.use_keyspace(&address.keyspace, true).await.unwrap();
    let settings = HistorySettings {
        ttl_seconds: Some(3_600),
        floor: id(5).order_key(),
        ..HistorySettings::default()
    };
    let on = conversation_id(1);
    import(&store, on, settings).await;
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

/// The number of rows that a statement finds.
async fn count(session: &scylla::client::session::Session, cql: &str, on: ConversationId) -> usize {
    let found = session.query_unpaged(cql, (on.0,)).await.unwrap();
    found.into_rows_result().unwrap().rows_num()
}

#[tokio::test]
#[ignore = "gate: many thousand rows on a cluster"]
async fn an_expiring_history_keeps_the_rows_of_two_days_on_cassandra() {
    const TTL: u32 = 86_400;
    const HOURLY: i64 = 6;
    let (Some((address, _alone)), Some(shared)) = (keyspace_alone().await, shared().await) else {
        return;
    };
    new_salt_among_others();
    let clock = Arc::new(ManualClock::at(NOW));
    let store = Cql::open(address.clone(), clock.clone()).await.unwrap();
    let session = shared.session().await;
    session.use_keyspace(&address.keyspace, true).await.unwrap();
    let on = conversation_id(1);
    let settings = HistorySettings {
        ttl_seconds: Some(TTL),
        ..HistorySettings::default()
    };
    import(&store, on, settings).await;
    let (mut removed, mut greatest) = (0, 0);
    for hour in 0..5 * 24 {
        for number in 0..HOURLY {
            let at = clock.now().plus_micros(number * HOUR / HOURLY);
            let message = text(
                on,
                TimeUuid::new(at, [0x80, 0, 1, 0, 0, 0, 0, 0]),
                &user("ann"),
            );
            store.append_messages(on, &[new(message)]).await.unwrap();
        }
        clock.set(NOW.plus_micros((hour + 1) * HOUR));
        let now = clock.now();
        let query = DueQuery {
            shard: OutboxShard::of(on),
            from: hour_of(NOW),
            up_to: hour_of(now),
            after: None,
            limit: 1_000,
        };
        let all = store.due_removals(&query).await.unwrap();
        for due in all.into_iter().filter(|due| due.conversation == on) {
            let expired = now.plus_micros(-24 * HOUR - REMOVAL_DELAY_MICROS);
            let removal = HistoryRemoval {
                up_to: OrderKey::first_at(expired).before(),
                ttl_seconds: Some(TTL),
                limit: 1_000,
            };
            removed += store.remove_history(on, &removal).await.unwrap().messages;
            store.end_removal(due).await.unwrap();
        }
        let left = store.all_messages(on, None, 10_000).await.unwrap().len();
        greatest = greatest.max(left as i64);
        assert!(
            left as i64 >= HOURLY * (hour + 1).min(24),
            "{left} in hour {hour}"
        );
    }
    assert!(greatest <= HOURLY * 28, "{greatest} messages");
    assert!(removed as i64 >= HOURLY * 90, "{removed} messages");
    let index = "SELECT start FROM buckets_by_conversation WHERE conversation_id = ?";
    let buckets = count(&session, index, on).await;
    assert!(buckets <= 30, "{buckets} buckets");
    let counts = store.message_counts(&[on]).await.unwrap();
    assert_eq!(counts[0] as i64 + removed as i64, 5 * 24 * HOURLY);
    assert_eq!(findings(&store, on, false).await, []);
}

/// A crash between any two deletions leaves something that the next removal finishes.
#[tokio::test]
async fn a_half_done_removal_is_finished_on_cassandra() {
    let (Some((address, _alone)), Some(shared)) = (keyspace_alone().await, shared().await) else {
        return;
    };
    new_salt_among_others();
    let clock = Arc::new(ManualClock::at(NOW));
    let store = Cql::open(address.clone(), clock).await.unwrap();
    let session = shared.session().await;
    session.use_keyspace(&address.keyspace, true).await.unwrap();
    let on = conversation_id(1);
    make(&store, on, &[user("ann")]).await;
    let day = 24 * HOUR;
    for number in 0..6 {
        for micros in [0, 1] {
            let message = text(on, id(-11 * day * (6 - number) + micros), &user("ann"));
            store.append_messages(on, &[new(message)]).await.unwrap();
        }
    }
    let index =
        "SELECT width, start FROM buckets_by_conversation WHERE conversation_id = ? AND width >= 0";
    let found = session.query_unpaged(index, (on.0,)).await.unwrap();
    let found = found.into_rows_result().unwrap();
    let mut buckets: Vec<_> = found
        .rows::<(i8, i64)>()
        .unwrap()
        .map(|row| row.unwrap())
        .collect();
    buckets.sort_by_key(|(_, start)| *start);
    assert_eq!(buckets.len(), 6, "{buckets:?}");
    // The partitions of the second and the third are gone, and their index rows are not.
    let at = NOW.micros();
    let cql = "DELETE FROM messages_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND width = ? AND start = ?";
    for (width, start) in &buckets[1..3] {
        let values = (at, on.0, width, start);
        session.query_unpaged(cql, values).await.unwrap();
    }
    let removal = HistoryRemoval {
        up_to: id(-11 * day * 3 + 1).order_key(),
        ttl_seconds: None,
        limit: 1_000,
    };
    let removed = store.remove_history(on, &removal).await.unwrap();
    assert!(removed.is_done);
    assert_eq!(removed.messages, 4, "those of the first and the fourth");
    assert_eq!(store.message_counts(&[on]).await.unwrap(), [4]);
    assert_eq!(findings(&store, on, false).await, []);
    let left = count(&session, index, on).await;
    assert!(left <= 3, "{left} index rows");
}
