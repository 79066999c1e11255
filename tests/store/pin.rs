//! Pins: registers of messages, the list of a conversation, and the end of a pin by a deletion.

use std::sync::Arc;

use wideroom::model::{ChangeKind, Message, MessageId, Pin, Revision, UserId};
use wideroom::store::{ImportRow, Imported, Store, StoreAdmin};

use super::ask::{
    assert_sound, changes, inbox_ids, make, message, newest_event, revise, row, send,
};
use crate::support::words::{
    START, change, change_of, content, conversation_id, group_row, id, message_row, text, users,
};

pub async fn pin(
    store: &dyn Store,
    micros: i64,
    by: &UserId,
    message: MessageId,
    is_on: bool,
) -> Option<Arc<Message>> {
    let change = change_of(change(micros), ChangeKind::PinsChanged, message, by);
    store
        .pin_message(conversation_id(1), is_on, &change)
        .await
        .unwrap()
}

async fn delete(store: &dyn Store, micros: i64, by: &UserId, message: MessageId) {
    let (on, deletion) = (conversation_id(1), Revision::Deletion);
    let deleted = revise(store, on, message, micros, deletion, by).await;
    assert!(deleted.is_some());
}

fn pinned(micros: i64, by: &UserId) -> Pin {
    Pin {
        change: change(micros),
        by: by.clone(),
        is_on: true,
    }
}

/// The pins of the conversation that are on, by their messages.
pub async fn pins_of(store: &dyn Store, number: u8) -> Vec<(MessageId, Pin)> {
    let mut pins = store.pins(conversation_id(number)).await.unwrap();
    pins.retain(|(_, pin)| pin.is_on);
    pins.sort_by_key(|(message, _)| *message);
    pins
}

async fn stored(store: &dyn Store, id: MessageId) -> Arc<Message> {
    message(store, conversation_id(1), id).await.unwrap()
}

async fn said(store: &dyn Store, people: &[UserId]) {
    make(store, conversation_id(1), people).await;
    for micros in 1..=3 {
        send(store, conversation_id(1), micros, &people[0]).await;
    }
}

pub async fn a_message_is_pinned_until_it_is_unpinned(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    assert_eq!(pins_of(store, 1).await, []);
    let message = pin(store, 5, &ben, id(2), true).await.unwrap();
    assert_eq!(message.current_pin(), Some(&pinned(5, &ben)));
    pin(store, 6, &ann, id(1), true).await.unwrap();
    assert_eq!(
        pins_of(store, 1).await,
        [(id(1), pinned(6, &ann)), (id(2), pinned(5, &ben))]
    );
    assert_eq!(
        *stored(store, id(2)).await,
        *message,
        "it is read as answered"
    );
    let message = pin(store, 7, &ann, id(2), false).await.unwrap();
    assert_eq!(message.current_pin(), None);
    assert_eq!(stored(store, id(2)).await.current_pin(), None);
    assert_eq!(pins_of(store, 1).await, [(id(1), pinned(6, &ann))]);
    pin(store, 8, &ann, id(2), true).await.unwrap();
    assert_eq!(
        stored(store, id(2)).await.current_pin(),
        Some(&pinned(8, &ann))
    );
    assert_eq!(pins_of(store, 2).await, [], "another conversation has none");
    assert_sound(store).await;
}

pub async fn a_deletion_unpins(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    pin(store, 5, &ben, id(2), true).await.unwrap();
    pin(store, 6, &ben, id(3), true).await.unwrap();
    delete(store, 7, &ann, id(2)).await;
    assert_eq!(pins_of(store, 1).await, [(id(3), pinned(6, &ben))]);
    assert_eq!(stored(store, id(2)).await.current_pin(), None);
    let deleted = pin(store, 8, &ben, id(2), true).await.unwrap();
    assert!(deleted.deleted_at.is_some() && deleted.current_pin().is_none());
    assert_eq!(pins_of(store, 1).await, [(id(3), pinned(6, &ben))]);
    assert_eq!(
        pin(store, 9, &ben, id(99), true).await,
        None,
        "a missing message"
    );
    assert_sound(store).await;
}

pub async fn a_pin_is_logged_and_shows_in_no_inbox(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    let group = conversation_id(1);
    let before = (inbox_ids(store, &ben).await, row(store, &ben, group).await);
    pin(store, 5, &ben, id(2), true).await.unwrap();
    pin(store, 5, &ben, id(2), true).await.unwrap();
    pin(store, 6, &ann, id(2), false).await.unwrap();
    let logged = changes(store, group).await;
    let expected =
        |micros, user: &UserId| change_of(change(micros), ChangeKind::PinsChanged, id(2), user);
    assert_eq!(logged, [expected(5, &ben), expected(6, &ann)]);
    let after = (inbox_ids(store, &ben).await, row(store, &ben, group).await);
    assert_eq!(before, after);
    let changes = store
        .inbox_changes(&ben, id(3).order_key(), 9)
        .await
        .unwrap();
    assert_eq!(changes, Some(Vec::new()));
    let newest = newest_event(store, group).await;
    assert_eq!(newest, Some(change(6)));
}

pub async fn an_edit_and_a_reaction_leave_the_pin(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    pin(store, 5, &ben, id(2), true).await.unwrap();
    let better = Revision::edit(content("better"));
    revise(store, conversation_id(1), id(2), 6, better, &ann).await;
    let reacted = change_of(change(7), ChangeKind::ReactionsChanged, id(2), &ann);
    let emoji = wideroom::model::Emoji::parse("👍").unwrap();
    store
        .react(conversation_id(1), &emoji, true, &reacted)
        .await
        .unwrap();
    let message = stored(store, id(2)).await;
    assert!(message.has_reactions && message.current_pin() == Some(&pinned(5, &ben)));
}

pub async fn an_import_brings_pins_and_changes_none(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let (on, at) = (conversation_id(1), START.plus_micros(50));
    let row = |message| ImportRow::Pin {
        conversation: on,
        message,
        by: ben.clone(),
        at,
    };
    let fates = store.import(&[row(id(1))]).await.unwrap();
    assert_eq!(fates, [Imported::ConversationMissing]);
    let fates = store
        .import(&[
            group_row(on, None),
            message_row(text(on, id(1), &ann)),
            row(id(1)),
            row(id(2)),
        ])
        .await
        .unwrap();
    use Imported::{Added, MessageMissing, Unchanged};
    assert_eq!(fates, [Added, Added, Added, MessageMissing]);
    let expected = Pin::imported(ben.clone(), at);
    assert_eq!(pins_of(store, 1).await, [(id(1), expected.clone())]);
    assert_eq!(stored(store, id(1)).await.current_pin(), Some(&expected));
    assert_eq!(store.import(&[row(id(1))]).await.unwrap(), [Unchanged]);
    pin(store, 60, &ann, id(1), false).await.unwrap();
    assert_eq!(store.import(&[row(id(1))]).await.unwrap(), [Unchanged]);
    assert_eq!(pins_of(store, 1).await, [], "what was unpinned stays so");
    assert_sound(store).await;
}
