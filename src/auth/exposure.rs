//! File modes that expose a key or the data folder to other users of the machine.
//!
//! The server warns and continues: some volumes support no other mode.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Content of a path, which decides the mode bits that are too permissive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    DataFolder,
    /// Key that signs tokens.
    Secret,
    /// Public keys: every user may read them, but only the owner may replace them.
    PublicKeys,
}

/// Logs a warning if other users have too many rights. Blocks.
pub fn warn(path: &Path, content: Content) {
    // The code that needs the path reports a missing one.
    let Ok(metadata) = fs::metadata(path) else {
        return;
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & excess(content) == 0 {
        return;
    }
    let (path, mode) = (path.display(), format_args!("{mode:04o}"));
    match content {
        Content::DataFolder => {
            tracing::warn!(%path, %mode, "other users of this machine can open the data folder: run `chmod 700` on it");
        }
        Content::Secret => {
            tracing::warn!(%path, %mode, "other users of this machine can read a key that signs tokens, and act as any user: run `chmod 600` on it");
        }
        Content::PublicKeys => {
            tracing::warn!(%path, %mode, "other users of this machine can replace the keys of tokens: run `chmod 644` on the file");
        }
    }
}

/// Bits of a mode that grant other users too much.
fn excess(content: Content) -> u32 {
    match content {
        Content::DataFolder => 0o077,
        Content::Secret => 0o066,
        Content::PublicKeys => 0o022,
    }
}
