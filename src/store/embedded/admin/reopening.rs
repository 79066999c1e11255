//! Reopening of the engine after a transient fault, as a restart would: with every handle, snapshot and cache dropped.
//!
//! After a failed commit the engine refuses every write. If descriptors or disk space were short, reads go on meanwhile, and the
//! store opens the engine anew once both are back. A write that had failed may then be in the journal, and its sync failed: the
//! store drops it, so that its outcome, which its caller does not know, becomes "not done".

use std::fs::File;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::store::embedded::engine::journal;
use crate::store::embedded::open::{self, ENGINE_FOLDER, OpenError, Opened};
use crate::store::embedded::{OpenStore, READS_MAX};

/// Pauses between attempts: doubled where the engine fails again soon.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Pause while another handle of the engine ends, or while it cannot be opened.
const OPEN_PAUSE: Duration = Duration::from_millis(100);
const OPEN_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Descriptors and bytes that must be free.
const DESCRIPTORS_MIN: usize = 64;
const PROBE_BYTES: usize = 4 << 20;
const PROBE_FILE: &str = "free-space-probe";

/// When to reopen the engine.
#[derive(Default)]
pub(super) struct Reopener {
    pause: Duration,
    next: Option<Instant>,
}

impl Reopener {
    /// Reopens the engine if it waits for that, and descriptors and space are back.
    pub(super) async fn run(&mut self, store: &Arc<OpenStore>) {
        if !store.committer.is_reopenable() {
            self.rest();
            return;
        }
        let now = Instant::now();
        if *self.next.get_or_insert(now) > now || store.disk.check().is_err() {
            return;
        }
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.next = Some(now + self.pause);
        let folder = store.path.clone();
        if !matches!(spawn_blocking(move || probe(&folder)).await, Ok(Ok(()))) {
            return;
        }
        // Every read has ended with all permits, and new ones wait.
        let reads = Arc::clone(&store.turns).acquire_many_owned(READS_MAX as u32);
        let reads = reads.await.expect("the semaphore is never closed");
        let store = Arc::clone(store);
        // The panic hook has logged a panic.
        let _ = spawn_blocking(move || reopen(&store, reads)).await;
        self.next = Some(Instant::now() + self.pause);
    }

    /// Forgets the pauses once the engine has worked for long.
    fn rest(&mut self) {
        if self
            .next
            .is_some_and(|next| next + PAUSE_MAX < Instant::now())
        {
            *self = Self::default();
        }
    }
}

/// Checks that descriptors and disk space are there.
fn probe(folder: &Path) -> io::Result<()> {
    let held: Vec<_> = (0..DESCRIPTORS_MIN)
        .map(|_| File::open(folder))
        .collect::<io::Result<_>>()?;
    drop(held);
    let path = folder.join(PROBE_FILE);
    // One that a killed process has left.
    let _ = std::fs::remove_file(&path);
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(&vec![1; PROBE_BYTES])?;
        file.sync_all()
    });
    std::fs::remove_file(&path)?;
    written
}

/// Closes the engine and opens it until that succeeds, or until no retry can. Blocks.
fn reopen(store: &OpenStore, reads: OwnedSemaphorePermit) {
    let context = &store.context;
    let acknowledged = store.committer.stop();
    let Some(mut engine) = context.db.begin_reopening() else {
        tracing::warn!(
            "the store waits for a backup or a compaction before it reopens its engine; reads go on"
        );
        return;
    };
    engine.close();
    let Some(opened) = open_with_retries(store, acknowledged) else {
        return;
    };
    engine.put(opened.db);
    context.states.clear();
    context.rows.clear();
    context.unread.clear();
    context.mentions.clear();
    context.floors.clear();
    let engine = opened
        .engine
        .of(context.db.clone(), Arc::clone(&context.rows));
    match store.committer.restart(engine, opened.last) {
        Ok(()) => tracing::warn!("the store reopened its engine and accepts writes again"),
        Err(error) => tracing::error!(%error, "the store has no thread for its writes; it retries"),
    }
    drop(reads);
}

