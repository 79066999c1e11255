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
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&config.data);
    made.map_err(|source| Error::Folder { path: config.data.clone(), source })
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
