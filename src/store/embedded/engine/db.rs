//! Engine of the embedded store: keyspaces and their snapshots. Every method blocks.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::{
    AbstractTree as _, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Slice,
    Snapshot,
};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::process::{Resource, getrlimit};
use serde::de::DeserializeOwned;

use super::journal::open_past_torn_end;
use super::key::{self, Key, Span, Table};
use super::record::{self, DecodeError};
use super::transient;
use super::write_buffers::WriteBuffer;
use crate::model::Direction;
use crate::store::{Error, Result};

/// Bound of journals: an open replays at most this much.
const JOURNALS_BYTES_MAX: u64 = 128 << 20;
const MEMTABLE_BYTES_MAX: u64 = 8 << 20;
/// The same for the search index, which is written in the background.
const SEARCH_MEMTABLE_BYTES_MAX: u64 = 2 << 20;
/// How long a compaction waits for the flush before it.
const FLUSH_MAX: Duration = Duration::from_secs(10);
/// Wait for snapshots before a reopening, in which no read begins.
const REOPENING_WAIT_MAX: Duration = Duration::from_secs(2);
pub(crate) const CACHED_FILES_MAX: usize = 900;
const FLUSH_POLL_EVERY: Duration = Duration::from_millis(10);
/// How long a rewrite waits until the engine has deleted the old journal, and then the old files.
const RELEASE_MAX: Duration = Duration::from_secs(60);
const JOURNAL_POLL_EVERY: Duration = Duration::from_millis(100);
/// Row that fills a journal, and the size and number of its values: more than a journal holds.
const FILLER_ROW: &str = "filler";
const FILLER_BYTES: usize = 1 << 20;
const FILLERS: usize = 65;
/// The engine's folder with a folder for each keyspace.
const KEYSPACES_FOLDER: &str = "keyspaces";
/// The folder of a keyspace with its files of rows.
const TABLES_FOLDER: &str = "tables";

/// The engine, behind a lock that lets the store open it anew in its place.
#[derive(Clone)]
pub(crate) struct Db(Arc<RwLock<Option<Handles>>>);

/// Handles of an open engine. The folder is free once they and every snapshot are dropped.
struct Handles {
    database: Database,
    /// One keyspace for each of [`Table::ALL`], in its order.
    keyspaces: Box<[Keyspace]>,
    /// Rows that scans returned.
    scanned: AtomicU64,
}

/// Exclusive hold of an engine that is opened anew. It waits for every snapshot to end, and new ones wait for it.
pub(crate) struct Reopening<'a>(RwLockWriteGuard<'a, Option<Handles>>);

impl Reopening<'_> {
    /// Closes the engine. Blocks until its threads have ended.
    pub(crate) fn close(&mut self) {
        drop(self.0.take());
    }

    /// Takes over the handles of an engine that was opened meanwhile.
    pub(crate) fn put(mut self, opened: Db) {
        *self.0 = opened.0.write().take();
    }
}

impl Handles {
    fn open(path: &Path, cache_bytes: u64) -> fjall::Result<Self> {
        transient::listen();
        let files_limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let database = open_past_torn_end(path, || {
            Database::builder(path)
                .cache_size(cache_bytes)
                .max_journaling_size(JOURNALS_BYTES_MAX)
                .max_cached_files(Some(cached_files_max(files_limit)))
                .open()
        })?;
        let memtable_max = |table| match table {
            Table::Search => SEARCH_MEMTABLE_BYTES_MAX,
            Table::Messages
            | Table::Heads
            | Table::Participants
            | Table::Inbox
            | Table::Activity
            | Table::Changes
            | Table::Rows => MEMTABLE_BYTES_MAX,
        };
        let keyspaces = Table::ALL
            .iter()
            .map(|table| {
                let options = KeyspaceCreateOptions::default();
                let bytes_max = memtable_max(*table);
                database.keyspace(table.into_str(), || options.max_memtable_size(bytes_max))
            })
            .collect::<fjall::Result<_>>()?;
        // The engine syncs the folder of each keyspace, and not the entries of those folders.
        File::open(path.join(KEYSPACES_FOLDER))?.sync_all()?;
        Ok(Self {
            database,
            keyspaces,
            scanned: AtomicU64::new(0),
        })
    }

