//! Signing secrets, and the file that holds them: one `whsec_…` a line, two while a secret rotates.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, Mac as _};
use parking_lot::Mutex;
use sha2::Sha256;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::watched_file::WatchedFile;

/// Prefix of a secret in text.
const PREFIX: &str = "whsec_";
/// Length of a secret, by the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Secrets at once: the present one, and its predecessor or successor.
const SECRETS_MAX: usize = 2;
/// Longest secret file; a longer file is something else.
const FILE_BYTES_MAX: u64 = 4 * 1024;
/// Interval at which the file is checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Secrets of one receiver. Each signs every message.
pub struct SigningSecrets(Vec<Vec<u8>>);

impl SigningSecrets {
    /// Parses one secret a line: `whsec_` and the base64 of 24 to 64 bytes. `Err` names the valid form and never repeats the
    /// text.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Some editors put a byte order mark before the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let secrets: Option<Vec<_>> = lines.map(secret).collect();
        match secrets {
            Some(secrets) if (1..=SECRETS_MAX).contains(&secrets.len()) => Ok(Self(secrets)),
            Some(_) | None => Err(format!(
                "must hold a line, or two while a secret rotates, of `{PREFIX}` and the base64 of {} to {} bytes",
                SECRET_BYTES.start(),
                SECRET_BYTES.end()
            )),
        }
    }

    /// Value of `webhook-signature`: a signature by each secret.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signature = |secret: &Vec<u8>| {
            let mut mac =
                Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
        };
        let signatures: Vec<_> = self.0.iter().map(signature).collect();
        signatures.join(" ")
    }
}

fn secret(line: &str) -> Option<Vec<u8>> {
    let bytes = BASE64_STANDARD.decode(line.strip_prefix(PREFIX)?).ok()?;
    SECRET_BYTES.contains(&bytes.len()).then_some(bytes)
}

/// Reason for an unusable secret file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct SecretFileError {
    path: PathBuf,
    reason: String,
}

/// Secrets of a file, which is read again after a change. A file that became unusable leaves the previous secrets in use.
pub struct SecretFile {
    /// Locked where it may block.
    file: Arc<Mutex<WatchedFile<Arc<SigningSecrets>, SecretFileError>>>,
    /// Secrets of the file, and the time of its last check.
    checked: Mutex<(Arc<SigningSecrets>, Instant)>,
}

impl SecretFile {
    /// Reads the file. Blocks.
    pub fn open(path: &Path) -> Result<Self, SecretFileError> {
        let read = |path: &Path| read(path).map(Arc::new);
        let file = WatchedFile::open("signing secrets", path, Box::new(read))?;
        Ok(Self {
            checked: Mutex::new((Arc::clone(&file.value), Instant::now())),
            file: Arc::new(Mutex::new(file)),
        })
    }

    /// The present secrets. Checks the file for a change every few seconds.
    pub async fn current(&self) -> Arc<SigningSecrets> {
        let present = {
            let (secrets, checked_at) = &mut *self.checked.lock();
            if checked_at.elapsed() < CHECK_EVERY {
                return Arc::clone(secrets);
            }
            *checked_at = Instant::now();
            Arc::clone(secrets)
        };
        let file = Arc::clone(&self.file);
        let reloaded = spawn_blocking(move || {
            let mut file = file.lock();
            file.reload_if_changed();
            Arc::clone(&file.value)
        });
        let Ok(secrets) = reloaded.await else {
            return present;
        };
        self.checked.lock().0 = Arc::clone(&secrets);
        secrets
    }
}

fn read(path: &Path) -> Result<SigningSecrets, SecretFileError> {
    let unusable = |reason: String| SecretFileError {
        path: path.to_owned(),
        reason,
    };
    let data = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
    if !data.is_file() || data.len() > FILE_BYTES_MAX {
        return Err(unusable(format!(
            "must be a file of at most {FILE_BYTES_MAX} bytes"
        )));
    }
    let text = fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    SigningSecrets::parse(&text).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_is_signed_alike() {
        let secrets =
            SigningSecrets::parse("\u{feff}whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signature = secrets.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_give_two_signatures() {
        let one = format!("whsec_{}", BASE64_STANDARD.encode([1; 24]));
        let other = format!("whsec_{}", BASE64_STANDARD.encode([2; 64]));
        let both = SigningSecrets::parse(&format!("{one}\n\n {other}\n")).unwrap();
        let alone = SigningSecrets::parse(&other).unwrap().sign("a", 1, b"x");
        let signatures = both.sign("a", 1, b"x");
        assert_eq!(signatures.split(' ').count(), 2);
        assert!(signatures.ends_with(&alone));
    }

    #[test]
    fn a_text_without_a_secret_is_refused_and_never_repeated() {
        let short = format!("whsec_{}", BASE64_STANDARD.encode([1; 23]));
        let good = format!("whsec_{}", BASE64_STANDARD.encode([1; 24]));
        for text in [
            String::new(),
            "hunter2".to_owned(),
            short,
            "whsec_hunter2!".to_owned(),
            format!("{good}\nhunter2"),
            format!("{good}\n{good}\n{good}"),
        ] {
            let error = SigningSecrets::parse(&text).err().unwrap();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_read_again_and_a_broken_one_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let secret = |byte| format!("whsec_{}", BASE64_STANDARD.encode([byte; 32]));
        let signed = async |file: &SecretFile| file.current().await.sign("a", 1, b"");
        fs::write(&path, secret(1)).unwrap();
        let file = SecretFile::open(&path).unwrap();
        let before = signed(&file).await;
        fs::write(&path, format!("{}\n{}", secret(2), secret(1))).unwrap();
        assert_eq!(signed(&file).await, before, "it was checked just now");
        tokio::time::advance(CHECK_EVERY).await;
        let rotated = signed(&file).await;
        assert!(rotated.ends_with(&before) && rotated.len() > before.len());
        fs::write(&path, "broken").unwrap();
        tokio::time::advance(CHECK_EVERY).await;
        assert_eq!(signed(&file).await, rotated);
        assert!(SecretFile::open(&path).is_err());
    }
}
