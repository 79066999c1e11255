//! Tasks that run writes to their end, also after their client has disconnected. A persisted write
//! must be published.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio_util::task::TaskTracker;

use crate::chat::error::{Error, Result};

/// Time that a shutdown waits for writes in flight.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(30);

pub(crate) struct WriteTasks {
    tracker: TaskTracker,
    outcome_wait: Duration,
}

impl WriteTasks {
    pub(crate) fn new(outcome_wait: Duration) -> Self {
        Self {
            tracker: TaskTracker::new(),
            outcome_wait,
        }
    }

    /// Spawns a task that a shutdown waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(Box::pin(task));
    }

    /// Runs a write to its end in a task of its own, and waits for its outcome up to the deadline.
    ///
    /// The write starts at once. It is boxed, because the runtime copies the future of a task several
    /// times.
    pub(crate) fn run_to_completion<T, W>(
        &self,
        write: W,
    ) -> impl Future<Output = Result<T>> + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let task = self.tracker.spawn(write.boxed());
        let outcome_wait = self.outcome_wait;
        async move {
            match tokio::time::timeout(outcome_wait, task).await {
                Ok(Ok(outcome)) => outcome,
                // The task has panicked, or the store has missed the deadline.
                Ok(Err(_)) | Err(_) => Err(Error::OutcomeUnknown),
            }
        }
    }

    /// Waits for the writes in flight. The caller must start no new ones.
    pub(crate) async fn finish(&self) {
        self.tracker.close();
        if tokio::time::timeout(SHUTDOWN_WAIT, self.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                tasks = self.tracker.len(),
                "some writes did not end before the shutdown deadline; their outcome is unknown"
            );
        }
    }
}
