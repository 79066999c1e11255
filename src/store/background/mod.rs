//! Operations of background work, which are parts of every store: erasures of users, removals from the disk, and the search index.

pub(super) mod erasure;
pub(super) mod removal;
pub(super) mod search;
