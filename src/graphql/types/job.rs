//! Jobs of services: work in the background.

use async_graphql::{Enum, ID, Object};

use crate::graphql::error::Result;
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::model::{self, JobId};

/// State of a job.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::JobState")]
pub(crate) enum JobState {
    /// The job goes on, also after a restart.
    Running,
    /// The job has done all of its work.
    Done,
    /// The job ended without its result. The same mutation begins it again.
    Failed,
}

pub(crate) struct Job(model::Job);

impl Job {
    pub(crate) fn new(job: model::Job) -> Self {
        Self(job)
    }

    /// Loads a job, for services that erase. `None` for everyone else.
    pub(crate) async fn load(scope: &ViewerScope, id: JobId) -> Result<Option<Self>> {
        let found = scope.chat.erasure.job(&scope.caller, id).await?;
        Ok(found.map(Self))
    }
}

/// Work in the background that survives restarts, for services with the scope `wideroom:erase`. An
/// ended job is kept for 400 days.
#[Object]
impl Job {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::Job(self.0.id).encode()
    }

    /// State of the job.
    async fn state(&self) -> JobState {
        self.0.state.into()
    }

    /// Progress: the number of messages and reports that the job has read so far, those of other users
    /// included.
    async fn done_count(&self) -> i32 {
        i32::try_from(self.0.done_count).unwrap_or(i32::MAX)
    }

    /// Time of the mutation that began the job.
    async fn started_at(&self) -> DateTime {
        DateTime(self.0.started_at)
    }

    /// Time of the end. Null while the job is RUNNING.
    async fn finished_at(&self) -> Option<DateTime> {
        self.0.finished_at.map(DateTime)
    }

    /// Reason of a failure, in one sentence for operators.
    async fn error(&self) -> Option<&str> {
        self.0.error.as_deref()
    }
}
