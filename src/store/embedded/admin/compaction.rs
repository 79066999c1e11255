//! Compaction after removals: the engine compacts tables as others are written, so where little is written, tombstones and
//! the rows under them would stay on the disk.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::model::Timestamp;
use crate::store::embedded::OpenStore;
use crate::store::embedded::engine::key::Table;

/// Removed messages that are worth a compaction. Tests remove a tenth of what a server does.
const ROWS_MIN: u64 = if cfg!(test) { 1_000 } else { 10_000 };
/// A greater table is left to the engine: its compaction stops the others for long, and one that is written to so much is
/// compacted anyway.
const BYTES_MAX: u64 = 4 << 30;
/// Interval in which replaced blocks of the search index leave the disk, with the words of deleted messages.
const SEARCH_EVERY_MICROS: i64 = 12 * 3_600 * 1_000_000;

/// When the search index was compacted, and whether blocks were deleted since.
pub(in crate::store::embedded) struct SearchCompaction {
    at_micros: AtomicI64,
    has_deleted: AtomicBool,
}

impl SearchCompaction {
    /// An earlier process may have deleted blocks.
    pub(in crate::store::embedded) fn since(opened: Timestamp) -> Self {
        Self {
            at_micros: AtomicI64::new(opened.micros()),
            has_deleted: AtomicBool::new(true),
        }
    }

    pub(in crate::store::embedded) fn note_deleted(&self) {
        self.has_deleted.store(true, Ordering::Relaxed);
    }

    fn begin(&self, now: Timestamp) -> bool {
        let is_time = now.micros() - self.at_micros.load(Ordering::Relaxed) >= SEARCH_EVERY_MICROS;
        let is_due = is_time && self.has_deleted.swap(false, Ordering::Relaxed);
        if is_due {
            self.at_micros.store(now.micros(), Ordering::Relaxed);
        }
        is_due
    }
}

/// Begins to compact the search index, or the messages once a quarter of their rows was removed, so the cost follows what was
/// removed.
pub(in crate::store::embedded) fn begin_if_due(inner: &OpenStore) -> Option<JoinHandle<()>> {
    let db = inner.context.db.clone();
    if inner.search_compaction.begin(inner.context.clock.now()) {
        return Some(spawn_blocking(move || {
            if let Err(error) = db.compact(Table::Search) {
                tracing::warn!(%error, "the store failed to compact the search index; it retries after further changes");
            }
        }));
    }
    let removed = inner.removed_messages.load(Ordering::Relaxed);
    if removed < ROWS_MIN || removed * 4 < db.rows_of(Table::Messages) {
        return None;
    }
    inner.removed_messages.fetch_sub(removed, Ordering::Relaxed);
    if db.bytes_of(Table::Messages) > BYTES_MAX {
        return None;
    }
    Some(spawn_blocking(move || {
        if let Err(error) = db.compact(Table::Messages) {
            tracing::warn!(%error, "the store failed to compact removed messages; it retries after further ones");
        }
    }))
}
