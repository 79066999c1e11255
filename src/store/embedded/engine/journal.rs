//! End of the engine's newest journal (write-ahead log), which a power cut may leave torn.
//!
//! A disk may write the sectors of one sync in any order, or only some of them. The engine drops a
//! last batch that lacks its end. It refuses to open if the end is there and a sector before it is
//! not. Such a batch was never acknowledged, because its sync did not return: this module removes
//! its end too, so that the engine drops it. If the batch was acknowledged and damaged later, the
//! note of the last commit is ahead, and the store refuses to open without it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use fjall::{Database, Error};

const READ_BYTES: usize = 64 << 10;

/// Opens the engine. If it refuses its journals, tries once more without the end of the last batch.
pub(super) fn open_past_torn_end(
    path: &Path,
    open: impl Fn() -> fjall::Result<Database>,
) -> fjall::Result<Database> {
    let refused = match open() {
        Err(Error::JournalRecovery(refused)) => refused,
        opened => return opened,
    };
    let Some(end) = JournalEnd::find(path)? else {
        return Err(Error::JournalRecovery(refused));
    };
    end.remove()?;
    let opened = open();
    match &opened {
        Ok(_) => tracing::warn!(
            journal = %end.path.display(),
            %refused,
            "the newest journal ended in a torn batch; the store dropped it. A power cut causes this"
        ),
        // Another batch is damaged: leave the journal as it was.
        Err(_) => end.restore()?,
    }
    opened
}

/// Drops the last batch of a closed engine: a write that failed, and whose bytes may be on the disk only in part.
pub(crate) fn drop_last_batch(path: &Path) -> io::Result<()> {
    match JournalEnd::find(path)? {
        Some(end) => {
            end.remove()?;
            end.file.sync_all()
        }
        None => Ok(()),
    }
}

/// Last byte of a journal that is not a zero: it belongs to the end of the last batch.
struct JournalEnd {
    path: PathBuf,
    file: File,
    byte: u8,
    at: u64,
    /// Length of the file, with the zeros that the engine allocated in advance.
    len: u64,
}

impl JournalEnd {
    /// Finds it in the newest journal. `None`: there is no journal, or it is empty.
    fn find(folder: &Path) -> io::Result<Option<Self>> {
        let Some(path) = newest_journal(folder)? else {
            return Ok(None);
        };
        let file = File::options().read(true).write(true).open(&path)?;
        let len = file.metadata()?.len();
        let mut buffer = vec![0; READ_BYTES];
        let mut end = len;
        while end > 0 {
            let start = end.saturating_sub(READ_BYTES as u64);
            let read = &mut buffer[..(end - start) as usize];
            file.read_exact_at(read, start)?;
            if let Some(within) = read.iter().rposition(|byte| *byte != 0) {
                let (byte, at) = (read[within], start + within as u64);
                return Ok(Some(Self {
                    path,
                    file,
                    byte,
                    at,
                    len,
                }));
            }
            end = start;
        }
        Ok(None)
    }

    fn remove(&self) -> io::Result<()> {
        self.file.set_len(self.at)
    }

    fn restore(&self) -> io::Result<()> {
        self.file.set_len(self.len)?;
        self.file.write_all_at(&[self.byte], self.at)?;
        self.file.sync_all()
    }
}

/// The engine numbers its journals: `0.jnl`, `1.jnl`, …
fn newest_journal(folder: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        if let Some(number) = number {
            newest = newest.max(Some((number, path)));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::engine::db::Db;
    use crate::store::embedded::engine::key;

    const SECTOR: usize = 512;
    const NAMES: [&str; 3] = ["first", "second", "third"];

    /// Opens a store of three commits whose journal lost a sector of one of them.
    fn open_without_sector_of(
        torn: &str,
    ) -> (fjall::Result<Db>, JournalEnd, Vec<u8>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(folder.path(), 1 << 20).unwrap();
        for name in NAMES {
            // The engine compresses larger values, and notices a torn one by itself.
            let value = name.as_bytes().repeat(600);
            db.commit([(key::meta(name), Some(value))]).unwrap();
        }
        drop(db);
        let before = JournalEnd::find(folder.path()).unwrap().unwrap();
        let text = torn.as_bytes().repeat(2 * SECTOR / torn.len());
        let bytes = fs::read(&before.path).unwrap();
        let at = bytes.windows(text.len()).position(|window| window == text);
        let sector = at.unwrap().next_multiple_of(SECTOR);
        before
            .file
            .write_all_at(&[0; SECTOR], sector as u64)
            .unwrap();
        let bytes = fs::read(&before.path).unwrap();
        (Db::open(folder.path(), 1 << 20), before, bytes, folder)
    }

    #[test]
    fn a_torn_last_batch_is_dropped_and_all_before_it_stay() {
        let (db, _, _, _folder) = open_without_sector_of("third");
        let db = db.unwrap();
        let is_there = NAMES.map(|name| db.get(&key::meta(name)).unwrap().is_some());
        assert_eq!(is_there, [true, true, false]);
        db.commit([(key::meta("third"), Some(vec![1]))]).unwrap();
    }

    #[test]
    fn a_damaged_batch_before_the_last_is_refused_and_the_journal_stays_as_it_is() {
        for damaged in ["first", "second"] {
            let (db, end, bytes, _folder) = open_without_sector_of(damaged);
            assert!(matches!(db.err(), Some(Error::JournalRecovery(_))));
            assert!(fs::read(&end.path).unwrap() == bytes, "nothing is lost");
        }
    }
}
