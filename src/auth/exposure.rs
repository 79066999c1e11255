//! File modes that expose a key or the data folder to other users of the machine.
//!
//! The server warns and continues: some volumes support no other mode.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Content of a path, which decides the mode bits that are too permissive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExposedPath {
    DataFolder,
    /// Key that signs tokens.
    Secret,
    /// Secret that signs the requests of a webhook.
    WebhookSecret,
    /// Public keys: every user may read them, but only the owner may replace them.
    PublicKeys,
}

/// Logs a warning if other users have too many rights. Blocks.
pub fn warn(path: &Path, content: ExposedPath) {
    // The code that needs the path reports a missing one.
    let Ok(metadata) = fs::metadata(path) else {
        return;
    };
    let mode = metadata.permissions().mode() & 0o777;
    let (excess, warning) = match content {
        ExposedPath::DataFolder => (
            0o077,
            "other users of this machine can open the data folder: run `chmod 700` on it",
        ),
        ExposedPath::Secret => (
            0o066,
            "other users of this machine can read a key that signs tokens, and act as any user: run `chmod 600` on it",
        ),
        ExposedPath::WebhookSecret => (
            0o066,
            "other users of this machine can read the secret of a webhook, and forge its events: run `chmod 600` on it",
        ),
        ExposedPath::PublicKeys => (
            0o022,
            "other users of this machine can replace the keys of tokens: run `chmod 644` on the file",
        ),
    };
    if mode & excess != 0 {
        tracing::warn!(path = %path.display(), mode = %format_args!("{mode:04o}"), "{warning}");
    }
}
