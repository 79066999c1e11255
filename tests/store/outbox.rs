//! The outbox: rows that name the events of each write, by shard and position.

use std::collections::{BTreeMap, BTreeSet};

use wideroom::model::{
    ChangeKind, ConversationId, Emoji, GroupName, Mentions, OrderKey, OutboxEvent, OutboxEventKind,
    OutboxRow, OutboxShard, Revision, TimeUuid,
};
use wideroom::store::{
    DeadLetter, HeldPosition, NewConversation, OutboxPage, OutboxRead, ReaderLease, ReaderPosition,
    Renaming, Store, StoreAdmin,
};

use super::ask::{PAGES_MAX, append, make, send};
use super::membership::{changing, joins, leaves};
use crate::support::words::{
    HOUR, START, change, change_of, content, conversation_id, group, id, new, system, text, users,
};

/// All rows of some conversations, by shard, in pages of about `limit` rows, after one position and
/// up to another. Other cases may share the store.
async fn rows_of(
    store: &dyn Store,
    conversations: &[ConversationId],
    (after, up_to): (OrderKey, OrderKey),
    limit: usize,
) -> BTreeMap<OutboxShard, Vec<OutboxRow>> {
    let mut found: BTreeMap<_, Vec<OutboxRow>> = BTreeMap::new();
    let mut reads: Vec<_> = OutboxShard::all()
        .map(|shard| OutboxRead { shard, after })
        .collect();
    for _ in 0..PAGES_MAX {
        if reads.is_empty() {
            return found;
        }
        let pages = store.outbox(&reads, up_to, limit).await.unwrap();
        assert_eq!(pages.len(), reads.len());
        for (read, OutboxPage { rows, read_to }) in reads.iter_mut().zip(pages) {
            assert!(read_to > read.after && read_to <= up_to, "a page moves on");
            for row in &rows {
                let position = row.id.order_key();
                assert!(position > read.after && position <= read_to, "{row:?}");
                assert_eq!(row.shard(), read.shard);
            }
            assert!(rows.is_sorted_by_key(|row| row.id));
            let own = rows
                .into_iter()
                .filter(|row| conversations.contains(&row.conversation));
            found.entry(read.shard).or_default().extend(own);
            read.after = read_to;
        }
        reads.retain(|read| read.after < up_to);
    }
    panic!("the pages have no end");
}

/// Positions around the times of the cases.
fn everything() -> (OrderKey, OrderKey) {
    let minute = 60_000_000;
    (
        OrderKey::first_at(START.plus_micros(-minute)),
        OrderKey::first_at(START.plus_micros(HOUR)),
    )
}

/// The events of a conversation, in their order. A row that comes twice counts once.
pub async fn events_of(store: &dyn Store, conversation: ConversationId) -> Vec<OutboxEvent> {
    let rows = rows_of(store, &[conversation], everything(), 100).await;
    let rows: BTreeMap<TimeUuid, OutboxRow> = rows
        .into_values()
        .flatten()
        .map(|row| (row.id, row))
        .collect();
    rows.into_values().flat_map(|row| row.events).collect()
}

pub async fn a_store_without_an_outbox_has_no_rows(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    store.set_outbox(None).await.unwrap();
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben]).await;
    send(store, group, 1, &ann).await;
    assert_eq!(events_of(store, group).await, []);
    store.set_outbox(Some(START)).await.unwrap();
    send(store, group, 2, &ann).await;
    store.set_outbox(None).await.unwrap();
    send(store, group, 3, &ann).await;
    assert_eq!(
        events_of(store, group).await,
        [OutboxEvent::message_added(id(2))],
        "the rows of the time when it was on stay"
    );
}