    fn keyspace(&self, table: Table) -> &Keyspace {
        &self.keyspaces[table as usize]
    }

    fn commit(&self, rows: impl IntoIterator<Item = (Key, Option<Vec<u8>>)>) -> fjall::Result<()> {
        let mut batch = self
            .database
            .batch()
            .durability(Some(PersistMode::SyncData));
        for (key, value) in rows {
            match value {
                Some(value) => batch.insert(self.keyspace(key.table), key.bytes, value),
                None => batch.remove(self.keyspace(key.table), key.bytes),
            }
        }
        batch.commit()
    }

    /// Has the engine delete the files that compactions replaced. It does so as it rotates a buffer that has rows, once
    /// nothing reads them any more. Those that are read for long go with a later rotation.
    fn release_files(&self) -> fjall::Result<()> {
        let filler = key::meta(FILLER_ROW);
        let began = Instant::now();
        loop {
            self.commit([(filler.clone(), None)])?;
            self.keyspace(filler.table).rotate_memtable()?;
            if !self.keyspaces.iter().any(has_replaced_files) || began.elapsed() > RELEASE_MAX {
                return Ok(());
            }
            std::thread::sleep(JOURNAL_POLL_EVERY);
        }
    }

    /// Flushes every keyspace, those without new rows included.
    fn flush_all(&self) -> fjall::Result<()> {
        let bytes = key::meta(FILLER_ROW).bytes;
        let fillers = Table::ALL.iter().map(|table| {
            let (table, bytes) = (*table, bytes.clone());
            (Key { table, bytes }, None)
        });
        self.commit(fillers)?;
        for keyspace in &*self.keyspaces {
            keyspace.rotate_memtable()?;
        }
        wait_for_flushes(&self.keyspaces);
        Ok(())
    }
}

/// Waits until the sealed buffers of keyspaces are files, for a while: a background thread that has ended flushes none.
fn wait_for_flushes<'a>(keyspaces: impl IntoIterator<Item = &'a Keyspace>) {
    let began = Instant::now();
    for keyspace in keyspaces {
        while keyspace.sealed_memtable_count() > 0 && began.elapsed() < FLUSH_MAX {
            std::thread::sleep(FLUSH_POLL_EVERY);
        }
    }
}

impl Db {
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> fjall::Result<Self> {
        let handles = Handles::open(path, cache_bytes)?;
        Ok(Self(Arc::new(RwLock::new(Some(handles)))))
    }

