//! Inboxes: their entries, the index by activity, and what changed in them.

pub(crate) mod activity_index;
pub(crate) mod changes;
pub(crate) mod page;
pub(crate) mod row;
pub(crate) mod writes;
