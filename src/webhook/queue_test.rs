//! The queue of a shard: order within a conversation, and a position that never passes an undelivered event.

use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::chat::NotificationPiece;
use crate::model::{OutboxEvent, OutboxRow, TimeUuid, Timestamp, UserId};

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

fn micros(delivery: &EventDelivery) -> i64 {
    delivery.item.event.id.moment().micros()
}

#[tokio::test(start_paused = true)]
async fn one_event_of_a_conversation_at_a_time_in_order() {
    let now = Instant::now();
    let mut queue = DeliveryQueue::new(id(1).order_key());
    queue.add(
        batch(&[(1, 10), (2, 20), (1, 30)], Some(40)),
        &OutboxTypes::default(),
    );
    assert_eq!(queue.position(), id(10).order_key().before());
    let first = queue.take(now).unwrap();
    let other = queue.take(now).unwrap();
    assert_eq!((micros(&first), micros(&other)), (10, 20));
    assert!(queue.take(now).is_none(), "10 is under way");
    queue.settle(&other, Settlement::Done);
    assert_eq!(queue.position(), id(10).order_key().before());
    queue.settle(&first, Settlement::Done);
    assert_eq!(queue.position(), id(30).order_key().before());
    let last = queue.take(now).unwrap();
    assert_eq!(micros(&last), 30);
    queue.settle(&last, Settlement::Done);
    assert_eq!((queue.position(), queue.len()), (id(40).order_key(), 0));
    assert_eq!(queue.next_due(now), None);
}

#[tokio::test(start_paused = true)]
async fn a_failed_event_comes_again_and_blocks_only_its_conversation() {
    let now = Instant::now();
    let later = now + Duration::from_secs(5);
    let mut queue = DeliveryQueue::new(id(1).order_key());
    queue.add(
        batch(&[(1, 10), (1, 11), (2, 20)], None),
        &OutboxTypes::default(),
    );
    let first = queue.take(now).unwrap();
    queue.settle(
        &first,
        Settlement::Failed {
            again_at: later,
            is_silent: true,
        },
    );
    let other = queue.take(now).unwrap();
    assert_eq!(micros(&other), 20);
    queue.settle(&other, Settlement::Done);
    assert_eq!(queue.next_due(now), Some(later));
    assert!(queue.take(now).is_none());
    assert_eq!(queue.position(), id(10).order_key().before());
    queue.wake_silent();
    let again = queue.take(now).unwrap();
    assert_eq!((micros(&again), again.failures), (10, 1));
    queue.settle(&again, Settlement::Refused { again_at: later });
    queue.wake_silent();
    assert!(queue.take(now).is_none(), "it was answered");
    let again = queue.take(later).unwrap();
    assert_eq!((micros(&again), again.refusals), (10, 1));
    queue.settle(&again, Settlement::Done);
    let next = queue.take(later).unwrap();
    assert_eq!((micros(&next), next.failures, next.refusals), (11, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn other_kinds_are_passed_over_and_late_rows_hold_the_position() {
    let now = Instant::now();
    let mut queue = DeliveryQueue::new(id(1).order_key());
    let edits = OutboxTypes::parse(&["MESSAGE_EDITED".to_owned()]).unwrap();
    queue.add(batch(&[(1, 10)], Some(15)), &edits);
    assert_eq!((queue.len(), queue.position()), (0, id(15).order_key()));
    queue.add(batch(&[(1, 12)], None), &OutboxTypes::default());
    assert_eq!(queue.position(), id(12).order_key().before());
    let late = queue.take(now).unwrap();
    queue.settle(&late, Settlement::Done);
    assert_eq!(queue.position(), id(15).order_key());
}

#[tokio::test(start_paused = true)]
async fn a_next_piece_takes_the_place_of_the_one_before() {
    let now = Instant::now();
    let mut queue = DeliveryQueue::new(id(1).order_key());
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
    queue.replace(&first, next);
    assert_eq!(
        (queue.len(), queue.position()),
        (2, id(10).order_key().before())
    );
    let second = queue.take(now).unwrap();
    assert_eq!((micros(&second), &second.item.piece), (10, &Some(piece)));
    assert_ne!(first.item.id(), second.item.id());
    assert!(queue.take(now).is_none(), "one piece at a time");
    queue.settle(&second, Settlement::Done);
    assert_eq!(micros(&queue.take(now).unwrap()), 30);
    assert_eq!(queue.position(), id(30).order_key().before());
}
