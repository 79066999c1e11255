//! Blocks: one register for each pair of users, and the senders that unread counts leave out.

use wideroom::model::{Block, ChangeId, IgnoredSenders, OrderKey, Timestamp, Unread, UserId};
use wideroom::store::{ImportRow, Imported, PreviewQuery, Store, StoreAdmin, UnreadQuery};

use super::ask::{make, only, send_all};
use crate::support::words::{START, change, conversation_id, id, users};

fn block(blocked: &UserId, is_on: bool, change: ChangeId) -> Block {
    Block {
        blocked: blocked.clone(),
        is_on,
        change,
    }
}

/// A change within the lifetime of its block's end.
fn lately(store_now: Timestamp, micros: i64) -> ChangeId {
    ChangeId::new(store_now.plus_micros(micros), [1; 8])
}

pub async fn blocks_are_read_by_name_and_are_their_users_alone(store: &dyn Store) {
    let [ann, ben, cat, dan] = users(["ann", "ben", "cat", "dan"]);
    assert_eq!(store.blocks(&ann).await.unwrap(), []);
    let blocks = [&dan, &ben, &cat].map(|user| block(user, true, change(5)));
    for one in &blocks {
        store.set_block(&ann, one).await.unwrap();
    }
    let [of_dan, of_ben, of_cat] = blocks;
    let expected = [of_ben, of_cat, of_dan];
    assert_eq!(store.blocks(&ann).await.unwrap(), expected);
    for other in [&ben, &cat, &dan] {
        assert_eq!(store.blocks(other).await.unwrap(), [], "of {other}");
    }
}

pub async fn the_last_change_of_a_block_wins_in_any_order_of_arrival(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for (micros, is_on, expected) in [(5, true, 5), (9, true, 9), (7, true, 9), (9, true, 9)] {
        let one = block(&ben, is_on, change(micros));
        store.set_block(&ann, &one).await.unwrap();
        let found = only(store.blocks(&ann).await.unwrap());
        assert_eq!(found, block(&ben, true, change(expected)), "at {micros}");
    }
}

pub async fn the_end_of_a_block_is_read_until_it_expires(store: &dyn Store) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let now = wideroom::clock::Clock::now(&wideroom::clock::SystemClock).max(START);
    let on = block(&ben, true, lately(now, 0));
    store.set_block(&ann, &on).await.unwrap();
    let off = block(&ben, false, lately(now, 10));
    store.set_block(&ann, &off).await.unwrap();
    assert_eq!(store.blocks(&ann).await.unwrap(), [off]);
    let again = block(&ben, true, lately(now, 20));
    store.set_block(&ann, &again).await.unwrap();
    assert_eq!(only(store.blocks(&ann).await.unwrap()), again);
    // One that ended long ago is none, and a block that is on never expires.
    let long_ago = START.plus_micros(-2 * Block::END_LIFETIME_MICROS);
    let ended = block(&cat, false, lately(long_ago, 0));
    for _ in 0..2 {
        store.set_block(&ann, &ended).await.unwrap();
    }
    assert_eq!(only(store.blocks(&ann).await.unwrap()), again);
    let old = block(&cat, true, lately(long_ago, 10));
    store.set_block(&ann, &old).await.unwrap();
    assert_eq!(store.blocks(&ann).await.unwrap(), [again, old]);
}

pub async fn messages_of_ignored_senders_are_not_unread(store: &dyn Store) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let conversation = conversation_id(1);
    make(
        store,
        conversation,
        &[ann.clone(), ben.clone(), cat.clone()],
    )
    .await;
    send_all(store, conversation, 1..4, &ben).await;
    send_all(store, conversation, 4..9, &cat).await;
    send_all(store, conversation, 9..12, &ben).await;
    let counted = async |ignored: &[&UserId], after: OrderKey, cap: u32| {
        let ignored = IgnoredSenders::of(ignored.iter().map(|user| (*user).clone()));
        let query = UnreadQuery {
            conversation,
            after,
            up_to: None,
        };
        let found = store.unread(&ann, &[query], cap, &ignored).await.unwrap();
        let query = PreviewQuery {
            conversation,
            unread_after: Some(after),
            last_message: Some(id(11)),
        };
        let preview = store.previews(&ann, &[query], cap, &ignored).await.unwrap();
        let preview = only(preview);
        assert_eq!(preview.last_message.unwrap().id, id(11));
        assert_eq!(preview.unread, Some(found[0]));
        found[0]
    };
    let unread = |count, first| Unread {
        count,
        is_capped: false,
        first: Some(id(first)),
    };
    // In turn, as an answer may come from memory.
    for _ in 0..2 {
        assert_eq!(counted(&[], OrderKey::MIN, 99).await, unread(11, 1));
        assert_eq!(counted(&[&ben], OrderKey::MIN, 99).await, unread(5, 4));
        assert_eq!(counted(&[&cat], OrderKey::MIN, 99).await, unread(6, 1));
        let none = counted(&[&ben, &cat], OrderKey::MIN, 99).await;
        assert_eq!(none, Unread::default());
        let after = id(8).order_key();
        assert_eq!(counted(&[&ben], after, 99).await, Unread::default());
        assert_eq!(counted(&[&cat], after, 99).await, unread(3, 9));
        let capped = counted(&[&ben], OrderKey::MIN, 4).await;
        assert!(capped.count == 4 && capped.is_capped, "{capped:?}");
    }
}

pub async fn an_import_brings_blocks_and_changes_none(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let row = |blocked: &UserId, micros| ImportRow::Block {
        user: ann.clone(),
        blocked: blocked.clone(),
        since: START.plus_micros(micros),
    };
    let present = block(&cat, true, change(9));
    store.set_block(&ann, &present).await.unwrap();
    let rows = [row(&ben, 3), row(&ben, 4), row(&cat, 5)];
    let fates = store.import(&rows).await.unwrap();
    assert_eq!(
        fates,
        [Imported::Added, Imported::Unchanged, Imported::Unchanged]
    );
    let [imported, kept] = <[Block; 2]>::try_from(store.blocks(&ann).await.unwrap()).unwrap();
    assert_eq!(kept, present);
    assert!(imported.is_on && imported.blocked == ben);
    assert_eq!(imported.change.moment(), START.plus_micros(3));
    // A later change wins.
    let off = block(&ben, true, change(50));
    store.set_block(&ann, &off).await.unwrap();
    assert_eq!(store.blocks(&ann).await.unwrap(), [off, present]);
}
