//! Unread mentions: of a user and of everyone, after edits and deletions, and behind many other messages.

use std::sync::Arc;

use strum::VariantArray as _;
use wideroom::clock::Clock as _;
use wideroom::model::{
    Content, IgnoredSenders, Mentions, Message, MessageId, NotificationLevel, OrderKey, Revision,
    Unread, UserId,
};
use wideroom::store::{FlagsChange, Store, StoreAdmin, UnreadQuery};

use super::ask::{append, assert_sound, make, only, revise, row, send_all};
use super::membership::{changing, joins};
use super::stage::Stage;
use crate::support::words::{
    START, change, content, conversation_id, crowd, flags_change, group_row, id, id_with,
    message_row, new, participant_row, text, users,
};

fn mentioning(users: &[&UserId], everyone: bool) -> Content {
    let users = users.iter().copied().cloned().collect();
    Content {
        mentions: Mentions::new(users, everyone),
        ..content("hello")
    }
}

fn message(micros: i64, sender: &UserId, users: &[&UserId], everyone: bool) -> Message {
    Message {
        content: Some(mentioning(users, everyone)),
        ..text(conversation_id(1), id(micros), sender)
    }
}

async fn say(store: &dyn Store, micros: i64, sender: &UserId, users: &[&UserId], everyone: bool) {
    let message = message(micros, sender, users, everyone);
    append(store, conversation_id(1), &[new(message)]).await;
}

async fn edit(store: &dyn Store, micros: i64, message: i64, users: &[&UserId], everyone: bool) {
    revise_of_ann(
        store,
        micros,
        message,
        Revision::edit(mentioning(users, everyone)),
    )
    .await;
}

async fn revise_of_ann(store: &dyn Store, micros: i64, message: i64, to: Revision) -> Arc<Message> {
    let (on, ann) = (conversation_id(1), &users(["ann"])[0]);
    let revised = revise(store, on, id(message), micros, to, ann).await;
    revised.unwrap().message
}

async fn mentions(
    store: &dyn Store,
    user: &UserId,
    after: i64,
    cap: u32,
    ignored: &[&UserId],
) -> Unread {
    let ignored = IgnoredSenders::of(ignored.iter().map(|user| (*user).clone()));
    let query = UnreadQuery {
        conversation: conversation_id(1),
        after: if after == 0 {
            OrderKey::MIN
        } else {
            id(after).order_key()
        },
        up_to: None,
    };
    only(store.mentions(user, &[query], cap, &ignored).await.unwrap())
}

/// The number of unread mentions, and the first.
async fn count(store: &dyn Store, user: &UserId, after: i64) -> (u32, Option<MessageId>) {
    let Unread {
        count,
        is_capped,
        first,
    } = mentions(store, user, after, 99, &[]).await;
    assert!(!is_capped);
    (count, first)
}

pub async fn mentions_of_a_user_and_of_everyone_are_counted(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    make(
        store,
        conversation_id(1),
        &[ann.clone(), ben.clone(), cat.clone()],
    )
    .await;
    assert_eq!(count(store, &ben, 0).await, (0, None));
    say(store, 1, &ann, &[&ben], false).await;
    say(store, 2, &ann, &[], true).await;
    say(store, 3, &ann, &[&ben, &cat], true).await;
    say(store, 4, &ben, &[&ben, &ann], true).await;
    say(store, 5, &ann, &[], false).await;
    assert_eq!(count(store, &ben, 0).await, (3, Some(id(1))));
    assert_eq!(count(store, &ben, 1).await, (2, Some(id(2))));
    assert_eq!(count(store, &ben, 3).await, (0, None));
    assert_eq!(count(store, &cat, 0).await, (3, Some(id(2))));
    assert_eq!(count(store, &ann, 0).await, (1, Some(id(4))));
    let read = store
        .messages(&[(conversation_id(1), id(3))])
        .await
        .unwrap();
    let read = only(read).unwrap();
    assert_eq!(*read, message(3, &ann, &[&ben, &cat], true));
    assert_sound(store).await;
}

