//! Engine of the embedded store: keys, values, keyspaces with their snapshots, and the committer.
//! It knows bytes and their order, not their meaning.

pub(crate) mod committer;
pub(crate) mod db;
pub(crate) mod journal;
pub(crate) mod key;
pub(crate) mod page;
pub(crate) mod read_threads;
pub(crate) mod record;
pub(crate) mod transient;
pub(crate) mod write_buffers;
