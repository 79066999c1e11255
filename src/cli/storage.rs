//! Data folder and store of a configuration.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Error;
use super::settings::{STORE, SettingFlags};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, StoreChoice};
use crate::store::StoreAdmin;
use crate::store::cql::{Address, Cql};
use crate::store::embedded::{Embedded, Options};
use crate::telemetry;

/// Interval of the log lines of a store that opens slowly.
const SLOW_OPEN_EVERY: Duration = Duration::from_secs(5);

/// Creates a missing data folder, private to its owner. Blocks.
pub(super) fn create_folder(config: &Config) -> Result<(), Error> {
    let created = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.data);
    created.map_err(|source| Error::Folder {
        path: config.data.clone(),
        source,
    })
}

/// Refuses a folder without a store: a command that reads must not create one. Blocks.
pub(super) fn require_existing(config: &Config) -> Result<(), Error> {
    match &config.store {
        StoreChoice::Embedded if !Embedded::is_in(&config.data) => {
            Err(Error::NoStore(config.data.clone()))
        }
        StoreChoice::Embedded | StoreChoice::Cql(_) => Ok(()),
    }
}

/// The configuration of a command on a store that must exist. Only warnings and errors are logged.
pub(super) fn existing(flags: &SettingFlags<STORE>) -> Result<Config, Error> {
    let config = flags.config()?;
    telemetry::init("warn", config.log_format)?;
    require_existing(&config)?;
    Ok(config)
}

/// Name that identifies a store. Blocks.
pub(super) fn name(config: &Config) -> String {
    match &config.store {
        StoreChoice::Cql(address) => address.to_string(),
        StoreChoice::Embedded => config
            .data
            .canonicalize()
            .unwrap_or_else(|_| config.data.clone())
            .display()
            .to_string(),
    }
}

/// Runs a command on the store, which is closed whatever the outcome.
pub(super) async fn with_store<T>(
    config: &Config,
    command: impl AsyncFnOnce(&Arc<dyn StoreAdmin>, Arc<dyn Clock>) -> Result<T, Error>,
) -> Result<T, Error> {
    let store = open(config, Arc::new(SystemClock)).await?;
    let done = command(&store, Arc::new(SystemClock)).await;
    let closed = store.close().await;
    let done = done?;
    closed?;
    Ok(done)
}

pub(super) async fn open(
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn StoreAdmin>, Error> {
    Ok(match &config.store {
        StoreChoice::Embedded => Arc::new(open_embedded(config, clock).await?),
        StoreChoice::Cql(address) => Arc::new(open_cluster(address, clock).await?),
    })
}

/// Opens the store on a cluster. A slow cluster is logged every few seconds, so that an operator sees
/// what the start waits for.
pub(super) async fn open_cluster(address: &Address, clock: Arc<dyn Clock>) -> Result<Cql, Error> {
    let began = Instant::now();
    let opening = Cql::open(address.clone(), clock);
    tokio::pin!(opening);
    loop {
        match tokio::time::timeout(SLOW_OPEN_EVERY, &mut opening).await {
            Ok(opened) => return Ok(opened?),
            Err(_) => tracing::warn!(
                %address,
                waited = ?began.elapsed(),
                "the store on the cluster is not open yet; the cluster answers slowly or not at all"
            ),
        }
    }
}

pub(super) async fn open_embedded(
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Result<Embedded, Error> {
    let options = Options {
        path: config.data.clone(),
        cache_bytes: config.cache_bytes,
        free_bytes_min: config.free_bytes_min,
        accept_loss: config.accept_loss,
    };
    Ok(Embedded::open(options, clock).await?)
}
