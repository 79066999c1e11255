//! Unread: a question asked of the history, and the markers it is asked from.

use wideroom::clock::Clock as _;
use wideroom::model::{IgnoredSenders, OrderKey, ReadMarker, Revision, Unread};
use wideroom::store::{MarkerMove, Store, StoreAdmin, UnreadQuery};

use super::ask::{
    MarkTo, append, make, mark, only, participant, revise, row, send, send_all, unread,
};
use super::stage::Stage;
use crate::support::words::{
    START, change, conversation_id, crowd, deleted, id, id_with, message_row, new, system, text,
    user, users,
};

const MINUTE: i64 = 60 * 1_000_000;

pub async fn messages_of_others_after_the_place_are_unread(store: &dyn Store) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone(), cat.clone()]).await;
    send_all(store, group, 1..6, &ben).await;
    send_all(store, group, 6..8, &cat).await;
    let none = Unread::default();
    let some = |count, first| Unread {
        count,
        is_capped: false,
        first: Some(id(first)),
    };
    assert_eq!(
        unread(store, &ann, group, OrderKey::MIN, 99).await,
        some(7, 1)
    );
    assert_eq!(
        unread(store, &ann, group, id(3).order_key(), 99).await,
        some(4, 4)
    );
    assert_eq!(
        unread(store, &ann, group, id(3).order_key().before(), 99).await,
        some(5, 3)
    );
    assert_eq!(
        unread(store, &ann, group, id(7).order_key(), 99).await,
        none
    );
    assert_eq!(unread(store, &ann, group, OrderKey::MAX, 99).await, none);
    assert_eq!(
        unread(store, &cat, group, id(5).order_key(), 99).await,
        none
    );
    assert_eq!(
        unread(store, &ben, group, OrderKey::MIN, 99).await,
        some(2, 6)
    );
}

pub async fn ones_own_system_and_deleted_messages_are_not_unread(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let rows = [1, 2, 7].map(|micros| message_row(deleted(group, id(micros), &ben)));
    store.import(&rows).await.unwrap();
    assert_eq!(
        unread(store, &ann, group, OrderKey::MIN, 9).await,
        Unread::default()
    );
    let sends = [
        system(group, id(10), &ben),
        text(group, id(11), &ann),
        text(group, id(12), &ben),
        system(group, id(13), &ben),
    ];
    append(store, group, &sends.map(new)).await;
    let expected = Unread {
        count: 1,
        is_capped: false,
        first: Some(id(12)),
    };
    assert_eq!(unread(store, &ann, group, OrderKey::MIN, 9).await, expected);
    assert_eq!(
        unread(store, &ann, group, id(12).order_key(), 9).await,
        Unread::default()
    );
}

/// As many as the cap is a count; one more is needed for "or more".
pub async fn a_count_of_exactly_the_cap_is_not_capped(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send_all(store, group, 1..100, &ben).await;
    let from =
        async |micros: i64, cap| unread(store, &ann, group, id(micros).order_key(), cap).await;
    let first = Some(id(1));
    // Twice, as the second answer may come from memory.
    for _ in 0..2 {
        assert_eq!(
            from(0, Unread::CAP).await,
            Unread {
                count: 99,
                is_capped: false,
                first
            }
        );
    }
    assert_eq!(
        from(0, 100).await,
        Unread {
            count: 99,
            is_capped: false,
            first
        }
    );
    assert_eq!(
        from(0, 98).await,
        Unread {
            count: 98,
            is_capped: true,
            first
        }
    );
    assert_eq!(
        from(0, 0).await,
        Unread {
            count: 0,
            is_capped: true,
            first
        }
    );
    assert_eq!(from(99, 0).await, Unread::default());
    // Messages that never count as unread do not exceed the cap either.
    append(
        store,
        group,
        &[
            new(system(group, id(100), &ben)),
            new(text(group, id(101), &ann)),
        ],
    )
    .await;
    assert_eq!(
        from(0, Unread::CAP).await,
        Unread {
            count: 99,
            is_capped: false,
            first
        }
    );
    send(store, group, 102, &ben).await;
    for _ in 0..2 {
        assert_eq!(
            from(0, Unread::CAP).await,
            Unread {
                count: 99,
                is_capped: true,
                first
            }
        );
    }
    assert_eq!(
        from(0, 100).await,
        Unread {
            count: 100,
            is_capped: false,
            first
        }
    );
    assert_eq!(
        from(1, Unread::CAP).await,
        Unread {
            count: 99,
            is_capped: false,
            first: Some(id(2))
        }
    );
}

