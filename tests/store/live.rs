//! Live messages: writers that claim their numbers, rows of text whose keys hold their extents, registers, and lists by minute.
//!
//! Other cases may share the store, so each live message belongs to a conversation of its case.

use futures_util::future::join_all;
use uuid::Uuid;
use wideroom::model::{
    ConversationId, IdempotencyKey, LiveBody, LiveExtent, LiveKey, LiveMessage, LiveMessageId,
    LiveStart, LiveStatus, LiveStop, LiveText, LiveWriters, MessageStep, MessageStepState,
    MessageSteps, OutboxShard, Timestamp, WriterName, WriterNumber,
};
use wideroom::store::live::{
    DueLiveQuery, LIVE_TEXT_LIFETIME_MICROS, LiveListing, LiveTextQuery, LiveWrite, WriterClaim,
    minute_of,
};
use wideroom::store::{Store, StoreAdmin};

use super::ask::only;
use super::stage::Stage;
use crate::support::words::{NOW, conversation_id, id, is_among_others, user};

fn at(micros: i64) -> Timestamp {
    NOW.plus_micros(micros)
}

fn live(conversation: u8, number: u128) -> LiveKey {
    LiveKey {
        conversation: conversation_id(conversation),
        id: LiveMessageId(Uuid::from_u128(number)),
    }
}

fn key() -> IdempotencyKey {
    IdempotencyKey::parse("answer 1").unwrap()
}

fn start() -> LiveStart {
    LiveStart {
        sender: user("agent"),
        key: key(),
        reply_to: Some(id(5)),
        at: at(1),
    }
}

fn name(text: &str) -> WriterName {
    WriterName::parse(text).unwrap()
}

fn writer(number: u8) -> WriterNumber {
    WriterNumber::new(number).unwrap()
}

fn first_writers() -> LiveWriters {
    let none = LiveWriters::default();
    none.with_writer(name("first"), at(1)).unwrap()
}

async fn begin(store: &dyn Store, live: LiveKey) -> LiveWriters {
    let writers = first_writers();
    let claim = WriterClaim::First {
        start: start(),
        writers: writers.clone(),
    };
    assert!(store.claim_live_writer(live, &claim).await.unwrap());
    writers
}

async fn claim(store: &dyn Store, live: LiveKey, seen: &LiveWriters, to: &LiveWriters) -> bool {
    let claim = WriterClaim::Next {
        seen: seen.clone(),
        to: to.clone(),
    };
    store.claim_live_writer(live, &claim).await.unwrap()
}

async fn read(store: &dyn Store, live: LiveKey) -> Option<LiveMessage> {
    only(store.live_messages(&[live]).await.unwrap())
}

fn touch(number: u8, micros: i64) -> LiveWrite {
    LiveWrite {
        writer: writer(number),
        text: None,
        status: None,
        steps: None,
        at: at(micros),
    }
}

fn row(position: u32, text: &str) -> LiveText {
    LiveText::new(position, text.to_owned()).unwrap()
}

async fn append(store: &dyn Store, live: LiveKey, number: u8, row: LiveText) {
    let write = LiveWrite {
        text: Some(row),
        ..touch(number, 9)
    };
    store.write_live(live, &write).await.unwrap();
}

/// Rows of a writer after an extent.
async fn rows_after(
    store: &dyn Store,
    live: LiveKey,
    number: u8,
    after: LiveExtent,
    limit: usize,
) -> Vec<LiveText> {
    let query = LiveTextQuery {
        live,
        writer: writer(number),
        after,
        limit,
    };
    store.live_texts(&query).await.unwrap()
}

/// The unbroken text of a writer.
async fn text(store: &dyn Store, live: LiveKey, number: u8) -> String {
    let mut body = LiveBody::default();
    for row in rows_after(store, live, number, LiveExtent::up_to(0), 999).await {
        body.append(&row);
    }
    body.as_str().to_owned()
}

fn steps(state: MessageStepState) -> MessageSteps {
    let step = MessageStep {
        key: "search".to_owned(),
        title: "Search the web".to_owned(),
        state,
        detail: Some("42 pages".to_owned()),
    };
    MessageSteps::parse(vec![step]).unwrap()
}

fn status(text: &str) -> Option<LiveStatus> {
    Some(LiveStatus::parse(text).unwrap())
}

