//! Coherent caches of the embedded store: write-through copies of rows in memory, exactly equal to those on disk.

pub(crate) mod coherent;
pub(crate) mod floor_counts;
pub(crate) mod inbox_index;
pub(crate) mod mention_list;
pub(crate) mod newest;
pub(crate) mod row;
pub(crate) mod state;
pub(crate) mod unread_list;
