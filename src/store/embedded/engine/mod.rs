//! Engine of the embedded store: keys, values, keyspaces with their views, and the one committer. It holds bytes and their order, not what they mean.

pub(in crate::store::embedded) mod committer;
pub(in crate::store::embedded) mod db;
pub(in crate::store::embedded) mod key;
pub(in crate::store::embedded) mod page;
pub(in crate::store::embedded) mod record;
