//! Edits and deletions: the message, the log that streams read, and the inboxes that show it.

use wideroom::model::{Change, ConversationId, MessageId, OrderKey, Revision, UserId};
use wideroom::store::{Revised, Store};

use super::ask::{assert_newest, inbox_ids, make, only, row, send, unread};
use crate::support::words::{change, content, conversation_id, crowd, id, users};

async fn revise(
    store: &dyn Store,
    conversation: ConversationId,
    message: MessageId,
    micros: i64,
    revision: Revision,
    by: &UserId,
) -> Option<Revised> {
    let change = Change {
        id: change(micros),
        kind: revision.kind(),
        message,
        user: by.clone(),
    };
    store
        .revise_message(conversation, &revision, &change)
        .await
        .unwrap()
}

fn edit(text: &str) -> Revision {
    Revision::edit(content(text))
}

pub async fn an_edit_replaces_the_content_and_nothing_else(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(1), &[ann.clone(), ben]).await;
    send(store, conversation_id(1), 1, &ann).await;
    let before = only(
        store
            .messages(&[(conversation_id(1), id(1))])
            .await
            .unwrap(),
    )
    .unwrap();
    let revised = revise(store, conversation_id(1), id(1), 2, edit("better"), &ann)
        .await
        .unwrap();
    let after = only(
        store
            .messages(&[(conversation_id(1), id(1))])
            .await
            .unwrap(),
    )
    .unwrap();
    assert_eq!(revised.message, after);
    assert_eq!(after.content, Some(content("better")));
    assert_eq!(
        (after.sender.clone(), after.id, after.kind, after.deleted_at),
        (before.sender.clone(), before.id, before.kind, None)
    );
    assert_eq!(
        store.message_counts(&[conversation_id(1)]).await.unwrap(),
        [1]
    );
    assert_eq!(
        store.last_messages(&[conversation_id(1)]).await.unwrap(),
        [Some(id(1))]
    );
}

pub async fn a_deletion_wins_over_every_edit(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(1), &[ann.clone(), ben]).await;
    send(store, conversation_id(1), 1, &ann).await;
    let deleted = revise(
        store,
        conversation_id(1),
        id(1),
        2,
        Revision::Deletion,
        &ann,
    )
    .await
    .unwrap();
    assert_eq!(
        (deleted.message.deleted_at, &deleted.message.content),
        (Some(change(2).moment()), &None)
    );
    for (micros, revision) in [(3, edit("too late")), (4, Revision::Deletion)] {
        let again = revise(store, conversation_id(1), id(1), micros, revision, &ann)
            .await
            .unwrap();
        assert_eq!(again.message, deleted.message);
    }
    assert_eq!(
        store
            .changes(conversation_id(1), OrderKey::MIN, 9)
            .await
            .unwrap()
            .len(),
        1,
        "what changes nothing is not logged"
    );
    assert_eq!(
        store.message_counts(&[conversation_id(1)]).await.unwrap(),
        [1],
        "it stays in history"
    );
}

pub async fn a_change_of_nothing_is_none(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(1), &[ann.clone(), ben]).await;
    assert!(
        revise(
            store,
            conversation_id(1),
            id(1),
            2,
            Revision::Deletion,
            &ann
        )
        .await
        .is_none()
    );
    assert!(
        store
            .changes(conversation_id(1), OrderKey::MIN, 9)
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn changes_are_logged_in_order_and_found_behind_a_place(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in [1, 2] {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
    }
    for micros in 1..=3 {
        send(store, conversation_id(1), micros, &ann).await;
    }
    for micros in 4..=9 {
        revise(
            store,
            conversation_id(1),
            id(micros % 3 + 1),
            micros,
            edit(&micros.to_string()),
            &ben,
        )
        .await;
    }
    let all = store
        .changes(conversation_id(1), OrderKey::MIN, 99)
        .await
        .unwrap();
    assert_eq!(
        all.iter().map(|change| change.id).collect::<Vec<_>>(),
        (4..=9).map(change).collect::<Vec<_>>()
    );
    assert!(all.iter().all(|entry| entry.user == ben));
    assert_eq!(all[0].message, id(2));
    let behind = store
        .changes(conversation_id(1), change(6).order_key(), 2)
        .await
        .unwrap();
    assert_eq!(behind, all[3..5]);
    assert!(
        store
            .changes(conversation_id(2), OrderKey::MIN, 99)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        store.newest_events(&[conversation_id(1)]).await.unwrap(),
        [Some(change(9))]
    );
    send(store, conversation_id(1), 10, &ann).await;
    assert_eq!(
        store.newest_events(&[conversation_id(1)]).await.unwrap(),
        [Some(id(10))]
    );
    assert_newest(store.newest_id().await.unwrap(), Some(id(10)));
}

pub async fn an_edit_of_the_last_message_and_every_deletion_change_the_inbox(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in [1, 2] {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
        send(store, conversation_id(number), i64::from(number), &ann).await;
    }
    send(store, conversation_id(1), 3, &ann).await;
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
    let quiet = revise(
        store,
        conversation_id(1),
        id(1),
        4,
        edit("an older one"),
        &ann,
    )
    .await
    .unwrap();
    assert_eq!(quiet.audience.users.as_deref(), Some([].as_slice()));
    assert_eq!(changed(3).await, []);
    let shown = revise(
        store,
        conversation_id(1),
        id(3),
        5,
        edit("the last one"),
        &ann,
    )
    .await
    .unwrap();
    assert_eq!(shown.audience.users.map(|users| users.len()), Some(2));
    assert_eq!(changed(3).await, [(change(5), conversation_id(1))]);
    revise(
        store,
        conversation_id(1),
        id(1),
        6,
        Revision::Deletion,
        &ann,
    )
    .await
    .unwrap();
    assert_eq!(changed(5).await, [(change(6), conversation_id(1))]);
    assert_eq!(
        inbox_ids(store, &ben).await,
        order,
        "no change is an activity"
    );
}

pub async fn a_deleted_message_is_not_unread(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(1), &[ann.clone(), ben.clone()]).await;
    for micros in 1..=3 {
        send(store, conversation_id(1), micros, &ann).await;
    }
    revise(
        store,
        conversation_id(1),
        id(1),
        4,
        Revision::Deletion,
        &ann,
    )
    .await;
    revise(
        store,
        conversation_id(1),
        id(2),
        5,
        edit("still unread"),
        &ann,
    )
    .await;
    let row = row(store, &ben, conversation_id(1)).await;
    let answer = unread(store, &ben, conversation_id(1), row.read_up_to(), 9).await;
    assert_eq!((answer.count, answer.first), (2, Some(id(2))));
}

pub async fn a_large_conversation_logs_changes_for_itself_alone(store: &dyn Store) {
    let people = crowd(40);
    make(store, conversation_id(1), &people).await;
    send(store, conversation_id(1), 1, &people[0]).await;
    let revised = revise(
        store,
        conversation_id(1),
        id(1),
        2,
        Revision::Deletion,
        &people[0],
    )
    .await
    .unwrap();
    assert!(revised.audience.users.is_none());
    assert_eq!(
        store
            .changes(conversation_id(1), OrderKey::MIN, 9)
            .await
            .unwrap()
            .len(),
        1
    );
}
