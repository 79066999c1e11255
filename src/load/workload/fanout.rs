//! Workload `fanout`: deliveries of messages to all subscribers of one conversation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Workload, as_seconds, parse_load_duration};
use crate::load::client::{
    BODY_BYTES_MAX, BODY_BYTES_MIN, BodyStamp, LoadSocket, ensure_open_files,
};
use crate::load::driver::fixture::{self, MessageTemplate, PARTICIPANTS_MAX};
use crate::load::driver::requests::{Schedule, drive};
use crate::load::driver::subscribers::{self, MessageSubscription};
use crate::load::failure::{Error, Failure};
use crate::load::measurement::{OperationStats, StatsRecorder, Usage};
use crate::load::report::{Figure, LoadReport, OperationName, grouped};
use crate::load::run::LoadRun;

/// Many senders, so that a slow send does not delay the next one.
const SENDERS: usize = 16;

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FanoutLoad {
    /// Number of sockets that subscribe to the conversation
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=25_000))]
    subscribers: u64,
    /// Number of users that own the sockets
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=PARTICIPANTS_MAX as u64))]
    participants: u64,
    /// Messages per second, sent over HTTP at times that are fixed in advance
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    rate: u32,
    /// How long the load lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_load_duration)]
    #[serde(serialize_with = "as_seconds")]
    duration: Duration,
    /// Size of each message body in bytes
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BODY_BYTES_MIN as u64..=BODY_BYTES_MAX as u64))]
    bytes: u64,
}

/// Deliveries, recorded by all subscribers.
#[derive(Default)]
struct Deliveries {
    recorder: StatsRecorder,
    /// Number of subscribers that have received the first message, which is not measured.
    ready: AtomicU64,
}

impl Workload for FanoutLoad {
    async fn run(&self, run: &mut LoadRun<'_>) -> Result<LoadReport, Error> {
        ensure_open_files(self.subscribers + SENDERS as u64)?;
        let group = fixture::create_group(run, self.participants).await?;
        let after = fixture::events_cursor(run, &group).await?;
        let subscription = MessageSubscription::new(&group, &after);
        let (deliveries, template, mut subscriber_tasks) = (
            Arc::new(Deliveries::default()),
            MessageTemplate::new(self.bytes),
            JoinSet::new(),
        );
        let keep = |_, socket| {
            drop(subscriber_tasks.spawn(receive_all(
                socket,
                template.start,
                Arc::clone(&deliveries),
            )))
        };
        subscribers::open_sockets(
            run,
            self.subscribers,
            &group.usernames,
            Some(&subscription),
            &StatsRecorder::default(),
            keep,
        )
        .await?;
        // After all subscribers have received this message, none of them is still replaying history.
        fixture::send_messages(run, &group, 1, template).await?;
        let ready = || deliveries.ready.load(Ordering::Relaxed);
        subscribers::wait_for_count(run, "ready subscribers", self.subscribers, ready, ready).await;
        if ready() < self.subscribers {
            let incorrect = Error::Incorrect(format!(
                "only {} of {} sockets received the first message",
                grouped(ready()),
                grouped(self.subscribers)
            ));
            return Err(if run.stop.is_cancelled() {
                Error::Interrupted
            } else {
                incorrect
            });
        }
        let template = MessageTemplate {
            first: 1,
            ..template
        };
        let senders = group.usernames.iter().cycle().take(SENDERS);
        let workers = senders
            .map(|username| fixture::send_worker(run, &group, username, template))
            .collect();
        let usage_meter = run.measure_usage();
        let (sends, sending) = drive(
            run,
            "sends",
            Schedule::FixedRate {
                rate: self.rate,
                duration: self.duration,
            },
            workers,
        )
        .await?;
        let expected = sends.count() * self.subscribers;
        let received = || deliveries.recorder.count();
        subscribers::wait_for_count(run, "deliveries", expected, received, received).await;
        let usage = usage_meter.usage();
        let mut stats = deliveries.recorder.snapshot();
        stats.add_failures(sends.failures.clone());
        let rate = sends.count() as f64 / sending.elapsed.max(self.duration).as_secs_f64();
        Ok(self.report(run, &sends, rate, (stats, usage)))
    }
}

impl FanoutLoad {
    fn report(
        &self,
        run: &LoadRun<'_>,
        sends: &OperationStats,
        rate: f64,
        (stats, usage): (OperationStats, Usage),
    ) -> LoadReport {
        let expected = sends.count() * self.subscribers;
        // A failed send may still have been persisted and delivered.
        let is_complete = stats.count() == expected
            || (stats.count() > expected && sends.failed() > 0)
            || run.stop.is_cancelled();
        let fault = (!is_complete).then(|| {
            format!(
                "{} deliveries were received and {} were expected",
                grouped(stats.count()),
                grouped(expected)
            )
        });
        let text = format!(
            "{} sends, {rate:.1} a second of the requested {}",
            grouped(sends.count()),
            self.rate
        );
        let sent = Figure::new("sends", sends.count() as f64, text);
        let description = format!(
            "{} sockets of {} users, {} sends a second",
            grouped(self.subscribers),
            self.participants,
            self.rate
        );
        let operation = OperationName {
            singular: "delivery",
            plural: "deliveries",
            timed: "from the scheduled send to the subscriber",
        };
        LoadReport::new(
            run,
            ("fanout", self),
            description,
            operation,
            (stats, usage),
        )
        .with([sent])
        .with_faults(fault)
    }
}

async fn receive_all(mut socket: LoadSocket, start: Instant, deliveries: Arc<Deliveries>) {
    loop {
        match socket
            .next_payload()
            .await
            .map(|payload| BodyStamp::find_in(&payload))
        {
            Ok(Some(BodyStamp { number: 0, .. })) => {
                deliveries.ready.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Some(BodyStamp { sent_micros, .. })) => deliveries.recorder.record(
                start
                    .elapsed()
                    .saturating_sub(Duration::from_micros(sent_micros)),
            ),
            Ok(None) => deliveries
                .recorder
                .record_failure(&Failure::unexpected_message()),
            Err(failure) => return deliveries.recorder.record_failure(&failure),
        }
    }
}
