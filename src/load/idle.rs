//! Sockets that listen and are told nothing: what each of them weighs.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::crowd::{self, Subscription};
use super::failure::{Error, Failure};
use super::process::Process;
use super::report::{Counted, Figure, Report, grouped};
use super::socket::Socket;
use super::stage::{self, PEOPLE_MAX};
use super::tally::Meter;
use super::{Run, Shape, in_seconds, parse_length};

/// The first sockets of a server bring in what all share.
const WARM_UP: u64 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Memory that has not moved by more than a share of it in so many looks is at rest.
const LOOKS: u32 = 5;
const STILL: f64 = 0.005;
const REST_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// How many sockets, each with a subscription to the messages of one conversation
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=25_000))]
    sockets: u64,
    /// How many people they belong to
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=PEOPLE_MAX as u64))]
    participants: u64,
    /// How long they stay
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_length)]
    #[serde(serialize_with = "in_seconds")]
    duration: Duration,
}

impl Shape for Idle {
    async fn run(&self, run: &mut Run<'_>) -> Result<Report, Error> {
        super::files::make_room(self.sockets)?;
        let group = stage::group(run, self.participants).await?;
        let after = stage::cursor(run, &group).await?;
        let subscription = Subscription::new(&group, &after);
        let warm_up = self.sockets.min(WARM_UP);
        crowd::open(run, warm_up, &group.people, Some(&subscription), &Meter::default(), |_, socket| drop(socket)).await?;
        let before = at_rest(run).await;
        let (meter, opening, mut held) = (Arc::new(Meter::default()), run.watch(), JoinSet::new());
        let hold = |_, socket| drop(held.spawn(hold(socket, Arc::clone(&meter))));
        crowd::open(run, self.sockets, &group.people, Some(&subscription), &meter, hold).await?;
        let opened = opening.spent();
        let after = at_rest(run).await;
        let silence = run.watch();
        while silence.began().elapsed() < self.duration && !run.stop.is_cancelled() {
            let (place, of) = (silence.began().elapsed().as_millis() as u64, self.duration.as_millis() as u64);
            run.tell("silence", place.min(of), of, &format!("{} sockets are told nothing, {} failed", self.sockets, meter.failed()));
            sleep(LOOK_EVERY).await;
        }
        let silence = silence.spent();
        let mut figures = Vec::new();
        if let Some((before, after)) = before.zip(after) {
            let kib = (after as f64 - before as f64) / 1_024.0 / self.sockets as f64;
            let words = format!("{kib:.2} KiB of resident memory for each socket");
            figures.push(Figure::new("residentKibEach", kib, words));
        }
        if let Some(cpu) = silence.cpu_micros.filter(|_| silence.elapsed > LOOK_EVERY) {
            let micros = cpu / self.sockets as f64 / silence.elapsed.as_secs_f64();
            let words = format!("{micros:.2} µs of CPU for each socket and second of silence");
            figures.push(Figure::new("cpuMicrosPerSocketSecond", micros, words));
        }
        let about = format!("{} sockets of {} people, each with a subscription", grouped(self.sockets), self.participants);
        let counted = Counted { one: "opening", many: "openings", timed: "from connecting to the subscription" };
        Ok(Report::new(run, ("idle", self), about, counted, (meter.tally(), opened)).with(figures))
    }
}

/// Answers what keeps it open.
async fn hold(mut socket: Socket, meter: Arc<Meter>) {
    match socket.told().await {
        Ok(_) => meter.fail(&Failure::stray()),
        Err(failure) => meter.fail(&failure),
    }
}

/// The server's resident bytes, once they do not move any more.
async fn at_rest(run: &Run<'_>) -> Option<u64> {
    let process: Process = run.process?;
    let began = Instant::now();
    let (mut still, mut last) = (0, process.sample()?.resident_bytes);
    while still < LOOKS && began.elapsed() < REST_WAIT && !run.stop.is_cancelled() {
        sleep(LOOK_EVERY).await;
        let now = process.sample()?.resident_bytes;
        let moved = now.abs_diff(last) as f64 / last.max(1) as f64;
        still = if moved < STILL { still + 1 } else { 0 };
        last = now;
    }
    Some(last)
}
