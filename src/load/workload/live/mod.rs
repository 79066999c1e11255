//! Workload `live`: live messages of services, written at a rate, with viewers and ordinary sends beside them.

mod answers;
mod viewers;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::answers::Answers;
use self::viewers::Viewers;
use super::{Workload, as_seconds, parse_load_duration};
use crate::load::client::{BODY_BYTES_MIN, ensure_open_files};
use crate::load::driver::fixture::{self, ConversationFixture, MessageTemplate};
use crate::load::driver::requests::{Load, Schedule, drive, drive_together, prepare};
use crate::load::failure::Error;
use crate::load::measurement::{OperationStats, Percentiles, Usage};
use crate::load::report::{Figure, LoadReport, OperationName, grouped};
use crate::load::run::LoadRun;

/// Many senders, so that a slow send does not delay the next one.
const SENDERS: usize = 16;
const SEND_BYTES: u64 = 64;
/// With sends, parts of the load, each after a part of sends alone.
const TURNS: u32 = 5;
/// Longest text of a live message, below the server's bound for bodies.
const ANSWER_BYTES_MAX: u64 = 16_000;
/// Longer than the server's pause between two answers of one live message.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveLoad {
    /// Number of live messages that are written at the same time, each in its own conversation
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    answers: u64,
    /// Number of services that write them
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=100))]
    services: u64,
    /// Writes per second to each live message; the server answers fewer than 4
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3))]
    rate: u32,
    /// How long the live messages are written. Sends alone last as long again
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_load_duration)]
    #[serde(serialize_with = "as_seconds")]
    duration: Duration,
    /// Size of the text of each write in bytes
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BODY_BYTES_MIN as u64..=4_000))]
    bytes: u64,
    /// Number of sockets that subscribe to the live messages of a conversation
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=25_000))]
    viewers: u64,
    /// Ordinary sends per second in other conversations, without the live load and beside it in turns
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=5_000))]
    sends: u32,
}

struct LiveFixture {
    answers: Vec<ConversationFixture>,
    senders: Vec<ConversationFixture>,
    /// Stamps in texts count from here.
    start: Instant,
}

/// Measurements of all turns.
#[derive(Default)]
struct LiveMeasurements {
    writes: OperationStats,
    usage: Usage,
    /// Latencies of ordinary sends, for each turn.
    alone: Vec<Percentiles>,
    beside: Vec<Percentiles>,
}

impl Workload for LiveLoad {
    async fn run(&self, run: &mut LoadRun<'_>) -> Result<LoadReport, Error> {
        let turns = if self.sends > 0 { TURNS } else { 1 };
        let part = self.duration / turns;
        self.require_short_answers(part)?;
        ensure_open_files(self.answers + self.viewers + SENDERS as u64)?;
        let fixture = self.fixture(run).await?;
        let conversations = &fixture.answers[..];
        let mut viewers = Viewers::open(run, conversations, self.viewers, fixture.start).await?;
        let mut measured = LiveMeasurements::default();
        for turn in 0..turns {
            let answers = Answers {
                conversations,
                turn,
                bytes: self.bytes,
                start: fixture.start,
            };
            if self.sends > 0 {
                let Load { schedule, workers } = self.sends(run, &fixture, part);
                let (alone, _) = drive(run, "sends alone", schedule, workers).await?;
                measured.alone.extend(alone.percentiles());
                measured.writes.add_failures(alone.failures);
            }
            if !run.stop.is_cancelled() {
                self.write(run, &fixture, (answers, part), &mut measured)
                    .await?;
            }
            if run.stop.is_cancelled() {
                break;
            }
            viewers.catch_up(run, conversations).await?;
            let enders = answers.enders(run);
            prepare(run, "ended answers", Schedule::PerWorker(1), enders).await?;
        }
        Ok(self.report(run, measured, &viewers))
    }
}

impl LiveLoad {
    fn require_short_answers(&self, part: Duration) -> Result<(), Error> {
        let writes = 1 + (part.as_secs_f64() * f64::from(self.rate)).ceil() as u64;
        let bytes = writes * self.bytes;
        if bytes <= ANSWER_BYTES_MAX {
            return Ok(());
        }
        Err(Error::Options(format!(
            "--duration: live messages of {} bytes are too long; lower --duration, --rate or --bytes",
            grouped(bytes)
        )))
    }

