//! Sample data of `--demo`.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::cli::error::Error;
use crate::clock::Clock;
use crate::store::{NOTE_IMPORTED_AT, StoreAdmin};
use crate::transfer::import::{Import, ImportReport};
use crate::transfer::line::Line;

const SAMPLE: &str = include_str!("../demo.jsonl");

/// Usernames of the sample.
pub(super) fn users() -> Vec<String> {
    let user = |line: &str| {
        if let Ok(Line::User(user)) = Line::parse(line.as_bytes()) {
            Some(user.username)
        } else {
            None
        }
    };
    SAMPLE.lines().filter_map(user).collect()
}

/// Loads the sample into an empty store. A store with data stays as it is, so that a demo can be restarted.
pub(super) async fn load(
    store: &Arc<dyn StoreAdmin>,
    clock: Arc<dyn Clock>,
    data: &Path,
) -> Result<(), Error> {
    if store.newest_id().await?.is_some() || store.note(NOTE_IMPORTED_AT).await?.is_some() {
        tracing::info!("the store is not empty; the server does not load the sample");
        return Ok(());
    }
    let import = Import {
        store: store.clone(),
        clock,
        dir: data.to_owned(),
        is_lossy: false,
        stop: CancellationToken::new(),
    };
    let on_report = &mut |report: ImportReport<'_>| {
        if let ImportReport::Broken(fault) = report {
            tracing::warn!(
                line = fault.line,
                reason = fault.reason,
                "the import skipped a line of the sample"
            );
        }
    };
    let counts = import.pipe(SAMPLE.as_bytes(), on_report).await?.counts;
    tracing::info!(
        conversations = counts.conversations.added,
        messages = counts.messages.added,
        "the server loaded the sample"
    );
    Ok(())
}
