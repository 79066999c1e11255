//! Watched file: what a file holds, read again after each change. An unusable file leaves its previous value in use, and is read
//! again until it is usable: the process may have had too many open files.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

type FileReading<T, E> = Box<dyn Fn(&Path) -> Result<T, E> + Send>;

pub(crate) struct WatchedFile<T, E> {
    /// Name of the value in log lines.
    name: &'static str,
    path: PathBuf,
    read: FileReading<T, E>,
    /// Fingerprint from before the read, so that the next look finds a change during the read.
    stamp: Option<FileStamp>,
    pub(crate) value: T,
    /// Fault of the file, while the previous value is in use.
    pub(crate) fault: Option<String>,
}

impl<T, E: Display> WatchedFile<T, E> {
    /// Reads the file, which must be usable now. Blocks.
    pub(crate) fn open(
        name: &'static str,
        path: &Path,
        read: FileReading<T, E>,
    ) -> Result<Self, E> {
        let stamp = FileStamp::of(path);
        Ok(Self {
            value: read(path)?,
            name,
            path: path.to_owned(),
            read,
            stamp,
            fault: None,
        })
    }

    /// Reads a changed file again, and returns whether there is a new value. Logs a fault once for each change of the file.
    /// Blocks.
    pub(crate) fn reload_if_changed(&mut self) -> bool {
        let stamp = FileStamp::of(&self.path);
        let is_same = stamp == self.stamp;
        if is_same && self.fault.is_none() {
            return false;
        }
        self.stamp = stamp;
        let name = self.name;
        match (self.read)(&self.path) {
            Ok(value) => {
                tracing::info!(path = %self.path.display(), "the server reloaded the {name}");
                self.value = value;
                self.fault = None;
                true
            }
            Err(error) => {
                let fault = error.to_string();
                if !is_same || self.fault.as_ref() != Some(&fault) {
                    tracing::error!(%error, "the server cannot read the changed {name} and uses the previous ones; fix the file");
                }
                self.fault = Some(fault);
                false
            }
        }
    }
}

/// Fingerprint of a file: another one after each change of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// `None` if the file is missing.
    fn of(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: data.ino(),
            bytes: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    type Numbers = WatchedFile<u32, String>;

    fn open(path: &Path) -> Result<Numbers, String> {
        let read = |path: &Path| {
            let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
            text.parse().map_err(|_| "must be a number".to_owned())
        };
        WatchedFile::open("numbers", path, Box::new(read))
    }

    #[test]
    fn a_file_is_read_when_it_changes_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        assert!(open(&path).is_err());
        fs::write(&path, "7").unwrap();
        let mut file = open(&path).unwrap();
        assert!(!file.reload_if_changed());
        fs::write(&path, "10").unwrap();
        assert!(file.reload_if_changed());
        assert!(!file.reload_if_changed());
        assert_eq!(file.value, 10);
    }

    #[test]
    fn a_file_that_is_broken_or_gone_leaves_its_value_from_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        fs::write(&path, "7").unwrap();
        let mut file = open(&path).unwrap();
        for broken in ["seven", ""] {
            fs::write(&path, broken).unwrap();
            assert!(!file.reload_if_changed());
            assert_eq!(file.fault.as_deref(), Some("must be a number"));
        }
        fs::remove_file(&path).unwrap();
        assert!(!file.reload_if_changed());
        assert_eq!(file.value, 7);
        fs::write(&path, "8").unwrap();
        assert!(file.reload_if_changed(), "it heals");
        assert_eq!((file.value, file.fault), (8, None));
    }

    /// As a process meets it that has no descriptor left: the file is in order, and does not change any more.
    #[test]
    fn a_file_that_could_not_be_read_once_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        fs::write(&path, "7").unwrap();
        let reads = Cell::new(0);
        let read = move |_: &Path| {
            reads.set(reads.get() + 1);
            match reads.get() {
                2 => Err("Too many open files"),
                number => Ok(number),
            }
        };
        let mut file = WatchedFile::open("numbers", &path, Box::new(read)).unwrap();
        fs::write(&path, "77").unwrap();
        assert!(!file.reload_if_changed());
        assert!(file.reload_if_changed());
        assert_eq!(file.value, 3);
    }
}
