//! The queue of a shard: order within a conversation, and a position that never passes an undelivered event.

use std::time::Duration;

use uuid::Uuid;

use super::super::retry::{RetryPolicy, Verdict};
use super::*;
use crate::chat::NotificationPiece;
use crate::model::{OutboxEvent, TimeUuid, Timestamp, UserId};
use crate::store::HELD_POSITIONS_MAX;

fn id(micros: i64) -> TimeUuid {
    TimeUuid::new(Timestamp::from_micros(micros), [0; 8])
}

fn conversation(number: u128) -> ConversationId {
    ConversationId(Uuid::from_u128(number))
}

/// A batch of messages, each by its conversation and time.
fn batch(messages: &[(u128, i64)], completed_to: Option<i64>) -> FeedBatch {
    let row = |(number, micros): &(u128, i64)| OutboxRow {
        id: id(*micros),
        conversation: conversation(*number),
        events: vec![OutboxEvent::message_added(id(*micros))],
    };
    FeedBatch {
        rows: messages.iter().map(row).collect(),
        completed_to: completed_to.map(|micros| id(micros).order_key()),
    }
}

/// The rows of a shard up to a time.
fn page(messages: &[(u128, i64)], read_to: i64) -> OutboxPage {
    OutboxPage {
        rows: batch(messages, None).rows,
        read_to: id(read_to).order_key(),
    }
}

fn queue(read_to: i64) -> DeliveryQueue {
    DeliveryQueue::new(id(read_to).order_key(), &[])
}

fn done(queue: &mut DeliveryQueue, taken: &EventDelivery) {
    queue.settle(
        taken,
        Settlement::Done,
        FailureRecord::default(),
        false,
        Instant::now(),
    );
}

/// The receiver fails, and the event is to be tried again at a time.
fn fail(queue: &mut DeliveryQueue, taken: &EventDelivery, at: Instant, is_silent: bool) {
    let mut record = taken.record;
    let verdict = RetryPolicy::default().failed(&mut record, Instant::now(), None);
    assert!(matches!(verdict, Verdict::Again(_)));
    queue.settle(
        taken,
        Settlement::Again { at, is_silent },
        record,
        false,
        Instant::now(),
    );
}

fn micros(delivery: &EventDelivery) -> i64 {
    delivery.item.event.id.moment().micros()
}

#[tokio::test(start_paused = true)]
async fn one_event_of_a_conversation_at_a_time_in_order() {
    let now = Instant::now();
    let mut queue = queue(1);
    queue.add(
        batch(&[(1, 10), (2, 20), (1, 30)], Some(40)),
        &OutboxTypes::default(),
    );
    assert_eq!(queue.position(), id(10).order_key().before());
    let first = queue.take(now).unwrap();
    let other = queue.take(now).unwrap();
    assert_eq!((micros(&first), micros(&other)), (10, 20));
    assert!(queue.take(now).is_none(), "10 is under way");
    done(&mut queue, &other);
    assert_eq!(queue.position(), id(10).order_key().before());
    done(&mut queue, &first);
    assert_eq!(queue.position(), id(30).order_key().before());
    let last = queue.take(now).unwrap();
    assert_eq!(micros(&last), 30);
    done(&mut queue, &last);
    assert_eq!((queue.position(), queue.len()), (id(40).order_key(), 0));
    assert_eq!(queue.next_due(now), None);
}

#[tokio::test(start_paused = true)]
async fn a_failed_event_comes_again_and_blocks_only_its_conversation() {
    let now = Instant::now();
    let later = now + Duration::from_secs(5);
    let mut queue = queue(1);
    queue.add(
        batch(&[(1, 10), (1, 11), (2, 20)], None),
        &OutboxTypes::default(),
    );
    let first = queue.take(now).unwrap();
    fail(&mut queue, &first, later, true);
    let other = queue.take(now).unwrap();
    assert_eq!(micros(&other), 20);
    done(&mut queue, &other);
    assert_eq!(queue.next_due(now), Some(later));
    assert!(queue.take(now).is_none());
    assert_eq!(queue.position(), id(10).order_key().before());
    queue.wake_silent();
    let again = queue.take(now).unwrap();
    assert_eq!((micros(&again), again.record.failures), (10, 1));
    fail(&mut queue, &again, later, false);
    queue.wake_silent();
    assert!(queue.take(now).is_none(), "it was answered");
    let again = queue.take(later).unwrap();
    assert_eq!((micros(&again), again.record.failures), (10, 2));
    done(&mut queue, &again);
    assert!(queue.take(later).is_none(), "the next one is read again");
    let rows = page(&[(1, 10), (1, 11), (2, 20)], 20);
    queue.catch_up(id(10).order_key(), rows, &OutboxTypes::default());
    let next = queue.take(later).unwrap();
    assert_eq!((micros(&next), next.record.failures), (11, 0));
}

