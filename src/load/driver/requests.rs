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
    /// Requests at a rate per second by each worker, spread evenly over a period. Each worker counts its successes from 0, and repeats
    /// what failed.
    RateOfEach { rate: u32, duration: Duration },
}

pub(crate) struct RequestWorker {
    pub(crate) client: HttpClient,
    /// Builds the body of a request from its sequence number and its send time.
    pub(crate) request: Box<dyn Fn(u64, Instant) -> Bytes + Send>,
}

/// Workers with one schedule.
pub(crate) struct Load {
    pub(crate) schedule: Schedule,
    pub(crate) workers: Vec<RequestWorker>,
}

struct DriveState {
    schedule: Schedule,
    start: Instant,
    cancelled: CancellationToken,
    stops_at_failure: bool,
    next: AtomicU64,
    worker_count: u64,
    recorder: StatsRecorder,
}

/// Requests of one worker so far.
#[derive(Default)]
struct WorkerProgress {
    /// Position of the worker among all.
    index: u64,
    requests: u64,
    successes: u64,
}

/// Runs the workers to the end of the schedule, counting failures.
pub(crate) async fn drive(
    run: &mut LoadRun<'_>,
    activity: &str,
    schedule: Schedule,
    workers: Vec<RequestWorker>,
) -> Result<(OperationStats, Usage), Error> {
    let load = Load { schedule, workers };
    let (stats, usage) = run_loads(run, activity, vec![load], false).await?;
    Ok((stats.into_iter().next().unwrap_or_default(), usage))
}

/// Runs two loads at the same time, counting failures. The progress is that of the first.
pub(crate) async fn drive_together(
    run: &mut LoadRun<'_>,
    activity: &str,
    loads: [Load; 2],
) -> Result<([OperationStats; 2], Usage), Error> {
    let (stats, usage) = run_loads(run, activity, loads.into(), false).await?;
    let stats = <[OperationStats; 2]>::try_from(stats).unwrap_or_default();
    Ok((stats, usage))
}

/// Runs the workers before the measurement. The first failure ends the run.
pub(crate) async fn prepare(
    run: &mut LoadRun<'_>,
    activity: &str,
    schedule: Schedule,
    workers: Vec<RequestWorker>,
) -> Result<(), Error> {
    let load = Load { schedule, workers };
    let (stats, _) = run_loads(run, activity, vec![load], true).await?;
    if run.stop.is_cancelled() {
        return Err(Error::Interrupted);
    }
    match stats.into_iter().flat_map(|stats| stats.failures).next() {
        Some((code, (_, sentence))) => Err(Error::refused(
            run.target.url(),
            Failure::Refused { code, sentence },
        )),
        None => Ok(()),
    }
}

async fn run_loads(
    run: &mut LoadRun<'_>,
    activity: &str,
    mut loads: Vec<Load>,
    stops_at_failure: bool,
) -> Result<(Vec<OperationStats>, Usage), Error> {
    let workers = loads.iter_mut().flat_map(|load| &mut load.workers);
    let connecting = workers.map(|worker| worker.client.connect());
    run.unless_cancelled(try_join_all(connecting)).await?;
    let (usage_meter, mut tasks, mut states) = (run.measure_usage(), JoinSet::new(), Vec::new());
    for load in loads {
        let state = Arc::new(DriveState {
            schedule: load.schedule,
            start: usage_meter.started_at(),
            cancelled: run.stop.child_token(),
            stops_at_failure,
            next: AtomicU64::new(0),
            worker_count: load.workers.len() as u64,
            recorder: StatsRecorder::default(),
        });
        for (index, worker) in (0..).zip(load.workers) {
            tasks.spawn(work(worker, index, Arc::clone(&state)));
        }
        states.push(state);
    }
    let mut progress_tick = interval(PROGRESS_INTERVAL);
    let usage = loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended.expect("a worker does not panic"),
                None => break usage_meter.usage(),
            },
            _ = progress_tick.tick() => {
                if let Some(first) = states.first() {
                    report_progress(run, activity, first);
                }
            }
        }
    };
    let stats = states.iter().map(|state| state.recorder.snapshot());
    Ok((stats.collect(), usage))
}

async fn work(mut worker: RequestWorker, index: u64, state: Arc<DriveState>) {
    let mut progress = WorkerProgress {
        index,
        ..WorkerProgress::default()
    };
    while let Some((number, due)) = state.next(&progress).await {
        match worker.client.post((worker.request)(number, due)).await {
            Ok(_) => {
                state.recorder.record(due.elapsed());
                progress.successes += 1;
            }
            Err(failure) => {
                state.recorder.record_failure(&failure);
                if state.stops_at_failure {
                    state.cancelled.cancel();
                }
                sleep(FAILURE_PAUSE).await;
            }
        }
        progress.requests += 1;
    }
}

impl DriveState {
    /// Waits until the next request is due, and returns its number and its send time. `None` at the end of the schedule.
    async fn next(&self, own: &WorkerProgress) -> Option<(u64, Instant)> {
        let next = || self.next.fetch_add(1, Ordering::Relaxed);
        let (number, due) = match self.schedule {
            Schedule::ForDuration(duration) => {
                let number = Some(next()).filter(|_| self.start.elapsed() < duration)?;
                (number, Instant::now())
            }
            Schedule::Total(count) => {
                let number = Some(next()).filter(|number| *number < count)?;
                (number, Instant::now())
            }
            Schedule::PerWorker(count) => {
                let number = Some(own.requests).filter(|number| *number < count)?;
                (number, Instant::now())
            }
            Schedule::FixedRate { rate, duration } => {
                let number = next();
                let offset = number as f64 / f64::from(rate);
                (number, self.wait_until_due(offset, duration).await?)
            }
            Schedule::RateOfEach { rate, duration } => {
                let turn = own.requests as f64 + own.index as f64 / self.worker_count as f64;
                let offset = turn / f64::from(rate);
                (own.successes, self.wait_until_due(offset, duration).await?)
            }
        };
        (!self.cancelled.is_cancelled()).then_some((number, due))
    }

    /// Waits until this many seconds after the start. `None` after the end of the load.
    async fn wait_until_due(&self, seconds: f64, duration: Duration) -> Option<Instant> {
        let offset = Duration::from_secs_f64(seconds);
        if offset >= duration {
            return None;
        }
        let due = self.start + offset;
        tokio::select! {
            () = sleep_until(due) => Some(due),
            () = self.cancelled.cancelled() => None,
        }
    }
}

fn report_progress(run: &mut LoadRun<'_>, activity: &str, state: &DriveState) {
    let succeeded = state.recorder.count();
    let elapsed = state.start.elapsed();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (done, total) = match state.schedule {
        Schedule::ForDuration(duration)
        | Schedule::FixedRate { duration, .. }
        | Schedule::RateOfEach { duration, .. } => {
            (millis(elapsed.min(duration)), millis(duration))
        }
        Schedule::Total(count) => (succeeded, count),
        Schedule::PerWorker(count) => (succeeded, count * state.worker_count),
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
