//! Live writes: sends, edits, membership, markers and flags, each acknowledged once other servers can find it.

pub(crate) mod append;
pub(crate) mod creation;
pub(crate) mod entry;
pub(crate) mod idempotency;
pub(crate) mod membership;
pub(crate) mod remote_write;
pub(crate) mod revision;
pub(crate) mod writer_cache;