pub async fn mentions_behind_thousands_of_unread_messages_are_exact(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(1), &[ann.clone(), ben.clone()]).await;
    send_all(store, conversation_id(1), 1..5_001, &ann).await;
    say(store, 5_001, &ann, &[&ben], false).await;
    assert_eq!(count(store, &ben, 0).await, (1, Some(id(5_001))));
    for micros in 5_002..5_102 {
        say(store, micros, &ann, &[&ben], micros % 2 == 0).await;
    }
    let capped = mentions(store, &ben, 0, 99, &[]).await;
    assert!(capped.count == 99 && capped.is_capped);
    let exact = mentions(store, &ben, 5_002, 99, &[]).await;
    assert!(exact.count == 99 && !exact.is_capped, "{exact:?}");
}

/// Mentions of a user by a sender whom the user blocks.
const BLOCKED: i64 = 2_100;
const MINUTE: i64 = 60 * 1_000_000;

/// The count after a position, once it is exact: after as many reads as there are thousands of rows.
async fn exact(stage: &Stage, after: i64, ignored: &[&UserId]) -> Unread {
    // A store remembers rows that are a minute old.
    stage.clock.set(stage.clock.now().plus_micros(MINUTE));
    let [ann] = users(["ann"]);
    let mut counted = Unread::default();
    for _ in 0..=BLOCKED / 1_000 {
        counted = mentions(stage.store(), &ann, after, 99, ignored).await;
        if !counted.is_capped || counted.count == 99 {
            break;
        }
    }
    counted
}

pub async fn mentions_behind_those_of_blocked_senders_become_exact(stage: &Stage) {
    let (store, on) = (stage.store(), conversation_id(1));
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    make(store, on, &[ann.clone(), ben.clone(), cat.clone()]).await;
    let rows = (1..=BLOCKED + 2).map(|micros| {
        message_row(match micros {
            500 | 1_500 => text(on, id(micros), &ben),
            _ if micros > BLOCKED => message(micros, &ben, &[&ann], false),
            _ => message(micros, &cat, &[&ann], micros % 2 == 0),
        })
    });
    store.import(&rows.collect::<Vec<_>>()).await.unwrap();
    let some = |count, first| Unread {
        count,
        is_capped: false,
        first: Some(id(first)),
    };
    let blocking: &[&UserId] = &[&cat];
    assert_eq!(exact(stage, 0, blocking).await, some(2, BLOCKED + 1));
    say(store, BLOCKED + 3, &ben, &[], true).await;
    assert_eq!(exact(stage, 0, blocking).await, some(3, BLOCKED + 1));
    // An edit adds a mention to a message among those that were read, and another one takes it away.
    edit(store, BLOCKED + 4, 500, &[&ann], false).await;
    assert_eq!(exact(stage, 0, blocking).await, some(4, 500));
    edit(store, BLOCKED + 5, 1_500, &[], true).await;
    assert_eq!(exact(stage, 0, blocking).await, some(5, 500));
    edit(store, BLOCKED + 6, 500, &[], false).await;
    assert_eq!(exact(stage, 0, blocking).await, some(4, 1_500));
    revise_of_ann(store, BLOCKED + 7, BLOCKED + 1, Revision::Deletion).await;
    assert_eq!(exact(stage, 0, blocking).await, some(3, 1_500));
    // A marker that moves on, and back.
    let later = exact(stage, BLOCKED + 2, blocking).await;
    assert_eq!(later, some(1, BLOCKED + 3));
    assert_eq!(exact(stage, 5, blocking).await, some(3, 1_500));
    let unblocked = Unread {
        count: 99,
        is_capped: true,
        first: Some(id(6)),
    };
    assert_eq!(exact(stage, 5, &[]).await, unblocked);
    assert_eq!(exact(stage, 5, blocking).await, some(3, 1_500));
    // A mention that comes late, among them.
    let late = id_with(1_000, [0x80, 2, 1, 0, 0, 0, 0, 0]);
    let row = Message {
        id: late,
        ..message(1_000, &ben, &[&ann], false)
    };
    store.import(&[message_row(row)]).await.unwrap();
    let with_late = Unread {
        first: Some(late),
        ..some(4, 0)
    };
    assert_eq!(exact(stage, 5, blocking).await, with_late);
}