pub async fn a_live_message_is_begun_once_and_read_back(store: &dyn StoreAdmin) {
    let (on, other) = (live(1, 7), live(1, 8));
    let writers = begin(store, on).await;
    let begun = LiveMessage {
        key: on,
        start: start(),
        writers,
        touched_at: at(1),
        status: None,
        steps: MessageSteps::default(),
        stop: None,
        discarded_at: None,
    };
    let again = WriterClaim::First {
        start: LiveStart {
            sender: user("another"),
            ..start()
        },
        writers: first_writers(),
    };
    assert!(!store.claim_live_writer(on, &again).await.unwrap());
    let found = store.live_messages(&[other, on, other]).await.unwrap();
    assert_eq!(found, [None, Some(begun), None]);
    assert_eq!(store.live_messages(&[]).await.unwrap(), []);
}

pub async fn a_writer_claims_the_next_number_of_the_list_that_it_saw(store: &dyn StoreAdmin) {
    let on = live(1, 7);
    let one = begin(store, on).await;
    let two = one.with_writer(name("second"), at(2)).unwrap();
    assert!(claim(store, on, &one, &two).await);
    let late = one.with_writer(name("late"), at(3)).unwrap();
    assert!(!claim(store, on, &one, &late).await, "the list has grown");
    let closed = two.closed(at(4)).unwrap();
    assert!(claim(store, on, &two, &closed).await);
    let read_back = read(store, on).await.unwrap();
    assert_eq!(read_back.writers, closed);
    assert_eq!((read_back.start, read_back.touched_at), (start(), at(2)));
    let unbegun = live(1, 8);
    assert!(!claim(store, unbegun, &one, &two).await);
    assert_eq!(read(store, unbegun).await, None);
}

pub async fn one_of_many_concurrent_writers_claims_a_number(store: &dyn StoreAdmin) {
    let on = live(1, 7);
    let mut list = begin(store, on).await;
    for round in 0..3 {
        let next = |number: i64| {
            let name = name(&format!("writer {round} {number}"));
            list.with_writer(name, at(10 + number)).unwrap()
        };
        let lists: Vec<_> = (0..6).map(next).collect();
        let claims = lists.iter().map(|to| claim(store, on, &list, to));
        let claimed = join_all(claims).await;
        let won: Vec<_> = lists.iter().zip(claimed).filter(|(_, won)| *won).collect();
        let (winner, _) = only(won);
        assert_eq!(read(store, on).await.unwrap().writers, *winner);
        list = winner.clone();
    }
}

pub async fn rows_of_text_are_read_by_their_ends(store: &dyn StoreAdmin) {
    let (on, neighbour) = (live(1, 7), live(1, 8));
    begin(store, on).await;
    begin(store, neighbour).await;
    // In the order of their ends, whatever the order of the writes.
    let rows = [
        row(0, "The"),
        row(3, " long"),
        row(0, "The long answer"),
        row(8, " answer"),
        row(15, ", ä"),
    ];
    for index in [3, 0, 4, 2, 1, 0] {
        append(store, on, 1, rows[index].clone()).await;
    }
    append(store, on, 2, row(0, "Another answer")).await;
    append(store, neighbour, 1, row(0, "A neighbour")).await;
    let after = |extent, limit| rows_after(store, on, 1, extent, limit);
    assert_eq!(after(LiveExtent::up_to(0), 99).await, rows);
    assert_eq!(after(LiveExtent::up_to(0), 2).await, rows[..2]);
    assert_eq!(after(rows[2].extent(), 99).await, rows[3..]);
    assert_eq!(after(LiveExtent::up_to(8), 99).await, rows[2..]);
    assert_eq!(after(LiveExtent::up_to(14), 1).await, rows[2..3]);
    assert_eq!(after(LiveExtent::up_to(15), 99).await, rows[4..]);
    assert_eq!(after(LiveExtent::up_to(19), 99).await, []);
    assert_eq!(text(store, on, 1).await, "The long answer, ä");
    assert_eq!(text(store, on, 2).await, "Another answer");
    assert_eq!(text(store, on, 3).await, "");
    assert_eq!(text(store, neighbour, 1).await, "A neighbour");
}

