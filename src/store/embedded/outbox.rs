//! Outbox of the embedded store: one row for each write with events, under its shard, the order key
//! of its greatest id, and its conversation.
//!
//! The rows of one shard are a queue that is read from a position and cut at its front, so no reader
//! meets the tombstones of expired rows.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use super::Embedded;
use super::read_context::ReadContext;
use crate::clock::micros;
use crate::model::{
    Change, ConversationId, Direction, OrderKey, OutboxEvent, OutboxRow, OutboxShard, Timestamp,
};
use crate::store::embedded::engine::committer::{CommitOutcome, Op, Write};
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key;
use crate::store::{
    NOTE_OUTBOX_SINCE, OUTBOX_KEEP_MAX, OutboxPage, OutboxRead, Result, StoreAdmin as _, rules,
};

/// Rows of one batch of the sweep.
const SWEEP_ROWS_MAX: usize = 2_000;

/// Writer of outbox rows, while the outbox is on.
pub(super) struct OutboxWriter {
    is_on: AtomicBool,
    /// Microseconds for which rows are kept. A command that serves nobody sweeps none that a server keeps.
    keep: AtomicI64,
}

impl Default for OutboxWriter {
    fn default() -> Self {
        Self::new(None)
    }
}

impl OutboxWriter {
    pub(super) fn new(since: Option<&str>) -> Self {
        Self {
            is_on: AtomicBool::new(rules::outbox::since(since).is_some()),
            keep: AtomicI64::new(micros(OUTBOX_KEEP_MAX)),
        }
    }

    pub(super) fn set_keep(&self, keep: Duration) {
        self.keep.store(micros(keep), Ordering::Relaxed);
    }

    /// Operation that persists the row of these events. `None` while the outbox is off.
    pub(super) fn put(
        &self,
        conversation: ConversationId,
        events: impl FnOnce() -> Vec<OutboxEvent>,
    ) -> Option<Op> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let row = OutboxRow::new(conversation, events())?;
        let key = key::outbox_row(row.shard(), row.id.order_key(), conversation);
        Some(Op::Put(key, rules::outbox::encode(&row)))
    }

    /// The same for changes.
    pub(super) fn put_changes(
        &self,
        conversation: ConversationId,
        changes: &[Change],
    ) -> Option<Op> {
        self.put(conversation, || {
            changes.iter().map(OutboxEvent::of_change).collect()
        })
    }
}

impl Embedded {
    pub(super) async fn switch_outbox(&self, since: Option<Timestamp>) -> Result<()> {
        let note = since.map(|since| since.to_string());
        self.set_note(NOTE_OUTBOX_SINCE, note.as_deref()).await?;
        let switch = &self.inner.context.outbox;
        switch.is_on.store(since.is_some(), Ordering::Relaxed);
        Ok(())
    }
}

pub(super) fn pages(
    context: &ReadContext,
    reads: &[OutboxRead],
    up_to: OrderKey,
    limit: usize,
) -> Result<Vec<OutboxPage>> {
    let view = context.view();
    reads
        .iter()
        .map(|read| page(&view, *read, up_to, limit))
        .collect()
}

fn page(view: &View<'_>, read: OutboxRead, up_to: OrderKey, limit: usize) -> Result<OutboxPage> {
    let mut rows = Vec::new();
    let span = key::outbox_rows(read.shard, read.after, up_to);
    for row in view.scan(span, Direction::Forward).take(limit + 1) {
        let (bytes, value) = row?;
        let (id, conversation) = key::outbox_row_of(&bytes).in_table("outbox")?;
        rows.push(rules::outbox::decode(id, conversation, &value)?);
    }
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let read_to = rules::outbox::read_to(&ids, limit, up_to.max(read.after));
    rows.retain(|row| row.id.order_key() <= read_to);
    Ok(OutboxPage { rows, read_to })
}

/// Sweeper of expired rows, in bounded batches.
#[derive(Default)]
pub(super) struct OutboxSweep {
    /// Rows up to here are swept. Without it each sweep would step over the tombstones of earlier ones.
    swept_to: OrderKey,
}

impl OutboxSweep {
    /// Plans a batch. `None` at the end.
    pub(super) fn plan(context: &ReadContext, from: OrderKey) -> Result<(Option<Write>, OrderKey)> {
        let view = context.view();
        let keep = context.outbox.keep.load(Ordering::Relaxed);
        let oldest = context.clock.now().plus_micros(-keep);
        let end = OrderKey::first_at(oldest).before().max(from);
        let mut write = Write::default();
        for shard in OutboxShard::all() {
            let left = SWEEP_ROWS_MAX - write.ops.len();
            let span = key::outbox_rows(shard, from, end);
            for row in view.scan(span, Direction::Forward).take(left) {
                let (bytes, _) = row?;
                write.ops.push(Op::Delete(key::Key::of_row(&bytes)));
            }
        }
        if write.ops.is_empty() {
            return Ok((None, end));
        }
        Ok((Some(write), from))
    }

    pub(super) async fn run(&mut self, inner: &super::OpenStore, batches_max: usize) -> Result<()> {
        for _ in 0..batches_max {
            let from = self.swept_to;
            let (write, swept_to) = inner.read(move |context| Self::plan(context, from)).await?;
            self.swept_to = swept_to;
            let Some(write) = write else { return Ok(()) };
            if inner.committer.commit(write).await? == CommitOutcome::Refused {
                return Ok(());
            }
        }
        Ok(())
    }
}
