//! Leave epoch: a counter that advances whenever a user leaves a conversation on this server.
//!
//! A membership that was read in the current epoch still holds, as far as this server knows.
//! Another server's departures do not advance it, so on a shared store a membership also has a
//! lifetime.
//!
//! Writers have a counter of their own. It also advances with roles and blocks, which streams check in other ways.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Lifetime of a membership that was read from a shared store.
pub(crate) const MEMBERSHIP_LIFETIME: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct LeaveEpoch {
    leaves: AtomicU64,
    rights: AtomicU64,
}

/// Moment before the rights of a writer were read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RightsMoment {
    rights: u64,
    at: Instant,
}

/// Moment before a membership was read, in both clocks.
#[derive(Clone, Copy)]
pub(crate) struct ReadMoment {
    epoch: u64,
    at: Instant,
}

impl LeaveEpoch {
    pub(crate) fn current(&self) -> u64 {
        self.leaves.load(Ordering::SeqCst)
    }

    /// Call after a departure was persisted, and before it is published: from now on no stream
    /// relies on an older membership.
    pub(crate) fn advance(&self) {
        self.leaves.fetch_add(1, Ordering::SeqCst);
        self.advance_rights();
    }

    /// Call after a change of roles or blocks was persisted, and before it is published.
    pub(crate) fn advance_rights(&self) {
        self.rights.fetch_add(1, Ordering::SeqCst);
    }

    /// Call before the rights of a writer are read.
    pub(crate) fn rights_moment(&self) -> RightsMoment {
        RightsMoment {
            rights: self.rights.load(Ordering::SeqCst),
            at: Instant::now(),
        }
    }

    /// Whether rights that were read then hold, as far as this server knows. On a shared store they also expire.
    pub(crate) fn has_rights_of(&self, moment: RightsMoment, is_shared: bool) -> bool {
        moment.rights == self.rights.load(Ordering::SeqCst)
            && !(is_shared && moment.at.elapsed() >= MEMBERSHIP_LIFETIME)
    }

    /// Call before a membership is read.
    pub(crate) fn read_moment(&self) -> ReadMoment {
        ReadMoment {
            epoch: self.current(),
            at: Instant::now(),
        }
    }

    pub(crate) fn is_current(&self, read: ReadMoment) -> bool {
        read.epoch == self.current()
    }
}

impl ReadMoment {
    pub(crate) fn at(self) -> Instant {
        self.at
    }

    pub(crate) fn has_expired(self) -> bool {
        self.at.elapsed() >= MEMBERSHIP_LIFETIME
    }
}
