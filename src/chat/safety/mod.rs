//! Safety of users: protection from other users.

pub(crate) mod block;
mod hook_breaker;
pub(crate) mod report;
pub(crate) mod send_hook;
