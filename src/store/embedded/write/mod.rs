//! Writes of the embedded store: each plans its rows on a view, and commits them with compare-and-set.

pub(crate) mod append;
pub(crate) mod compare_and_set;
pub(crate) mod membership;
pub(crate) mod pin;
pub(crate) mod reaction;
pub(crate) mod removal;
pub(crate) mod revision;
pub(crate) mod setting;
