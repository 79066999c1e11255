//! Partial file of an export, beside the file that it becomes. Its last line is the position from
//! which a killed export resumes, so the requested file is complete or does not exist.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::NO_FOLLOW;
use super::line::{LINE_BYTES_MAX, Line};
use super::progress::{LeftOut, Position, Written};
use crate::model::{ConversationId, MessageId};

/// Digits that distinguish the partial files of two stores.
const MARK_BYTES: usize = 4;

pub struct Partial {
    pub path: PathBuf,
    target: PathBuf,
    file: File,
    /// The journal of omitted messages, beside the file.
    journal_path: PathBuf,
}

/// A write that still runs in the background holds the file open, and would hold the lock.
impl Drop for Partial {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Partial {
    /// Opens the partial file of an export of this store into that file, and reads the progress of an
    /// earlier run. Blocks.
    pub fn open(target: &Path, store: &str) -> io::Result<(Self, Written)> {
        let mark: String = Sha256::digest(store)
            .iter()
            .take(MARK_BYTES)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut path = target.as_os_str().to_owned();
        let mut journal_path = path.clone();
        path.push(format!(".{mark}.partial"));
        journal_path.push(format!(".{mark}.damaged"));
        let (path, journal_path) = (PathBuf::from(path), PathBuf::from(journal_path));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(NO_FOLLOW)
            .open(&path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another export is writing it")
            }
            TryLockError::Error(error) => error,
        })?;
        // An earlier version may have created it readable for other users. On a file system
        // without modes it stays as it is.
        let _ = file.set_permissions(Permissions::from_mode(0o600));
        let (mut written, bytes) = read(&file)?;
        written.left_out = if written.is_begun() {
            left_out(&journal_path)?
        } else {
            LeftOut::new()
        };
        // An incomplete last line is written again.
        file.set_len(bytes)?;
        file.seek(SeekFrom::End(0))?;
        Ok((
            Self {
                path,
                target: target.to_owned(),
                file,
                journal_path,
            },
            written,
        ))
    }

    /// Empties the file: the export begins anew. Blocks.
    pub fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0)).map(drop)
    }

    /// Opens the journal of omitted messages. Blocks.
    pub fn journal(&self, written: &Written) -> io::Result<tokio::fs::File> {
        let mut open = OpenOptions::new();
        let mut file = open
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(NO_FOLLOW)
            .open(&self.journal_path)?;
        if written.is_begun() {
            // Ends an incomplete last line.
            file.write_all(b"\n")?;
        } else {
            file.set_len(0)?;
        }
        Ok(tokio::fs::File::from_std(file))
    }

    pub fn writer(&self) -> io::Result<tokio::fs::File> {
        self.file.try_clone().map(tokio::fs::File::from_std)
    }

    /// Replaces the requested file with the complete one. Blocks.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, &self.target)?;
        remove_where_there(&self.journal_path)?;
        let folder = self
            .target
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn remove_where_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Reads the journal of an earlier run. An incomplete last line belongs to a message that is read
/// again.
fn left_out(path: &Path) -> io::Result<LeftOut> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let one = |line: &str| {
        let (conversation, message) = line.split_once(' ')?;
        Some((
            ConversationId(conversation.parse().ok()?),
            MessageId::parse(message)?,
        ))
    };
    Ok(text.lines().filter_map(one).collect())
}

/// The position after the last complete line, and the bytes before it. A file that is no export
/// starts anew.
fn read(file: &File) -> io::Result<(Written, u64)> {
    let mut input = BufReader::with_capacity(256 * 1024, file);
    let (mut written, mut bytes) = (Written::default(), 0);
    let mut text = Vec::new();
    loop {
        text.clear();
        let read = (&mut input)
            .take(LINE_BYTES_MAX as u64 + 1)
            .read_until(b'\n', &mut text)?;
        let Some((b'\n', line)) = text.split_last() else {
            return Ok((written, bytes));
        };
        let Ok(line) = Line::parse(line) else {
            return Ok((written, bytes));
        };
        let Some(position) = Position::after(&line) else {
            return Ok((written, bytes));
        };
        written.counts.add(&line);
        written.position = position;
        bytes += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_another_user_has_put_there_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, victim) = (folder.path().join("export"), folder.path().join("victim"));
        std::fs::write(&victim, "kept").unwrap();
        let (partial, _) = Partial::open(&target, "store").unwrap();
        let (path, journal) = (partial.path.clone(), partial.journal_path.clone());
        std::os::unix::fs::symlink(&victim, &journal).unwrap();
        assert!(partial.journal(&Written::default()).is_err());
        drop(partial);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(Partial::open(&target, "store").is_err());
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "kept");
    }
}
