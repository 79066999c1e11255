//! Operations of background work, which are parts of every store: erasures of users, and removals from the disk.

pub(super) mod erasure;
pub(super) mod removal;
