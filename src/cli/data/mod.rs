//! Commands on the data of a store: import, export, erase, verify, reindex, backup, migrate, outbox, restored and webhooks.

mod backup;
mod dated_backups;
mod erase;
mod export;
mod import;
mod migrate;
mod outbox;
mod reindex;
mod restored;
mod verify;
mod webhook;

pub(super) use self::backup::{BackupError, BackupFlags, run as backup};
pub(super) use self::dated_backups::keep as keep_backup;
pub(super) use self::erase::{EraseFlags, run as erase};
pub(super) use self::export::{ExportFlags, run as export};
pub(super) use self::import::{ImportFlags, run as import};
pub(super) use self::migrate::{MigrateFlags, run as migrate};
pub(super) use self::outbox::{OutboxFlags, run as outbox};
pub(super) use self::reindex::{ReindexFlags, run as reindex};
pub(super) use self::restored::{RestoredFlags, run as restored};
pub(super) use self::verify::{VerifyFlags, run as verify};
pub(super) use self::webhook::{WebhookFlags, run as webhook};
