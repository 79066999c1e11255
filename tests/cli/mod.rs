//! The command line, as one types it: the real program, its output and its exit codes.

mod access;
mod admin;
mod bench;
mod client;
mod config;
mod export;
mod fragile_line;
mod help;
mod identity;
mod import;
mod logs;
mod modes;
mod reindex;
mod serve;
mod store_away;
mod token;
mod verify;

use std::path::Path;

pub(crate) use self::serve::get;

use crate::support::program::Program;

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
