//! Many who ask at once, each on a connection of their own, for a while, so often, or at a rate.
//!
//! Without a rate each asks again once it is answered. At a rate the moments are fixed beforehand, and times go by them: a server that is late
//! is asked no less, and its delay is not forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use hyper::body::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Run;
use super::failure::{Error, Failure};
use super::http::Caller;
use super::process::Spent;
use super::tally::{Meter, Tally};

const TELL_EVERY: Duration = Duration::from_millis(100);
/// Who was refused asks again after so long, so that a server that refuses is not flooded.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// How much is asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    For(Duration),
    /// By all of them.
    Times(u64),
    /// By each of them: numbers are then their own.
    Each(u64),
    /// So many a second, by all of them, for so long.
    Paced {
        rate: u32,
        length: Duration,
    },
}

/// One who asks.
pub(super) struct Worker {
    pub(super) caller: Caller,
    /// The request with this number, which is due at this moment.
    pub(super) request: Box<dyn Fn(u64, Instant) -> Bytes + Send>,
}

struct Plan {
    goal: Goal,
    start: Instant,
    over: CancellationToken,
    ends_at_failure: bool,
    next: AtomicU64,
    meter: Meter,
}

/// All of it, whatever fails: what it took, and what became of it.
pub(super) async fn drive(run: &mut Run<'_>, what: &str, goal: Goal, workers: Vec<Worker>) -> Result<(Tally, Spent), Error> {
    run_plan(run, what, goal, workers, false).await
}

/// All of it without a failure, before there is anything to report.
pub(super) async fn prepare(run: &mut Run<'_>, what: &str, goal: Goal, workers: Vec<Worker>) -> Result<(), Error> {
    let (tally, _) = run_plan(run, what, goal, workers, true).await?;
    if run.stop.is_cancelled() {
        return Err(Error::Interrupted);
    }
    match tally.failures.into_iter().next() {
        Some((code, (_, sentence))) => Err(Error::refused(&run.target, Failure::Refused { code, sentence })),
        None => Ok(()),
    }
}

async fn run_plan(
    run: &mut Run<'_>,
    what: &str,
    goal: Goal,
    mut workers: Vec<Worker>,
    ends_at_failure: bool,
) -> Result<(Tally, Spent), Error> {
    let count = workers.len() as u64;
    run.unless_stopped(try_join_all(workers.iter_mut().map(|worker| worker.caller.connect()))).await?;
    let watch = run.watch();
    let plan = Arc::new(Plan {
        goal,
        start: watch.began(),
        over: run.stop.child_token(),
        ends_at_failure,
        next: AtomicU64::new(0),
        meter: Meter::default(),
    });
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(work(worker, Arc::clone(&plan)));
    }
    let mut tick = interval(TELL_EVERY);
    let spent = loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended.expect("a worker does not panic"),
                None => break watch.spent(),
            },
            _ = tick.tick() => tell(run, what, &plan, count),
        }
    };
    Ok((plan.meter.tally(), spent))
}

async fn work(mut worker: Worker, plan: Arc<Plan>) {
    let mut own = 0;
    while let Some((number, due)) = plan.next(own).await {
        match worker.caller.ask((worker.request)(number, due)).await {
            Ok(_) => plan.meter.took(due.elapsed()),
            Err(failure) => {
                plan.meter.fail(&failure);
                if plan.ends_at_failure {
                    plan.over.cancel();
                }
                sleep(AFTER_FAILURE).await;
            }
        }
        own += 1;
    }
}

impl Plan {
    /// The number of what is to be asked next, when its time has come, and when that was. `None`: nothing is.
    async fn next(&self, own: u64) -> Option<(u64, Instant)> {
        let next = || self.next.fetch_add(1, Ordering::Relaxed);
        let mut due = Instant::now();
        let number = match self.goal {
            Goal::For(length) => Some(next()).filter(|_| self.start.elapsed() < length),
            Goal::Times(times) => Some(next()).filter(|number| *number < times),
            Goal::Each(times) => Some(own).filter(|number| *number < times),
            Goal::Paced { rate, length } => {
                let number = next();
                let moment = Duration::from_secs_f64(number as f64 / f64::from(rate));
                if moment >= length {
                    return None;
                }
                due = self.start + moment;
                tokio::select! {
                    () = sleep_until(due) => Some(number),
                    () = self.over.cancelled() => None,
                }
            }
        };
        number.filter(|_| !self.over.is_cancelled()).map(|number| (number, due))
    }
}

fn tell(run: &mut Run<'_>, what: &str, plan: &Plan, workers: u64) {
    let done = plan.meter.count();
    let elapsed = plan.start.elapsed();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (place, of) = match plan.goal {
        Goal::For(length) | Goal::Paced { length, .. } => (millis(elapsed.min(length)), millis(length)),
        Goal::Times(times) => (done, times),
        Goal::Each(times) => (done, times * workers),
    };
    let failed = match plan.meter.failed() {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    run.tell(what, place, of, &format!("{what}: {done}, {rate:.0} a second{failed}"));
}
