//! Writes: commands of users, and the queue of each conversation that runs them.

pub(crate) mod conversation;
pub(crate) mod conversation_queue;
pub(crate) mod draft;
pub(crate) mod group;
pub(crate) mod introduction;
pub(crate) mod message;
pub(crate) mod profile;
pub(crate) mod reaction;
pub(crate) mod revision;
pub(crate) mod send_batch;
pub(crate) mod unknown_outcome;
