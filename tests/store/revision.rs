//! Edits and deletions: the message, the log that streams read, and the inboxes that show it.

use wideroom::model::Revision;
use wideroom::store::Store;

use super::ask::{
    assert_newest, changes, inbox_ids, last_message, make, message, message_count, newest_event,
    revise, row, send, unread,
};
use crate::support::words::{change, content, conversation_id, crowd, id, users};

fn edit(text: &str) -> Revision {
    Revision::edit(content(text))
}

pub async fn an_edit_replaces_the_content_and_nothing_else(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben]).await;
    send(store, group, 1, &ann).await;
    let before = message(store, group, id(1)).await.unwrap();
    let revised = revise(store, group, id(1), 2, edit("better"), &ann)
        .await
        .unwrap();
    let after = message(store, group, id(1)).await.unwrap();
    assert_eq!(revised.message, after);
    assert_eq!(after.content, Some(content("better")));
    assert_eq!(
        (after.sender.clone(), after.id, after.kind, after.deleted_at),
        (before.sender.clone(), before.id, before.kind, None)
    );
    assert_eq!(message_count(store, group).await, 1);
    assert_eq!(last_message(store, group).await, Some(id(1)));
}

pub async fn a_deletion_wins_over_every_edit(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben]).await;
    send(store, group, 1, &ann).await;
    let deleted = revise(store, group, id(1), 2, Revision::Deletion, &ann)
        .await
        .unwrap();
    assert_eq!(
        (deleted.message.deleted_at, &deleted.message.content),
        (Some(change(2).moment()), &None)
    );
    for (micros, revision) in [(3, edit("too late")), (4, Revision::Deletion)] {
        let again = revise(store, group, id(1), micros, revision, &ann)
            .await
            .unwrap();
        assert_eq!(again.message, deleted.message);
    }
    assert_eq!(
        changes(store, group).await.len(),
        1,
        "what changes nothing is not logged"
    );
    assert_eq!(message_count(store, group).await, 1, "it stays in history");
}

pub async fn a_change_of_nothing_is_none(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben]).await;
    assert!(
        revise(store, group, id(1), 2, Revision::Deletion, &ann)
            .await
            .is_none()
    );
    assert!(changes(store, group).await.is_empty());
}

pub async fn changes_are_logged_in_order_and_found_behind_a_place(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in [1, 2] {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
    }
    let group = conversation_id(1);
    for micros in 1..=3 {
        send(store, group, micros, &ann).await;
    }
    for micros in 4..=9 {
        revise(
            store,
            group,
            id(micros % 3 + 1),
            micros,
            edit(&micros.to_string()),
            &ben,
        )
        .await;
    }
    let all = changes(store, group).await;
    assert_eq!(
        all.iter().map(|change| change.id).collect::<Vec<_>>(),
        (4..=9).map(change).collect::<Vec<_>>()
    );
    assert!(all.iter().all(|entry| entry.user == ben));
    assert_eq!(all[0].message, id(2));
    let behind = store
        .changes(group, change(6).order_key(), 2)
        .await
        .unwrap();
    assert_eq!(behind, all[3..5]);
    assert!(changes(store, conversation_id(2)).await.is_empty());
    assert_eq!(newest_event(store, group).await, Some(change(9)));
    send(store, group, 10, &ann).await;
    assert_eq!(newest_event(store, group).await, Some(id(10)));
    assert_newest(store.newest_id().await.unwrap(), Some(id(10)));
}

pub async fn an_edit_of_the_last_message_and_every_deletion_change_the_inbox(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in [1, 2] {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
        send(store, conversation_id(number), i64::from(number), &ann).await;
    }
    let group = conversation_id(1);
    send(store, group, 3, &ann).await;
    let order = inbox_ids(store, &ben).await;
    let changed = async |after: i64| {
        let rows = store
            .inbox_changes(&ben, change(after).order_key(), 9)
            .await
            .unwrap()
            .unwrap();
        rows.into_iter()
            .map(|changed| (changed.newest_change, changed.conversation))
            .collect::<Vec<_>>()
    };
    let quiet = revise(store, group, id(1), 4, edit("an older one"), &ann)
        .await
        .unwrap();
    assert_eq!(quiet.audience.users.as_deref(), Some([].as_slice()));
    assert_eq!(changed(3).await, []);
    let shown = revise(store, group, id(3), 5, edit("the last one"), &ann)
        .await
        .unwrap();
    assert_eq!(shown.audience.users.map(|users| users.len()), Some(2));
    assert_eq!(changed(3).await, [(change(5), group)]);
    revise(store, group, id(1), 6, Revision::Deletion, &ann)
        .await
        .unwrap();
    assert_eq!(changed(5).await, [(change(6), group)]);
    assert_eq!(
        inbox_ids(store, &ben).await,
        order,
        "no change is an activity"
    );
}

pub async fn a_deleted_message_is_not_unread(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    for micros in 1..=3 {
        send(store, group, micros, &ann).await;
    }
    revise(store, group, id(1), 4, Revision::Deletion, &ann).await;
    revise(store, group, id(2), 5, edit("still unread"), &ann).await;
    let row = row(store, &ben, group).await;
    let answer = unread(store, &ben, group, row.read_up_to(), 9).await;
    assert_eq!((answer.count, answer.first), (2, Some(id(2))));
}

pub async fn a_large_conversation_logs_changes_for_itself_alone(store: &dyn Store) {
    let people = crowd(40);
    let group = conversation_id(1);
    make(store, group, &people).await;
    send(store, group, 1, &people[0]).await;
    let revised = revise(store, group, id(1), 2, Revision::Deletion, &people[0])
        .await
        .unwrap();
    assert!(revised.audience.users.is_none());
    assert_eq!(changes(store, group).await.len(), 1);
}