    /// Waits for every snapshot to end, and holds the engine. `None` if a snapshot or a compaction lasts: reads go on beside it.
    pub(crate) fn begin_reopening(&self) -> Option<Reopening<'_>> {
        self.0.try_write_for(REOPENING_WAIT_MAX).map(Reopening)
    }

    /// Handles of the engine. Waits while it is opened anew. A thread may hold several.
    fn handles(&self) -> MappedRwLockReadGuard<'_, Handles> {
        RwLockReadGuard::map(self.0.read_recursive(), |handles| {
            handles
                .as_ref()
                .expect("a store that is closed is not read")
        })
    }

    /// Reads the newest value. For the committer alone: two such reads are not one snapshot.
    pub(crate) fn get(&self, key: &Key) -> Result<Option<Slice>> {
        self.handles()
            .keyspace(key.table)
            .get(&key.bytes)
            .map_err(|error| read_error(key.table_name(), error))
    }

    /// Takes a snapshot of all keyspaces.
    pub(crate) fn view(&self) -> View<'_> {
        let handles = self.handles();
        View {
            snapshot: handles.database.snapshot(),
            handles,
        }
    }

    /// Commits rows atomically. They are on disk when it returns, and visible only then.
    pub(crate) fn commit(
        &self,
        rows: impl IntoIterator<Item = (Key, Option<Vec<u8>>)>,
    ) -> fjall::Result<()> {
        self.handles().commit(rows)
    }

    /// The buffers that take the writes of each keyspace now.
    pub(super) fn write_buffers(&self) -> Vec<WriteBuffer> {
        let buffer = |keyspace: &Keyspace| keyspace.tree.active_memtable() as WriteBuffer;
        self.handles().keyspaces.iter().map(buffer).collect()
    }

    /// Approximate number of rows, tombstones included.
    pub(crate) fn rows_about(&self) -> usize {
        let handles = self.handles();
        handles
            .keyspaces
            .iter()
            .map(Keyspace::approximate_len)
            .sum()
    }

    /// Rows that scans returned since the engine was opened.
    pub(crate) fn rows_scanned(&self) -> u64 {
        self.handles().scanned.load(Ordering::Relaxed)
    }

    /// Bytes on disk, journals included. 0 while the engine is opened anew.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let handles = self.0.try_read_recursive();
        let bytes = handles.and_then(|handles| handles.as_ref()?.database.disk_space().ok());
        bytes.unwrap_or_default()
    }

    /// Bytes of a table on disk, without journals.
    pub(crate) fn bytes_of(&self, table: Table) -> u64 {
        self.handles().keyspace(table).disk_space()
    }

    /// Compacts a table whole: deleted rows and their tombstones leave the disk. Writes go on.
    pub(crate) fn compact(&self, table: Table) -> Result<()> {
        let handles = self.handles();
        let keyspace = handles.keyspace(table);
        let compacted = || {
            keyspace.rotate_memtable()?;
            // The next compaction takes rows that are not flushed in time.
            wait_for_flushes([keyspace]);
            keyspace.major_compact()
        };
        let failed = |error| read_error(table.into_str(), error);
        compacted().map_err(failed)?;
        handles.release_files().map_err(failed)
    }

    /// Rewrites the files of tables without overwritten and deleted values, and the journals. Writes go on.
    ///
    /// The engine seals its journal once it has 64 MB, and deletes it once each keyspace has files as new as it. So this
    /// fills the journal up with values that nothing reads, flushes every keyspace until the journal is gone, and compacts
    /// them: not before, because a compaction drops the newest deletions, and files without them look older than the journal.
    pub(crate) fn rewrite(&self, tables: &[Table]) -> Result<()> {
        let failed = |error| read_error("removed rows", error);
        let filler = key::meta(FILLER_ROW);
        let handles = self.handles();
        let mut bytes = vec![0; FILLER_BYTES];
        for _ in 0..FILLERS {
            // Random bytes, which the journal cannot compress.
            getrandom::fill(&mut bytes).expect("the system gives random bytes");
            handles
                .commit([(filler.clone(), Some(bytes.clone()))])
                .map_err(failed)?;
        }
        let began = Instant::now();
        loop {
            handles.flush_all().map_err(failed)?;
            if handles.database.journal_count() == 1 || began.elapsed() > RELEASE_MAX {
                break;
            }
            std::thread::sleep(JOURNAL_POLL_EVERY);
        }
        for table in tables {
            handles.keyspace(*table).major_compact().map_err(failed)?;
        }
        handles.release_files().map_err(failed)
    }

    /// Flushes every keyspace, those without new rows included.
    #[cfg(test)]
    pub(super) fn flush_all(&self) -> fjall::Result<()> {
        self.handles().flush_all()
    }

    pub(crate) fn sync(&self) -> fjall::Result<()> {
        self.handles().database.persist(PersistMode::SyncAll)
    }
}

/// Files of rows that the engine holds open under a limit of open files: its default, and at most a quarter of the limit.
pub(crate) fn cached_files_max(limit: u64) -> usize {
    CACHED_FILES_MAX.min(usize::try_from(limit / 4).unwrap_or(CACHED_FILES_MAX))
}

/// Whether there are files of rows that the keyspace no longer names, or does not name yet.
fn has_replaced_files(keyspace: &Keyspace) -> bool {
    let files = std::fs::read_dir(keyspace.path().join(TABLES_FOLDER));
    files.is_ok_and(|files| files.count() > keyspace.table_count())
}

/// Snapshot of all keyspaces. Drop it soon: it pins old versions on disk.
pub(crate) struct View<'a> {
    // Dropped first: the engine's folder is free once no handle is left.
    snapshot: Snapshot,
    handles: MappedRwLockReadGuard<'a, Handles>,
}

