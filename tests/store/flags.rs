//! Flags of entries: each stays as it was set, whoever sets another one beside it.

use futures_util::future::join_all;
use wideroom::model::{Flags, NotificationLevel, OrderKey, UserId};
use wideroom::store::{Archive, FlagsChange, Store};

use super::ask::{assert_newest, inbox, make, row, send};
use crate::support::words::{START, change, conversation_id, crowd, flags_change, id, users};

pub async fn flags_that_are_not_given_stay(store: &dyn Store) {
    let people = crowd(33);
    // The second one is large.
    for (number, people) in [(1, &people[..2]), (2, &people[..])] {
        make(store, conversation_id(number), people).await;
        let set = async |to: FlagsChange| {
            store
                .set_flags(&people[0], &to)
                .await
                .unwrap()
                .expect("it changes something")
        };
        let to = |micros| flags_change(conversation_id(number), change(micros));
        let muted = Flags {
            is_muted: true,
            ..Flags::default()
        };
        assert_eq!(
            set(FlagsChange {
                muted: Some(true),
                ..to(1)
            })
            .await,
            muted
        );
        let both = Flags {
            is_pinned: true,
            ..muted
        };
        assert_eq!(
            set(FlagsChange {
                pinned: Some(true),
                ..to(2)
            })
            .await,
            both
        );
        let archived_at = Some(START.plus_micros(3));
        let archive = Some(Archive::Begin(START.plus_micros(3)));
        assert_eq!(
            set(FlagsChange { archive, ..to(3) }).await,
            Flags {
                archived_at,
                ..both
            }
        );
        assert_eq!(
            row(store, &people[0], conversation_id(number)).await.flags,
            Flags {
                archived_at,
                ..both
            }
        );
        let pinned = Flags {
            is_muted: false,
            ..both
        };
        assert_eq!(
            set(FlagsChange {
                muted: Some(false),
                archive: Some(Archive::End),
                ..to(4)
            })
            .await,
            pinned
        );
        let listed = inbox(store, &people[0]).await;
        assert_eq!(
            listed
                .iter()
                .find(|row| row.conversation == conversation_id(number))
                .unwrap()
                .flags,
            pinned,
            "lists say the same"
        );
    }
}

pub async fn setting_equal_flags_is_no_change(store: &dyn Store) {
    let [ann] = users(["ann"]);
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    let mute = |micros| FlagsChange {
        muted: Some(true),
        ..flags_change(group, change(micros))
    };
    let changed = async || {
        store
            .inbox_changes(&ann, change(0).order_key(), 9)
            .await
            .unwrap()
            .unwrap()
    };
    assert_eq!(
        store
            .set_flags(&ann, &flags_change(group, change(5)))
            .await
            .unwrap(),
        None
    );
    let none = FlagsChange {
        muted: Some(false),
        pinned: Some(false),
        archive: Some(Archive::End),
        ..flags_change(group, change(6))
    };
    assert_eq!(
        store.set_flags(&ann, &none).await.unwrap(),
        None,
        "they are so from the beginning"
    );
    assert_eq!(changed().await, []);
    store.set_flags(&ann, &mute(7)).await.unwrap().unwrap();
    assert_eq!(store.set_flags(&ann, &mute(8)).await.unwrap(), None);
    let newest: Vec<_> = changed()
        .await
        .into_iter()
        .map(|changed| (changed.newest_change, changed.row.unwrap().flags.is_muted))
        .collect();
    assert_eq!(newest, [(change(7), true)]);
    assert_newest(store.newest_id().await.unwrap(), Some(change(7)));
}

pub async fn an_archive_is_ended_where_it_is_that_one(store: &dyn Store) {
    let [ann] = users(["ann"]);
    make(store, conversation_id(1), std::slice::from_ref(&ann)).await;
    let [one, other] = [10, 20].map(|micros| START.plus_micros(micros));
    let archive = async |archive, micros| {
        let to = FlagsChange {
            archive: Some(archive),
            ..flags_change(conversation_id(1), change(micros))
        };
        store
            .set_flags(&ann, &to)
            .await
            .unwrap()
            .map(|flags| flags.archived_at)
    };
    assert_eq!(archive(Archive::EndOf(one), 1).await, None);
    assert_eq!(archive(Archive::Begin(one), 2).await, Some(Some(one)));
    assert_eq!(archive(Archive::Begin(other), 3).await, Some(Some(other)));
    assert_eq!(
        archive(Archive::EndOf(one), 4).await,
        None,
        "another one has begun"
    );
    assert_eq!(archive(Archive::EndOf(other), 5).await, Some(None));
    assert_eq!(archive(Archive::End, 6).await, None);
}

