//! Backup of a running store: a snapshot of its rows in pieces, and the store rebuilt from them.
//!
//! The reader of the pieces sets the pace (backpressure). A marker file keeps an incomplete copy from being opened,
//! until all pieces are on disk.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::spawn_blocking;

use crate::store::embedded::engine::db::Db;
use crate::store::embedded::engine::key::{Key, Table};
use crate::store::embedded::open::{
    ENGINE_FOLDER, NOTE_FILE, OpenError, UNFINISHED_FILE, last_commit, mark_earlier_state,
    sync_folder, write_note,
};
use crate::store::embedded::{Embedded, OpenStore};
use crate::store::{Cause, Error, Result};

/// First bytes of a copy: its version.
const MAGIC: &[u8] = b"wideroom copy 1\n";
/// End marker, in the place of a row's table.
const END: u8 = 0xff;
/// Bytes of a row's header: its table, and the lengths of key and value.
const HEAD_BYTES: usize = 1 + 4 + 4;
const PIECE_BYTES: usize = 256 * 1024;
/// Pause in which the reader takes a piece.
const READER_LOOK: Duration = Duration::from_millis(5);
/// Pieces that wait for the reader.
const PIECES_MAX: usize = 4;
/// Longest row.
const ROW_BYTES_MAX: usize = 16 << 20;
/// Bytes of one write batch.
const BATCH_BYTES: usize = 1 << 20;
/// Cache of the rebuilt store, which has no readers yet.
const CACHE_BYTES: u64 = 8 << 20;

/// Pieces of a copy. An error is the last item.
pub type Pieces = BoxStream<'static, Result<Vec<u8>>>;

impl Embedded {
    /// Copies a snapshot that holds every acknowledged write. `None` while another copy runs.
    pub fn copy(&self) -> Option<Pieces> {
        let turn = Arc::clone(&self.inner.copies).try_acquire_owned().ok()?;
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let inner = self.inner.clone();
        spawn_blocking(move || {
            let _turn = turn;
            if let Err(error) = tell(&inner, &sender) {
                // The reader may be gone.
                let _ = sender.blocking_send(Err(error));
            }
        });
        Some(
            stream::unfold(pieces, async |mut pieces| {
                pieces.recv().await.map(|piece| (piece, pieces))
            })
            .boxed(),
        )
    }
}

/// Sends every row. Blocks; ends early when the reader is gone.
fn tell(inner: &OpenStore, pieces: &mpsc::Sender<Result<Vec<u8>>>) -> Result<()> {
    let db = &inner.context.db;
    let view = db.view();
    let mut piece = MAGIC.to_vec();
    piece.extend((db.rows_about() as u64).to_be_bytes());
    let mut rows = 0_u64;
    for &table in Table::ALL {
        for row in view.all(table) {
            let (key, value) = row?;
            piece.push(table as u8);
            piece.extend(length(&key).to_be_bytes());
            piece.extend(length(&value).to_be_bytes());
            piece.extend_from_slice(&key);
            piece.extend_from_slice(&value);
            rows += 1;
            if piece.len() >= PIECE_BYTES && !send(inner, pieces, std::mem::take(&mut piece))? {
                return Ok(());
            }
        }
    }
    piece.push(END);
    piece.extend(rows.to_be_bytes());
    send(inner, pieces, piece).map(drop)
}

/// Sends a piece. False: the reader is gone. Fails once the engine waits to be opened anew, which the copy would hold up.
fn send(inner: &OpenStore, pieces: &mpsc::Sender<Result<Vec<u8>>>, piece: Vec<u8>) -> Result<bool> {
    let mut next = Ok(piece);
    loop {
        if inner.committer.is_reopenable() {
            return Err(Error::Unavailable(Box::new(CopyError::Interrupted)));
        }
        match pieces.try_send(next) {
            Ok(()) => return Ok(true),
            Err(TrySendError::Closed(_)) => return Ok(false),
            Err(TrySendError::Full(piece)) => next = piece,
        }
        std::thread::sleep(READER_LOOK);
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("keys and values are far shorter")
}

/// Error of a copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{} is not empty: name a folder that is not there yet, or delete what is in it", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} cannot be written: {source}", path.display())]
    Disk {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the store reopened its engine during the backup: run the backup again")]
    Interrupted,
    #[error("the backup ended before its last row: run the backup again")]
    Short,
    #[error(
        "the backup is not a copy of a store, or a server of another version made it: take the backup with the `wideroom` of the server"
    )]
    Broken,
    #[error("{} cannot be written: {source}", path.display())]
    Engine {
        path: PathBuf,
        #[source]
        source: Cause,
    },
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A store under reconstruction. Every method blocks.
pub struct Copy {
    path: PathBuf,
    db: Db,
    /// Bytes received and not parsed yet.
    rest: Vec<u8>,
    batch: Vec<(Key, Option<Vec<u8>>)>,
    batch_bytes: usize,
    rows: u64,
    /// Expected number of rows.
    rows_about: Option<u64>,
    is_whole: bool,
}

impl Copy {
    /// Whether a folder holds a copy that is not whole.
    pub fn is_unfinished(path: &Path) -> bool {
        path.join(UNFINISHED_FILE).exists()
    }

