//! Dated backups in one folder, of which the newest stay (retention). A file marks those that may be deleted: a server that is
//! started on a copy removes it, as the copy then is its store.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::model::Timestamp;
use crate::store::embedded::Copy;

/// Shape of the names, `9` for any digit: they sort by time.
const SHAPE: &str = "9999-99-99T99-99-99.999Z";
/// Mark of a copy that the retention may delete.
const MARK_FILE: &str = "dated-backup";
/// Age after which an unfinished backup is what a killed process has left.
const UNFINISHED_MAX_MICROS: i64 = 24 * 3_600 * 1_000_000;

/// Folder of the backup that begins now.
pub(super) fn dated(root: &Path, now: Timestamp) -> PathBuf {
    root.join(name_of(now))
}

/// Marks a whole copy: a later backup may delete it.
pub(super) fn mark(copy: &Path) -> io::Result<()> {
    File::create_new(copy.join(MARK_FILE))?.sync_all()
}

/// Keeps a data folder for good, if it is a dated backup.
pub(in crate::cli) fn keep(data: &Path) -> io::Result<()> {
    match fs::remove_file(data.join(MARK_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn name_of(moment: Timestamp) -> String {
    let text = moment.to_string().replace(':', "-");
    let millis = text.get(..SHAPE.len() - 1).unwrap_or(&text);
    format!("{millis}Z")
}

/// Removes the oldest backups but so many, the new one included, and what killed processes have left. Other folders stay, and
/// the new one, whatever the clock said of the others. Returns the number of removed folders.
pub(super) fn retain(root: &Path, keep: usize, now: Timestamp) -> io::Result<usize> {
    let mut finished = Vec::new();
    let mut removed = Vec::new();
    let new = name_of(now);
    let left_before = name_of(now.plus_micros(-UNFINISHED_MAX_MICROS));
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if !has_shape(&name) || name == new || !entry.file_type()?.is_dir() {
            continue;
        }
        if entry.path().join(MARK_FILE).exists() {
            finished.push(name);
        } else if name < left_before && Copy::is_unfinished(&entry.path()) {
            removed.push(name);
        }
    }
    finished.sort_unstable();
    removed.extend(finished.drain(..finished.len().saturating_sub(keep - 1)));
    for name in &removed {
        fs::remove_dir_all(root.join(name))?;
    }
    Ok(removed.len())
}

fn has_shape(name: &str) -> bool {
    name.len() == SHAPE.len()
        && name
            .bytes()
            .zip(SHAPE.bytes())
            .all(|(byte, shape)| byte == shape || shape == b'9' && byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_with_everything_that_is_no_backup() {
        let root = tempfile::tempdir().unwrap();
        let now = Timestamp::parse("2026-03-15T12:05:00.123Z").unwrap();
        assert_eq!(name_of(now), "2026-03-15T12-05-00.123Z");
        let make = |name: &str, files: &[&str]| {
            fs::create_dir(root.path().join(name)).unwrap();
            for file in files {
                fs::write(root.path().join(name).join(file), "").unwrap();
            }
        };
        let finished = ["last-commit", MARK_FILE];
        for day in 10..14 {
            make(&format!("2026-03-{day}T03-00-00.000Z"), &finished);
        }
        make("monday", &finished);
        // A server was started on this one.
        make("2026-03-02T03-00-00.000Z", &finished);
        keep(&root.path().join("2026-03-02T03-00-00.000Z")).unwrap();
        make("2026-03-01T03-00-00.000Z", &[]);
        make("2026-03-09T03-00-00.000Z", &["unfinished-backup"]);
        make("2026-03-15T12-00-00.000Z", &["unfinished-backup"]);
        // The new one, and one of a day when the clock was ahead.
        make("2026-03-15T12-05-00.123Z", &finished);
        make("2027-01-01T03-00-00.000Z", &finished);
        assert_eq!(retain(root.path(), 3, now).unwrap(), 4);
        let mut names: Vec<_> = fs::read_dir(root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "2026-03-01T03-00-00.000Z",
                "2026-03-02T03-00-00.000Z",
                "2026-03-13T03-00-00.000Z",
                "2026-03-15T12-00-00.000Z",
                "2026-03-15T12-05-00.123Z",
                "2027-01-01T03-00-00.000Z",
                "monday",
            ]
        );
    }
}
