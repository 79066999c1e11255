//! One run of a workload: its server, its names, its progress and its cancellation.

use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::client::LoadTarget;
use super::failure::{Error, Failure};
use super::measurement::{Process, UsageMeter};

/// Progress of one activity of a run.
pub struct LoadProgress<'a> {
    pub activity: &'a str,
    pub done: u64,
    pub total: u64,
    /// The same as text for a terminal or a log.
    pub line: &'a str,
}

pub struct LoadRun<'a> {
    pub(crate) target: Arc<LoadTarget>,
    /// The server's process, if it runs on this machine.
    pub(crate) process: Option<Process>,
    /// When cancelled, the run ends early and reports the measurements so far.
    pub(crate) stop: CancellationToken,
    on_progress: &'a mut dyn FnMut(&LoadProgress<'_>),
    id: String,
}

impl<'a> LoadRun<'a> {
    pub fn new(
        target: LoadTarget,
        process: Option<Process>,
        stop: CancellationToken,
        on_progress: &'a mut dyn FnMut(&LoadProgress<'_>),
    ) -> Self {
        let mut id = Uuid::new_v4().simple().to_string();
        id.truncate(8);
        Self {
            target: Arc::new(target),
            process,
            stop,
            on_progress,
            id,
        }
    }

    /// Random id that makes usernames, group names and idempotency keys of this run unique.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn username(&self, number: usize) -> String {
        format!("bench-{}-{:04}", self.id, number + 1)
    }

    pub(crate) fn report_progress(&mut self, activity: &str, done: u64, total: u64, line: &str) {
        (self.on_progress)(&LoadProgress {
            activity,
            done,
            total,
            line,
        });
    }

    /// Starts to measure the time and the resources that the server spends.
    pub(crate) fn measure_usage(&self) -> UsageMeter {
        UsageMeter::start(self.process)
    }

    /// Runs a preparation step. A cancelled run has nothing to report at this stage, so cancellation is an error.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Error> {
        tokio::select! {
            done = work => done.map_err(|failure| Error::refused(self.target.url(), failure)),
            () = self.stop.cancelled() => Err(Error::Interrupted),
        }
    }
}