pub async fn counts_become_exact_in_a_busy_group_whose_messages_are_counted(stage: &Stage) {
    const NEW_ROWS: i64 = 300;
    let (store, on) = (stage.store(), conversation_id(1));
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    make(store, on, &[ann.clone(), ben.clone(), cat.clone()]).await;
    let rows = (1..=BLOCKED + 1).map(|micros| {
        let sender = if micros > BLOCKED { &ben } else { &cat };
        message_row(message(micros, sender, &[&ann], false))
    });
    store.import(&rows.collect::<Vec<_>>()).await.unwrap();
    let query = UnreadQuery {
        conversation: on,
        after: OrderKey::MIN,
        up_to: None,
    };
    let (blocking, exact) = (IgnoredSenders::of([cat.clone()]), (1, false));
    let mut counted = Vec::new();
    for _ in 0..2 * BLOCKED / 1_000 + 4 {
        stage.clock.set(stage.clock.now().plus_micros(2 * MINUTE));
        let unread = store.unread(&ann, &[query], 99, &blocking).await;
        let unread = only(unread.unwrap());
        let mentioned = mentions(store, &ann, 0, 99, &[&cat]).await;
        counted = vec![unread, mentioned];
        let is_exact = |one: &Unread| (one.count, one.is_capped) == exact;
        if counted.iter().all(is_exact) {
            return;
        }
        let now = stage.clock.now().micros() - START.micros();
        send_all(store, on, now..now + NEW_ROWS, &cat).await;
        stage.clock.set(stage.clock.now().plus_micros(2 * MINUTE));
        store.message_counts(&[on]).await.unwrap();
    }
    panic!("{counted:?}");
}

pub async fn an_edit_replaces_mentions_and_a_deletion_removes_them(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    make(
        store,
        conversation_id(1),
        &[ann.clone(), ben.clone(), cat.clone()],
    )
    .await;
    say(store, 1, &ann, &[&ben], false).await;
    say(store, 2, &ann, &[], false).await;
    edit(store, 10, 1, &[&cat], false).await;
    assert_eq!(count(store, &ben, 0).await, (0, None));
    assert_eq!(count(store, &cat, 0).await, (1, Some(id(1))));
    let newest = |changed: Vec<wideroom::store::ChangedRow>| {
        changed.last().map(|changed| changed.newest_change)
    };
    let changed = store
        .inbox_changes(&cat, id(9).order_key(), 9)
        .await
        .unwrap();
    assert_eq!(
        newest(changed.unwrap()),
        Some(change(10)),
        "an inbox shows it"
    );
    edit(store, 11, 1, &[], true).await;
    assert_eq!(count(store, &ben, 0).await, (1, Some(id(1))));
    edit(store, 12, 2, &[&ben], false).await;
    assert_eq!(count(store, &ben, 0).await, (2, Some(id(1))));
    revise_of_ann(store, 13, 1, Revision::Deletion).await;
    assert_eq!(count(store, &ben, 0).await, (1, Some(id(2))));
    assert_eq!(count(store, &cat, 0).await, (0, None));
    edit(store, 14, 1, &[&cat], true).await;
    assert_eq!(count(store, &cat, 0).await, (0, None), "a deletion wins");
    edit(store, 15, 2, &[], false).await;
    assert_eq!(count(store, &ben, 0).await, (0, None));
    assert_sound(store).await;
}

