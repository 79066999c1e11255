//! Opening of the embedded store: lock, format version, and a check that no acknowledged commit is missing. A store whose
//! creation was interrupted is created anew.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fjall::Slice;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::store::embedded::cache::row::{RowCache, Touched};
use crate::store::embedded::engine::committer::{COMMIT, Engine, Rows};
use crate::store::embedded::engine::db::Db;
use crate::store::embedded::engine::key::{self, Key};
use crate::store::embedded::engine::record::{self, CommitRecord};
use crate::store::embedded::engine::transient;
use crate::store::embedded::engine::write_buffers::WriteBuffers;
use crate::store::{Cause, NOTE_EARLIER_STATE, Result};

/// Format version of keys and values.
const FORMAT: u32 = 1;
const FORMAT_ROW: &str = "format";
/// Folder of the engine. The note file beside it holds the number of the last commit.
pub(super) const ENGINE_FOLDER: &str = "db";
pub(super) const NOTE_FILE: &str = "last-commit";
/// Marker file of an incomplete backup.
pub(super) const UNFINISHED_FILE: &str = "unfinished-backup";
/// Marker file of a store that is being created: nothing was acknowledged in it.
const CREATION_FILE: &str = "unfinished-creation";

/// Why the store was not opened, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is in use by another wideroom (serve, import, …): stop it first, or name another folder", .0.display())]
    InUse(PathBuf),
    #[error("{} was written by another version of wideroom (format {found}, not {FORMAT}): open it with that version", path.display())]
    Format { path: PathBuf, found: String },
    #[error(
        "{} ends at commit {found}, but commit {noted} was acknowledged: restore it from a backup, or accept the loss of the later commits",
        path.display()
    )]
    Lost {
        path: PathBuf,
        noted: u64,
        found: u64,
    },
    #[error("{} is an unfinished backup: delete it, and use another backup", .0.display())]
    Unfinished(PathBuf),
    #[error("{} cannot be read or written: {source}: check the folder, its owner and its disk", path.display())]
    Disk {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} cannot be opened: {source}: restore it from a backup", path.display())]
    Engine {
        path: PathBuf,
        #[source]
        source: Cause,
    },
}

impl OpenError {
    /// Longest wait for the lock of a folder: another process that ends holds it no longer.
    const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

    /// Whether the fault may end without an operator, after a wait so far: a lock, and a lack of descriptors or space.
    pub fn may_pass(&self, waited: Duration) -> bool {
        match self {
            Self::InUse(_) => waited < Self::LOCK_WAIT_MAX,
            Self::Disk { source, .. } => transient::is_shortage(source),
            Self::Format { .. } | Self::Lost { .. } | Self::Unfinished(_) | Self::Engine { .. } => {
                false
            }
        }
    }

    /// Whether the data itself is at fault, so that no restart opens the folder: only an operator can mend it.
    pub fn needs_operator(&self) -> bool {
        match self {
            Self::Format { .. } | Self::Lost { .. } | Self::Unfinished(_) | Self::Engine { .. } => {
                true
            }
            Self::InUse(_) | Self::Disk { .. } => false,
        }
    }
}

pub(super) struct Opened {
    pub(super) db: Db,
    pub(super) rows: Arc<RowCache>,
    pub(super) engine: DbEngine,
    pub(super) last: CommitRecord,
}

pub(super) fn is_in(path: &Path) -> bool {
    path.join(ENGINE_FOLDER).is_dir()
}

