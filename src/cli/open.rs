//! Opens what the configuration names: the data folder and the store.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;

use super::Error;
use crate::clock::Clock;
use crate::config::{Config, StoreChoice};
use crate::store::Store;
use crate::store::cql::{Address, Cql};
use crate::store::embedded::{Embedded, Options};

/// Made where there is none, for its owner alone: it holds what people write to each other. Blocks.
pub(super) fn folder(config: &Config) -> Result<(), Error> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.data);
    made.map_err(|source| Error::Folder {
        path: config.data.clone(),
        source,
    })
}

/// Refuses a folder without a store: to read one makes none. Blocks.
pub(super) fn existing(config: &Config) -> Result<(), Error> {
    match &config.store {
        StoreChoice::Embedded if !Embedded::is_in(&config.data) => {
            Err(Error::NoStore(config.data.clone()))
        }
        StoreChoice::Embedded | StoreChoice::Cql(_) => Ok(()),
    }
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

pub(super) async fn store(config: &Config, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, Error> {
    Ok(match &config.store {
        StoreChoice::Embedded => Arc::new(embedded(config, clock).await?),
        StoreChoice::Cql(address) => Arc::new(cluster(address, clock).await?),
    })
}

pub(super) async fn cluster(address: &Address, clock: Arc<dyn Clock>) -> Result<Cql, Error> {
    Ok(Cql::open(address.clone(), clock).await?)
}

pub(super) async fn embedded(config: &Config, clock: Arc<dyn Clock>) -> Result<Embedded, Error> {
    let options = Options {
        path: config.data.clone(),
        cache_bytes: config.cache_bytes,
        free_bytes_min: config.free_bytes_min,
        accept_loss: config.accept_loss,
    };
    Ok(Embedded::open(options, clock).await?)
}
