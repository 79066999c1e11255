//! Descriptors: the soft limit of open files is raised, and connections and sockets get no more than it allows.
//!
//! Without that, silent connections of one client could take the descriptors that the store needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server::ServerBounds;
use crate::store::embedded::Embedded;

/// Descriptors of the admin listener, of drivers and webhooks, and of the store's journals and files that it writes.
const RESERVED: u64 = 64;

/// Raises the limit as far as the bounds need it, and lowers the bounds to it.
pub(super) fn fit(bounds: &mut ServerBounds) {
    let wanted = bounds.connections.saturating_add(bounds.sockets.total);
    let limit = raise(RESERVED + (Embedded::FILES_MAX.saturating_add(wanted)) as u64);
    lower(bounds, limit);
}

/// Logs the bounds under the limit.
pub(super) fn log(bounds: &ServerBounds) {
    let limit = getrlimit(Resource::Nofile).current;
    tracing::info!(
        limit = limit.unwrap_or(u64::MAX),
        connections = bounds.connections,
        sockets = bounds.sockets.total,
        "the limit of open files allows so many connections and sockets; raise it for more (ulimit -Hn, LimitNOFILE=)"
    );
}

/// Raises the soft limit to what is wanted, or to the hard limit. Returns the soft limit.
fn raise(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let soft = current.unwrap_or(u64::MAX);
    let raised = wanted.min(maximum.unwrap_or(u64::MAX));
    let limit = Rlimit {
        current: Some(raised),
        maximum,
    };
    if raised > soft && setrlimit(Resource::Nofile, limit).is_ok() {
        raised
    } else {
        soft
    }
}

/// Shares the descriptors that are left by the ratio of the bounds. Streams are connections, and never take more than half.
fn lower(bounds: &mut ServerBounds, limit: u64) {
    let files = Embedded::files_max(limit) as u64;
    let left = usize::try_from(limit.saturating_sub(RESERVED + files)).unwrap_or(usize::MAX);
    let (connections, sockets) = (bounds.connections, bounds.sockets.total);
    let wanted = connections.saturating_add(sockets);
    if wanted <= left {
        return;
    }
    let share = |count: usize| (count as u128 * left as u128 / wanted as u128).max(1) as usize;
    bounds.connections = share(connections);
    bounds.sockets.total = share(sockets);
    bounds.streams.total = bounds.streams.total.min((bounds.connections / 2).max(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(limit: u64) -> (usize, usize, usize) {
        let mut bounds = ServerBounds::default();
        lower(&mut bounds, limit);
        (
            bounds.connections,
            bounds.sockets.total,
            bounds.streams.total,
        )
    }

    #[test]
    fn a_low_limit_leaves_descriptors_to_the_store() {
        assert_eq!(fitted(u64::MAX), (10_000, 50_000, 5_000));
        assert_eq!(fitted(131_072), (10_000, 50_000, 5_000));
        for limit in [256, 1_024, 4_096, 20_000] {
            let (connections, sockets, streams) = fitted(limit);
            let files = Embedded::files_max(limit);
            let all = connections + sockets + files + RESERVED as usize;
            assert!(
                all as u64 <= limit && all as u64 + 2 >= limit,
                "{limit}: {all}"
            );
            assert!(streams <= connections / 2, "{limit}");
        }
    }
}
