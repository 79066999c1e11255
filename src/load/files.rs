//! How many files this process may have open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::failure::Error;

/// For what is no connection.
const OTHERS: u64 = 64;

/// Makes room for so many connections, as far as the system lets.
pub(super) fn make_room(connections: u64) -> Result<(), Error> {
    let wanted = connections + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|most| most >= wanted) {
        return Ok(());
    }
    if let Some(most) = limit.maximum.filter(|most| *most < wanted) {
        return Err(Error::Files { wanted, most });
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| Error::Files { wanted, most: limit.current.unwrap_or(0) })
}
