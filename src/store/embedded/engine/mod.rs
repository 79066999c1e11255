//! Engine of the embedded store: keys, values, keyspaces with their snapshots, and the committer.
//! It knows bytes and their order, not their meaning.

pub(in crate::store::embedded) mod committer;
pub(in crate::store::embedded) mod db;
pub(in crate::store::embedded) mod journal;
pub(in crate::store::embedded) mod key;
pub(in crate::store::embedded) mod page;
pub(in crate::store::embedded) mod read_threads;
pub(in crate::store::embedded) mod record;
pub(in crate::store::embedded) mod transient;
pub(in crate::store::embedded) mod write_buffers;
