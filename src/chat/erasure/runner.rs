//! Runner of erasures: looks for jobs without a lease, and works on one at a time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::ErasureService;
use crate::chat::error::{Error, Result};
use crate::model::{Job, JobLease, JobState};
use crate::store;

/// Interval in which a server looks for jobs whose server has died.
const POLL_EVERY: Duration = Duration::from_secs(30);
/// A lease ends so long after the last step of its holder.
const LEASE_MICROS: i64 = 120 * 1_000_000;
/// Deadline of one step. It may be repeated.
const STEP_MAX: Duration = Duration::from_secs(60);
/// Pauses between attempts of one step.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Attempts of one step, about ten minutes. After them the job waits for the next poll.
const STEP_TRIES: usize = 24;
/// Error of a job, in one sentence for operators.
const DAMAGED: &str =
    "a row of the store cannot be read: run `wideroom verify`, then erase the user again";

impl ErasureService {
    /// Starts the runner if the store has jobs, or others may add some.
    pub(crate) async fn resume(self: &Arc<Self>) -> store::Result<()> {
        let has_jobs = !self.store.running_jobs(1).await?.is_empty();
        if has_jobs || self.in_flight.is_shared() {
            self.ensure_runner();
        }
        if has_jobs {
            self.has_work.notify_one();
        }
        Ok(())
    }

    pub(super) fn ensure_runner(self: &Arc<Self>) {
        self.runner.get_or_init(|| {
            let runner = ErasureRunner {
                service: Arc::downgrade(self),
                has_work: Arc::clone(&self.has_work),
                stop: self.stop.clone(),
            };
            self.tasks.spawn(runner.run());
        });
    }

    /// Works on each job that no other server works on.
    async fn run_jobs(&self) -> Result<()> {
        let mut worked = Ok(());
        for job in self.store.running_jobs(Job::RUNNING_MAX).await? {
            let is_own_store = !self.in_flight.is_shared();
            let now = self.in_flight.now();
            if is_own_store || !job.is_leased_to_another(self.holder, now) {
                // One job does not hold up the others.
                worked = worked.and(self.work_on(&job).await);
            }
        }
        worked
    }

    /// Carries a job out, step by step, until it ends or another server has it.
    async fn work_on(&self, job: &Job) -> Result<()> {
        let Some(mut job) = self.save(job, job.clone()).await? else {
            return Ok(());
        };
        while job.state == JobState::Running {
            let next = match self.step(&job).await {
                Ok(next) => next,
                Err(Error::Store(failure))
                    if matches!(failure.cause, store::Error::Corrupt { .. }) =>
                {
                    tracing::error!(job = %job.id.0, cause = %failure.cause, "an erasure failed: a row of the store cannot be read. Run `wideroom verify`, then erase the user again");
                    self.ended(&job, JobState::Failed, Some(DAMAGED.to_owned()))
                }
                Err(error) => return Err(error),
            };
            let Some(saved) = self.save(&job, next).await? else {
                return Ok(());
            };
            job = saved;
        }
        Ok(())
    }

    /// One step of a job, repeated while the store is unavailable.
    async fn step(&self, job: &Job) -> Result<Job> {
        let mut pause = RETRY_PAUSE;
        let mut tries = 1;
        loop {
            let taken = timeout(STEP_MAX, self.steps.take(job)).await;
            let error = match taken {
                Ok(Ok(Some(next))) => return Ok(next),
                Ok(Ok(None)) => return Ok(self.ended(job, JobState::Done, None)),
                Ok(Err(Error::Store(failure)))
                    if matches!(failure.cause, store::Error::Corrupt { .. }) =>
                {
                    return Err(Error::Store(failure));
                }
                Ok(Err(error)) => error,
                Err(_) => Error::OutcomeUnknown,
            };
            if tries >= STEP_TRIES {
                return Err(error);
            }
            tracing::warn!(job = %job.id.0, %error, "a step of an erasure failed; the server repeats it");
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
            tries += 1;
            // The lease must not end while the step is repeated.
            if self.save(job, job.clone()).await?.is_none() {
                return Err(Error::Busy);
            }
        }
    }

    fn ended(&self, job: &Job, state: JobState, error: Option<String>) -> Job {
        Job {
            state,
            error,
            finished_at: Some(self.in_flight.now()),
            ..job.clone()
        }
    }

    /// Persists a job with a new lease, if it is still the one that was seen. `None` if another server has it.
    async fn save(&self, seen: &Job, to: Job) -> Result<Option<Job>> {
        let until = self.in_flight.now().plus_micros(LEASE_MICROS);
        let holder = self.holder;
        let lease = (to.state == JobState::Running).then_some(JobLease { holder, until });
        let to = Job { lease, ..to };
        if self.store.swap_job(Some(seen), &to).await? {
            return Ok(Some(to));
        }
        // An earlier write of unknown outcome may have been done.
        let present = self.store.jobs(&[to.id]).await?.pop().flatten();
        Ok(present.filter(|present| *present == to))
    }
}

/// The only task of a process that carries out jobs.
struct ErasureRunner {
    service: Weak<ErasureService>,
    has_work: Arc<Notify>,
    stop: CancellationToken,
}

impl ErasureRunner {
    async fn run(self) {
        loop {
            // A store of one server has only the jobs that this server adds.
            let pause = timeout(POLL_EVERY, self.has_work.notified());
            if self.stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
            let Some(service) = self.service.upgrade() else {
                return;
            };
            let jobs = service.run_jobs().boxed();
            match self.stop.run_until_cancelled(jobs).await {
                None => return,
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "the server failed to carry out an erasure; it retries");
                }
            }
        }
    }
}