#[tokio::test(start_paused = true)]
async fn other_kinds_are_passed_over_and_late_rows_hold_the_position() {
    let now = Instant::now();
    let mut queue = queue(1);
    let edits = OutboxTypes::parse(&["MESSAGE_EDITED".to_owned()]).unwrap();
    queue.add(batch(&[(1, 10)], Some(15)), &edits);
    assert_eq!((queue.len(), queue.position()), (0, id(15).order_key()));
    queue.add(batch(&[(1, 12)], None), &OutboxTypes::default());
    assert_eq!(queue.position(), id(12).order_key().before());
    let late = queue.take(now).unwrap();
    done(&mut queue, &late);
    assert_eq!(queue.position(), id(15).order_key());
}

#[tokio::test(start_paused = true)]
async fn a_next_piece_takes_the_place_of_the_one_before() {
    let now = Instant::now();
    let mut queue = queue(1);
    let types = OutboxTypes::parse(&["NOTIFICATION".to_owned()]).unwrap();
    queue.add(batch(&[(1, 10), (1, 30)], Some(40)), &types);
    let first = queue.take(now).unwrap();
    let piece = NotificationPiece {
        after: Some(UserId::parse("mia").unwrap()),
    };
    let next = OutboxItem {
        piece: Some(piece.clone()),
        ..first.item.clone()
    };
    let record = FailureRecord::default();
    queue.settle(
        &first,
        Settlement::Next(next),
        record,
        false,
        Instant::now(),
    );
    assert_eq!(
        (queue.len(), queue.position()),
        (2, id(10).order_key().before())
    );
    let second = queue.take(now).unwrap();
    assert_eq!((micros(&second), &second.item.piece), (10, &Some(piece)));
    assert_ne!(first.item.id(), second.item.id());
    assert!(queue.take(now).is_none(), "one piece at a time");
    done(&mut queue, &second);
    assert_eq!(micros(&queue.take(now).unwrap()), 30);
    assert_eq!(queue.position(), id(30).order_key().before());
}

/// A shard, the queue that delivers it, and a receiver that takes some conversations' events.
struct Shard {
    rows: std::collections::BTreeMap<i64, u128>,
    queue: DeliveryQueue,
    saved: SavedPosition,
    running: Vec<EventDelivery>,
    delivered: Vec<(u128, i64)>,
    fed_to: i64,
    now: Instant,
}

impl Shard {
    fn new(rows: impl IntoIterator<Item = (u128, i64)>) -> Self {
        Self {
            rows: rows
                .into_iter()
                .map(|(number, micros)| (micros, number))
                .collect(),
            queue: queue(0),
            saved: SavedPosition {
                position: id(0).order_key(),
                held: Vec::new(),
            },
            running: Vec::new(),
            delivered: Vec::new(),
            fed_to: 0,
            now: Instant::now(),
        }
    }

    fn between(&self, after: i64, to: i64, limit: usize) -> Vec<(u128, i64)> {
        let rows = self.rows.range(after + 1..=to).take(limit);
        rows.map(|(micros, number)| (*number, *micros)).collect()
    }

    /// Feeds the next rows, if the queue has room.
    fn feed(&mut self, limit: usize) {
        if !self.queue.has_room() {
            return;
        }
        let rows = self.between(self.fed_to, i64::MAX, limit);
        if let Some((_, last)) = rows.last() {
            self.fed_to = *last;
        }
        self.queue.add(batch(&rows, None), &OutboxTypes::default());
    }

    /// Reads again what was passed over, one page of it.
    fn read_again(&mut self, limit: usize) -> bool {
        let Some((after, end)) = self.queue.wants() else {
            return false;
        };
        let (from, to) = (after.moment().micros(), end.moment().micros());
        // A position may lie just before the row of its time.
        let rows = self.between(from - 1, to, limit);
        let read_to = match rows.last() {
            Some((_, last)) if rows.len() == limit => id(*last).order_key(),
            Some(_) | None => end,
        };
        let page = OutboxPage {
            read_to,
            ..page(&rows, 0)
        };
        self.queue.catch_up(after, page, &OutboxTypes::default());
        true
    }