    async fn fixture(&self, run: &mut LoadRun<'_>) -> Result<LiveFixture, Error> {
        let (services, count) = (self.services as usize, self.answers as usize);
        let answer = |number: usize| {
            let service = run.username(number % services);
            vec![run.username(services + number), service]
        };
        let pair = |number: usize| {
            let first = services + count + 2 * number;
            vec![run.username(first), run.username(first + 1)]
        };
        let senders = if self.sends > 0 { SENDERS } else { 0 };
        let answers = (0..count).map(answer).collect();
        let senders = (0..senders).map(pair).collect();
        Ok(LiveFixture {
            answers: fixture::create_groups(run, answers).await?,
            senders: fixture::create_groups(run, senders).await?,
            start: Instant::now(),
        })
    }

    /// Begins the live messages, and writes them beside ordinary sends.
    async fn write(
        &self,
        run: &mut LoadRun<'_>,
        fixture: &LiveFixture,
        (answers, part): (Answers<'_>, Duration),
        measured: &mut LiveMeasurements,
    ) -> Result<(), Error> {
        let starts = answers.writers(run, 0);
        prepare(run, "begun answers", Schedule::PerWorker(1), starts).await?;
        sleep(PAUSE).await;
        let writes = Load {
            schedule: Schedule::RateOfEach {
                rate: self.rate,
                duration: part,
            },
            workers: answers.writers(run, 1),
        };
        let loads = [writes, self.sends(run, fixture, part)];
        let ([writes, beside], usage) = drive_together(run, "writes", loads).await?;
        measured.beside.extend(beside.percentiles());
        measured.writes.add_failures(beside.failures);
        measured.writes.add(writes);
        measured.usage.add(usage);
        Ok(())
    }

    fn sends(&self, run: &LoadRun<'_>, fixture: &LiveFixture, part: Duration) -> Load {
        let template = MessageTemplate::new(SEND_BYTES);
        let sender = |group: &ConversationFixture| {
            fixture::send_worker(run, group, &group.usernames[0], template)
        };
        Load {
            schedule: Schedule::FixedRate {
                rate: self.sends.max(1),
                duration: part,
            },
            workers: fixture.senders.iter().map(sender).collect(),
        }
    }

    fn report(
        &self,
        run: &LoadRun<'_>,
        measured: LiveMeasurements,
        viewers: &Viewers,
    ) -> LoadReport {
        let mut figures = self.send_figures(&measured);
        let payloads = viewers.payloads();
        if let Some(Percentiles { p50, p99, .. }) = payloads.percentiles() {
            let (count, all) = (payloads.count(), grouped(payloads.count()));
            let text = format!("{all} payloads of text to viewers: p50 {p50:.1} ms");
            figures.push(Figure::new("payloads", count as f64, text));
            let text = format!("p99 {p99:.1} ms from the scheduled write to the viewer");
            figures.push(Figure::new("viewerP99Ms", p99, text));
        }
        let description = format!(
            "{} live messages of {} services, {} writes a second to each, {} bytes each, {} viewers",
            grouped(self.answers),
            self.services,
            self.rate,
            grouped(self.bytes),
            grouped(self.viewers)
        );
        let operation = OperationName {
            singular: "write",
            plural: "writes",
            timed: "from the scheduled write to the answer, when the text is persisted",
        };
        let (mut writes, usage) = (measured.writes, measured.usage);
        writes.add_failures(payloads.failures);
        let fault = viewers.fault().filter(|_| !run.stop.is_cancelled());
        LoadReport::new(run, ("live", self), description, operation, (writes, usage))
            .with(figures)
            .with_faults(fault)
    }

    /// Latencies of ordinary sends, without the live load and beside it: medians of the turns.
    fn send_figures(&self, measured: &LiveMeasurements) -> Vec<Figure> {
        let p50 = |turns: &[Percentiles]| median(turns.iter().map(|turn| turn.p50));
        let p99 = |turns: &[Percentiles]| median(turns.iter().map(|turn| turn.p99));
        let (alone, beside) = (&measured.alone, &measured.beside);
        let (Some(alone_p50), Some(alone_p99)) = (p50(alone), p99(alone)) else {
            return Vec::new();
        };
        let (Some(beside_p50), Some(beside_p99)) = (p50(beside), p99(beside)) else {
            return Vec::new();
        };
        let ratio = beside_p99 / alone_p99;
        let line = |what: &str, p50: f64, p99: f64| {
            let sends = self.sends;
            format!("{sends} sends a second {what}: p50 {p50:.1}, p99 {p99:.1} ms")
        };
        vec![
            Figure::new(
                "sendP99AloneMs",
                alone_p99,
                line("alone", alone_p50, alone_p99),
            ),
            Figure::new(
                "sendP99BesideMs",
                beside_p99,
                line("beside the live messages", beside_p50, beside_p99),
            ),
            Figure::new(
                "sendP99Ratio",
                ratio,
                format!(
                    "the p99 of sends is {ratio:.2} times that of sends alone (medians of {TURNS} turns)"
                ),
            ),
        ]
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
