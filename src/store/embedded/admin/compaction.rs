//! Compaction after removals: the engine compacts tables as others are written, so where little is written, tombstones and
//! the rows under them would stay on the disk.

use std::sync::atomic::Ordering;

use tokio::task::{JoinHandle, spawn_blocking};

use crate::store::embedded::OpenStore;
use crate::store::embedded::engine::key::Table;

/// Removed messages that are worth a compaction. Tests remove a tenth of what a server does.
const ROWS_MIN: u64 = if cfg!(test) { 1_000 } else { 10_000 };
/// A greater table is left to the engine: its compaction stops the others for long, and one that is written to so much is
/// compacted anyway.
const BYTES_MAX: u64 = 4 << 30;

/// Begins to compact the messages once a quarter of their rows was removed, so the cost follows what was removed.
pub(in crate::store::embedded) fn begin_if_due(inner: &OpenStore) -> Option<JoinHandle<()>> {
    let db = inner.context.db.clone();
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
