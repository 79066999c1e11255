//! An engine, opened empty for one test, with the clock that it reads.

use std::sync::Arc;

use tempfile::TempDir;
use wideroom::clock::ManualClock;
use wideroom::store::Store;
use wideroom::store::embedded::{Embedded, Options};

use super::oracle::Naive;
use crate::support::words::NOW;

/// A store that goes with its test.
pub struct Stage {
    store: Box<dyn Store>,
    pub clock: Arc<ManualClock>,
    /// Where it keeps its data, if it outlives its process.
    folder: Option<TempDir>,
}

impl Stage {
    pub async fn naive() -> Self {
        let clock = Arc::new(ManualClock::at(NOW));
        Self { store: Box::new(Naive::new(clock.clone())), clock, folder: None }
    }

    pub async fn embedded() -> Self {
        let (clock, folder) = (Arc::new(ManualClock::at(NOW)), TempDir::new().unwrap());
        Self { store: Self::open(&folder, &clock).await, clock, folder: Some(folder) }
    }

    async fn open(folder: &TempDir, clock: &Arc<ManualClock>) -> Box<dyn Store> {
        let options = Options { path: folder.path().join("data"), cache_bytes: 8 << 20, free_bytes_min: 0, accept_loss: false };
        Box::new(Embedded::open(options, clock.clone()).await.unwrap())
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Closes the store and opens it again, where it is one that outlives its process.
    pub async fn reopened(self) -> Self {
        let Self { mut store, clock, folder } = self;
        if let Some(folder) = &folder {
            store.close().await.unwrap();
            drop(store);
            store = Self::open(folder, &clock).await;
        }
        Self { store, clock, folder }
    }

    pub async fn close(self) {
        self.store.close().await.unwrap();
    }
}
