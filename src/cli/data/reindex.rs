//! `wideroom reindex`: builds the search index of a store again.

use std::sync::Arc;

use crate::chat::{self, Bounds, IndexUpkeep};
use crate::cli::error::Error;
use crate::cli::progress::Reporter;
use crate::cli::settings::{STORE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::{print, storage};
use crate::clock::Clock;
use crate::config::Config;
use crate::model::ConversationId;
use crate::store::{Store, StoreAdmin};

/// Advice after an interruption.
const INTERRUPTED: &str = "the conversations that were not reached keep the index that they have; the same command begins again";

#[derive(clap::Args)]
pub(in crate::cli) struct ReindexFlags {
    #[command(flatten)]
    given: SettingFlags<STORE>,
}

pub(in crate::cli) fn run(flags: &ReindexFlags) -> Result<(), Error> {
    let config = storage::existing(&flags.given)?;
    signals::run(move |stop| reindex(config, stop))
}

async fn reindex(config: Config, stop: Stop) -> Result<(), Error> {
    let (mut conversations, mut messages) = (0, 0);
    let work = async |store: &_, clock| {
        let mut reporter = Reporter::new(None, "{spinner} {pos} messages, {msg}");
        let rebuild = async |upkeep: &IndexUpkeep, id| {
            messages += upkeep.rebuild(id).await?;
            conversations += 1;
            let rate = reporter.rate(messages);
            let beside = format!("{conversations} conversations, {rate}/s");
            let line = format!("{messages} messages indexed, {beside}");
            reporter.progress(messages, &beside, &line);
            Ok(())
        };
        let is_complete = each_index(store, clock, &stop, rebuild).await;
        reporter.end();
        match is_complete? {
            true => Ok(()),
            false => Err(Error::Interrupted(INTERRUPTED)),
        }
    };
    storage::with_store(&config, work).await?;
    print(&format!(
        "indexed: {messages} messages of {conversations} conversations"
    ))
}

/// Visits the search index of each conversation. Returns whether it reached the end.
pub(super) async fn each_index(
    store: &Arc<dyn StoreAdmin>,
    clock: Arc<dyn Clock>,
    stop: &Stop,
    mut visit: impl AsyncFnMut(&IndexUpkeep, ConversationId) -> chat::Result<()>,
) -> Result<bool, Error> {
    let failed = |error: chat::Error| Error::Index(error.to_string());
    let live: Arc<dyn Store> = Arc::clone(store) as _;
    let upkeep = IndexUpkeep::open(live, clock, &Bounds::default()).await;
    let upkeep = upkeep.map_err(failed)?;
    let mut after = None;
    loop {
        let piece = upkeep.conversations(after).await.map_err(failed)?;
        for id in &piece.conversations {
            if stop.is_cancelled() {
                return Ok(false);
            }
            visit(&upkeep, *id).await.map_err(failed)?;
        }
        after = piece.conversations.last().copied();
        if !piece.has_next {
            return Ok(true);
        }
    }
}
