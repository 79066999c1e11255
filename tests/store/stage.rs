//! An engine, opened empty for one test, with the clock that it reads.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, OnceCell};
use wideroom::clock::{ManualClock, SystemClock};
use wideroom::store::cql::{Address, migrate};
use wideroom::store::embedded::Options;
use wideroom::store::{InstrumentedStore, StoreAdmin};

use super::oracle::Naive;
use crate::support::cassandra::{pool, shared};
use crate::support::ground::opened;
use crate::support::words::{NOW, new_salt, new_salt_among_others};

/// A store that goes with its test. Opening one begins a case, whose words are its own.
pub struct Stage {
    store: Box<dyn StoreAdmin>,
    pub clock: Arc<ManualClock>,
    /// Folder of a store on disk, deleted with the stage.
    folder: Option<tempfile::TempDir>,
    is_slow: bool,
    rows: RowCounter,
}

/// Count of the rows that an engine has read.
type RowCounter = Box<dyn Fn() -> u64 + Send + Sync>;

impl Stage {
    /// As each engine, `None` where it cannot be had, which was said.
    pub async fn naive() -> Option<Self> {
        new_salt();
        Some(Self::oracle())
    }

    /// The naive one beside an engine, in the same case: with the same users and conversations.
    pub fn oracle() -> Self {
        let clock = Arc::new(ManualClock::at(NOW));
        Self {
            store: Box::new(Naive::new(clock.clone())),
            clock,
            folder: None,
            is_slow: true,
            rows: Box::new(|| 0),
        }
    }

    pub async fn embedded() -> Option<Self> {
        new_salt();
        let clock = Arc::new(ManualClock::at(NOW));
        let folder = tempfile::tempdir().unwrap();
        let (store, rows) = open(&folder, &clock).await;
        Some(Self {
            store,
            clock,
            folder: Some(folder),
            is_slow: false,
            rows,
        })
    }

    /// In one keyspace with the other cases of its run: to make the tables takes seconds.
    pub async fn cassandra() -> Option<Self> {
        Some(Self::cassandra_at(keyspace().await?).await)
    }

    /// In the keyspace of cases that verify all of it.
    pub async fn cassandra_alone() -> Option<(Self, MutexGuard<'static, ()>)> {
        let (address, alone) = keyspace_alone().await?;
        Some((Self::cassandra_at(address).await, alone))
    }

    async fn cassandra_at(address: Address) -> Self {
        new_salt_among_others();
        let clock = Arc::new(ManualClock::at(NOW));
        let store = Arc::new(pool::open(address, clock.clone()).await);
        let counted = Arc::clone(&store);
        Self {
            store: Box::new(InstrumentedStore::new(store)),
            clock,
            folder: None,
            is_slow: true,
            rows: Box::new(move || counted.rows_read()),
        }
    }

    pub fn store(&self) -> &dyn StoreAdmin {
        &*self.store
    }

    /// Whether ten thousand changes take more than a minute: a cluster decides each, and the naive one copies all rows.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Rows that the engine has read. 0 for the naive one.
    pub fn rows_read(&self) -> u64 {
        (self.rows)()
    }

    /// Whether it is a store that outlives its process.
    pub fn is_on_disk(&self) -> bool {
        self.folder.is_some()
    }

    /// Closes the store and opens it again, where it is one that outlives its process.
    pub async fn reopened(self) -> Self {
        let Self {
            store,
            clock,
            folder,
            is_slow,
            rows,
        } = self;
        let Some(folder) = folder else {
            return Self {
                store,
                clock,
                folder,
                is_slow,
                rows,
            };
        };
        store.close().await.unwrap();
        drop((store, rows));
        let (store, rows) = open(&folder, &clock).await;
        Self {
            store,
            clock,
            folder: Some(folder),
            is_slow,
            rows,
        }
    }

    pub async fn close(self) {
        self.store.close().await.unwrap();
    }
}

async fn open(
    folder: &tempfile::TempDir,
    clock: &Arc<ManualClock>,
) -> (Box<dyn StoreAdmin>, RowCounter) {
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let store = Arc::new(opened(options, clock.clone()).await);
    let counted = Arc::clone(&store);
    // As it is served.
    (
        Box::new(InstrumentedStore::new(store)),
        Box::new(move || counted.rows_scanned()),
    )
}

/// The keyspace of this run, with its tables. `None` where no Cassandra can be had.
pub async fn keyspace() -> Option<Address> {
    static ADDRESS: OnceCell<Address> = OnceCell::const_new();
    let shared = shared().await?;
    let made = ADDRESS.get_or_init(async || make_keyspace(&shared.url(&name())).await);
    Some(made.await.clone())
}

/// A keyspace for cases that verify all of it, one at a time: a repair meets no damage of another
/// case, and the rows of few cases are read.
pub async fn keyspace_alone() -> Option<(Address, MutexGuard<'static, ()>)> {
    static ADDRESS: OnceCell<Address> = OnceCell::const_new();
    static ALONE: Mutex<()> = Mutex::const_new(());
    let shared = shared().await?;
    let alone = ALONE.lock().await;
    let made = ADDRESS.get_or_init(async || make_keyspace(&shared.url(&name())).await);
    Some((made.await.clone(), alone))
}

fn name() -> String {
    format!("wideroom_{}", uuid::Uuid::new_v4().simple())
}

async fn make_keyspace(url: &str) -> Address {
    let address: Address = url.parse().unwrap();
    migrate(&address, Some(1), &SystemClock).await.unwrap();
    address
}