pub async fn every_write_with_events_has_a_row(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    store.set_outbox(Some(START)).await.unwrap();
    let on = conversation_id(1);
    make(store, on, &[ann.clone(), ben.clone()]).await;
    make(store, conversation_id(2), std::slice::from_ref(&ann)).await;
    let batch: Vec<_> = (1..=3).map(|at| new(text(on, id(at), &ann))).collect();
    append(store, on, &batch).await;
    let done = |micros, kind, message| change_of(change(micros), kind, message, &ann);
    let edited = done(4, ChangeKind::MessageEdited, id(1));
    let edit = Revision::Edit {
        content: content("better"),
        newly_mentioned: Mentions::new(vec![cat.clone()], false),
    };
    store.revise_message(on, &edit, &edited).await.unwrap();
    let emoji = Emoji::parse("👍").unwrap();
    let reacted = done(5, ChangeKind::ReactionsChanged, id(2));
    store.react(on, &emoji, true, &reacted).await.unwrap();
    let pinned = done(8, ChangeKind::PinsChanged, id(2));
    store.pin_message(on, true, &pinned).await.unwrap();
    let deleted = done(6, ChangeKind::MessageDeleted, id(1));
    let deletion = Revision::Deletion;
    store.revise_message(on, &deletion, &deleted).await.unwrap();
    let again = done(7, ChangeKind::MessageDeleted, id(1));
    store.revise_message(on, &deletion, &again).await.unwrap();
    let joining = changing(on, 20, Some(change(0)), &[joins(&cat, 20)]);
    assert!(
        store
            .change_membership(on, &joining)
            .await
            .unwrap()
            .is_some()
    );
    let leaving = changing(on, 30, Some(id(20)), &[leaves(&cat, 30)]);
    assert!(
        store
            .change_membership(on, &leaving)
            .await
            .unwrap()
            .is_some()
    );
    let stale = changing(on, 40, Some(id(20)), &[joins(&cat, 40)]);
    assert!(store.change_membership(on, &stale).await.unwrap().is_none());
    let renamed = change_of(id(49), ChangeKind::ConversationRenamed, id(50), &ann);
    let renaming = Renaming {
        name: GroupName::parse("new").unwrap(),
        change: renamed,
        message: std::sync::Arc::new(system(on, id(50), &ann)),
    };
    store.rename_conversation(on, &renaming).await.unwrap();

    let added = |at| OutboxEvent::message_added(id(at));
    let of_participant = |at, kind, message| OutboxEvent {
        id: id(at),
        kind,
        message: id(message),
        user: Some(cat.clone()),
        newly_mentioned: Mentions::NONE,
    };
    let expected = [
        OutboxEvent::conversation_created(change(0)),
        added(1),
        added(2),
        added(3),
        OutboxEvent::of_revision(&edited, &edit),
        OutboxEvent::of_change(&reacted),
        OutboxEvent::of_change(&deleted),
        OutboxEvent::of_change(&pinned),
        of_participant(19, OutboxEventKind::ParticipantAdded, 20),
        added(20),
        of_participant(29, OutboxEventKind::ParticipantRemoved, 30),
        added(30),
        OutboxEvent {
            id: id(49),
            kind: OutboxEventKind::ConversationRenamed,
            message: id(50),
            user: None,
            newly_mentioned: Mentions::NONE,
        },
        added(50),
    ];
    assert_eq!(events_of(store, on).await, expected);
    assert_eq!(
        events_of(store, conversation_id(2)).await,
        [OutboxEvent::conversation_created(change(0))]
    );
}

pub async fn a_repeated_write_adds_no_event(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    store.set_outbox(Some(START)).await.unwrap();
    let on = conversation_id(1);
    make(store, on, &[ann.clone(), ben]).await;
    let batch: Vec<_> = (1..=2).map(|at| new(text(on, id(at), &ann))).collect();
    for _ in 0..2 {
        append(store, on, &batch).await;
    }
    let joining = changing(on, 20, Some(change(0)), &[joins(&users(["cat"])[0], 20)]);
    for _ in 0..2 {
        store.change_membership(on, &joining).await.unwrap();
    }
    let found: Vec<_> = events_of(store, on)
        .await
        .iter()
        .map(|event| event.id)
        .collect();
    assert_eq!(found, [change(0), id(1), id(2), id(19), id(20)]);
}

pub async fn rows_are_read_in_pages_from_any_position(store: &dyn StoreAdmin) {
    let [ann] = users(["ann"]);
    store.set_outbox(Some(START)).await.unwrap();
    let all: Vec<_> = (0..20).map(conversation_id).collect();
    for (conversation, number) in all.iter().zip(1..) {
        // A page ends between two ids: those of the other cases are alike, as ids of servers never are.
        let made = NewConversation {
            change: change(-number),
            ..group(*conversation, std::slice::from_ref(&ann))
        };
        store.create_conversation(&made).await.unwrap();
    }
    // Minutes apart, so that the rows of a cluster lie in several partitions.
    let times = [5_001, 5_002, 5_003, 70_000_001, 70_000_002, 700_000_001];
    for at in times {
        for (conversation, number) in all.iter().zip(0..) {
            send(store, *conversation, at + 10 * number, &ann).await;
        }
    }
    let (start, end) = everything();
    let whole = rows_of(store, &all, (start, end), 1_000).await;
    assert_eq!(
        whole.values().map(Vec::len).sum::<usize>(),
        all.len() * (1 + times.len())
    );
    for limit in [8, 20] {
        assert_eq!(
            rows_of(store, &all, (start, end), limit).await,
            whole,
            "{limit}"
        );
    }
    for at in [id(5_012), change(5_012), id(70_000_051), id(700_000_000)] {
        let at = at.order_key();
        let before = rows_of(store, &all, (start, at), 20).await;
        let after = rows_of(store, &all, (at, end), 20).await;
        for (shard, rows) in &whole {
            let of = |part: &BTreeMap<_, Vec<OutboxRow>>| part.get(shard).cloned();
            let parts: Vec<_> = [of(&before), of(&after)]
                .into_iter()
                .flatten()
                .flatten()
                .collect();
            assert_eq!(&parts, rows, "{at:?}");
        }
    }
}