/// The bound of rows and the greatest cap meet: 999 unread in 999 rows are a count, and in a thousand rows there may be more.
/// A store may continue an earlier count; the answers are those of a new one.
pub async fn counts_follow_a_marker_message_by_message(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let is_unread = |micros: i64| micros % 3 != 0 && micros % 7 != 0;
    let send_from = async |from: i64, to: i64| {
        for micros in from..=to {
            let message = match micros {
                _ if micros % 7 == 0 => system(group, id(micros), &ben),
                _ if micros % 3 == 0 => text(group, id(micros), &ann),
                _ => text(group, id(micros), &ben),
            };
            let appended = store.append_messages(group, &[new(message)]).await;
            appended.unwrap();
        }
    };
    let check = async |after: i64, last: i64, cap: u32| {
        let all: Vec<_> = (after + 1..=last)
            .filter(|micros| is_unread(*micros))
            .collect();
        let expected = Unread {
            count: cap.min(u32::try_from(all.len()).unwrap()),
            is_capped: all.len() > cap as usize,
            first: all.first().map(|micros| id(*micros)),
        };
        let position = id(after).order_key();
        let counted = unread(store, &ann, group, position, cap).await;
        assert_eq!(counted, expected, "after {after}, cap {cap}");
    };
    send_from(1, 40).await;
    for cap in [4, 99] {
        for after in 0..=40 {
            check(after, 40, cap).await;
        }
        for after in (0..=40).rev().step_by(5) {
            check(after, 40, cap).await;
        }
    }
    check(10, 40, 4).await;
    send_from(41, 44).await;
    for after in [10, 11, 15, 38, 44] {
        check(after, 44, 4).await;
    }
}

pub async fn the_greatest_cap_is_counted_exactly(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send_all(store, group, 1..1_000, &ben).await;
    for after in [0, 1] {
        let position = id(after).order_key();
        let counted = unread(store, &ann, group, position, Unread::CAP_MAX).await;
        let expected = Unread {
            count: 999 - u32::try_from(after).unwrap(),
            is_capped: false,
            first: Some(id(after + 1)),
        };
        assert_eq!(counted, expected);
    }
}

pub async fn the_cap_ends_the_count(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send_all(store, group, 1..121, &ben).await;
    for cap in [1, 50, Unread::CAP, 119] {
        let expected = Unread {
            count: cap,
            is_capped: true,
            first: Some(id(1)),
        };
        assert_eq!(
            unread(store, &ann, group, OrderKey::MIN, cap).await,
            expected
        );
    }
    let after = id(20).order_key();
    assert_eq!(
        unread(store, &ann, group, after, 101).await,
        Unread {
            count: 100,
            is_capped: false,
            first: Some(id(21))
        }
    );
    assert_eq!(
        unread(store, &ann, group, after, Unread::CAP_MAX)
            .await
            .count,
        100
    );
}

/// Rows of a conversation that do not count for a user who blocks "cat": a third each deleted, SYSTEM, and hers.
const SILENT: i64 = 2_100;

/// The count after a position, once it is exact: after as many reads as there are thousands of rows.
async fn exact(stage: &Stage, after: i64, ignored: &IgnoredSenders) -> Unread {
    // A store remembers rows that are a minute old.
    stage.clock.set(stage.clock.now().plus_micros(MINUTE));
    let query = UnreadQuery {
        conversation: conversation_id(1),
        after: id(after).order_key(),
        up_to: None,
    };
    let mut counted = Unread::default();
    for _ in 0..=SILENT / 1_000 {
        let (store, ann) = (stage.store(), user("ann"));
        let answer = store.unread(&ann, &[query], 99, ignored).await;
        counted = only(answer.unwrap());
        if !counted.is_capped || counted.count == 99 {
            break;
        }
    }
    counted
}

