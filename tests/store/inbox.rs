//! The inbox: its order, its pages, large conversations in it, and what changed in it.

use proptest::prelude::*;
use tokio::runtime::Runtime;
use wideroom::model::{
    ConversationId, Direction, InboxKey, InboxRow, OrderKey, PageRequest, Timestamp, UserId,
};
use wideroom::store::{ChangedRow, ImportRow, Store, StoreAdmin};

use super::ask::{
    MarkTo, assert_page, inbox, inbox_ids, inbox_order, make, mark, requests, row, runner, send,
    send_all, slice, try_row, walk,
};
use crate::support::words::{
    START, change, conversation_id, crowd, group, group_row, id, participant_row, user, users,
};

pub async fn entries_of_one_moment_are_in_descending_order_of_ids(store: &dyn Store) {
    let ann = user("ann");
    for number in [7, 0x80, 1, 0xff, 0x7f, 2] {
        make(store, conversation_id(number), std::slice::from_ref(&ann)).await;
    }
    assert_eq!(
        inbox_ids(store, &ann).await,
        [0xff, 0x80, 0x7f, 7, 2, 1].map(conversation_id),
        "made at one moment"
    );
    for number in [2, 0x80, 7] {
        send(store, conversation_id(number), 5, &ann).await;
    }
    assert_eq!(
        inbox_ids(store, &ann).await,
        [0x80, 7, 2, 0xff, 0x7f, 1].map(conversation_id),
        "sent at one moment"
    );
}

pub async fn after_thousands_of_sends_each_conversation_stands_once(store: &dyn Store) {
    let people = users(["ann", "ben"]);
    let conversations: Vec<_> = (1..=40).map(conversation_id).collect();
    for conversation in &conversations {
        make(store, *conversation, &people).await;
    }
    let mut last = [0_i64; 40];
    let mut micros = 1;
    for round in 0..30_usize {
        // A step that shares no factor with forty visits all, each time in another order.
        for n in 0..40 {
            let at = (n * 7 + round * 11) % 40;
            if (at + round) % 3 != 0 {
                send_all(store, conversations[at], micros..micros + 4, &people[n % 2]).await;
                last[at] = micros + 3;
                micros += 4;
            }
        }
    }
    assert!(micros > 3_000, "{micros} sends");
    let mut expected: Vec<_> = conversations
        .iter()
        .zip(last)
        .map(|(conversation, last)| (last, *conversation))
        .collect();
    expected.sort_unstable_by(|one, other| other.cmp(one));
    for user in &people {
        let inbox = inbox(store, user).await;
        assert_eq!(
            inbox.iter().map(|row| row.conversation).collect::<Vec<_>>(),
            expected
                .iter()
                .map(|(_, conversation)| *conversation)
                .collect::<Vec<_>>()
        );
        assert!(
            inbox
                .iter()
                .zip(&expected)
                .all(|(row, (last, _))| row.last_message == Some(id(*last)))
        );
    }
}

/// Small and large conversations of one user, sent to by turns. Gives the inbox as it must be.
async fn mixed(store: &dyn Store, people: &[UserId]) -> Vec<(Timestamp, ConversationId)> {
    let sizes = [2, 33, 5, 60, 32, 40, 1, 34];
    for (n, size) in (1..).zip(sizes) {
        make(store, conversation_id(n), &people[..size]).await;
    }
    let mut last = [0; 8];
    for (n, micros) in (0..40_usize).zip(1..) {
        let at = (n * 3 + n / 8) % 7;
        send(
            store,
            conversation_id(u8::try_from(at).unwrap() + 1),
            micros,
            &people[n % sizes[at]],
        )
        .await;
        last[at] = micros;
    }
    let mut expected: Vec<_> = (1..)
        .map(conversation_id)
        .zip(last)
        .map(|(conversation, last)| (START.plus_micros(last), conversation))
        .collect();
    expected.sort_unstable_by(|one, other| other.cmp(one));
    expected
}

