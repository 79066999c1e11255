//! Import, export and verification of the whole store.

pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod import_message;
pub(crate) mod import_write;
pub(crate) mod token_scan;
pub(crate) mod verify;
pub(crate) mod verify_conversation;
