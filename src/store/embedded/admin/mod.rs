//! Administration of the embedded store: import, export, verification, backup and background maintenance.

pub(crate) mod backup;
pub(super) mod compaction;
pub(crate) mod export;
pub(crate) mod import;
mod import_conversation;
pub(crate) mod maintenance;
mod reopening;
mod store_admin;
pub(crate) mod verify;
mod verify_conversation;
mod verify_report;
