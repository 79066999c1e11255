//! Safety of users: protection from other users.

pub(crate) mod block;