    fn settle(&mut self, taken: &EventDelivery, is_taken: bool, is_slow: bool) {
        if is_taken {
            self.delivered
                .push((taken.conversation.0.as_u128(), micros(taken)));
            let record = FailureRecord::default();
            self.queue
                .settle(taken, Settlement::Done, record, is_slow, self.now);
        } else {
            let mut record = taken.record;
            RetryPolicy::default().failed(&mut record, self.now, None);
            let (at, is_silent) = (self.now + Duration::from_secs(60), false);
            let again = Settlement::Again { at, is_silent };
            self.queue.settle(taken, again, record, is_slow, self.now);
        }
    }

    /// Feeds and delivers until nothing more can be done now.
    fn run(&mut self, mut takes: impl FnMut(u128) -> bool) {
        let mut is_busy = true;
        while is_busy {
            let fed_to = self.fed_to;
            self.feed(100);
            is_busy = self.fed_to > fed_to || self.read_again(64);
            while let Some(taken) = self.queue.take(self.now) {
                is_busy = true;
                let is_taken = takes(taken.conversation.0.as_u128());
                self.settle(&taken, is_taken, false);
            }
            assert!(self.queue.len() < EVENTS_MAX + 100);
        }
    }

    /// Begins anew from the position that was saved.
    fn restart(&mut self) {
        self.queue = DeliveryQueue::new(self.saved.position, &self.saved.held);
        let is_before = |micros: &&i64| id(**micros).order_key() <= self.saved.position;
        self.fed_to = self.rows.keys().rfind(is_before).copied().unwrap_or(0);
        self.running.clear();
    }

    fn save(&mut self) {
        self.saved = self.queue.saved(self.saved.position, HELD_POSITIONS_MAX);
        assert!(self.saved.held.len() <= HELD_POSITIONS_MAX);
    }

    fn delivered_of(&self, number: u128) -> Vec<i64> {
        let own = self.delivered.iter().filter(|(one, _)| *one == number);
        own.map(|(_, micros)| *micros).collect()
    }
}

#[test]
fn a_conversation_that_fails_stops_no_other_one_however_many_events_it_has() {
    let flood = (1..=2_000).map(|micros| (1, micros));
    let others = (2_001..=2_064).map(|micros| (u128::try_from(micros).unwrap(), micros));
    let mut shard = Shard::new(flood.chain(others));
    shard.run(|number| number != 1);
    assert_eq!(shard.delivered.len(), 64, "all of the others");
    assert_eq!((shard.queue.len(), shard.queue.held()), (1, 1));
    assert_eq!(shard.queue.position(), id(1).order_key().before());
    shard.save();
    assert_eq!(shard.saved.position, id(2_064).order_key());
    let held = [HeldPosition {
        conversation: conversation(1),
        position: id(1).order_key().before(),
    }];
    assert_eq!(shard.saved.held, held);
    shard.restart();
    shard.run(|_| true);
    assert_eq!(shard.delivered.len(), 2_064, "a restart repeats nothing");
    assert!(shard.delivered_of(1).is_sorted());
    shard.save();
    assert!(shard.saved.held.is_empty());
}

/// A shard with an event each of eight slow conversations, and one of another.
fn shard_with_slow_conversations() -> Shard {
    let mut shard = Shard::new((1..=8).map(|micros| (u128::try_from(micros).unwrap(), micros)));
    shard.feed(100);
    while let Some(taken) = shard.queue.take(shard.now) {
        shard.settle(&taken, true, true);
    }
    assert_eq!(shard.delivered.len(), 8);
    shard
        .rows
        .extend((9..=16).map(|micros| (micros, u128::try_from(micros - 8).unwrap())));
    shard.rows.insert(17, 17);
    shard.feed(100);
    shard
}

#[test]
fn slow_conversations_have_one_lane_behind_all_others() {
    let mut shard = shard_with_slow_conversations();
    let fast = shard.queue.take(shard.now).unwrap();
    assert_eq!(micros(&fast), 17, "before those that came earlier");
    shard.settle(&fast, true, false);
    let slow = shard.queue.take(shard.now).unwrap();
    assert!(shard.queue.take(shard.now).is_none(), "one at a time");
    assert_eq!(shard.queue.next_due(shard.now), None);
    shard.settle(&slow, true, false);
    let next = shard.queue.take(shard.now).unwrap();
    assert_ne!(next.conversation, slow.conversation);
}

