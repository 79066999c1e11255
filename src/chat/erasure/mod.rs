//! Erasure of users: a job in the store that one server at a time carries out, step by step.
//!
//! Each step can be repeated, and the job is persisted after it: after the death of a server the last step is
//! repeated. A lease, renewed with each step by compare-and-set, keeps other servers away.

mod runner;
mod steps;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::steps::Steps;
use crate::chat::access::Access;
use crate::chat::access::restrictions::require;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::write::WriteService;
use crate::model::{Job, JobId, JobState, ServiceRight, UserId, Viewer};
use crate::store::{FormVersion, Store};

/// Attempts to begin a job while other callers begin or end it.
const TRIES_MAX: usize = 8;
/// Interval in which progress is read.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
const USERNAME_PATH: &[&str] = &["input", "username"];

pub struct ErasureService {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    in_flight: InFlightIds,
    steps: Steps,
    /// Name of this server in leases.
    holder: Uuid,
    runner: OnceLock<()>,
    has_work: Arc<Notify>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl ErasureService {
    pub(crate) fn new(components: &Components, writes: &Arc<WriteService>) -> Self {
        Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            in_flight: components.in_flight.clone(),
            steps: Steps::new(components, writes),
            holder: Uuid::new_v4(),
            runner: OnceLock::new(),
            has_work: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Erases a user in the background, for services. A second call answers with the same job, unless the
    /// user was restored since, or the job failed: then it begins again.
    pub async fn erase(self: &Arc<Self>, caller: &Viewer, username: &str) -> Result<Job> {
        require(caller, ServiceRight::Erase)?;
        let user = parse_erased(username)?;
        if user.is_agent() {
            let message = "an agent is no person, and no list has its conversations: suspend it";
            return Err(Error::bad_input(USERNAME_PATH, message));
        }
        if user == caller.user {
            let message = "a service cannot erase itself";
            return Err(Error::bad_input(USERNAME_PATH, message));
        }
        let job = self.begin(&user).await?;
        self.ensure_runner();
        self.has_work.notify_one();
        Ok(job)
    }

    /// A job, for services that erase. `None` for everyone else.
    pub async fn job(&self, caller: &Viewer, id: JobId) -> Result<Option<Job>> {
        if !caller.may(ServiceRight::Erase) {
            return Ok(None);
        }
        Ok(self.store.jobs(&[id]).await?.pop().flatten())
    }

    /// Erases a user and waits for the end, for operators of a store that nobody serves.
    pub async fn erase_now(
        self: &Arc<Self>,
        user: &UserId,
        mut on_progress: impl FnMut(&Job) + Send,
    ) -> Result<Job> {
        let mut job = self.begin(user).await?;
        self.ensure_runner();
        self.has_work.notify_one();
        while job.state == JobState::Running {
            sleep(PROGRESS_EVERY).await;
            let present = self.store.jobs(&[job.id]).await?.pop().flatten();
            job = present.ok_or(Error::OutcomeUnknown)?;
            on_progress(&job);
        }
        Ok(job)
    }

    /// The running job of a user, or a new one.
    async fn begin(&self, user: &UserId) -> Result<Job> {
        self.access.forms().require(FormVersion::ERASURE).await?;
        let id = JobId::of_erasure(user);
        for _ in 0..TRIES_MAX {
            let present = self.store.jobs(&[id]).await?.pop().flatten();
            if let Some(present) = present {
                let is_done = present.state == JobState::Done && self.is_suspended(user).await?;
                if present.state == JobState::Running || is_done {
                    return Ok(present);
                }
            }
            if self.store.running_jobs(Job::RUNNING_MAX).await?.len() >= Job::RUNNING_MAX {
                return Err(Error::Full("too many erasures are running: try later"));
            }
            let job = Job::erasure(user.clone(), self.in_flight.now());
            if self.store.swap_job(None, &job).await? {
                return Ok(job);
            }
        }
        Err(Error::Busy)
    }

    /// Whether the user is suspended for good, as the store says: another server may have restored them.
    async fn is_suspended(&self, user: &UserId) -> Result<bool> {
        let users = std::slice::from_ref(user);
        let restriction = self.store.restrictions_of(users).await?.pop();
        let suspension = restriction.and_then(|restriction| restriction.suspension);
        Ok(suspension.is_some_and(|suspension| suspension.until.is_none()))
    }

    /// Stops the runner once the chat is dropped.
    pub(crate) fn stop_on_drop(&self) -> DropGuard {
        self.stop.clone().drop_guard()
    }

    /// Stops the runner, and waits for its step. The job stays where it is.
    pub(crate) async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn parse_erased(username: &str) -> Result<UserId> {
    UserId::parse_living(username).map_err(|error| Error::bad_input(USERNAME_PATH, error))
}
