//! Commands: writes to a conversation as plain data, checked as far as possible without the store.

pub(crate) mod draft;
pub(crate) mod group;
pub(crate) mod pin;
pub(crate) mod reaction;
pub(crate) mod revision;
