//! Workload `idle`: memory and CPU that silent subscriptions cost the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Workload, as_seconds, parse_load_duration};
use crate::load::client::{LoadSocket, ensure_open_files};
use crate::load::driver::fixture::{self, PARTICIPANTS_MAX};
use crate::load::driver::subscribers::{self, MessageSubscription};
use crate::load::failure::{Error, Failure};
use crate::load::measurement::{Process, StatsRecorder, Usage};
use crate::load::report::{Figure, LoadReport, OperationName, grouped};
use crate::load::run::LoadRun;

/// The first sockets make the server allocate memory that all sockets share. They are opened and closed before the measurement.
const WARM_UP_SOCKETS: u64 = 100;
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Resident memory is stable after this many samples in a row that differ by less than [`STABLE_SHARE`].
const STABLE_SAMPLES: u32 = 5;
const STABLE_SHARE: f64 = 0.005;
const STABLE_WAIT_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleLoad {
    /// Number of sockets, each with a subscription to the messages of one conversation
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=25_000))]
    sockets: u64,
    /// Number of users that own the sockets
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=PARTICIPANTS_MAX as u64))]
    participants: u64,
    /// How long the sockets stay open
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_load_duration)]
    #[serde(serialize_with = "as_seconds")]
    duration: Duration,
}

impl Workload for IdleLoad {
    async fn run(&self, run: &mut LoadRun<'_>) -> Result<LoadReport, Error> {
        ensure_open_files(self.sockets)?;
        let group = fixture::create_group(run, self.participants).await?;
        let after = fixture::events_cursor(run, &group).await?;
        let subscription = MessageSubscription::new(&group, &after);
        let warm_up = self.sockets.min(WARM_UP_SOCKETS);
        subscribers::open_sockets(
            run,
            warm_up,
            &group.usernames,
            Some(&subscription),
            &StatsRecorder::default(),
            |_, socket| drop(socket),
        )
        .await?;
        let before = stable_resident_bytes(run).await;
        let (recorder, opening_meter, mut socket_tasks) = (
            Arc::new(StatsRecorder::default()),
            run.measure_usage(),
            JoinSet::new(),
        );
        let keep = |_, socket| drop(socket_tasks.spawn(keep_open(socket, Arc::clone(&recorder))));
        subscribers::open_sockets(
            run,
            self.sockets,
            &group.usernames,
            Some(&subscription),
            &recorder,
            keep,
        )
        .await?;
        let opening_usage = opening_meter.usage();
        let after = stable_resident_bytes(run).await;
        let idle_usage = self.stay_idle(run, &recorder).await;
        let figures = self.figures(before.zip(after), &idle_usage);
        let description = format!(
            "{} sockets of {} users, each with a subscription",
            grouped(self.sockets),
            self.participants
        );
        let operation = OperationName {
            singular: "opening",
            plural: "openings",
            timed: "from the connection attempt to the active subscription",
        };
        Ok(LoadReport::new(
            run,
            ("idle", self),
            description,
            operation,
            (recorder.snapshot(), opening_usage),
        )
        .with(figures))
    }
}

impl IdleLoad {
    /// Waits for the duration of the load. Returns the usage of the server meanwhile.
    async fn stay_idle(&self, run: &mut LoadRun<'_>, recorder: &StatsRecorder) -> Usage {
        let idle_meter = run.measure_usage();
        while idle_meter.started_at().elapsed() < self.duration && !run.stop.is_cancelled() {
            let (done, total) = (
                idle_meter.started_at().elapsed().as_millis() as u64,
                self.duration.as_millis() as u64,
            );
            run.report_progress(
                "idle",
                done.min(total),
                total,
                &format!(
                    "{} sockets idle, {} failed",
                    self.sockets,
                    recorder.failed()
                ),
            );
            sleep(POLL_INTERVAL).await;
        }
        idle_meter.usage()
    }

    fn figures(&self, resident: Option<(u64, u64)>, idle_usage: &Usage) -> Vec<Figure> {
        let mut figures = Vec::new();
        if let Some((before, after)) = resident {
            let kib = (after as f64 - before as f64) / 1_024.0 / self.sockets as f64;
            let text = format!("{kib:.2} KiB of resident memory for each socket");
            figures.push(Figure::new("residentKibEach", kib, text));
        }
        if let Some(cpu) = idle_usage
            .cpu_micros
            .filter(|_| idle_usage.elapsed > POLL_INTERVAL)
        {
            let micros = cpu / self.sockets as f64 / idle_usage.elapsed.as_secs_f64();
            let text = format!("{micros:.2} µs of CPU for each idle socket and second");
            figures.push(Figure::new("cpuMicrosPerSocketSecond", micros, text));
        }
        figures
    }
}

/// Answers the server's pings. A message or an error is a failure.
async fn keep_open(mut socket: LoadSocket, recorder: Arc<StatsRecorder>) {
    match socket.next_payload().await {
        Ok(_) => recorder.record_failure(&Failure::unexpected_message()),
        Err(failure) => recorder.record_failure(&failure),
    }
}

/// Resident bytes of the server after they have become stable.
async fn stable_resident_bytes(run: &LoadRun<'_>) -> Option<u64> {
    let process: Process = run.process?;
    let started_at = Instant::now();
    let (mut stable_samples, mut last) = (0, process.sample()?.resident_bytes);
    while stable_samples < STABLE_SAMPLES
        && started_at.elapsed() < STABLE_WAIT_MAX
        && !run.stop.is_cancelled()
    {
        sleep(POLL_INTERVAL).await;
        let now = process.sample()?.resident_bytes;
        let change = now.abs_diff(last) as f64 / last.max(1) as f64;
        stable_samples = if change < STABLE_SHARE {
            stable_samples + 1
        } else {
            0
        };
        last = now;
    }
    Some(last)
}