pub async fn large_conversations_stand_at_their_place(store: &dyn Store) {
    let people = crowd(60);
    let expected = mixed(store, &people).await;
    let whole = inbox(store, &people[0]).await;
    assert_eq!(
        whole
            .iter()
            .map(|row| (row.last_activity, row.conversation))
            .collect::<Vec<_>>(),
        expected
    );
    for direction in [Direction::Forward, Direction::Backward] {
        for size in 1..=9 {
            let page = async |request: &PageRequest<InboxKey>| {
                store.inbox(&people[0], request).await.unwrap()
            };
            assert_eq!(
                walk(direction, &[size], InboxRow::key, page).await,
                whole,
                "{direction:?} by {size}"
            );
        }
    }
    // One who is in the largest alone sees nothing of the others.
    assert_eq!(inbox_ids(store, &people[59]).await, [conversation_id(4)]);
    assert_eq!(inbox_ids(store, &people[36]).await.len(), 2);
}

pub async fn unasked_large_conversations_hide_none_that_was_answered(store: &dyn Store) {
    let people = crowd(33);
    let ann = &people[32];
    let own = [
        conversation_id(0),
        conversation_id(100),
        conversation_id(250),
    ];
    let unasked: Vec<_> = (0..=250)
        .map(conversation_id)
        .filter(|id| !own.contains(id))
        .take(201)
        .collect();
    for conversation in unasked.iter().chain(&own) {
        make(store, *conversation, &people).await;
    }
    // One was sent to, one was read, one is small.
    send(store, own[0], 5, ann).await;
    send(store, own[1], 6, &people[0]).await;
    mark(store, ann, own[1], MarkTo::read(6, change(7))).await;
    let shown = inbox_ids(store, ann).await;
    assert_eq!(shown.len(), 200);
    assert!(
        own[..2].iter().all(|id| shown.contains(id)),
        "what was answered is shown"
    );
    assert!(
        shown.contains(&own[2]),
        "of the others the greatest ids, where all were joined at once"
    );
    // Hidden in the list, and there by its id: its first answer brings it into the list.
    let hidden = *unasked.iter().find(|id| !shown.contains(id)).unwrap();
    assert_eq!(
        try_row(store, ann, hidden)
            .await
            .map(|row| row.conversation),
        Some(hidden)
    );
    send(store, hidden, 9, ann).await;
    let shown = inbox_ids(store, ann).await;
    assert_eq!((shown.len(), shown[0]), (200, hidden));
}

pub async fn a_large_conversations_sends_show_in_rows_and_changes(store: &dyn Store) {
    let people = crowd(40);
    let [first, second] = [1, 2].map(conversation_id);
    make(store, first, &people).await;
    make(store, second, &people[..2]).await;
    send(store, first, 10, &people[0]).await;
    send(store, second, 20, &people[0]).await;
    send(store, first, 30, &people[5]).await;
    for (user, sent) in [
        (&people[0], Some(id(10))),
        (&people[5], Some(id(30))),
        (&people[39], None),
    ] {
        let row = row(store, user, first).await;
        assert_eq!(
            (row.last_message, row.last_activity, row.sent_up_to),
            (Some(id(30)), START.plus_micros(30), sent)
        );
        assert_eq!(inbox(store, user).await[0], row);
    }
    assert_eq!(
        changes(store, &people[1], id(5).order_key(), 9)
            .await
            .unwrap(),
        [(id(20), second), (id(30), first)]
    );
    assert_eq!(
        changes(store, &people[39], id(29).order_key(), 9)
            .await
            .unwrap(),
        [(id(30), first)]
    );
    assert_eq!(
        changes(store, &people[39], id(30).order_key(), 9)
            .await
            .unwrap(),
        []
    );
}

