//! Pools of connections, which many tests use one after another: to prepare every statement takes longer than most of them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex};

use scylla::client::session::Session;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use wideroom::clock::Clock;
use wideroom::store::cql::{Address, Connection, Cql};

/// Outlives each test, whose own runtime ends with it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
});
static CONNECTIONS: LazyLock<Pool<Connection>> = LazyLock::new(Pool::default);
static SESSIONS: LazyLock<Pool<Session>> = LazyLock::new(Pool::default);

/// Connections by their addresses.
struct Pool<T>(Mutex<HashMap<String, Arc<OnceCell<Arc<T>>>>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + Sync + 'static> Pool<T> {
    async fn get(&self, to: &str, open: impl Future<Output = T> + Send + 'static) -> Arc<T> {
        let cell = Arc::clone(self.0.lock().unwrap().entry(to.to_owned()).or_default());
        let opened = cell.get_or_init(|| async { Arc::new(RUNTIME.spawn(open).await.unwrap()) });
        Arc::clone(opened.await)
    }
}

/// A store of its own on a keyspace whose tables stay as they are.
pub(crate) async fn open(address: Address, clock: Arc<dyn Clock>) -> Cql {
    let to = address.to_setting();
    let connect = async move { Cql::connect(address).await.unwrap() };
    Cql::on(CONNECTIONS.get(&to, connect).await, clock).await
}

/// As [`session`](super::session) has it, for a node that lives as long as this process.
pub(crate) async fn session(authority: &str) -> Arc<Session> {
    let owned = authority.to_owned();
    let connect = async move { super::session(&owned).await };
    SESSIONS.get(authority, connect).await
}
