//! Administration of the embedded store: import, export, verification, backup and background maintenance.

pub(in crate::store::embedded) mod backup;
pub(super) mod compaction;
pub(in crate::store::embedded) mod export;
pub(in crate::store::embedded) mod import;
mod import_conversation;
pub(in crate::store::embedded) mod maintenance;
mod reopening;
mod store_admin;
pub(in crate::store::embedded) mod verify;
mod verify_conversation;
mod verify_report;
