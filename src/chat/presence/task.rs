//! Presence task: expires the entries of the presence table, and persists when users were last
//! seen.
//!
//! The last-seen time of a user is persisted on connection, at an interval while the user is
//! online, and when the user leaves.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::table::PresenceTable;
use crate::model::{Timestamp, UserId};
use crate::store::Store;

const CONCURRENCY: usize = 32;
/// Deadline for one round of writes, so that expirations are published in time although the store
/// is slow.
const PERSIST_WAIT: Duration = Duration::from_secs(5);
/// Time that a shutdown waits for the last writes.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// Runs until it is dropped.
pub(crate) struct PresenceTask {
    store: Arc<dyn Store>,
    table: Arc<PresenceTable>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl PresenceTask {
    /// `stop` is the token that ends [`PresenceTable::wait`].
    pub(crate) fn spawn(
        store: Arc<dyn Store>,
        table: Arc<PresenceTable>,
        stop: CancellationToken,
    ) -> Self {
        let tasks = TaskTracker::new();
        tasks.spawn(run(Arc::downgrade(&store), Arc::clone(&table)));
        Self {
            store,
            table,
            tasks,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Stops the task, and persists the last-seen times that are left.
    pub(crate) async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        let last = async {
            self.tasks.wait().await;
            persist(&self.store, &self.table, self.table.take_all()).await;
        };
        if timeout(SHUTDOWN_WAIT, last).await.is_err() {
            tracing::warn!("the server failed to persist the last-seen time of some users");
        }
    }
}

/// The store is held weakly, so that it closes as soon as the chat is dropped.
async fn run(store: Weak<dyn Store>, table: Arc<PresenceTable>) {
    while table.wait().await {
        table.expire(Instant::now());
        let due = table.take_due(Instant::now());
        if !due.is_empty() {
            let Some(store) = store.upgrade() else { return };
            let _ = timeout(PERSIST_WAIT, persist(&store, &table, due)).await;
        }
    }
}

/// A write that fails is repeated with the next one of its user.
async fn persist(store: &Arc<dyn Store>, table: &PresenceTable, seen: Vec<(UserId, Timestamp)>) {
    let persist_one = async |(user, at): (UserId, Timestamp)| {
        if let Err(error) = store.mark_seen(&user, at).await {
            tracing::debug!(%error, "the server failed to persist the last-seen time of a user");
            table.put_back(&user, at);
        }
    };
    stream::iter(seen)
        .for_each_concurrent(CONCURRENCY, persist_one)
        .await;
}
