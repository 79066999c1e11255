//! Request workers: many clients that send requests at the same time, on one connection each, by a schedule.
//!
//! Without a rate the load is a closed loop: each worker sends its next request after the last answer. With a fixed rate the load is an open
//! loop: send times are fixed in advance and latencies count from them. A slow server thus gets no fewer requests, and its delays stay
//! visible (no coordinated omission).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use hyper::body::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::load::client::HttpClient;
use crate::load::failure::{Error, Failure};
use crate::load::measurement::{OperationStats, StatsRecorder, Usage};
use crate::load::run::LoadRun;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// A worker pauses after a failure, so that it does not flood a server that refuses.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);

/// The number of requests, and their send times.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Schedule {
    /// As many requests as complete in this time.
    ForDuration(Duration),
    /// This many requests, shared by all workers.
    Total(u64),
    /// This many requests by each worker. Each worker counts its own from 0.
    PerWorker(u64),
    /// Requests at a rate per second, shared by all workers.
    FixedRate { rate: u32, duration: Duration },
}

pub(crate) struct RequestWorker {
    pub(crate) client: HttpClient,
    /// Builds the body of a request from its sequence number and its send time.
    pub(crate) request: Box<dyn Fn(u64, Instant) -> Bytes + Send>,
}

struct DriveState {
    schedule: Schedule,
    start: Instant,
    cancelled: CancellationToken,
    stops_at_failure: bool,
    next: AtomicU64,
    recorder: StatsRecorder,
}

/// Runs the workers to the end of the schedule, counting failures.
pub(crate) async fn drive(
    run: &mut LoadRun<'_>,
    activity: &str,
    schedule: Schedule,
    workers: Vec<RequestWorker>,
) -> Result<(OperationStats, Usage), Error> {
    run_workers(run, activity, schedule, workers, false).await
}

/// Runs the workers before the measurement. The first failure ends the run.
pub(crate) async fn prepare(
    run: &mut LoadRun<'_>,
    activity: &str,
    schedule: Schedule,
    workers: Vec<RequestWorker>,
) -> Result<(), Error> {
    let (stats, _) = run_workers(run, activity, schedule, workers, true).await?;
    if run.stop.is_cancelled() {
        return Err(Error::Interrupted);
    }
    match stats.failures.into_iter().next() {
        Some((code, (_, sentence))) => Err(Error::refused(
            run.target.url(),
            Failure::Refused { code, sentence },
        )),
        None => Ok(()),
    }
}

async fn run_workers(
    run: &mut LoadRun<'_>,
    activity: &str,
    schedule: Schedule,
    mut workers: Vec<RequestWorker>,
    stops_at_failure: bool,
) -> Result<(OperationStats, Usage), Error> {
    let worker_count = workers.len() as u64;
    run.unless_cancelled(try_join_all(
        workers.iter_mut().map(|worker| worker.client.connect()),
    ))
    .await?;
    let usage_meter = run.measure_usage();
    let state = Arc::new(DriveState {
        schedule,
        start: usage_meter.started_at(),
        cancelled: run.stop.child_token(),
        stops_at_failure,
        next: AtomicU64::new(0),
        recorder: StatsRecorder::default(),
    });
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(work(worker, Arc::clone(&state)));
    }
    let mut progress_tick = interval(PROGRESS_INTERVAL);
    let usage = loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended.expect("a worker does not panic"),
                None => break usage_meter.usage(),
            },
            _ = progress_tick.tick() => report_progress(run, activity, &state, worker_count),
        }
    };
    Ok((state.recorder.snapshot(), usage))
}

async fn work(mut worker: RequestWorker, state: Arc<DriveState>) {
    let mut own_count = 0;
    while let Some((number, due)) = state.next(own_count).await {
        match worker.client.post((worker.request)(number, due)).await {
            Ok(_) => state.recorder.record(due.elapsed()),
            Err(failure) => {
                state.recorder.record_failure(&failure);
                if state.stops_at_failure {
                    state.cancelled.cancel();
                }
                sleep(FAILURE_PAUSE).await;
            }
        }
        own_count += 1;
    }
}

impl DriveState {
    /// Waits until the next request is due, and returns its number and its send time. `None` at the end of the schedule.
    async fn next(&self, own_count: u64) -> Option<(u64, Instant)> {
        let next = || self.next.fetch_add(1, Ordering::Relaxed);
        let mut due = Instant::now();
        let number = match self.schedule {
            Schedule::ForDuration(duration) => {
                Some(next()).filter(|_| self.start.elapsed() < duration)
            }
            Schedule::Total(count) => Some(next()).filter(|number| *number < count),
            Schedule::PerWorker(count) => Some(own_count).filter(|number| *number < count),
            Schedule::FixedRate { rate, duration } => {
                let number = next();
                let offset = Duration::from_secs_f64(number as f64 / f64::from(rate));
                if offset >= duration {
                    return None;
                }
                due = self.start + offset;
                tokio::select! {
                    () = sleep_until(due) => Some(number),
                    () = self.cancelled.cancelled() => None,
                }
            }
        };
        number
            .filter(|_| !self.cancelled.is_cancelled())
            .map(|number| (number, due))
    }
}

fn report_progress(run: &mut LoadRun<'_>, activity: &str, state: &DriveState, worker_count: u64) {
    let succeeded = state.recorder.count();
    let elapsed = state.start.elapsed();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (done, total) = match state.schedule {
        Schedule::ForDuration(duration) | Schedule::FixedRate { duration, .. } => {
            (millis(elapsed.min(duration)), millis(duration))
        }
        Schedule::Total(count) => (succeeded, count),
        Schedule::PerWorker(count) => (succeeded, count * worker_count),
    };
    let failed = match state.recorder.failed() {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rate = succeeded as f64 / elapsed.as_secs_f64().max(0.001);
    run.report_progress(
        activity,
        done,
        total,
        &format!("{activity}: {succeeded}, {rate:.0} a second{failed}"),
    );
}
