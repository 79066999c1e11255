//! Writes of the embedded store: each plans its rows on a view, and commits them with compare-and-set.

pub(in crate::store::embedded) mod append;
pub(in crate::store::embedded) mod compare_and_set;
pub(in crate::store::embedded) mod membership;
pub(in crate::store::embedded) mod pin;
pub(in crate::store::embedded) mod reaction;
pub(in crate::store::embedded) mod removal;
pub(in crate::store::embedded) mod revision;
pub(in crate::store::embedded) mod setting;
