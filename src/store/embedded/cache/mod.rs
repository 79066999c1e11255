//! Coherent caches of the embedded store: write-through copies of rows in memory, exactly equal to those on disk.

pub(in crate::store::embedded) mod coherent;
pub(in crate::store::embedded) mod floor_counts;
pub(in crate::store::embedded) mod inbox_index;
pub(in crate::store::embedded) mod mention_list;
pub(in crate::store::embedded) mod newest;
pub(in crate::store::embedded) mod row;
pub(in crate::store::embedded) mod state;
pub(in crate::store::embedded) mod unread_list;
