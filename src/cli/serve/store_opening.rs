//! Opening of a server's store, and the wait of a start for a store that is away: it comes back without an operator.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::admin::{RunningServer, STARTING};
use crate::cli::data::keep_backup;
use crate::cli::error::Error;
use crate::cli::storage;
use crate::clock::Clock;
use crate::config::{Config, StoreChoice};
use crate::metrics::Metrics;
use crate::store::embedded::{Embedded, OpenError};
use crate::store::{self, InstrumentedStore, NOTE_EARLIER_STATE, StoreAdmin, note_restored};

/// Pause between two tries.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Interval of the log lines about a store that stays away.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Store of a server, which answers.
pub(super) struct ServedStore {
    pub(super) store: Arc<dyn StoreAdmin>,
    /// Same store, if it is embedded in this process.
    pub(super) embedded: Option<Arc<Embedded>>,
}

impl ServedStore {
    /// Opens the store, and waits for one that is unreachable, has no quorum, or is locked by a server that is
    /// about to end. What only an operator can mend is an error.
    pub(super) async fn open_with_retries(
        config: &Config,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
        running: &RunningServer,
    ) -> Result<Self, Error> {
        let mut wait = StoreWait::new(running);
        wait.until_done(async || Self::open(config, clock, metrics).await)
            .await
    }

    async fn open(
        config: &Config,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        let clock = Arc::clone(clock);
        match &config.store {
            StoreChoice::Embedded => {
                let store = Arc::new(storage::open_embedded(config, clock.clone()).await?);
                if store.note(NOTE_EARLIER_STATE).await?.is_some() {
                    note_restored(store.as_ref(), clock.now()).await?;
                    tracing::warn!(
                        "the server starts on a backup, or after a loss: streams that resume from an earlier cursor read again (CURSOR_EXPIRED)"
                    );
                }
                if let Err(error) = keep_backup(&config.data) {
                    tracing::warn!(%error, "the server failed to delete the file dated-backup in its data folder: delete the file, or `wideroom backup --keep` may delete the folder");
                }
                store.register(metrics);
                Ok(Self::instrumented(store.clone(), Some(store), metrics))
            }
            StoreChoice::Cql(address) => {
                let store = Arc::new(storage::open_cluster(address, clock).await?);
                answers(store.as_ref()).await?;
                store.register(metrics);
                Ok(Self::instrumented(store, None, metrics))
            }
        }
    }

    fn instrumented(
        store: Arc<dyn StoreAdmin>,
        embedded: Option<Arc<Embedded>>,
        metrics: &Metrics,
    ) -> Self {
        let store = Arc::new(InstrumentedStore::new(store));
        store.register(metrics);
        Self { store, embedded }
    }

    /// Waits until an embedded store cannot be opened again after a fault, and no retry mends that.
    pub(super) fn lost(&self) -> impl Future<Output = OpenError> + use<> {
        let embedded = self.embedded.clone();
        async move {
            match embedded {
                Some(store) => store.lost().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Whether the store answers reads.
    pub(super) async fn answers(&self) -> store::Result<()> {
        answers(self.store.as_ref()).await
    }
}

/// Wait of a starting server for its store. `/readyz` says the reason, and the log says it at first and then each minute.
pub(super) struct StoreWait<'a> {
    running: &'a RunningServer,
    began: Instant,
    logged_at: Option<Instant>,
}

impl<'a> StoreWait<'a> {
    pub(super) fn new(running: &'a RunningServer) -> Self {
        Self {
            running,
            began: Instant::now(),
            logged_at: None,
        }
    }

    /// Repeats a step of the start until the store lets it succeed. What only an operator can mend is an error. A step
    /// may have been done in part.
    pub(super) async fn until_done<T>(
        &mut self,
        mut step: impl AsyncFnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let error = match step().await {
                Ok(done) => {
                    STARTING.clone_into(&mut self.running.waits_for.lock());
                    return Ok(done);
                }
                Err(error) if error.is_transient(self.began.elapsed()) => error,
                Err(error) => return Err(error),
            };
            let reason = format!("the server waits for its store: {error}");
            if self.logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
                tracing::warn!(waited = ?self.began.elapsed(), "{reason}");
                self.logged_at = Some(Instant::now());
            }
            *self.running.waits_for.lock() = reason;
            sleep(RETRY_EVERY).await;
        }
    }
}

/// A read that every store must look up.
async fn answers(store: &dyn StoreAdmin) -> store::Result<()> {
    store.imported_at().await.map(drop)
}
