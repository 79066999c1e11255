//! An engine, opened empty for one test, with the clock that it reads.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::store::Store;

use super::oracle::Naive;
use crate::support::words::NOW;

/// A store that goes with its test.
pub struct Stage {
    store: Box<dyn Store>,
    pub clock: Arc<ManualClock>,
}

impl Stage {
    pub async fn naive() -> Self {
        let clock = Arc::new(ManualClock::at(NOW));
        Self { store: Box::new(Naive::new(clock.clone())), clock }
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Closes the store and opens it again, where it is one that outlives its process.
    pub async fn reopened(self) -> Self {
        self
    }

    pub async fn close(self) {
        self.store.close().await.unwrap();
    }
}
