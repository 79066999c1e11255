//! Reads of the outbox, the events that are logged in it again, and what the store keeps of its readers.

use std::time::Duration;

use uuid::Uuid;

use crate::model::{
    Change, ConversationId, OrderKey, OutboxEvent, OutboxRow, OutboxShard, Timestamp,
};

/// Name of the note with the time from which the store has an outbox, in RFC 3339. Absent while the
/// outbox is off.
pub const NOTE_OUTBOX_SINCE: &str = "outbox_since";

/// Time for which a row of the outbox is kept, unless the operator says otherwise.
pub const OUTBOX_KEEP: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Longest time for which a row may be kept.
pub const OUTBOX_KEEP_MAX: Duration = Duration::from_secs(35 * 24 * 3_600);

/// How long the last known position of the switch of the outbox holds while it cannot be read. Then it counts as on.
pub const OUTBOX_SWITCH_AGE_MAX: Duration = Duration::from_secs(10);

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

/// How long a dead letter is kept.
pub const DEAD_LETTER_KEPT_MICROS: i64 = 30 * 24 * 3_600 * 1_000_000;

/// Conversations of one shard whose position a reader holds apart.
pub const HELD_POSITIONS_MAX: usize = 64;

/// Position of a named reader in one shard: all events up to here were delivered, but for those of the held conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderPosition {
    pub position: OrderKey,
    /// Conversations that are behind: their events are delivered up to positions of their own. At most
    /// [`HELD_POSITIONS_MAX`]; a server before [`super::FormVersion::HELD_POSITIONS`] reads none.
    pub held: Vec<HeldPosition>,
    /// `None` while no server delivers the shard.
    pub lease: Option<ReaderLease>,
}

/// Position of a reader in one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldPosition {
    pub conversation: ConversationId,
    pub position: OrderKey,
}

impl ReaderPosition {
    /// Position up to which all events were delivered, those of held conversations included.
    pub fn oldest(&self) -> OrderKey {
        let held = self.held.iter().map(|held| held.position);
        held.fold(self.position, OrderKey::min)
    }
}

/// Lease of a shard: its holder alone delivers it, until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderLease {
    pub holder: Uuid,
    pub until: Timestamp,
}

/// Event that a reader refused, and that the store keeps for 30 days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub conversation: ConversationId,
    pub event: OutboxEvent,
    /// Part of the deliveries of the event, as a reader names it; it belongs to the identity. At most 255 bytes.
    pub part: String,
    pub died_at: Timestamp,
    pub tries: u32,
    /// One sentence for operators.
    pub reason: String,
}
