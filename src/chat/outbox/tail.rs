//! Tail of the outbox: the newest rows of each shard, read once for all readers of this process (read-through cache).
//!
//! Readers that follow the present ask for the same rows at about the same time. The first of them reads the shard up to its limit;
//! the others wait for it (single-flight) and take the rows from memory. A reader that is further behind reads the store itself.
//!
//! On a shared store a row may become visible late. A reader then asks for a window again, and the tail reads its own window again
//! unless it has done so within a second. Both delays together are shorter than the four seconds by which the windows overlap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::chat::in_flight_ids::rewind;
use crate::model::{ConversationId, OrderKey, OutboxRow, OutboxShard, TimeUuid};
use crate::store::{OutboxPage, OutboxRead, Result, Store};

/// Events of one shard that are held. The oldest ones are dropped first.
const EVENTS_MAX: usize = 4_096;
/// Rows of one read of the store.
const ROWS_MAX: usize = 512;
/// Age of the last window within which it serves another reader.
const WINDOW_LIFETIME: Duration = Duration::from_secs(1);

pub(super) struct OutboxTail {
    store: Arc<dyn Store>,
    overlap_micros: i64,
    shards: [Mutex<ShardTail>; OutboxShard::COUNT as usize],
}

/// Rows of a shard after `from`, up to `to`.
#[derive(Default)]
struct ShardTail {
    from: OrderKey,
    to: OrderKey,
    rows: BTreeMap<(TimeUuid, ConversationId), OutboxRow>,
    events: usize,
    windowed_at: Option<Instant>,
}

impl OutboxTail {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            overlap_micros: store.overlap_micros(),
            store,
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(super) fn overlap_micros(&self) -> i64 {
        self.overlap_micros
    }

    /// A page of each of these shards, up to `end`. A window also has rows that became visible late.
    pub(super) async fn read(
        &self,
        reads: &[OutboxRead],
        end: OrderKey,
        limit: usize,
        is_window: bool,
    ) -> Result<Vec<OutboxPage>> {
        let pages = reads.iter().map(|read| async move {
            let index = usize::from(read.shard.number());
            let mut tail = self.shards[index].lock().await;
            if read.after > tail.to || tail.to == OrderKey::MIN {
                *tail = ShardTail {
                    from: read.after,
                    to: read.after,
                    ..ShardTail::default()
                };
            }
            if read.after < tail.from {
                drop(tail);
                return self.page(*read, end, limit).await;
            }
            if is_window {
                self.read_window(&mut tail, read.shard).await?;
            }
            let mut page = tail.page(read.after, end, limit);
            if page.rows.len() < limit && tail.to < end {
                self.extend(&mut tail, read.shard, end).await?;
                page = tail.page(read.after, end, limit);
            }
            // After the page, which may hold the oldest rows.
            tail.shrink();
            Ok(page)
        });
        try_join_all(pages).await
    }

    async fn page(&self, read: OutboxRead, end: OrderKey, limit: usize) -> Result<OutboxPage> {
        let pages = self.store.outbox(&[read], end, limit).await?;
        Ok(pages.into_iter().next().unwrap_or(OutboxPage {
            rows: Vec::new(),
            read_to: read.after,
        }))
    }

    /// Reads the newest rows again, for those that became visible late.
    async fn read_window(&self, tail: &mut ShardTail, shard: OutboxShard) -> Result<()> {
        let is_recent = |at: Instant| at.elapsed() < WINDOW_LIFETIME;
        if self.overlap_micros == 0 || tail.windowed_at.is_some_and(is_recent) {
            return Ok(());
        }
        let windowed_at = Instant::now();
        let mut after = rewind(tail.to, self.overlap_micros).max(tail.from);
        while after < tail.to {
            let page = self.page(OutboxRead { shard, after }, tail.to, ROWS_MAX);
            let OutboxPage { rows, read_to } = page.await?;
            tail.add(rows);
            if read_to <= after {
                break;
            }
            after = read_to;
        }
        tail.windowed_at = Some(windowed_at);
        Ok(())
    }

    /// Reads the next page after what the tail holds, up to `end`.
    async fn extend(&self, tail: &mut ShardTail, shard: OutboxShard, end: OrderKey) -> Result<()> {
        let after = tail.to;
        let page = self.page(OutboxRead { shard, after }, end, ROWS_MAX);
        let OutboxPage { rows, read_to } = page.await?;
        tail.add(rows);
        tail.to = read_to;
        Ok(())
    }
}

impl ShardTail {
    fn add(&mut self, rows: Vec<OutboxRow>) {
        for row in rows {
            let count = row.events.len();
            if self.rows.insert((row.id, row.conversation), row).is_none() {
                self.events += count;
            }
        }
    }

    /// Drops the oldest rows beyond the bound.
    fn shrink(&mut self) {
        while self.events > EVENTS_MAX
            && let Some(((id, _), row)) = self.rows.pop_first()
        {
            self.events -= row.events.len();
            self.from = self.from.max(id.order_key());
        }
    }

    /// The rows after a position, up to `end`, at most about `limit` of them.
    fn page(&self, after: OrderKey, end: OrderKey, limit: usize) -> OutboxPage {
        let end = end.min(self.to);
        let mut page = OutboxPage {
            rows: Vec::new(),
            read_to: after.max(end),
        };
        let first = (
            TimeUuid::first_after(after),
            ConversationId(uuid::Uuid::nil()),
        );
        for ((id, _), row) in self.rows.range(first..) {
            let key = id.order_key();
            if key > end {
                break;
            }
            if page.rows.len() >= limit && page.rows.last().is_some_and(|last| last.id != *id) {
                // Rows of one id come together.
                page.read_to = page.rows.last().map_or(after, |last| last.id.order_key());
                break;
            }
            page.rows.push(row.clone());
        }
        page
    }
}

#[cfg(test)]
#[path = "tail_test.rs"]
mod tests;
