//! Signing key of a data folder: 32 random bytes as base64url text, in a file that only its owner may read.
//!
//! The file is created atomically and never replaced: of two concurrent processes the second reads the key of the first.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Name of the key file in the data folder.
pub const FILE_NAME: &str = "token.key";
const KEY_BYTES: usize = 32;
/// Longest key file; a longer file holds something else.
const FILE_BYTES_MAX: usize = 1024;

/// Reason for a missing signing key. It names the file, never its content.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("the key {path} cannot be {done}: {source}")]
    File {
        path: PathBuf,
        done: &'static str,
        source: io::Error,
    },
    #[error("{0} must hold a signing key: at least {KEY_BYTES} bytes as base64url text")]
    NotAKey(PathBuf),
    #[error("the system provides no random bytes for a signing key: {0}")]
    Random(getrandom::Error),
    #[error("{path} cannot be used for tokens: {reason}")]
    Unusable { path: PathBuf, reason: &'static str },
    #[error("the keys of tokens cannot be watched: {0}")]
    Thread(io::Error),
}

impl KeyFileError {
    pub(super) fn unusable(path: &Path, reason: &'static str) -> Self {
        let path = path.to_owned();
        Self::Unusable { path, reason }
    }
}

/// Reads the key of a folder, or creates it if it is missing.
pub(super) fn open(data_dir: &Path) -> Result<Vec<u8>, KeyFileError> {
    let path = data_dir.join(FILE_NAME);
    let failed = |source| KeyFileError::File {
        path: path.clone(),
        done: "read",
        source,
    };
    let mut text = read(&path).map_err(failed)?;
    if text.is_none() {
        make(data_dir, &path)?;
        text = read(&path).map_err(failed)?;
    }
    parse(&path, &text.unwrap_or_default())
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)?;
    Ok(Some(text))
}

fn parse(path: &Path, text: &str) -> Result<Vec<u8>, KeyFileError> {
    let key = URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('='));
    let is_one = |key: &Vec<u8>| key.len() >= KEY_BYTES && text.len() <= FILE_BYTES_MAX;
    key.ok()
        .filter(is_one)
        .ok_or_else(|| KeyFileError::NotAKey(path.to_owned()))
}

fn make(data_dir: &Path, path: &Path) -> Result<(), KeyFileError> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(KeyFileError::Random)?;
    write_once(data_dir, path, &URL_SAFE_NO_PAD.encode(key)).map_err(|source| KeyFileError::File {
        path: path.to_owned(),
        done: "made",
        source,
    })
}

/// Writes a temporary file and links it: a link fails if the name exists, while a rename would replace another process's key.
fn write_once(data_dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)?;
    let aside = data_dir.join(format!("{FILE_NAME}.{}", uuid::Uuid::new_v4()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all());
    let linked = written.and_then(|()| fs::hard_link(&aside, path));
    fs::remove_file(&aside)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => File::open(data_dir)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/data");
        let first = open(&data).unwrap();
        assert_eq!(first.len(), KEY_BYTES);
        assert_eq!(open(&data).unwrap(), first);
        assert_eq!(
            fs::metadata(data.join(FILE_NAME))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        assert_eq!(
            fs::read_dir(&data).unwrap().count(),
            1,
            "nothing else is left behind"
        );
    }

    #[test]
    fn many_at_once_end_with_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let keys: HashSet<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| open(dir.path()).unwrap()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(keys.len(), 1);
    }

    #[test]
    fn a_file_that_holds_no_key_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        for text in ["", "c2hvcnQ", "not base64!", &"A".repeat(4_000)] {
            fs::write(&path, text).unwrap();
            assert!(matches!(open(dir.path()), Err(KeyFileError::NotAKey(_))));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