/// Opens the engine, however long a transient fault lasts. Reports any other one, and then only waits for the end. `None`:
/// the store is closed.
fn open_with_retries(store: &OpenStore, acknowledged: u64) -> Option<Opened> {
    let began = Instant::now();
    let mut pause = OPEN_PAUSE;
    let mut last_error = String::new();
    let open = || open_without_unknown(&store.path, store.cache_bytes, acknowledged);
    while !store.is_closed() {
        // The engine may meet damage with a panic, which the panic hook logs.
        let error = match catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok(opened)) => return Some(opened),
            Ok(Err(error)) => error,
            Err(_) => open::engine_error(&store.path, "the engine panicked".into()),
        };
        if !error.may_pass(began.elapsed()) {
            tracing::error!(%error, "the store cannot reopen its engine, and a retry cannot help: the server ends");
            let _ = store.lost.try_send(error);
            while !store.is_closed() {
                sleep(OPEN_PAUSE);
            }
            return None;
        }
        let error = error.to_string();
        if error != last_error {
            tracing::error!(
                error,
                "the store cannot reopen its engine; it retries, and reads fail meanwhile"
            );
            last_error = error;
        }
        sleep(pause);
        pause = (pause * 2).min(OPEN_PAUSE_MAX);
    }
    None
}

/// Opens the engine without a write after the last acknowledged one: its sync failed, so that its bytes may be only in memory.
fn open_without_unknown(
    path: &Path,
    cache_bytes: u64,
    acknowledged: u64,
) -> Result<Opened, OpenError> {
    let open = || open::open(path, cache_bytes, false);
    let mut opened = open()?;
    if opened.last.number > acknowledged {
        drop(opened);
        let dropped = journal::drop_last_batch(&path.join(ENGINE_FOLDER));
        dropped.map_err(|source| OpenError::Disk {
            path: path.to_owned(),
            source,
        })?;
        opened = open()?;
    }
    // The note file may be missing, as the whole folder may.
    if opened.last.number < acknowledged {
        return Err(OpenError::Lost {
            path: path.to_owned(),
            noted: acknowledged,
            found: opened.last.number,
        });
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::engine::committer::{COMMIT, Engine as _, Rows};
    use crate::store::embedded::engine::record::CommitRecord;
    use crate::store::embedded::engine::transient::is_shortage;
    use crate::store::embedded::engine::{key, record};

    #[test]
    fn a_write_that_was_not_acknowledged_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut opened = open::open(folder.path(), 1 << 20, false).unwrap();
        let row = |number: u64| key::meta(&format!("row {number}"));
        for number in 1..=3 {
            let last = CommitRecord {
                number,
                ..opened.last
            };
            let rows = [
                (row(number), Some(vec![1])),
                (key::meta(COMMIT), Some(record::encode(&last))),
            ];
            opened.engine.commit(Rows::from(rows)).unwrap();
        }
        drop(opened);
        let opened = open_without_unknown(folder.path(), 1 << 20, 2).unwrap();
        assert_eq!(opened.last.number, 2);
        let is_there = [1, 2, 3].map(|number| opened.db.get(&row(number)).unwrap().is_some());
        assert_eq!(is_there, [true, true, false]);
    }

    #[test]
    fn a_folder_that_lost_acknowledged_writes_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(open::open(folder.path(), 1 << 20, false).unwrap());
        let refused = open_without_unknown(folder.path(), 1 << 20, 2).err();
        assert!(matches!(
            refused,
            Some(OpenError::Lost {
                noted: 2,
                found: 0,
                ..
            })
        ));
    }

    #[test]
    fn a_probe_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        probe(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let error = probe(&folder.path().join("missing")).unwrap_err();
        assert!(!is_shortage(&error));
    }
}