    /// Begins a copy in an empty or new folder.
    pub fn begin(path: &Path) -> Result<Self, CopyError> {
        let on_disk = |source| CopyError::Disk {
            path: path.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(on_disk)?;
        if fs::read_dir(path).map_err(on_disk)?.next().is_some() {
            return Err(CopyError::NotEmpty(path.to_owned()));
        }
        let marked = File::create(path.join(UNFINISHED_FILE)).and_then(|file| file.sync_all());
        marked.and_then(|()| sync_folder(path)).map_err(on_disk)?;
        let db = Db::open(&path.join(ENGINE_FOLDER), CACHE_BYTES)
            .map_err(|error| engine(path, error))?;
        let (rest, batch) = Default::default();
        Ok(Self {
            path: path.to_owned(),
            db,
            rest,
            batch,
            batch_bytes: 0,
            rows: 0,
            rows_about: None,
            is_whole: false,
        })
    }

    /// Takes the next bytes, split anywhere.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        self.rest.extend_from_slice(bytes);
        let mut rest = std::mem::take(&mut self.rest);
        let mut at = 0;
        while let Some(used) = self.next(&rest[at..])? {
            at += used;
        }
        rest.drain(..at);
        self.rest = rest;
        Ok(())
    }

    /// Rows received, and the expected number.
    pub fn progress(&self) -> (u64, u64) {
        (self.rows, self.rows_about.unwrap_or(0).max(self.rows))
    }

    /// Length of the next item. `None`: it is incomplete.
    fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>, CopyError> {
        if self.is_whole {
            return if bytes.is_empty() {
                Ok(None)
            } else {
                Err(CopyError::Broken)
            };
        }
        if self.rows_about.is_none() {
            let Some((magic, about)) = bytes.split_at_checked(MAGIC.len()) else {
                return Ok(None);
            };
            if magic != MAGIC {
                return Err(CopyError::Broken);
            }
            self.rows_about = about.first_chunk().map(|about| u64::from_be_bytes(*about));
            return Ok(self.rows_about.map(|_| MAGIC.len() + 8));
        }
        let Some((&table, bytes)) = bytes.split_first() else {
            return Ok(None);
        };
        if table == END {
            let Some(rows) = bytes.first_chunk() else {
                return Ok(None);
            };
            if u64::from_be_bytes(*rows) != self.rows {
                return Err(CopyError::Broken);
            }
            self.is_whole = true;
            return Ok(Some(1 + 8));
        }
        let table = *Table::ALL
            .get(usize::from(table))
            .ok_or(CopyError::Broken)?;
        let Some((lengths, bytes)) = bytes.split_first_chunk::<8>() else {
            return Ok(None);
        };
        let [key, value] = [&lengths[..4], &lengths[4..]].map(|length| {
            length
                .iter()
                .fold(0, |all, byte| all << 8 | usize::from(*byte))
        });
        if key + value > ROW_BYTES_MAX {
            return Err(CopyError::Broken);
        }
        let Some(row) = bytes.get(..key + value) else {
            return Ok(None);
        };
        self.put(
            Key {
                table,
                bytes: row[..key].to_vec(),
            },
            row[key..].to_vec(),
        )?;
        Ok(Some(HEAD_BYTES + key + value))
    }

    fn put(&mut self, key: Key, value: Vec<u8>) -> Result<(), CopyError> {
        self.rows += 1;
        self.batch_bytes += key.bytes.len() + value.len();
        self.batch.push((key, Some(value)));
        if self.batch_bytes >= BATCH_BYTES {
            self.write()
        } else {
            Ok(())
        }
    }

    fn write(&mut self) -> Result<(), CopyError> {
        self.batch_bytes = 0;
        self.db
            .commit(self.batch.drain(..))
            .map_err(|error| engine(&self.path, error))
    }

    /// Completes the store, so that it can be opened. Returns its number of rows.
    pub fn finish(mut self) -> Result<u64, CopyError> {
        if !self.is_whole {
            return Err(CopyError::Short);
        }
        self.write()?;
        let last = last_commit(&self.path, &self.db)?;
        mark_earlier_state(&self.db).map_err(|error| engine(&self.path, error))?;
        self.db.sync().map_err(|error| engine(&self.path, error))?;
        let Self { path, db, rows, .. } = self;
        drop(db);
        let done = || {
            let note = File::create(path.join(NOTE_FILE))?;
            write_note(&note, last.number)?;
            note.sync_all()?;
            sync_folder(&path)?;
            fs::remove_file(path.join(UNFINISHED_FILE))?;
            sync_folder(&path)
        };
        done().map_err(|source| CopyError::Disk {
            path: path.clone(),
            source,
        })?;
        Ok(rows)
    }

    /// Removes the incomplete store.
    pub fn abandon(self) -> io::Result<()> {
        let Self { path, db, .. } = self;
        drop(db);
        fs::remove_dir_all(path.join(ENGINE_FOLDER))?;
        fs::remove_file(path.join(UNFINISHED_FILE))
    }
}

fn engine(path: &Path, error: fjall::Error) -> CopyError {
    let path = path.to_owned();
    if let fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) = error {
        return CopyError::Disk { path, source };
    }
    CopyError::Engine {
        path,
        source: Box::new(error),
    }
}
