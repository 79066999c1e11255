//! Keyring: the keys that verify tokens, those of an identity provider (see `jwks`), and files, which are reloaded after a
//! change.
//!
//! A thread of its own polls the files every few seconds, so that no task waits for a disk. An unknown key in a token
//! triggers a poll too, at most once a second. While a file is broken or missing the previous keys stay in use: a failed
//! rotation must not take a server down. The log names the fault once for each change of the file, `/readyz` while it lasts.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::KeyFileError;
use super::exposure::{self, ExposedPath};
use super::keys::VerificationKey;
use crate::watched_file::WatchedFile;

/// Interval of the polls.
const POLL_EVERY: Duration = Duration::from_secs(5);
/// Shortest interval between two polls.
const POLLS_APART: Duration = Duration::from_secs(1);
/// Longest key file.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Parser of one kind of key file.
pub(super) type ParseKeys = fn(&Path, &[u8]) -> Result<Vec<VerificationKey>, KeyFileError>;

pub(super) struct Keyring {
    keys: RwLock<Arc<[VerificationKey]>>,
    sources: Mutex<[SourceKeys; 2]>,
    /// Requests a poll of the files. Without files no thread receives it.
    ask: SyncSender<()>,
    /// Requests the keys of the identity provider.
    ask_provider: Notify,
}

/// Keys of the files, and those of the identity provider.
#[derive(Default)]
struct SourceKeys {
    keys: Vec<VerificationKey>,
    /// Fault of the source whose previous keys are in use.
    fault: Option<String>,
}

const FILES: usize = 0;
const PROVIDER: usize = 1;

impl Keyring {
    /// Keyring of fixed keys.
    pub(super) fn fixed(key: VerificationKey) -> Arc<Self> {
        let (ask, _) = sync_channel(1);
        Self::new(vec![key], ask)
    }

    fn new(keys: Vec<VerificationKey>, ask: SyncSender<()>) -> Arc<Self> {
        let ring = Arc::new(Self {
            keys: RwLock::new(Arc::default()),
            sources: Mutex::default(),
            ask,
            ask_provider: Notify::new(),
        });
        ring.put(FILES, Some(keys), None);
        ring
    }

    /// Puts the keys of a source in place of its previous ones, or leaves those, and its fault. Equal keys leave what was
    /// verified by them in the cache.
    fn put(&self, source: usize, keys: Option<Vec<VerificationKey>>, fault: Option<String>) {
        let mut sources = self.sources.lock();
        sources[source].fault = fault;
        if let Some(keys) = keys {
            let previous = &sources[source].keys;
            let mut pairs = previous.iter().zip(&keys);
            if previous.len() == keys.len() && pairs.all(|(one, other)| one.is_same(other)) {
                return;
            }
            sources[source].keys = keys;
            let all = sources
                .iter()
                .flat_map(|source| source.keys.iter().cloned());
            *self.keys.write() = all.collect();
        }
    }

    /// Puts what the identity provider has answered: its keys, none once they are too old, or the fault alone.
    pub(super) fn put_provider(&self, keys: Option<Vec<VerificationKey>>, fault: Option<String>) {
        self.put(PROVIDER, keys, fault);
    }

    /// Completes when no key fits a token: the identity provider may have a new one.
    pub(super) async fn asked_provider(&self) {
        self.ask_provider.notified().await;
    }

    /// Fault of the identity provider, while there are no keys of it.
    pub(super) fn missing_keys(&self) -> Option<String> {
        let sources = self.sources.lock();
        let provider = &sources[PROVIDER];
        provider.fault.clone().filter(|_| provider.keys.is_empty())
    }

    /// Keyring of files, which must be valid now. Blocks.
    pub(super) fn open(files: Vec<(ParseKeys, PathBuf)>) -> Result<Arc<Self>, KeyFileError> {
        let watched = files.into_iter().map(|(parse, path)| {
            WatchedFile::open("token keys", &path, Box::new(move |path| read(parse, path)))
        });
        let watched: Vec<_> = watched.collect::<Result<_, _>>()?;
        let (ask, asked) = sync_channel(1);
        let ring = Self::new(all(&watched), ask);
        if watched.is_empty() {
            return Ok(ring);
        }
        let weak = Arc::downgrade(&ring);
        let thread = thread::Builder::new().name("wideroom-keys".to_owned());
        thread
            .spawn(move || watch(&weak, &asked, watched))
            .map_err(KeyFileError::Thread)?;
        Ok(ring)
    }

    pub(super) fn keys(&self) -> Arc<[VerificationKey]> {
        Arc::clone(&self.keys.read())
    }

    pub(super) fn fault(&self) -> Option<String> {
        let sources = self.sources.lock();
        sources.iter().find_map(|source| source.fault.clone())
    }

    /// Requests the keys anew because none fits a token: the files or the identity provider may hold a new one.
    pub(super) fn request_poll(&self) {
        self.ask_provider.notify_one();
        // A full channel means that a poll is pending.
        let _ = self.ask.try_send(());
    }
}

type KeyFile = WatchedFile<Vec<VerificationKey>, KeyFileError>;

/// Polls the files until the keyring is dropped.
fn watch(ring: &Weak<Keyring>, asked: &Receiver<()>, mut files: Vec<KeyFile>) {
    loop {
        match asked.recv_timeout(POLL_EVERY) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let mut has_changed = false;
        for file in &mut files {
            has_changed |= file.reload_if_changed();
        }
        let Some(ring) = ring.upgrade() else { return };
        let fault = files.iter().find_map(|file| file.fault.clone());
        ring.put(FILES, has_changed.then(|| all(&files)), fault);
        drop(ring);
        thread::sleep(POLLS_APART);
    }
}

fn all(files: &[KeyFile]) -> Vec<VerificationKey> {
    files
        .iter()
        .flat_map(|file| file.value.iter().cloned())
        .collect()
}

fn read(parse: ParseKeys, path: &Path) -> Result<Vec<VerificationKey>, KeyFileError> {
    let keys = parse(path, &bytes(path)?)?;
    // A JWKS can hold secrets too.
    let has_secret = keys.iter().any(|key| key.algorithm == Algorithm::HS256);
    let content = if has_secret {
        ExposedPath::Secret
    } else {
        ExposedPath::PublicKeys
    };
    exposure::warn(path, content);
    Ok(keys)
}

/// Reads a key file within its size limit.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    let failed = |source| KeyFileError::File {
        path: path.to_owned(),
        done: "read",
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let reason = "the file is too long to hold keys";
        return Err(KeyFileError::unusable(path, reason));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::auth::keys::parse_secret;

    #[test]
    fn what_is_too_long_for_keys_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, vec![b'x'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(
            read(parse_secret, &path),
            Err(KeyFileError::Unusable { .. })
        ));
    }
}
