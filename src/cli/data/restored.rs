//! `wideroom restored`: notes that a store was restored from a copy of files that no server wrote as a backup.

use std::sync::Arc;

use super::import::refuse_while_served;
use crate::cli::error::Error;
use crate::cli::settings::{STORE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::{REPEATABLE, print, storage};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::model::Timestamp;
use crate::store::{StoreAdmin, note_restored};

#[derive(clap::Args)]
pub(in crate::cli) struct RestoredFlags {
    #[command(flatten)]
    given: SettingFlags<STORE>,
}

pub(in crate::cli) fn run(flags: &RestoredFlags) -> Result<(), Error> {
    let config = storage::existing(&flags.given)?;
    signals::run(move |stop| carry_out(config, stop))
}

async fn carry_out(config: Config, stop: Stop) -> Result<(), Error> {
    let work = async |store: &Arc<dyn StoreAdmin>, _| {
        let noted = stop.run_until_cancelled(note(&**store)).await;
        noted.ok_or(Error::Interrupted(REPEATABLE))?
    };
    let since = storage::with_store(&config, work).await?;
    print(&format!(
        "cursors of streams from before {since} are expired: clients that resume with one read again"
    ))
}

async fn note(store: &dyn StoreAdmin) -> Result<Timestamp, Error> {
    refuse_while_served(store, "stop all of them first").await?;
    let now = SystemClock.now();
    note_restored(store, now).await?;
    Ok(now)
}