/// A write of unknown outcome, repeated from the same position with more text, takes nothing away whichever arrives last.
pub async fn no_row_of_text_is_rewritten(store: &dyn StoreAdmin) {
    let on = live(1, 7);
    begin(store, on).await;
    for (position, part) in [(0, "Hello"), (5, ", wor"), (5, ", world"), (5, ", ")] {
        append(store, on, 1, row(position, part)).await;
    }
    assert_eq!(text(store, on, 1).await, "Hello, world");
    let ends: Vec<_> = rows_after(store, on, 1, LiveExtent::up_to(5), 99)
        .await
        .iter()
        .map(|row| row.extent().end)
        .collect();
    assert_eq!(ends, [7, 10, 12]);
}

pub async fn the_longest_row_is_read_back(store: &dyn StoreAdmin) {
    let on = live(1, 7);
    begin(store, on).await;
    let longest = "ä".repeat(2_048);
    for index in 0..4 {
        append(store, on, 1, row(index * 4_096, &longest)).await;
    }
    assert_eq!(text(store, on, 1).await, longest.repeat(4));
}

pub async fn status_and_steps_of_the_later_write_stay(store: &dyn StoreAdmin) {
    let on = live(1, 7);
    begin(store, on).await;
    let set = LiveWrite {
        text: Some(row(0, "Well")),
        status: Some(status("thinking")),
        steps: Some(steps(MessageStepState::Running)),
        ..touch(1, 20)
    };
    let silent = touch(1, 30);
    let late = LiveWrite {
        status: Some(status("late")),
        steps: Some(steps(MessageStepState::Failed)),
        ..touch(1, 10)
    };
    for write in [&set, &silent, &late, &set] {
        store.write_live(on, write).await.unwrap();
    }
    let found = read(store, on).await.unwrap();
    assert_eq!(found.status, status("thinking"));
    assert_eq!(found.steps, steps(MessageStepState::Running));
    assert_eq!(found.touched_at, at(30), "a write without text counts");
    let cleared = LiveWrite {
        status: Some(None),
        steps: Some(MessageSteps::default()),
        ..touch(1, 40)
    };
    store.write_live(on, &cleared).await.unwrap();
    let found = read(store, on).await.unwrap();
    assert_eq!(found.status, None);
    assert_eq!(found.steps, MessageSteps::default());
    assert_eq!(text(store, on, 1).await, "Well");
}

pub async fn a_stop_and_a_discard_stand_with_the_live_message(store: &dyn StoreAdmin) {
    let on = live(1, 7);
    begin(store, on).await;
    let stop = |by: &str, micros| LiveStop {
        by: user(by),
        at: at(micros),
    };
    for stop in [stop("ann", 50), stop("ben", 40)] {
        store.stop_live(on, &stop).await.unwrap();
    }
    let found = read(store, on).await.unwrap();
    assert_eq!(found.stop, Some(stop("ann", 50)));
    assert_eq!((found.discarded_at, found.touched_at), (None, at(1)));
    for micros in [70, 60] {
        store.discard_live(on, at(micros)).await.unwrap();
    }
    let found = read(store, on).await.unwrap();
    assert_eq!(found.discarded_at, Some(at(70)));
    assert_eq!(found.stop, Some(stop("ann", 50)));
}

pub async fn a_write_to_a_live_message_that_nobody_began_shows_nowhere(store: &dyn StoreAdmin) {
    let on = live(1, 7);
    append(store, on, 1, row(0, "Well")).await;
    store.discard_live(live(1, 8), at(5)).await.unwrap();
    let found = store.live_messages(&[on, live(1, 8)]).await.unwrap();
    assert_eq!(found, [None, None]);
}

fn listing(live: LiveKey, minute: u32) -> LiveListing {
    LiveListing {
        minute,
        live,
        sender: user("agent"),
        key: key(),
    }
}

pub async fn live_messages_are_listed_by_minute(store: &dyn StoreAdmin) {
    let now = minute_of(NOW);
    let listed = [
        listing(live(1, 9), now),
        listing(live(1, 7), now - 1),
        listing(live(1, 9), now - 1),
        listing(live(1, 8), now - 3),
    ];
    for index in [2, 0, 3, 1, 0] {
        store.list_live(&listed[index], now + 5).await.unwrap();
    }
    store
        .list_live(&listing(live(2, 1), now), now)
        .await
        .unwrap();
    let from = async |minute, limit| {
        let found = store.listed_lives(conversation_id(1), minute, limit);
        found.await.unwrap()
    };
    assert_eq!(from(now - 9, 99).await, listed);
    assert_eq!(from(now - 1, 99).await, listed[..3]);
    assert_eq!(from(now - 9, 2).await, listed[..2]);
    assert_eq!(from(now + 1, 99).await, []);
}

