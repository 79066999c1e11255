//! The tail of a shard: pages of its rows, late ones included, and its bound.

use super::*;
use crate::model::{OutboxEvent, Timestamp};

fn id(micros: i64) -> TimeUuid {
    TimeUuid::new(Timestamp::from_micros(micros), [0; 8])
}

fn row(micros: i64) -> OutboxRow {
    let id = id(micros);
    OutboxRow {
        id,
        conversation: ConversationId(uuid::Uuid::nil()),
        events: vec![OutboxEvent::message_added(id)],
    }
}

fn key(micros: i64) -> OrderKey {
    id(micros).order_key()
}

fn micros_of(page: &OutboxPage) -> Vec<i64> {
    let micros = |row: &OutboxRow| row.id.moment().micros();
    page.rows.iter().map(micros).collect()
}

fn tail(rows: &[i64], to: i64) -> ShardTail {
    let mut tail = ShardTail {
        to: key(to),
        ..ShardTail::default()
    };
    tail.add(rows.iter().map(|micros| row(*micros)).collect());
    tail
}

#[test]
fn a_page_holds_the_rows_after_a_position_up_to_its_end() {
    let tail = tail(&[10, 20, 30, 40], 100);
    let page = tail.page(key(10), key(35), 10);
    assert_eq!((micros_of(&page), page.read_to), (vec![20, 30], key(35)));
    let page = tail.page(key(10), key(200), 10);
    assert_eq!(
        (micros_of(&page), page.read_to),
        (vec![20, 30, 40], key(100)),
        "no further than the tail has read"
    );
    let page = tail.page(key(40), key(100), 10);
    assert_eq!((micros_of(&page), page.read_to), (vec![], key(100)));
    let page = tail.page(key(150), key(120), 10);
    assert_eq!(page.read_to, key(150), "a position never goes back");
}

#[test]
fn a_page_over_its_limit_ends_at_its_last_row() {
    let tail = tail(&[10, 20, 30], 100);
    let page = tail.page(OrderKey::MIN, key(100), 2);
    assert_eq!((micros_of(&page), page.read_to), (vec![10, 20], key(20)));
    let rest = tail.page(page.read_to, key(100), 2);
    assert_eq!((micros_of(&rest), rest.read_to), (vec![30], key(100)));
}

#[test]
fn a_late_row_is_found_once_and_the_oldest_rows_are_dropped() {
    let mut tail = tail(&[10, 30], 100);
    tail.add(vec![row(20), row(30)]);
    assert_eq!(tail.events, 3, "a row that is read again counts once");
    let page = tail.page(OrderKey::MIN, key(100), 10);
    assert_eq!(micros_of(&page), [10, 20, 30]);
    let more = i64::try_from(EVENTS_MAX).unwrap();
    tail.add((100..100 + more).map(row).collect());
    tail.shrink();
    assert_eq!((tail.events, tail.from), (EVENTS_MAX, key(30)));
}
