//! Safety of users: protection from other users.

pub(crate) mod block;
pub(crate) mod report;
pub(crate) mod send_hook;