/// Opens the engine. Blocks; replays journals, reads no row.
pub(super) fn open(path: &Path, cache_bytes: u64, accept_loss: bool) -> Result<Opened, OpenError> {
    let on_disk = |source| OpenError::Disk {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(path).map_err(on_disk)?;
    if path.join(UNFINISHED_FILE).try_exists().map_err(on_disk)? {
        return Err(OpenError::Unfinished(path.to_owned()));
    }
    let note = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path.join(NOTE_FILE))
        .map_err(on_disk)?;
    // The engine's lock is in its folder, which an interrupted creation loses: one process at a time opens.
    note.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse(path.to_owned()),
        TryLockError::Error(source) => on_disk(source),
    })?;
    let is_created = begin_creation(path).map_err(on_disk)?;
    let db = Db::open(&path.join(ENGINE_FOLDER), cache_bytes)
        .map_err(|error| open_error(path, error))?;
    let last = last_commit(path, &db)?;
    if is_created {
        fs::remove_file(path.join(CREATION_FILE)).map_err(on_disk)?;
    }
    // The engine syncs its own folder. This syncs the entries of its parents.
    sync_folder(path)
        .and_then(|()| sync_folder(&path.join("..")))
        .map_err(on_disk)?;
    note.unlock().map_err(on_disk)?;
    let noted = read_note(&note).map_err(on_disk)?;
    if let Some(noted) = noted.filter(|noted| *noted > last.number) {
        if !accept_loss {
            return Err(OpenError::Lost {
                path: path.to_owned(),
                noted,
                found: last.number,
            });
        }
        tracing::warn!(
            noted,
            found = last.number,
            "the store lost acknowledged commits; the operator accepted the loss"
        );
        mark_earlier_state(&db).map_err(|error| open_error(path, error))?;
        write_note(&note, last.number).map_err(on_disk)?;
    }
    let rows = Arc::new(RowCache::new());
    let engine = DbEngine {
        buffers: WriteBuffers::of(&db),
        db: db.clone(),
        rows: Arc::clone(&rows),
        note,
        is_note_broken: false,
    };
    Ok(Opened {
        db,
        rows,
        engine,
        last,
    })
}

/// Marks a store that is not there as one that is being created, and removes what an interrupted creation left of it.
/// Whether there is one to create.
fn begin_creation(path: &Path) -> io::Result<bool> {
    let (engine, mark) = (path.join(ENGINE_FOLDER), path.join(CREATION_FILE));
    if mark.try_exists()? {
        match fs::remove_dir_all(engine) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return Ok(true),
        }
    }
    let is_missing = !engine.try_exists()?;
    if is_missing {
        File::create(mark)?.sync_all()?;
        sync_folder(path)?;
    }
    Ok(is_missing)
}

/// Marks the store as an earlier state of itself, for the server that starts on it.
pub(super) fn mark_earlier_state(db: &Db) -> fjall::Result<()> {
    let mark = record::encode(&"");
    db.commit([(key::note(NOTE_EARLIER_STATE), Some(mark))])
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Error of the engine as it opens: the disk's where the system named one, else damage of the engine's files. One that is
/// missing is damage, too.
pub(super) fn engine_error(path: &Path, source: Cause) -> OpenError {
    let path = path.to_owned();
    let missing = Errno::NOENT.raw_os_error();
    match system_error(source.as_ref()).filter(|number| *number != missing) {
        Some(number) => OpenError::Disk {
            path,
            source: io::Error::from_raw_os_error(number),
        },
        None => OpenError::Engine { path, source },
    }
}

/// Error number of the system, where that is the cause.
fn system_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let number = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::raw_os_error);
    number.or_else(|| system_error(error.source()?))
}

fn open_error(path: &Path, error: fjall::Error) -> OpenError {
    if let fjall::Error::Locked = error {
        OpenError::InUse(path.to_owned())
    } else if let fjall::Error::InvalidVersion(found) = error {
        OpenError::Format {
            path: path.to_owned(),
            found: found.map_or_else(
                || "of an unknown engine".to_owned(),
                |version| format!("engine {version}"),
            ),
        }
    } else {
        engine_error(path, Box::new(error))
    }
}

/// Reads the last commit. A store without a format row is new, unless it holds other rows.
pub(super) fn last_commit(path: &Path, db: &Db) -> Result<CommitRecord, OpenError> {
    let failed = |source: Cause| engine_error(path, source);
    let view = db.view();
    let format: Option<u32> = view
        .record(&key::meta(FORMAT_ROW))
        .map_err(|error| failed(Box::new(error)))?;
    let last: Option<CommitRecord> = view
        .record(&key::meta(COMMIT))
        .map_err(|error| failed(Box::new(error)))?;
    drop(view);
    match (format, last) {
        (Some(FORMAT), last) => Ok(last.unwrap_or_default()),
        (None, None) => {
            db.commit([(key::meta(FORMAT_ROW), Some(record::encode(&FORMAT)))])
                .map_err(|error| failed(Box::new(error)))?;
            Ok(CommitRecord::default())
        }
        (found, _) => {
            let found = found.map_or_else(|| "unknown".to_owned(), |format| format.to_string());
            Err(OpenError::Format {
                path: path.to_owned(),
                found,
            })
        }
    }
}

