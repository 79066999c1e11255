//! Scan of the outbox: the rows of some shards, merged in the order of their ids.
//!
//! A pass reads all shards from one position to a limit, page by page. Most passes begin at the end
//! of the last one. On a shared store, one every two seconds begins an overlap window earlier, so
//! that it finds rows that became visible late.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::tail::OutboxTail;
use crate::chat::in_flight_ids::rewind;
use crate::model::{OrderKey, OutboxRow, OutboxShard};
use crate::store::{OutboxRead, Result};

/// Rows that the pages of all shards hold together, about.
const ROWS_MAX: usize = 1_024;
/// Interval of the passes that read the overlap window again. A late row is visible at least four
/// seconds before the window passes it.
const WINDOW_EVERY: Duration = Duration::from_secs(2);

pub(super) struct OutboxScan {
    tail: Arc<OutboxTail>,
    shards: Vec<ShardScan>,
    /// Limit of the present pass, or of the last one.
    pass_end: OrderKey,
    is_window: bool,
    window: Option<OverlapWindow>,
}

/// Reads of a shared store.
struct OverlapWindow {
    overlap_micros: i64,
    /// Rows below this position precede the reader's.
    floor: OrderKey,
    /// Limit of the last pass that began a window earlier.
    end: OrderKey,
    /// `None` before the first one.
    ended_at: Option<Instant>,
    /// Rows that were read, from the beginning of the next window on.
    seen: BTreeSet<OrderKey>,
}

struct ShardScan {
    shard: OutboxShard,
    /// Position up to which the present pass has read the shard.
    read_to: OrderKey,
    /// Rows that wait for those of other shards.
    rows: VecDeque<OutboxRow>,
}

impl OverlapWindow {
    /// Records a row. Returns false for a duplicate. Rows that the next window does not read again
    /// are forgotten; with `end` the present pass is a window up to there.
    fn note(&mut self, row: OrderKey, end: Option<OrderKey>) -> bool {
        if self.seen.contains(&row) {
            return false;
        }
        if row >= rewind(end.unwrap_or(self.end), self.overlap_micros) {
            self.seen.insert(row);
        }
        true
    }
}

impl OutboxScan {
    /// A scan after this position. A reader that resumes also receives rows that became visible
    /// late, `resumed_micros` before it.
    pub(super) fn new(
        tail: &Arc<OutboxTail>,
        shards: &[OutboxShard],
        position: OrderKey,
        resumed_micros: i64,
    ) -> Self {
        let overlap_micros = tail.overlap_micros();
        let start = rewind(position, resumed_micros);
        let window = (overlap_micros > 0).then(|| OverlapWindow {
            overlap_micros,
            floor: start,
            end: position,
            ended_at: None,
            seen: BTreeSet::new(),
        });
        let shard = |shard: &OutboxShard| ShardScan {
            shard: *shard,
            read_to: start,
            rows: VecDeque::new(),
        };
        Self {
            tail: Arc::clone(tail),
            shards: shards.iter().map(shard).collect(),
            pass_end: start,
            is_window: false,
            window,
        }
    }

    /// Position up to which all rows were returned, but for late ones. `None` within a pass.
    pub(super) fn completed_to(&self) -> Option<OrderKey> {
        let is_complete =
            |shard: &ShardScan| shard.rows.is_empty() && shard.read_to >= self.pass_end;
        self.shards.iter().all(is_complete).then_some(self.pass_end)
    }

    /// Reads on, up to the limit, and returns the next rows. Without rows, and with the pass
    /// complete, there are none up to the limit.
    pub(super) async fn read(&mut self, limit: OrderKey) -> Result<Vec<OutboxRow>> {
        if self.completed_to().is_some() && !self.begin_pass(limit) {
            return Ok(Vec::new());
        }
        self.fetch().await?;
        let rows = self.take_merged();
        if self.completed_to().is_some() && std::mem::take(&mut self.is_window) {
            self.end_window();
        }
        Ok(rows)
    }

    /// Begins a pass. Returns false if there is nothing to read.
    fn begin_pass(&mut self, limit: OrderKey) -> bool {
        let mut from = self.pass_end;
        if let Some(window) = &self.window
            && window
                .ended_at
                .is_none_or(|ended_at| ended_at.elapsed() >= WINDOW_EVERY)
        {
            self.is_window = true;
            from = from.min(rewind(window.end, window.overlap_micros).max(window.floor));
        }
        self.pass_end = self.pass_end.max(limit);
        self.shards
            .iter_mut()
            .for_each(|shard| shard.read_to = from);
        from < self.pass_end
    }

    /// Reads the next page of each shard without rows.
    async fn fetch(&mut self) -> Result<()> {
        let end = self.pass_end;
        let is_due = |shard: &ShardScan| shard.rows.is_empty() && shard.read_to < end;
        let reads: Vec<_> = self
            .shards
            .iter()
            .filter(|shard| is_due(shard))
            .map(|shard| OutboxRead {
                shard: shard.shard,
                after: shard.read_to,
            })
            .collect();
        if reads.is_empty() {
            return Ok(());
        }
        let limit = ROWS_MAX / self.shards.len();
        let pages = self.tail.read(&reads, end, limit, self.is_window).await?;
        let due = self.shards.iter_mut().filter(|shard| is_due(shard));
        for (shard, page) in due.zip(pages) {
            shard.read_to = page.read_to;
            let is_new = |row: &OutboxRow| match &mut self.window {
                Some(window) => window.note(row.id.order_key(), self.is_window.then_some(end)),
                None => true,
            };
            shard.rows.extend(page.rows.into_iter().filter(is_new));
        }
        Ok(())
    }

    /// Takes the rows that no row of another shard can precede any more.
    fn take_merged(&mut self) -> Vec<OutboxRow> {
        let mut merged = Vec::new();
        loop {
            let open = self
                .shards
                .iter()
                .filter(|shard| shard.rows.is_empty() && shard.read_to < self.pass_end)
                .map(|shard| shard.read_to)
                .min();
            let first = self
                .shards
                .iter_mut()
                .filter(|shard| !shard.rows.is_empty())
                .min_by_key(|shard| shard.rows.front().map(|row| row.id));
            let Some(shard) = first else { return merged };
            let front = shard.rows.front().map(|row| row.id.order_key());
            if open.is_some_and(|open| front > Some(open)) {
                return merged;
            }
            merged.extend(shard.rows.pop_front());
        }
    }

    fn end_window(&mut self) {
        let Some(window) = &mut self.window else {
            return;
        };
        window.end = self.pass_end;
        window.ended_at = Some(Instant::now());
        let oldest = rewind(window.end, window.overlap_micros);
        window.seen = window.seen.split_off(&oldest);
    }
}