impl View<'_> {
    pub(crate) fn get(&self, key: &Key) -> Result<Option<Slice>> {
        self.snapshot
            .get(self.handles.keyspace(key.table), &key.bytes)
            .map_err(|error| read_error(key.table_name(), error))
    }

    pub(crate) fn has(&self, key: &Key) -> Result<bool> {
        self.snapshot
            .contains_key(self.handles.keyspace(key.table), &key.bytes)
            .map_err(|error| read_error(key.table_name(), error))
    }

    pub(crate) fn record<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        self.decoded(key, record::decode)
    }

    pub(crate) fn decoded<T>(
        &self,
        key: &Key,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>> {
        self.get(key)?
            .map(|bytes| decode(&bytes))
            .transpose()
            .map_err(|error| corrupt(key.table_name(), error))
    }

    /// Iterates over every row of a table.
    pub(crate) fn all(&self, table: Table) -> impl Iterator<Item = Result<(Slice, Slice)>> {
        let rows = self.snapshot.iter(self.handles.keyspace(table));
        rows.map(move |row| {
            row.into_inner()
                .map_err(|error| read_error(table.into_str(), error))
        })
    }

    /// Counts the rows of a span, up to a limit.
    pub(crate) fn count(&self, span: Span, limit: usize) -> Result<usize> {
        let mut rows = self.scan(span, Direction::Forward).take(limit);
        rows.try_fold(0, |count, row| row.map(|_| count + 1))
    }

    /// Iterates over the rows of a span, from its start or from its end.
    pub(crate) fn scan(
        &self,
        span: Span,
        direction: Direction,
    ) -> impl Iterator<Item = Result<(Slice, Slice)>> {
        let table = span.table.into_str();
        let rows = (!span.is_empty()).then(|| {
            self.snapshot
                .range(self.handles.keyspace(span.table), span.start..span.end)
        });
        let mut rows = rows.into_iter().next();
        let mut scanned = ScannedRows {
            total: &self.handles.scanned,
            count: 0,
        };
        std::iter::from_fn(move || {
            let row = match direction {
                Direction::Forward => rows.as_mut()?.next(),
                Direction::Backward => rows.as_mut()?.next_back(),
            };
            scanned.add(row.is_some());
            Some(row?.into_inner().map_err(|error| read_error(table, error)))
        })
    }
}

/// Rows of one scan. They count once it ends, so that a row costs no access to shared memory.
struct ScannedRows<'a> {
    total: &'a AtomicU64,
    count: u64,
}

impl ScannedRows<'_> {
    fn add(&mut self, is_row: bool) {
        self.count += u64::from(is_row);
    }
}

impl Drop for ScannedRows<'_> {
    fn drop(&mut self) {
        self.total.fetch_add(self.count, Ordering::Relaxed);
    }
}

pub(crate) fn corrupt(
    table: &'static str,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::Corrupt {
        table,
        cause: Box::new(cause),
    }
}

/// A part of a row that was read: without a value the table is damaged.
pub(crate) trait InTable<T> {
    fn in_table(self, table: &'static str) -> Result<T>;
}

impl<T> InTable<T> for Option<T> {
    fn in_table(self, table: &'static str) -> Result<T> {
        self.ok_or_else(|| corrupt(table, MalformedKey))
    }
}

impl<T, E: std::error::Error + Send + Sync + 'static> InTable<T> for Result<T, E> {
    fn in_table(self, table: &'static str) -> Result<T> {
        self.map_err(|error| corrupt(table, error))
    }
}

/// Error of a key that does not have its table's form.
#[derive(Debug, thiserror::Error)]
#[error("the key of the row has an unknown form")]
pub(crate) struct MalformedKey;

/// Error of a missing row that another row refers to.
#[derive(Debug, thiserror::Error)]
#[error("the row is missing")]
pub(crate) struct MissingRow;

fn read_error(table: &'static str, error: fjall::Error) -> Error {
    if let fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) = error {
        return Error::Unavailable(Box::new(error));
    }
    corrupt(table, error)
}
