//! `wideroom outbox`: switches the outbox of a deployment on or off, and shows whether it is on.

use std::sync::Arc;

use crate::chat::OUTBOX_BEGINS_AFTER_MICROS;
use crate::cli::error::Error;
use crate::cli::settings::{STORE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::{REPEATABLE, print, storage};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::model::Timestamp;
use crate::store::StoreAdmin;
use crate::telemetry;

#[derive(clap::Args)]
pub(in crate::cli) struct OutboxFlags {
    /// Switch the outbox on or off, or show whether it is on
    #[arg(value_enum)]
    action: OutboxAction,
    #[command(flatten)]
    given: SettingFlags<STORE>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OutboxAction {
    On,
    Off,
    Status,
}

pub(in crate::cli) fn run(flags: &OutboxFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    telemetry::init("warn", config.log_format)?;
    let action = flags.action;
    if action == OutboxAction::On {
        storage::create_folder(&config)?;
    } else {
        storage::require_existing(&config)?;
    }
    signals::run(move |stop| carry_out(config, action, stop))
}

async fn carry_out(config: Config, action: OutboxAction, stop: Stop) -> Result<(), Error> {
    let work = async |store: &Arc<dyn StoreAdmin>, _| {
        let done = stop.run_until_cancelled(switch(&**store, action)).await;
        done.ok_or(Error::Interrupted(REPEATABLE))?
    };
    let since = storage::with_store(&config, work).await?;
    print(&sentence(since))
}

/// Carries out the action. Returns the time from which the outbox is on.
async fn switch(store: &dyn StoreAdmin, action: OutboxAction) -> Result<Option<Timestamp>, Error> {
    let since = store.outbox_since().await?;
    match (action, since) {
        (OutboxAction::On, None) => {
            // Running servers read the switch every few seconds.
            let is_served = match store.cluster() {
                Some(cluster) => !cluster.beats().await?.is_empty(),
                None => false,
            };
            let wait = if is_served {
                OUTBOX_BEGINS_AFTER_MICROS
            } else {
                0
            };
            let since = SystemClock.now().plus_micros(wait);
            store.set_outbox(Some(since)).await?;
            Ok(Some(since))
        }
        (OutboxAction::Off, Some(_)) => {
            store.set_outbox(None).await?;
            Ok(None)
        }
        (OutboxAction::On | OutboxAction::Status, Some(_))
        | (OutboxAction::Off | OutboxAction::Status, None) => Ok(since),
    }
}

fn sentence(since: Option<Timestamp>) -> String {
    match since {
        Some(since) => format!("the outbox is on: it has the events since {since}"),
        None => "the outbox is off".to_owned(),
    }
}