pub async fn rows_come_in_the_order_of_their_keys(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(1), &[ann.clone(), ben.clone()]).await;
    make(store, conversation_id(2), std::slice::from_ref(&ben)).await;
    make(store, conversation_id(3), std::slice::from_ref(&ann)).await;
    let rows = store
        .inbox_rows(&ann, &[3, 2, 1, 9, 3].map(conversation_id))
        .await
        .unwrap();
    let there: Vec<_> = rows
        .into_iter()
        .map(|row| row.map(|row| row.conversation))
        .collect();
    assert_eq!(
        there,
        [
            Some(conversation_id(3)),
            None,
            Some(conversation_id(1)),
            None,
            Some(conversation_id(3))
        ]
    );
}

pub async fn an_empty_conversation_stands_at_its_making(store: &dyn Store) {
    let ann = user("ann");
    for (number, micros) in [(1, 30), (2, 10), (3, 20)] {
        let mut new = group(conversation_id(number), std::slice::from_ref(&ann));
        new.conversation.created_at = START.plus_micros(micros);
        store.create_conversation(&new).await.unwrap();
    }
    assert_eq!(inbox_ids(store, &ann).await, [1, 3, 2].map(conversation_id));
    let row = row(store, &ann, conversation_id(3)).await;
    assert_eq!(
        (row.last_activity, row.last_message, row.sent_up_to),
        (START.plus_micros(20), None, None)
    );
    assert!(!row.may_be_unread());
}

pub async fn a_stranger_has_no_row(store: &dyn Store) {
    let ann = user("ann");
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    send(store, group, 1, &ann).await;
    for name in ["an", "ann ", "anna", "Ann", "ben"] {
        assert_eq!(try_row(store, &user(name), group).await, None);
        assert!(inbox_ids(store, &user(name)).await.is_empty());
        assert_eq!(
            changes(store, &user(name), OrderKey::MIN, 9).await.unwrap(),
            []
        );
    }
}

async fn changes(
    store: &dyn Store,
    user: &UserId,
    after: OrderKey,
    limit: usize,
) -> Option<Vec<(wideroom::model::TimeUuid, ConversationId)>> {
    let changed = store.inbox_changes(user, after, limit).await.unwrap()?;
    for ChangedRow {
        row: changed,
        conversation,
        ..
    } in &changed
    {
        assert_eq!(
            *changed,
            Some(row(store, user, *conversation).await),
            "the row as it is now"
        );
    }
    Some(
        changed
            .into_iter()
            .map(|changed| (changed.newest_change, changed.conversation))
            .collect(),
    )
}

pub async fn changes_are_ascending_and_complete(store: &dyn Store) {
    let people = users(["ann", "ben"]);
    let ann = &people[0];
    for number in 1..=4 {
        make(store, conversation_id(number), &people).await;
    }
    let mut later = group(conversation_id(5), &people);
    later.change = change(40);
    store.create_conversation(&later).await.unwrap();
    let [first, second, third] = [1, 2, 3].map(conversation_id);
    send(store, first, 50, ann).await;
    send(store, second, 10, &people[1]).await;
    send(store, second, 30, &people[1]).await;
    let to = MarkTo::read(10, change(45));
    mark(store, ann, third, to).await;
    let all = [
        (id(30), second),
        (change(40), conversation_id(5)),
        (change(45), third),
        (id(50), first),
    ];
    assert_eq!(
        changes(store, ann, id(20).order_key(), 9).await.unwrap(),
        all,
        "a row stands once, at its newest change"
    );
    assert_eq!(
        changes(store, ann, id(30).order_key(), 9).await.unwrap(),
        all[1..],
        "after a position is not at it"
    );
    assert_eq!(
        changes(store, ann, id(50).order_key(), 9).await.unwrap(),
        []
    );
    assert_eq!(
        changes(store, &people[1], change(40).order_key(), 9)
            .await
            .unwrap(),
        [(id(50), first)],
        "another's marker is theirs"
    );
    assert_eq!(
        changes(store, ann, OrderKey::MIN, 9).await.unwrap().len(),
        5
    );
}