pub async fn flags_set_at_once_all_stay(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in 1..=20 {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
        let at = START.plus_micros(9);
        let to = |micros| flags_change(conversation_id(number), change(micros));
        let devices = [
            FlagsChange {
                muted: Some(true),
                ..to(1)
            },
            FlagsChange {
                pinned: Some(true),
                ..to(2)
            },
            FlagsChange {
                archive: Some(Archive::Begin(at)),
                ..to(3)
            },
            FlagsChange {
                muted: Some(true),
                pinned: Some(true),
                ..to(4)
            },
        ];
        let send = send(store, conversation_id(number), 30, &ben);
        let set = join_all(
            devices
                .iter()
                .map(async |to| store.set_flags(&ann, to).await.unwrap()),
        );
        futures_util::future::join(set, send).await;
        let row = row(store, &ann, conversation_id(number)).await;
        assert_eq!(
            row.flags,
            Flags {
                is_muted: true,
                is_pinned: true,
                archived_at: Some(at),
                level: None,
            }
        );
        assert_eq!(row.last_message, Some(id(30)));
    }
}

pub async fn flags_are_their_users_alone(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in [1, 2] {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
    }
    let to = FlagsChange {
        pinned: Some(true),
        ..flags_change(conversation_id(1), change(50))
    };
    store.set_flags(&ann, &to).await.unwrap().unwrap();
    for (user, number) in [(&ben, 1), (&ann, 2), (&ben, 2)] {
        assert_eq!(
            row(store, user, conversation_id(number)).await.flags,
            Flags::default()
        );
    }
    let changed = async |user| {
        store
            .inbox_changes(user, id(40).order_key(), 9)
            .await
            .unwrap()
            .unwrap()
    };
    let conversations: Vec<_> = changed(&ann)
        .await
        .iter()
        .map(|changed| (changed.newest_change, changed.conversation))
        .collect();
    assert_eq!(conversations, [(change(50), conversation_id(1))]);
    assert_eq!(changed(&ben).await, []);
    assert_eq!(
        store
            .inbox_changes(&ann, OrderKey::MAX, 9)
            .await
            .unwrap()
            .unwrap(),
        []
    );
}

pub async fn users_who_want_all_are_listed_by_name(store: &dyn Store) {
    let people = crowd(40);
    let c = conversation_id(1);
    make(store, c, &people).await;
    let listed = async |after: Option<&UserId>, limit| {
        let listed = store.notified_of_all(c, after, limit).await;
        listed.unwrap()
    };
    assert!(listed(None, 10).await.is_empty());
    let set = async |user: &UserId, level, micros| {
        let to = FlagsChange {
            level: Some(level),
            ..flags_change(c, change(micros))
        };
        store.set_flags(user, &to).await.unwrap();
    };
    let mut micros = 10;
    for user in people.iter().step_by(2) {
        set(user, Some(NotificationLevel::All), micros).await;
        micros += 1;
    }
    let mut expected: Vec<UserId> = people.iter().step_by(2).cloned().collect();
    expected.sort_unstable();
    assert_eq!(listed(None, 100).await, expected);
    assert_eq!(listed(None, 3).await, expected[..3]);
    assert_eq!(listed(Some(&expected[2]), 3).await, expected[3..6]);
    assert!(listed(expected.last(), 3).await.is_empty());
    assert!(
        store
            .notified_of_all(conversation_id(2), None, 3)
            .await
            .unwrap()
            .is_empty()
    );
    set(&people[0], None, micros).await;
    set(&people[2], Some(NotificationLevel::None), micros + 1).await;
    set(&people[4], Some(NotificationLevel::Mentions), micros + 2).await;
    set(&people[4], Some(NotificationLevel::All), micros + 3).await;
    let is_left = |user: &&UserId| **user != people[0] && **user != people[2];
    let left: Vec<_> = expected.iter().filter(is_left).cloned().collect();
    assert_eq!(listed(None, 100).await, left);
}
