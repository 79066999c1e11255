//! Location of a store: its own folder, or its own keyspace on a Cassandra.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::future::try_join_all;
use tempfile::TempDir;
use wideroom::chat::Bounds;
use wideroom::clock::{Clock, SystemClock};
use wideroom::store::StoreAdmin;
use wideroom::store::cql::{Address, migrate};
use wideroom::store::embedded::{Embedded, OpenError, Options};

use super::cassandra::{Shared, pool};
use super::program::Program;

/// The Cassandra on which worlds lie in this process, as `[user:password@]host:port`. Without it they lie in folders.
pub(crate) const CLUSTER: &str = "WIDEROOM_TEST_WORLDS_ON";

/// Keyspaces that nobody is in any more. To empty one is quicker than to make one, and a small node bears only so many.
static LEFT: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Writes that the node had counted when it last emptied the tables of a keyspace.
static WRITTEN: LazyLock<Mutex<HashMap<String, HashMap<String, i64>>>> =
    LazyLock::new(Mutex::default);

/// An attempt looks at the folder's files: so many take minutes.
const OPENINGS_MAX: usize = 1_000_000;

pub(crate) struct Ground {
    /// The store's own, or what an import lays aside.
    folder: TempDir,
    cluster: Option<Keyspace>,
}

/// A keyspace of the tests' own, empty at first, which another test has once this one has ended.
pub(crate) struct Keyspace {
    authority: String,
    name: String,
}

impl Ground {
    pub(crate) async fn new(clock: &dyn Clock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = match std::env::var(CLUSTER) {
            Ok(authority) => Some(Keyspace::empty(authority, clock).await),
            Err(_) => None,
        };
        Self { folder, cluster }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn StoreAdmin> {
        if let Some(keyspace) = &self.cluster {
            return Arc::new(pool::open(keyspace.address(), clock).await);
        }
        let options = Options {
            path: self.folder().to_owned(),
            cache_bytes: 16 << 20,
            free_bytes_min: 0,
            accept_loss: false,
        };
        Arc::new(opened(options, clock).await)
    }
}

/// Bounds with long waits: on a busy machine a store answers when it can, and that is not what is tested here.
pub(crate) fn patient(bounds: Bounds) -> Bounds {
    Bounds {
        queue_wait: Duration::from_secs(20),
        outcome_wait: Duration::from_secs(30),
        ..bounds
    }
}

/// The store of a folder, once nobody has it any more: a read of the store before may end a moment after it was closed.
pub(crate) async fn opened(options: Options, clock: Arc<dyn Clock>) -> Embedded {
    for _ in 0..OPENINGS_MAX {
        match Embedded::open(options.clone(), Arc::clone(&clock)).await {
            Err(OpenError::InUse(_)) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    }
    panic!("{} stays in use", options.path.display());
}

impl Keyspace {
    pub(crate) async fn empty(authority: String, clock: &dyn Clock) -> Self {
        let left = LEFT.lock().unwrap().pop();
        if let Some(name) = left {
            let keyspace = Self { authority, name };
            keyspace.truncate().await;
            return keyspace;
        }
        let keyspace = Self {
            authority,
            name: format!("world_{}", uuid::Uuid::new_v4().simple()),
        };
        migrate(&keyspace.address(), Some(1), clock).await.unwrap();
        // To empty a table that needs no journal is to drop what is in memory, without writing it to the disk first.
        let unlogged = format!(
            "ALTER KEYSPACE \"{}\" WITH durable_writes = false",
            keyspace.name
        );
        let session = pool::session(&keyspace.authority).await;
        session.query_unpaged(unlogged, ()).await.unwrap();
        keyspace
    }

    /// As `--store` has it. What is tested here is not how fast a busy machine answers.
    pub(crate) fn url(&self) -> String {
        format!("cql://{}/{}?timeout=10s", self.authority, self.name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn address(&self) -> Address {
        self.url().parse().unwrap()
    }

    /// Empties the tables that were written to since they were empty: to empty one takes as long as many statements.
    async fn truncate(&self) {
        let session = pool::session(&self.authority).await;
        let written = "SELECT table_name, count FROM system_views.local_write_latency WHERE keyspace_name = ?";
        let tables = session
            .query_unpaged(written, (&self.name,))
            .await
            .unwrap()
            .into_rows_result()
            .unwrap();
        let counts: HashMap<String, i64> = tables
            .rows::<(String, i64)>()
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(counts.len() > 30, "tables were found: {counts:?}");
        let known = WRITTEN
            .lock()
            .unwrap()
            .remove(&self.name)
            .unwrap_or_default();
        let names = counts.iter().filter(|(name, count)| {
            *name != "schema_migrations" && **count > 0 && known.get(*name) != Some(count)
        });
        let names: Vec<_> = names.map(|(name, _)| name.clone()).collect();
        WRITTEN.lock().unwrap().insert(self.name.clone(), counts);
        let texts: Vec<_> = names
            .iter()
            .map(|name| format!("TRUNCATE \"{}\".\"{name}\"", self.name))
            .collect();
        try_join_all(
            texts
                .iter()
                .map(|text| session.query_unpaged(text.as_str(), ())),
        )
        .await
        .unwrap();
    }
}

impl Program {
    /// On a keyspace with its tables, which is empty.
    pub(crate) async fn on_cluster(shared: &Shared) -> Self {
        let keyspace = Keyspace::empty(shared.authority().to_owned(), &SystemClock).await;
        Self::on_leased(keyspace.url(), keyspace)
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        // A test that failed leaves its own as it is.
        if !std::thread::panicking() {
            LEFT.lock().unwrap().push(std::mem::take(&mut self.name));
        }
    }
}
