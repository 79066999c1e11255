//! Reads of the outbox, and the events that are logged in it again.

use crate::model::{Change, OrderKey, OutboxEvent, OutboxRow, OutboxShard};

/// Name of the note with the time from which the store has an outbox, in RFC 3339. Absent while the
/// outbox is off.
pub const NOTE_OUTBOX_SINCE: &str = "outbox_since";

/// How long a row of the outbox is kept.
pub const OUTBOX_KEPT_MICROS: i64 = 7 * 24 * 3_600 * 1_000_000;

/// Position of a reader in one shard: it has read all rows up to `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxRead {
    pub shard: OutboxShard,
    pub after: OrderKey,
}

/// Rows of one shard, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxPage {
    pub rows: Vec<OutboxRow>,
    /// The page holds all rows up to here. The next one begins after it.
    pub read_to: OrderKey,
}

/// Change that is logged again under a fresh id, with its event as it was first logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateChange {
    pub change: Change,
    pub event: OutboxEvent,
}