pub async fn due_live_messages_are_listed_by_minute(store: &dyn StoreAdmin) {
    // Conversations of two shards, in minutes of their own.
    let one = conversation_id(1);
    let shard = OutboxShard::of(one);
    let other = (2..)
        .map(conversation_id)
        .find(|id| OutboxShard::of(*id) != shard)
        .unwrap();
    let of = |conversation: ConversationId, number| LiveKey {
        conversation,
        id: LiveMessageId(Uuid::from_u128(number)),
    };
    let first = minute_of(NOW) + 1_000;
    let due = [
        listing(of(one, 2), first),
        listing(of(one, 3), first),
        listing(of(one, 1), first + 20),
        listing(of(one, 2), first + 21),
    ];
    for entry in &due {
        for _ in 0..2 {
            let listed = listing(entry.live, minute_of(NOW));
            store.list_live(&listed, entry.minute).await.unwrap();
        }
    }
    store
        .list_live(&listing(of(other, 2), minute_of(NOW)), first)
        .await
        .unwrap();
    let part = async |(from, up_to): (u32, u32), after: Option<&LiveListing>, limit| {
        let query = DueLiveQuery {
            shard,
            from,
            up_to,
            after: after.map(|entry| (entry.minute, entry.live)),
            limit,
        };
        store.due_lives(&query).await.unwrap()
    };
    let all = (first, first + 30);
    assert_eq!(part(all, None, 99).await, due);
    assert_eq!(part(all, None, 3).await, due[..3]);
    assert_eq!(part(all, Some(&due[0]), 99).await, due[1..]);
    assert_eq!(part(all, Some(&due[1]), 1).await, due[2..3]);
    assert_eq!(part((first, first + 20), None, 99).await, due[..3]);
    assert_eq!(part((first + 1, first + 20), None, 99).await, due[2..3]);
    assert_eq!(part(all, Some(&due[3]), 99).await, []);
}

/// A cluster, which the case may share with others, expires rows by its own clock: no test moves that one.
pub async fn a_live_message_is_forgotten_a_day_after_its_last_write(stage: &Stage) {
    if is_among_others() {
        return;
    }
    let (store, on) = (stage.store(), live(1, 7));
    let writers = begin(store, on).await;
    append(store, on, 1, row(0, "Well")).await;
    store
        .stop_live(
            on,
            &LiveStop {
                by: user("ann"),
                at: at(9),
            },
        )
        .await
        .unwrap();
    stage.clock.set(at(8 + LIVE_TEXT_LIFETIME_MICROS));
    assert_eq!(text(store, on, 1).await, "Well");
    stage.clock.set(at(9 + LIVE_TEXT_LIFETIME_MICROS));
    assert_eq!(read(store, on).await, None);
    assert_eq!(text(store, on, 1).await, "");
    let next = writers.with_writer(name("second"), at(10)).unwrap();
    assert!(!claim(store, on, &writers, &next).await);
    let anew = WriterClaim::First {
        start: LiveStart {
            at: at(9 + LIVE_TEXT_LIFETIME_MICROS),
            ..start()
        },
        writers: LiveWriters::default()
            .with_writer(name("anew"), at(9 + LIVE_TEXT_LIFETIME_MICROS))
            .unwrap(),
    };
    assert!(store.claim_live_writer(on, &anew).await.unwrap());
    assert_eq!(text(store, on, 1).await, "", "its text begins anew");
    assert_eq!(read(store, on).await.unwrap().stop, None);
}

/// A server that polls a live message for its viewers reads the rows that came since, however long the text is.
pub async fn a_poll_of_a_live_message_reads_new_rows_alone(stage: &Stage) {
    let (store, on) = (stage.store(), live(1, 7));
    begin(store, on).await;
    join_all((0..300).map(|index| append(store, on, 1, row(index, "x")))).await;
    let before = stage.rows_read();
    let found = rows_after(store, on, 1, LiveExtent::up_to(298), 99).await;
    assert_eq!(found.len(), 2);
    assert!(read(store, on).await.is_some());
    let rows_read = stage.rows_read() - before;
    assert!(rows_read <= 12, "{rows_read} rows");
}
