//! Limit of open files of this process. Each connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::load::failure::Error;

/// Files that are not connections.
const OTHER_FILES: u64 = 64;

/// Raises the soft limit so that this many connections can be open at the same time.
pub(crate) fn ensure_open_files(connections: u64) -> Result<(), Error> {
    let wanted = connections + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|most| most >= wanted) {
        return Ok(());
    }
    if let Some(most) = limit.maximum.filter(|most| *most < wanted) {
        return Err(Error::FileLimit { wanted, most });
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| Error::FileLimit {
        wanted,
        most: limit.current.unwrap_or(0),
    })
}