pub async fn changes_above_the_limit_are_none(store: &dyn Store) {
    let ann = user("ann");
    for number in 1..=12 {
        make(store, conversation_id(number), std::slice::from_ref(&ann)).await;
        send_all(
            store,
            conversation_id(number),
            i64::from(number) * 10..i64::from(number) * 10 + 5,
            &ann,
        )
        .await;
    }
    let after = change(0).order_key();
    assert_eq!(changes(store, &ann, after, 11).await, None);
    assert_eq!(changes(store, &ann, after, 12).await.unwrap().len(), 12);
    assert_eq!(
        changes(store, &ann, id(94).order_key(), 3)
            .await
            .unwrap()
            .len(),
        3
    );
    assert_eq!(changes(store, &ann, id(94).order_key(), 2).await, None);
}

/// Inboxes of few moments, so that many entries share one.
fn any_inbox() -> impl Strategy<Value = Vec<(u8, i64)>> {
    prop::collection::btree_map(any_number(), 0..6_i64, 0..24)
        .prop_map(|conversations| conversations.into_iter().collect())
}

/// Few enough that a key often is that of an entry.
fn any_number() -> impl Strategy<Value = u8> + Clone {
    (0..32_u8).prop_map(|n| n * 8 + n % 3)
}

fn any_key() -> impl Strategy<Value = InboxKey> + Clone {
    (any_number(), -1..7_i64).prop_map(|(number, micros)| InboxKey {
        activity: START.plus_micros(micros),
        conversation: conversation_at(number, micros),
    })
}

/// A user of their own for each case, with these conversations, of which every fifth is large.
async fn prepare(store: &dyn StoreAdmin, entries: &[(u8, i64)]) -> (UserId, Vec<InboxRow>) {
    let ann = user(&format!("ann {}", uuid::Uuid::new_v4()));
    // The numbers are shared by all cases: what is there stays, and only the new participant comes.
    let mut rows: Vec<ImportRow> = Vec::new();
    for (number, micros) in entries {
        let conversation = conversation_at(*number, *micros);
        rows.push(group_row(conversation, Some(START.plus_micros(*micros))));
        if number % 5 == 0 {
            rows.extend(
                crowd(33)
                    .iter()
                    .map(|user| participant_row(conversation, user)),
            );
        }
        rows.push(participant_row(conversation, &ann));
    }
    store.import(&rows).await.unwrap();
    let mut list = Vec::new();
    for (number, micros) in entries {
        list.push(row(store, &ann, conversation_at(*number, *micros)).await);
    }
    list.sort_by_key(|row| inbox_order(&row.key()));
    (ann, list)
}

/// A conversation for each number and moment, so that cases do not get in each other's way.
fn conversation_at(number: u8, micros: i64) -> ConversationId {
    let mut bytes = *conversation_id(number).0.as_bytes();
    bytes[15] = micros.to_le_bytes()[0];
    ConversationId(uuid::Uuid::from_bytes(bytes))
}

pub fn pages_tile_the_inbox(runtime: &Runtime, store: &dyn StoreAdmin) {
    let sizes = prop::collection::vec(1..7_usize, 1..5);
    let outcome = runner(32).run(&(any_inbox(), sizes), |(entries, sizes)| {
        runtime.block_on(async {
            let (user, expected) = prepare(store, &entries).await;
            for direction in [Direction::Forward, Direction::Backward] {
                let page = async |request: &PageRequest<InboxKey>| {
                    store.inbox(&user, request).await.unwrap()
                };
                assert_eq!(
                    walk(direction, &sizes, InboxRow::key, page).await,
                    expected,
                    "{direction:?}"
                );
            }
        });
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}

pub fn an_inbox_page_is_the_slice_of_its_list(runtime: &Runtime, store: &dyn StoreAdmin) {
    let asked = prop::collection::vec(requests(any_key()), 1..12);
    let outcome = runner(32).run(&(any_inbox(), asked), |(entries, asked)| {
        runtime.block_on(async {
            let (user, list) = prepare(store, &entries).await;
            for request in asked {
                let answer = store.inbox(&user, &request).await.unwrap();
                let expected = slice(&list, |row| inbox_order(&row.key()), inbox_order, &request);
                assert_page(&request, &answer, &expected);
            }
        });
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}