/// Reads the noted commit number. `None` if the file is new, or was not on disk when the power failed.
fn read_note(note: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0; 20];
    match note.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.parse().ok())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the note in place, without a sync: it only witnesses a commit that is on disk already.
pub(super) fn write_note(note: &File, number: u64) -> io::Result<()> {
    note.write_all_at(format!("{number:020}\n").as_bytes(), 0)
}

/// State owned by the committer's thread.
pub(super) struct DbEngine {
    db: Db,
    buffers: WriteBuffers,
    rows: Arc<RowCache>,
    note: File,
    is_note_broken: bool,
}

impl DbEngine {
    /// The same for the store whose engine was opened anew.
    pub(super) fn of(self, db: Db, rows: Arc<RowCache>) -> Self {
        Self { db, rows, ..self }
    }
}

impl Engine for DbEngine {
    fn get(&self, key: &Key) -> Result<Option<Slice>> {
        self.db.get(key)
    }

    fn commit(&mut self, rows: Rows) -> Result<(), Cause> {
        let touched = Touched::by(&rows);
        self.db.commit(rows)?;
        self.buffers.follow(&self.db);
        self.rows.written(touched);
        Ok(())
    }

    fn note(&mut self, number: u64) {
        match write_note(&self.note, number) {
            Ok(()) => self.is_note_broken = false,
            Err(error) if !self.is_note_broken => {
                self.is_note_broken = true;
                tracing::warn!(%error, "the store cannot write the number of the last commit to its note file; check the disk");
            }
            Err(_) => {}
        }
    }

    fn sync(&mut self) -> Result<(), Cause> {
        Ok(self.db.sync()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_passes_a_lock_for_a_minute_and_damage_never() {
        let path = || PathBuf::from("data");
        let system = |errno: Errno| -> Cause {
            let source = io::Error::from_raw_os_error(errno.raw_os_error());
            Box::new(crate::store::Error::Unavailable(Box::new(
                fjall::Error::Storage(fjall::LsmError::Io(source)),
            )))
        };
        let opening = |source| engine_error(&path(), source);
        let (at_once, later) = (Duration::ZERO, Duration::from_secs(60));
        // Each with whether it passes at once, whether it does after a minute, and whether it needs an operator.
        for (error, expected) in [
            (OpenError::InUse(path()), (true, false, false)),
            (opening(system(Errno::MFILE)), (true, true, false)),
            (opening(system(Errno::NOSPC)), (true, true, false)),
            (opening(system(Errno::IO)), (false, false, false)),
            (opening(system(Errno::NOENT)), (false, false, true)),
            (opening("the row ends early".into()), (false, false, true)),
            (OpenError::Unfinished(path()), (false, false, true)),
        ] {
            let found = (
                error.may_pass(at_once),
                error.may_pass(later),
                error.needs_operator(),
            );
            assert_eq!(found, expected, "{error}");
        }
    }

    #[test]
    fn a_store_whose_creation_was_interrupted_is_created_anew_and_no_other_one() {
        let open = |path: &Path| open(path, 1 << 20, false).map(drop);
        // Remains of the engine's folder if its process ends early, or the power does.
        for left in [&[][..], &["lock", "0.jnl"], &["lock", "0.jnl", "version"]] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path();
            fs::create_dir(path.join(ENGINE_FOLDER)).unwrap();
            for name in left {
                File::create(path.join(ENGINE_FOLDER).join(name)).unwrap();
            }
            if !left.is_empty() {
                open(path).unwrap_err();
            }
            File::create(path.join(CREATION_FILE)).unwrap();
            let note = File::create(path.join(NOTE_FILE)).unwrap();
            note.try_lock().unwrap();
            let in_use = open(path).unwrap_err();
            assert!(matches!(in_use, OpenError::InUse(_)), "{in_use}");
            drop(note);
            open(path).unwrap();
            assert!(!path.join(CREATION_FILE).exists());
            open(path).unwrap();
        }
    }
}
