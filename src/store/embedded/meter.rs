//! Metrics of the embedded store: commits, queue, caches and disk space.

use std::sync::Arc;

use super::OpenStore;
use crate::metrics::{self, COUNTS, Histogram, LATENCIES, Metrics, SIZES};

/// Metrics of the committer's thread.
pub(super) struct CommitMeter {
    pub(super) seconds: Histogram,
    pub(super) writes: Histogram,
    pub(super) bytes: Histogram,
}

impl Default for CommitMeter {
    fn default() -> Self {
        Self {
            seconds: metrics::histogram(
                "wideroom_commit_seconds",
                "Duration of a commit, including its fsync.",
                LATENCIES,
            ),
            writes: metrics::histogram("wideroom_commit_writes", "Writes in one commit.", COUNTS),
            bytes: metrics::histogram("wideroom_commit_bytes", "Bytes in one commit.", SIZES),
        }
    }
}

pub(super) fn register(inner: &Arc<OpenStore>, metrics: &Metrics) {
    let commits = inner.committer.meter();
    metrics.add(commits.seconds.clone());
    metrics.add(commits.writes.clone());
    metrics.add(commits.bytes.clone());
    inner.context.states.meter().register(metrics);
    inner.context.rows.register(metrics);
    inner.context.unread.meter().register(metrics);
    // Hold a weak reference: a scrape must not keep a closed store open.
    let read = |name: &str, help: &str, value: fn(&OpenStore) -> f64| {
        let inner = Arc::downgrade(inner);
        metrics.read(name, help, move || {
            inner.upgrade().map_or(0.0, |inner| value(&inner))
        });
    };
    read(
        "wideroom_commit_queue_writes",
        "Writes waiting for a commit.",
        |inner| inner.committer.queued().0 as f64,
    );
    read(
        "wideroom_commit_queue_bytes",
        "Bytes waiting for a commit.",
        |inner| inner.committer.queued().1 as f64,
    );
    read("wideroom_store_reads", "Reads in progress.", |inner| {
        (super::READS_MAX - inner.turns.available_permits()) as f64
    });
    read(
        "wideroom_store_disk_bytes",
        "Size of the store on disk, in bytes.",
        |inner| inner.context.db.disk_bytes() as f64,
    );
    read(
        "wideroom_disk_free_bytes",
        "Free bytes on the disk of the store.",
        |inner| inner.disk.free_bytes() as f64,
    );
    read(
        "wideroom_store_writable",
        "1 while the store accepts writes, else 0.",
        |inner| f64::from(u8::from(inner.takes_writes().is_ok())),
    );
}
