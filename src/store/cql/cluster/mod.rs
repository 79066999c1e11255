//! The cluster's directory and mailboxes as tables: servers and their beats, sessions, listeners,
//! notices.
//!
//! No LOGGED batch writes them: each row stands for itself, and an acknowledgement of a single
//! write at a quorum is all that the delivery protocol needs.

pub(crate) mod mailbox;
pub(crate) mod server;
pub(crate) mod session;
