//! File modes that let other users of the machine at a key or at the data folder.
//!
//! The server warns and goes on: some volumes cannot hold another mode, and a server that does not start protects nobody.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Content of a path, which decides the mode bits that are too permissive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    DataFolder,
    /// A key that signs tokens.
    Secret,
    /// Keys that everybody may read, and nobody else may replace.
    PublicKeys,
}

/// Logs one line where other users have rights that they should not have. Blocks.
pub fn warn(path: &Path, content: Content) {
    // A path that is not there is reported by the code that needs it.
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
            tracing::warn!(%path, %mode, "other users of this machine can read a key that signs tokens, and be anyone: run `chmod 600` on it");
        }
        Content::PublicKeys => {
            tracing::warn!(%path, %mode, "other users of this machine can replace the keys of tokens: run `chmod 644` on the file");
        }
    }
}

/// The bits of a mode that give other users too much.
fn excess(content: Content) -> u32 {
    match content {
        Content::DataFolder => 0o077,
        Content::Secret => 0o066,
        Content::PublicKeys => 0o022,
    }
}
