//! An engine, opened empty for one test, with the clock that it reads.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::store::Store;
use wideroom::store::embedded::{Embedded, Options};

use super::oracle::Naive;
use crate::support::words::{NOW, new_salt};

/// A store that goes with its test. Opening one begins a case, whose words are its own.
pub struct Stage {
    store: Box<dyn Store>,
    pub clock: Arc<ManualClock>,
    /// Where it lies, where it outlives its process. Gone with the stage.
    folder: Option<tempfile::TempDir>,
}

impl Stage {
    /// As each engine, `None` where it cannot be had, which was said.
    pub async fn naive() -> Option<Self> {
        new_salt();
        Some(Self::oracle())
    }

    /// The naive one beside an engine, in the same case: with the same users and conversations.
    pub fn oracle() -> Self {
        let clock = Arc::new(ManualClock::at(NOW));
        Self { store: Box::new(Naive::new(clock.clone())), clock, folder: None }
    }

    pub async fn embedded() -> Option<Self> {
        new_salt();
        let clock = Arc::new(ManualClock::at(NOW));
        let folder = tempfile::tempdir().unwrap();
        Some(Self { store: open(&folder, &clock).await, clock, folder: Some(folder) })
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Closes the store and opens it again, where it is one that outlives its process.
    pub async fn reopened(self) -> Self {
        let Self { store, clock, folder } = self;
        let Some(folder) = folder else { return Self { store, clock, folder } };
        store.close().await.unwrap();
        drop(store);
        Self { store: open(&folder, &clock).await, clock, folder: Some(folder) }
    }

    pub async fn close(self) {
        self.store.close().await.unwrap();
    }
}

async fn open(folder: &tempfile::TempDir, clock: &Arc<ManualClock>) -> Box<dyn Store> {
    let options = Options { free_bytes_min: 0, ..Options::new(folder.path()) };
    Box::new(Embedded::open(options, clock.clone()).await.unwrap())
}
