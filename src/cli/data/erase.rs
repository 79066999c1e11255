//! `wideroom erase`: erases a user from a store that no server uses, and rewrites its files.

use std::sync::Arc;

use super::import::refuse_while_served;
use crate::bus::Bus;
use crate::chat::{Bounds, Chat};
use crate::cli::error::Error;
use crate::cli::progress::Reporter;
use crate::cli::settings::{STORE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::token::parse_person;
use crate::cli::{RESUMABLE, print, storage};
use crate::clock::Clock;
use crate::config::Config;
use crate::model::{Job, JobState, UserId};
use crate::store::{Store, StoreAdmin};

#[derive(clap::Args)]
pub(in crate::cli) struct EraseFlags {
    /// Username of the user
    #[arg(long, env = "WIDEROOM_USER", hide_env_values = true, value_name = "NAME", value_parser = parse_person)]
    user: UserId,
    #[command(flatten)]
    given: SettingFlags<STORE>,
}

pub(in crate::cli) fn run(flags: &EraseFlags) -> Result<(), Error> {
    let config = storage::existing(&flags.given)?;
    let user = flags.user.clone();
    signals::run(move |stop| carry_out(config, user, stop))
}

async fn carry_out(config: Config, user: UserId, stop: Stop) -> Result<(), Error> {
    let advice = "stop all of them, or ask one of them with the mutation eraseUser";
    let work = async |store: &Arc<dyn StoreAdmin>, clock| {
        refuse_while_served(&**store, advice).await?;
        erase(store, clock, &user, stop).await
    };
    let job = storage::with_store(&config, work).await?;
    print(&format!(
        "erased: messages and reports read {}",
        job.done_count
    ))
}

async fn erase(
    store: &Arc<dyn StoreAdmin>,
    clock: Arc<dyn Clock>,
    user: &UserId,
    stop: Stop,
) -> Result<Job, Error> {
    let live: Arc<dyn Store> = Arc::clone(store) as _;
    let chat = Chat::open(live, Bus::default(), clock, Bounds::default()).await?;
    let mut reporter = Reporter::new(None, "{spinner} {pos} messages and reports, {msg}");
    let on_progress = |job: &Job| {
        let rate = reporter.rate(job.done_count);
        let beside = format!("{rate}/s");
        let line = format!("{} messages and reports read, {beside}", job.done_count);
        reporter.progress(job.done_count, &beside, &line);
    };
    let erasing = chat.erasure.erase_now(user, on_progress);
    let ended = stop.run_until_cancelled(erasing).await;
    reporter.end();
    chat.finish().await;
    let job = ended.ok_or(Error::Interrupted(RESUMABLE))?;
    let job = job.map_err(|error| Error::Erasure(error.to_string()))?;
    if job.state == JobState::Failed {
        return Err(Error::Erasure(job.error.unwrap_or_default()));
    }
    store.compact().await?;
    Ok(job)
}