pub async fn a_count_behind_rows_that_do_not_count_becomes_exact(stage: &Stage) {
    let (store, on) = (stage.store(), conversation_id(1));
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    make(store, on, &[ann, ben.clone(), cat.clone()]).await;
    let rows = (1..=SILENT + 3).map(|micros| {
        let id = id(micros);
        message_row(match micros % 3 {
            _ if micros > SILENT => text(on, id, &ben),
            0 => deleted(on, id, &ben),
            1 => system(on, id, &ben),
            _ => text(on, id, &cat),
        })
    });
    store.import(&rows.collect::<Vec<_>>()).await.unwrap();
    let blocking = IgnoredSenders::of([cat]);
    let some = |count, first| Unread {
        count,
        is_capped: false,
        first: Some(id(first)),
    };
    assert_eq!(exact(stage, 0, &blocking).await, some(3, SILENT + 1));
    send(store, on, SILENT + 4, &ben).await;
    assert_eq!(exact(stage, 0, &blocking).await, some(4, SILENT + 1));
    let (deleted, deletion) = (id(SILENT + 1), Revision::Deletion);
    let revised = revise(store, on, deleted, SILENT + 5, deletion, &ben).await;
    assert!(revised.is_some());
    assert_eq!(exact(stage, 0, &blocking).await, some(3, SILENT + 2));
    // A marker that moves on, and back.
    let later = exact(stage, SILENT + 2, &blocking).await;
    assert_eq!(later, some(2, SILENT + 3));
    assert_eq!(exact(stage, 5, &blocking).await, some(3, SILENT + 2));
    // An unblocked sender counts again.
    let unblocked = Unread {
        count: 99,
        is_capped: true,
        first: Some(id(8)),
    };
    let nobody = IgnoredSenders::default();
    assert_eq!(exact(stage, 5, &nobody).await, unblocked);
    assert_eq!(exact(stage, 5, &blocking).await, some(3, SILENT + 2));
    // A message that comes late, between those that were read.
    let late = id_with(1_000, [0x80, 2, 1, 0, 0, 0, 0, 0]);
    let row = message_row(text(on, late, &ben));
    store.import(&[row]).await.unwrap();
    let with_late = Unread {
        count: 4,
        is_capped: false,
        first: Some(late),
    };
    assert_eq!(exact(stage, 5, &blocking).await, with_late);
}

/// The embedded store remembers in memory how far a count came. A restart costs each reader one capped answer for each
/// thousand rows that do not count, and then one read.
#[tokio::test]
async fn after_a_restart_a_count_is_exact_again_after_a_read_for_each_thousand_rows() {
    let mut stage = Stage::embedded().await.unwrap();
    let on = conversation_id(1);
    let [ann, ben] = users(["ann", "ben"]);
    make(stage.store(), on, &[ann.clone(), ben.clone()]).await;
    let silent = (1..=SILENT).map(|micros| deleted(on, id(micros), &ben));
    let last = text(on, id(SILENT + 1), &ben);
    let rows: Vec<_> = silent.chain([last]).map(message_row).collect();
    stage.store().import(&rows).await.unwrap();
    for _ in 0..2 {
        for is_capped in [true, true, false, false] {
            let counted = unread(stage.store(), &ann, on, OrderKey::MIN, 99).await;
            let count = u32::from(!is_capped);
            assert_eq!((counted.count, counted.is_capped), (count, is_capped));
        }
        stage = stage.reopened().await;
    }
    stage.close().await;
}

pub async fn answers_come_in_the_order_of_their_questions(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in 1..=3 {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
        send_all(
            store,
            conversation_id(number),
            1..i64::from(number) + 1,
            &ben,
        )
        .await;
    }
    let question = |number, micros| UnreadQuery {
        conversation: conversation_id(number),
        after: id(micros).order_key(),
        up_to: None,
    };
    let asked = [
        question(3, 0),
        question(1, 0),
        question(9, 0),
        question(3, 2),
        question(2, 0),
        question(3, 0),
    ];
    let counts: Vec<_> = store
        .unread(&ann, &asked, 99, &IgnoredSenders::default())
        .await
        .unwrap()
        .into_iter()
        .map(|unread| unread.count)
        .collect();
    assert_eq!(counts, [3, 1, 0, 1, 2, 3]);
}

fn move_to(epoch: u64, micros: i64) -> MarkTo {
    MarkTo {
        epoch,
        up_to: id(micros).order_key(),
        receipt: true,
        change: change(1_000 + micros),
    }
}

pub async fn a_marker_is_a_maximum_in_any_order_of_arrival(store: &dyn Store) {
    let people = crowd(33);
    for (number, people) in [(1, &people[..2]), (2, &people[..])] {
        make(store, conversation_id(number), people).await;
        send_all(store, conversation_id(number), 1..10, &people[1]).await;
        let mut greatest = 0;
        for micros in [3, 1, 7, 5, 7, 2] {
            mark(
                store,
                &people[0],
                conversation_id(number),
                move_to(0, micros),
            )
            .await;
            greatest = greatest.max(micros);
            let row = row(store, &people[0], conversation_id(number)).await;
            assert_eq!(
                row.marker,
                ReadMarker {
                    epoch: 0,
                    up_to: id(greatest).order_key()
                }
            );
            assert_eq!(row.read_up_to(), id(greatest).order_key());
            let receipt = participant(store, conversation_id(number), &people[0])
                .await
                .unwrap();
            assert_eq!(receipt.read_up_to, id(greatest).order_key());
        }
        let row = row(store, &people[0], conversation_id(number)).await;
        assert_eq!(
            (row.last_message, row.last_activity),
            (Some(id(9)), START.plus_micros(9)),
            "a mark is no activity"
        );
    }
    // From many devices at once.
    let moves =
        [4, 9, 8, 6].map(|micros| mark(store, &people[0], conversation_id(1), move_to(0, micros)));
    futures_util::future::join_all(moves).await;
    assert_eq!(
        row(store, &people[0], conversation_id(1))
            .await
            .read_up_to(),
        id(9).order_key()
    );
}

