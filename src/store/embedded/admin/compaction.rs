//! Rewrites of files after removals. The engine overwrites nothing in place, and compacts tables as others are written: where
//! little is written, removed text would stay in files of rows and in the journal.
//!
//! A removal notes the tables that held the text, before it removes a row. The note is a row of the store, so that a restart
//! forgets nothing. The rewrite rolls the journal and compacts the tables whole. The engine offers no other way: its
//! compaction strategies are closed, so that none of ours can pick files by key range. A compaction of a whole table stops
//! the compactions of the others for as long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::model::Timestamp;
use crate::store::Result;
use crate::store::embedded::OpenStore;
use crate::store::embedded::engine::committer::Op;
use crate::store::embedded::engine::db::View;
use crate::store::embedded::engine::key::{self, Table};
use crate::store::embedded::engine::record;

/// Tables with the text of messages, and with its words.
pub(crate) const MESSAGE_TABLES: &[Table] = &[Table::Messages, Table::Search];

/// Name of the row that notes tables for a rewrite.
const NOTE: &str = "rewrite";
const MINUTE_MICROS: i64 = 60 * 1_000_000;
const HOUR_MICROS: i64 = 60 * MINUTE_MICROS;
/// Time from the first note to the rewrite: the removal goes on, also in the search index.
const SETTLE_MICROS: i64 = 10 * MINUTE_MICROS;
/// Size above which a table is rewritten once a day, and not once an hour.
const LARGE_BYTES: u64 = 4 << 30;
/// Interval in which replaced blocks of the search index leave the disk, with the words of edited and deleted messages.
const SEARCH_EVERY_MICROS: i64 = 12 * HOUR_MICROS;

/// Tables whose removed text is still in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct PendingRewrite {
    /// Bit set: bit N is the table N of [`Table::ALL`].
    tables: u8,
    noted_at: i64,
}

/// Schedule of the rewrites.
#[derive(Debug)]
pub(crate) struct Rewrites {
    pending: Option<PendingRewrite>,
    /// Last rewrites of small tables, and of large ones.
    begun_at: [Option<i64>; 2],
}

impl Rewrites {
    /// The schedule that an earlier process has noted.
    pub(crate) fn open(view: &View<'_>) -> Result<Self> {
        Ok(Self {
            pending: view.record(&key::note(NOTE))?,
            begun_at: [None; 2],
        })
    }

    /// The note with these tables in it. `None` if they are noted already.
    fn with(&self, tables: &[Table], now: Timestamp) -> Option<PendingRewrite> {
        let all = tables.iter().fold(0, |bits, table| bits | bit(*table));
        let noted = self.pending.unwrap_or(PendingRewrite {
            tables: 0,
            noted_at: now.micros(),
        });
        let tables = noted.tables | all;
        (tables != noted.tables).then_some(PendingRewrite { tables, ..noted })
    }

    /// Takes the tables that are due out of the note, as far as the disk has room for copies of them.
    fn take_due(
        &mut self,
        now: Timestamp,
        bytes_of: impl Fn(Table) -> u64,
        mut room: u64,
    ) -> Vec<Table> {
        let now = now.micros();
        let Some(noted) = self.pending else {
            return Vec::new();
        };
        if !has_passed(noted.noted_at, SETTLE_MICROS, now) {
            return Vec::new();
        }
        let (mut due, mut rest) = (Vec::new(), noted);
        for (class, every) in [HOUR_MICROS, 24 * HOUR_MICROS].into_iter().enumerate() {
            let begun_at = &mut self.begun_at[class];
            if begun_at.is_some_and(|at| !has_passed(at, every, now)) {
                continue;
            }
            for &table in Table::ALL {
                let bytes = bytes_of(table);
                if noted.tables & bit(table) == 0 || usize::from(bytes > LARGE_BYTES) != class {
                    continue;
                }
                *begun_at = Some(now);
                if bytes > room {
                    let table = table.into_str();
                    tracing::warn!(
                        table,
                        bytes,
                        room,
                        "the disk lacks room to rewrite the files of a table with removed text; the store tries again. Free disk space"
                    );
                    continue;
                }
                room -= bytes;
                due.push(table);
                rest.tables &= !bit(table);
            }
        }
        self.pending = (rest.tables != 0).then_some(rest);
        due
    }
}

fn bit(table: Table) -> u8 {
    1 << table as u8
}

/// Whether a time has passed since then. A clock that was set back does not hold it up.
fn has_passed(since: i64, micros: i64, now: i64) -> bool {
    now.abs_diff(since) >= micros.unsigned_abs()
}

impl OpenStore {
    /// Notes that text leaves these tables: their files are rewritten. A removal calls it before it removes a row.
    pub(crate) async fn note_removal(&self, tables: &[Table]) -> Result<()> {
        let mut rewrites = self.rewrites.lock().await;
        if let Some(noted) = rewrites.with(tables, self.context.clock.now()) {
            self.persist(Some(noted)).await?;
            rewrites.pending = Some(noted);
        }
        Ok(())
    }

    /// It frees space, so it runs on a full disk, too.
    async fn persist(&self, noted: Option<PendingRewrite>) -> Result<()> {
        let key = key::note(NOTE);
        let op = match noted {
            Some(noted) => Op::Put(key, record::encode(&noted)),
            None => Op::Delete(key),
        };
        self.committer.commit_ops(vec![op], None).await
    }