pub async fn mentions_of_ignored_senders_are_not_counted(store: &dyn Store) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    make(
        store,
        conversation_id(1),
        &[ann.clone(), ben.clone(), cat.clone()],
    )
    .await;
    say(store, 1, &cat, &[&ben], false).await;
    say(store, 2, &cat, &[], true).await;
    say(store, 3, &ann, &[], true).await;
    let unread = mentions(store, &ben, 0, 99, &[&cat]).await;
    assert_eq!((unread.count, unread.first), (1, Some(id(3))));
    let any = mentions(store, &ben, 0, 0, &[&cat]).await;
    assert!(any.is_capped && any.count == 0, "the cap 0 asks for any");
    let none = mentions(store, &ben, 3, 0, &[]).await;
    assert!(!none.is_capped);
}

pub async fn mentions_are_counted_in_large_conversations(store: &dyn StoreAdmin) {
    let people = crowd(40);
    make(store, conversation_id(1), &people).await;
    say(store, 1, &people[0], &[&people[7]], false).await;
    say(store, 2, &people[0], &[], true).await;
    assert_eq!(count(store, &people[7], 0).await, (2, Some(id(1))));
    assert_eq!(count(store, &people[8], 0).await, (1, Some(id(2))));
    edit(store, 10, 2, &[&people[9]], false).await;
    assert_eq!(count(store, &people[8], 0).await, (0, None));
    assert_eq!(count(store, &people[9], 0).await, (1, Some(id(2))));
    assert_sound(store).await;
}

pub async fn a_user_who_joins_later_finds_earlier_mentions(store: &dyn Store) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben]).await;
    say(store, 1, &ann, &[], true).await;
    say(store, 2, &ann, &[&cat], false).await;
    let change = changing(group, 20, Some(change(0)), &[joins(&cat, 20)]);
    let joined = store.change_membership(group, &change).await;
    joined.unwrap().unwrap();
    assert_eq!(count(store, &cat, 20).await, (0, None));
    assert_eq!(
        count(store, &cat, 0).await,
        (2, Some(id(1))),
        "once marked unread"
    );
}

pub async fn an_import_brings_mentions_whatever_the_order(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let on = conversation_id(1);
    let rows = [
        group_row(on, None),
        participant_row(on, &ann),
        message_row(message(1, &ann, &[&cat], false)),
        message_row(message(2, &ann, &[], true)),
        participant_row(on, &ben),
    ];
    store.import(&rows).await.unwrap();
    store.import(&[participant_row(on, &cat)]).await.unwrap();
    store
        .import(&[message_row(message(3, &ann, &[], true))])
        .await
        .unwrap();
    assert_eq!(count(store, &ben, 0).await, (2, Some(id(2))));
    assert_eq!(count(store, &cat, 0).await, (3, Some(id(1))));
    assert_sound(store).await;
}

pub async fn a_level_is_set_and_cleared_beside_other_flags(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben]).await;
    let set = async |micros, level, muted| {
        let to = FlagsChange {
            muted,
            level,
            ..flags_change(group, change(micros))
        };
        store.set_flags(&ann, &to).await.unwrap()
    };
    let level = async || row(store, &ann, group).await.flags.level;
    assert_eq!(level().await, None);
    for (micros, one) in (5..).zip(NotificationLevel::VARIANTS.iter().copied()) {
        let flags = set(micros, Some(Some(one)), None).await.unwrap();
        assert_eq!((flags.level, level().await), (Some(one), Some(one)));
        assert_eq!(set(micros, Some(Some(one)), None).await, None);
    }
    let flags = set(20, None, Some(true)).await.unwrap();
    assert!(flags.is_muted && flags.level == Some(NotificationLevel::None));
    let flags = set(21, Some(None), None).await.unwrap();
    assert!(flags.is_muted && flags.level.is_none());
    assert_eq!(level().await, None);
}
