//! Outbox: rows that name the events of a write, in its batch. A partition is one lane of one shard
//! and minute, and expires as a whole.
//!
//! Each server writes a shard to one of four lanes, and advances to the next one when a batch fails:
//! a lane without a quorum stops no send. A reader reads all lanes together.

mod lanes;
pub(crate) mod readers;
pub(crate) mod reads;
mod switch;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use self::lanes::Lanes;
use self::switch::OutboxSwitch;
use super::driver::executor::Executor;
use super::driver::executor::batch::Writes;
use super::driver::statement::statements;
use super::driver::value::values;
use crate::clock::Clock;
use crate::model::{ConversationId, OutboxEvent, OutboxRow, OutboxShard, Timestamp};
use crate::store::{Error, OUTBOX_KEEP, Result, rules};

const TABLE: &str = "outbox_by_shard";
/// A row outlives the oldest position from which a reader may resume.
const KEPT_LONGER_SECONDS: i32 = 3_600;
const SLOT_MICROS: i64 = 60_000_000;
/// A batch that was surely not done is repeated at once with the next lane, for so long.
const NEXT_LANE_FOR: Duration = Duration::from_millis(500);

statements! {
    INSERT_OUTBOX: Write "INSERT INTO outbox_by_shard (shard, lane, slot, event_id, conversation_id, payload) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?";
}

/// The minute of a moment, counted from 1970.
fn slot_of(moment: Timestamp) -> i32 {
    i32::try_from(moment.micros().div_euclid(SLOT_MICROS)).unwrap_or(i32::MAX)
}

/// The outbox of the deployment.
pub(crate) struct Outbox {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
    switch: OutboxSwitch,
    lanes: Lanes,
    /// Seconds for which a row is kept.
    keep: AtomicI32,
}

impl Outbox {
    pub(crate) fn new(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        Self {
            executor,
            clock,
            switch: OutboxSwitch::new(),
            lanes: Lanes::random(),
            keep: AtomicI32::new(seconds(OUTBOX_KEEP)),
        }
    }

    pub(crate) fn set_keep(&self, keep: Duration) {
        self.keep.store(seconds(keep), Ordering::Relaxed);
    }

    /// Follows the recorded switch, as a read found it that began at `asked_at`. `Err`: it could not be read.
    pub(crate) fn follow(&self, asked_at: Instant, since: &Result<Option<Timestamp>>) {
        match since {
            Ok(since) => self.switch.set(since.is_some(), asked_at),
            Err(_) => self.switch.doubt(),
        }
    }

    /// The row of these events. `None` while the outbox is off.
    pub(crate) fn row(
        &self,
        conversation: ConversationId,
        events: impl FnOnce() -> Vec<OutboxEvent>,
    ) -> Option<OutboxRow> {
        if self.switch.is_on() {
            OutboxRow::new(conversation, events())
        } else {
            None
        }
    }

    /// Writes a batch together with the row of its events: all of it or nothing.
    pub(crate) async fn write_all(&self, writes: Writes, row: Option<OutboxRow>) -> Result<()> {
        let Some(row) = row else {
            return self.executor.write_all(writes).await;
        };
        let began = Instant::now();
        let shard = row.shard();
        for lane in self.lanes.in_turn(shard) {
            let mut with_row = writes.clone();
            self.put(&mut with_row, &row, lane);
            let Err(error) = self.executor.write_all(with_row).await else {
                return Ok(());
            };
            // Whichever partition failed: the next attempt takes another lane.
            self.lanes.advance(shard, lane);
            let is_undone = matches!(error, Error::Unavailable(_));
            if !is_undone || began.elapsed() > NEXT_LANE_FOR {
                return Err(error);
            }
        }
        // The fault lies elsewhere.
        let mut with_row = writes;
        self.put(&mut with_row, &row, self.lanes.present(shard));
        self.executor.write_all(with_row).await
    }

    fn put(&self, writes: &mut Writes, row: &OutboxRow, lane: i8) {
        let written_at = row.id.moment();
        let ttl = self.keep.load(Ordering::Relaxed) + KEPT_LONGER_SECONDS;
        let values = values![
            number_of(row.shard()),
            lane,
            slot_of(written_at),
            row.id,
            row.conversation,
            rules::outbox::encode(row),
            written_at,
            ttl
        ];
        writes.push(&INSERT_OUTBOX, values);
    }
}

fn seconds(keep: Duration) -> i32 {
    i32::try_from(keep.as_secs()).unwrap_or(i32::MAX)
}

fn number_of(shard: OutboxShard) -> i8 {
    shard.number().cast_signed()
}