pub async fn a_later_epoch_wins(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send_all(store, group, 1..10, &ben).await;
    mark(store, &ann, group, move_to(0, 9)).await;
    let epoch = START.plus_micros(50).micros().cast_unsigned();
    let back = MarkTo {
        receipt: false,
        ..move_to(epoch, 3)
    };
    mark(store, &ann, group, back).await;
    let marker = ReadMarker {
        epoch,
        up_to: id(3).order_key(),
    };
    assert_eq!(row(store, &ann, group).await.marker, marker);
    mark(store, &ann, group, move_to(0, 8)).await;
    mark(store, &ann, group, move_to(epoch - 1, 9)).await;
    assert_eq!(
        row(store, &ann, group).await.marker,
        marker,
        "an earlier epoch comes too late"
    );
    mark(store, &ann, group, move_to(epoch, 5)).await;
    assert_eq!(
        row(store, &ann, group).await.marker.up_to,
        id(5).order_key()
    );
    let far = ReadMarker {
        epoch: u64::MAX,
        up_to: OrderKey::MIN,
    };
    let to = MarkerMove {
        conversation: group,
        marker: far,
        read_up_to: None,
        is_by_service: false,
        change: change(2_000),
    };
    store.move_read_marker(&ann, &to).await.unwrap();
    assert_eq!(row(store, &ann, group).await.marker, far);
}

pub async fn receipts_never_go_back(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send_all(store, group, 1..10, &ben).await;
    let receipt = async || participant(store, group, &ann).await.unwrap().read_up_to;
    mark(store, &ann, group, move_to(0, 6)).await;
    mark(
        store,
        &ann,
        group,
        MarkTo {
            receipt: false,
            ..move_to(40, 2)
        },
    )
    .await;
    assert_eq!(
        row(store, &ann, group).await.marker.up_to,
        id(2).order_key()
    );
    assert_eq!(
        receipt().await,
        id(6).order_key(),
        "marking unread takes no receipt back"
    );
    mark(store, &ann, group, move_to(40, 4)).await;
    assert_eq!(receipt().await, id(6).order_key());
    // A marker that comes too late may still bring a receipt.
    mark(store, &ann, group, move_to(0, 8)).await;
    assert_eq!(receipt().await, id(8).order_key());
    assert_eq!(
        row(store, &ann, group).await.marker,
        ReadMarker {
            epoch: 40,
            up_to: id(4).order_key()
        }
    );
    let page = store
        .participants(group, &wideroom::model::PageRequest::first(9))
        .await
        .unwrap();
    assert_eq!(
        page.items[0].read_up_to,
        id(8).order_key(),
        "lists say the same"
    );
}

pub async fn a_marker_is_its_users_alone(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in [1, 2] {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
        send(store, conversation_id(number), 5, &user("eve")).await;
    }
    mark(store, &ann, conversation_id(1), move_to(0, 5)).await;
    assert!(!row(store, &ann, conversation_id(1)).await.may_be_unread());
    for (user, number) in [(&ben, 1), (&ann, 2), (&ben, 2)] {
        let row = row(store, user, conversation_id(number)).await;
        assert_eq!(row.marker, ReadMarker::default());
        assert!(row.may_be_unread());
        assert_eq!(
            participant(store, conversation_id(number), user)
                .await
                .unwrap()
                .read_up_to,
            OrderKey::MIN
        );
    }
}

pub async fn a_system_message_moves_no_marker(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send(store, group, 1, &ben).await;
    append(store, group, &[new(system(group, id(2), &ann))]).await;
    let row = row(store, &ann, group).await;
    assert_eq!(
        (row.last_message, row.last_activity),
        (Some(id(2)), START.plus_micros(2)),
        "it is activity"
    );
    assert_eq!(
        row.read_up_to(),
        OrderKey::MIN,
        "what came before it is still to be read"
    );
}