/// One lane for all of them would be a quarter of what such a receiver takes.
#[test]
fn a_receiver_that_is_slow_for_all_has_every_lane_but_one() {
    let mut shard = shard_with_slow_conversations();
    let fast = shard.queue.take(shard.now).unwrap();
    shard.settle(&fast, true, false);
    let mut slow = vec![shard.queue.take(shard.now).unwrap()];
    shard.now += FAST_FOR;
    slow.extend(std::iter::from_fn(|| shard.queue.take(shard.now)));
    assert_eq!(slow.len(), LANES - 1);
    // Once it is fast for somebody, the others wait for one another again.
    shard.rows.insert(18, 18);
    shard.feed(100);
    let fast = shard.queue.take(shard.now).unwrap();
    assert_eq!(micros(&fast), 18, "a lane is free");
    shard.settle(&fast, true, false);
    for taken in &slow[1..] {
        shard.settle(taken, true, true);
    }
    assert!(shard.queue.take(shard.now).is_none(), "one is running");
    shard.settle(&slow[0], true, true);
    assert!(shard.queue.take(shard.now).is_some());
}

#[test]
fn more_held_conversations_than_positions_hold_back_the_shard() {
    let rows = (1..=200).map(|micros| (u128::try_from(micros).unwrap(), micros));
    let mut shard = Shard::new(rows);
    shard.run(|number| number > 100);
    shard.save();
    assert_eq!(shard.saved.held.len(), HELD_POSITIONS_MAX);
    assert_eq!(shard.saved.position, id(65).order_key().before());
    assert_eq!(shard.queue.saved(id(0).order_key(), 0).held, []);
    shard.restart();
    shard.run(|_| true);
    for number in 1..=200 {
        assert!(!shard.delivered_of(number).is_empty(), "{number}");
    }
}

/// Whatever fails, takes long or begins anew: each event is delivered, in the order of its conversation, and a restart repeats
/// only what was under way.
#[test]
fn every_event_is_delivered_in_order_and_a_restart_repeats_what_was_under_way() {
    for seed in 1..=40_u64 {
        let mut state = seed;
        let mut below = move |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed);
            (state >> 33) % bound
        };
        let number = |roll: u64| u128::from(roll * roll / 20);
        let rows: Vec<_> = (1..=1_500)
            .map(|micros| (number(below(20)), micros))
            .collect();
        let mut shard = Shard::new(rows.clone());
        let (mut under_way, failing) = (0, below(20));
        for _ in 0..6_000 {
            match below(100) {
                0 => {
                    shard.save();
                    under_way += shard.running.len();
                    shard.restart();
                }
                1..10 => shard.feed(usize::try_from(below(60)).unwrap() + 1),
                10..20 => {
                    shard.read_again(usize::try_from(below(30)).unwrap() + 1);
                }
                20..60 => shard.running.extend(shard.queue.take(shard.now)),
                _ if shard.running.is_empty() => shard.now += Duration::from_secs(20),
                _ => {
                    let index = usize::try_from(below(shard.running.len() as u64)).unwrap();
                    let taken = shard.running.swap_remove(index);
                    let fails = taken.conversation.0.as_u128() == number(failing) || below(8) == 0;
                    shard.settle(&taken, !fails, below(8) == 0);
                }
            }
        }
        for taken in std::mem::take(&mut shard.running) {
            shard.settle(&taken, true, false);
        }
        shard.now += Duration::from_secs(3_600);
        shard.run(|_| true);
        for one in (0..20).map(number) {
            let sent = rows.iter().filter(|(number, _)| *number == one);
            let sent: Vec<_> = sent.map(|(_, micros)| *micros).collect();
            let mut first = shard.delivered_of(one);
            let mut seen = BTreeSet::new();
            first.retain(|micros| seen.insert(*micros));
            assert_eq!(first, sent, "seed {seed}, conversation {one}");
        }
        let repeated = shard.delivered.len() - rows.len();
        assert!(
            repeated <= under_way,
            "seed {seed}: {repeated} of {under_way}"
        );
    }
}