    /// Rewrites all tables now.
    pub(crate) async fn rewrite_all(&self) -> Result<()> {
        self.rewrites.lock().await.pending = None;
        self.rewrite(Table::ALL.to_vec()).await
    }

    /// Rewrites tables that the note has no more, and persists the note.
    async fn rewrite(&self, tables: Vec<Table>) -> Result<()> {
        let (db, rewritten) = (self.context.db.clone(), tables.clone());
        let done = spawn_blocking(move || db.rewrite(&rewritten)).await;
        // A panic was logged by the runtime's hook.
        let is_done = matches!(done, Ok(Ok(())));
        let mut rewrites = self.rewrites.lock().await;
        if !is_done && let Some(noted) = rewrites.with(&tables, self.context.clock.now()) {
            rewrites.pending = Some(noted);
        }
        self.persist(rewrites.pending).await?;
        done.unwrap_or(Ok(()))
    }
}

/// Begins the rewrite that is due, or the compaction of the search index.
pub(crate) fn begin_if_due(inner: &Arc<OpenStore>) -> Option<JoinHandle<()>> {
    let (db, now) = (inner.context.db.clone(), inner.context.clock.now());
    // A removal holds the lock while it persists its note. The next tick comes soon.
    let mut rewrites = inner.rewrites.try_lock().ok()?;
    let due = rewrites.take_due(now, |table| db.bytes_of(table), inner.disk.room());
    if !due.is_empty() {
        let inner = Arc::clone(inner);
        return Some(tokio::spawn(async move {
            if let Err(error) = inner.rewrite(due).await {
                tracing::warn!(%error, "the store failed to rewrite files with removed text; it tries again within the hour");
            }
        }));
    }
    inner.search_compaction.begin(now).then(|| {
        spawn_blocking(move || {
            if let Err(error) = db.compact(Table::Search) {
                tracing::warn!(%error, "the store failed to compact the search index; it retries after further changes");
            }
        })
    })
}

/// When the search index was compacted, and whether blocks were deleted since.
pub(crate) struct SearchCompaction {
    at_micros: AtomicI64,
    has_deleted: AtomicBool,
}

impl SearchCompaction {
    /// An earlier process may have deleted blocks.
    pub(crate) fn since(opened: Timestamp) -> Self {
        Self {
            at_micros: AtomicI64::new(opened.micros()),
            has_deleted: AtomicBool::new(true),
        }
    }

    pub(crate) fn note_deleted(&self) {
        self.has_deleted.store(true, Ordering::Relaxed);
    }

    fn begin(&self, now: Timestamp) -> bool {
        let at = self.at_micros.load(Ordering::Relaxed);
        let is_time = has_passed(at, SEARCH_EVERY_MICROS, now.micros());
        let is_due = is_time && self.has_deleted.swap(false, Ordering::Relaxed);
        if is_due {
            self.at_micros.store(now.micros(), Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(minutes: i64) -> Timestamp {
        Timestamp::from_micros(minutes * MINUTE_MICROS)
    }

    #[test]
    fn removals_of_an_hour_share_one_rewrite_and_large_tables_one_a_day() {
        let mut rewrites = Rewrites {
            pending: None,
            begun_at: [None; 2],
        };
        let note = |rewrites: &mut Rewrites, tables: &[Table], at: i64| {
            let noted = rewrites.with(tables, minute(at));
            rewrites.pending = noted.or(rewrites.pending);
            noted.is_some()
        };
        let bytes_of = |table| {
            if table == Table::Inbox {
                LARGE_BYTES + 1
            } else {
                1_000
            }
        };
        let room = 2 * LARGE_BYTES;
        assert!(note(&mut rewrites, MESSAGE_TABLES, 0));
        assert!(!note(&mut rewrites, MESSAGE_TABLES, 1), "it is persisted");
        assert!(note(&mut rewrites, &[Table::Inbox], 2));
        assert_eq!(rewrites.take_due(minute(9), bytes_of, room), []);
        let due = rewrites.take_due(minute(10), bytes_of, room);
        assert_eq!(due, [Table::Messages, Table::Search, Table::Inbox]);
        assert_eq!(rewrites.pending, None);
        assert!(note(&mut rewrites, Table::ALL, 20));
        assert_eq!(rewrites.take_due(minute(69), bytes_of, room), []);
        assert_eq!(rewrites.take_due(minute(70), bytes_of, room).len(), 7);
        assert_eq!(rewrites.take_due(minute(24 * 60), bytes_of, room), []);
        let due = rewrites.take_due(minute(24 * 60 + 10), bytes_of, room);
        assert_eq!(due, [Table::Inbox]);
        assert!(note(&mut rewrites, MESSAGE_TABLES, 100));
        assert_eq!(rewrites.take_due(minute(130), bytes_of, room).len(), 2);
        assert!(note(&mut rewrites, MESSAGE_TABLES, 200));
        let due = rewrites.take_due(minute(210), bytes_of, 1_999);
        assert_eq!(
            due,
            [Table::Messages],
            "a copy of the other one has no room"
        );
        let due = rewrites.take_due(minute(270), bytes_of, room);
        assert_eq!(due, [Table::Search]);
    }
}