pub async fn the_time_of_the_switch_is_read_back(store: &dyn StoreAdmin) {
    for since in [Some(START), None, Some(START.plus_micros(5)), None] {
        store.set_outbox(since).await.unwrap();
        if crate::support::words::is_among_others() {
            // Another case may have switched it meanwhile.
            store.outbox_since().await.unwrap();
        } else {
            assert_eq!(store.outbox_since().await.unwrap(), since);
        }
    }
}

pub async fn conversations_are_found_whoever_takes_part(store: &dyn StoreAdmin) {
    let [ann] = users(["ann"]);
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    let ids = [conversation_id(2), group, conversation_id(3)];
    let found = store.conversations(&ids).await.unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|found| found.as_ref().map(|found| found.id))
        .collect();
    assert_eq!(found, [None, Some(group), None]);
}

/// A reader that no other case has: cases may share the store.
fn reader_of_its_own() -> String {
    format!("reader-{}", uuid::Uuid::new_v4())
}

pub async fn one_of_several_servers_advances_a_reader(store: &dyn StoreAdmin) {
    let (reader, other) = (reader_of_its_own(), reader_of_its_own());
    let shard = OutboxShard::all().nth(5).unwrap();
    let of = async |reader: &str| store.reader_positions(reader).await.unwrap();
    assert_eq!(of(&reader).await, vec![None; 16]);
    let free = ReaderPosition {
        position: OrderKey::first_at(START),
        held: Vec::new(),
        lease: None,
    };
    let held = |holder, seconds: i64| ReaderPosition {
        held: vec![HeldPosition {
            conversation: conversation_id(1),
            position: OrderKey::first_at(START.plus_micros(-seconds)),
        }],
        lease: Some(ReaderLease {
            holder: uuid::Uuid::from_u128(holder),
            until: START.plus_micros(seconds * 1_000_000),
        }),
        ..free.clone()
    };
    let swap = async |seen: Option<&ReaderPosition>, to: &ReaderPosition| {
        let swapped = store.swap_reader_position(&reader, shard, seen, to).await;
        swapped.unwrap()
    };
    assert!(swap(None, &free).await);
    assert!(!swap(None, &held(1, 1)).await, "there is a position");
    assert!(swap(Some(&free), &held(1, 1)).await);
    assert!(
        !swap(Some(&free), &held(2, 1)).await,
        "the other was faster"
    );
    assert!(!swap(Some(&held(1, 2)), &free).await);
    assert!(swap(Some(&held(1, 1)), &held(1, 2)).await);
    let mut expected = vec![None; 16];
    expected[5] = Some(held(1, 2));
    assert_eq!(of(&reader).await, expected);
    assert_eq!(of(&other).await, vec![None; 16]);
}

pub async fn dead_letters_are_listed_by_age_and_deleted(store: &dyn StoreAdmin) {
    let (reader, other) = (reader_of_its_own(), reader_of_its_own());
    let letter = |micros, part: &str, tries| DeadLetter {
        conversation: conversation_id(1),
        event: OutboxEvent::message_added(id(micros)),
        part: part.to_owned(),
        died_at: START.plus_micros(micros + i64::from(tries)),
        tries,
        reason: "it answers 404".to_owned(),
    };
    let [young, old, of_part] = [
        letter(30, "", 3),
        letter(10, "", 3),
        letter(20, "notification", 3),
    ];
    for letter in [&young, &old, &of_part] {
        store.put_dead_letter(&reader, letter).await.unwrap();
    }
    let listed = async |limit| store.dead_letters(&reader, limit).await.unwrap();
    assert_eq!(
        listed(10).await,
        [old.clone(), of_part.clone(), young.clone()]
    );
    assert_eq!(listed(2).await, [old.clone(), of_part.clone()]);
    let again = letter(10, "", 6);
    store.put_dead_letter(&reader, &again).await.unwrap();
    store.delete_dead_letter(&reader, &of_part).await.unwrap();
    assert_eq!(listed(10).await, [again, young]);
    assert_eq!(store.dead_letters(&other, 10).await.unwrap(), []);
}

/// All events of these conversations, as a set: for the comparison of two engines.
pub async fn all_events(store: &dyn Store, conversations: &[ConversationId]) -> BTreeSet<String> {
    let rows = rows_of(store, conversations, everything(), 500).await;
    rows.into_values()
        .flatten()
        .flat_map(|row| {
            let conversation = row.conversation;
            row.events
                .into_iter()
                .map(move |event| format!("{conversation} {event:?}"))
        })
        .collect()
}
