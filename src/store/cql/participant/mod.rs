//! Participants: their rows, the roster of a conversation, and profiles.

pub(crate) mod page;
pub(crate) mod profile;
pub(crate) mod roster;
pub(crate) mod writes;
