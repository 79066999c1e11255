//! Workload `storm`: many subscribers that reconnect at the same moment with their cursors, while messages are still sent.
//!
//! It checks that each subscriber receives every message exactly once and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Workload;
use crate::load::client::{
    BODY_BYTES_MAX, BODY_BYTES_MIN, BodyStamp, LoadSocket, ensure_open_files,
};
use crate::load::driver::fixture::{self, ConversationFixture, MessageTemplate, PARTICIPANTS_MAX};
use crate::load::driver::requests::{RequestWorker, Schedule, prepare};
use crate::load::driver::subscribers::{self, MessageSubscription};
use crate::load::failure::{Error, Failure};
use crate::load::measurement::{OperationStats, StatsRecorder, Usage};
use crate::load::report::{Figure, LoadReport, OperationName, grouped};
use crate::load::run::LoadRun;

/// The sender retries a failed send under its idempotency key, so the message is persisted once.
const SEND_TRIES_MAX: u32 = 10;
const LOST: &str = "LOST";
const REPEATED: &str = "REPEATED";

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StormLoad {
    /// Number of sockets that reconnect
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=25_000))]
    sockets: u64,
    /// Number of users that own the sockets
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=PARTICIPANTS_MAX as u64))]
    participants: u64,
    /// Number of messages that each socket has missed
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    missed: u64,
    /// Messages per second that are sent during the storm; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    send_rate: u32,
    /// Size of each message body in bytes
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BODY_BYTES_MIN as u64..=BODY_BYTES_MAX as u64))]
    bytes: u64,
}

/// State that all subscribers share.
struct Storm {
    subscription: MessageSubscription,
    missed: u64,
    /// One latency for each subscriber: from the start until it has received all missed messages.
    recorder: StatsRecorder,
    /// Messages delivered in order, without repetitions, to all subscribers together.
    delivered: AtomicU64,
    /// Start of the storm, sent to all subscribers at once.
    start: watch::Receiver<Option<Instant>>,
    /// Sequence number of the last message. `None` while the sender is still running.
    last: watch::Receiver<Option<u64>>,
}

impl Workload for StormLoad {
    async fn run(&self, run: &mut LoadRun<'_>) -> Result<LoadReport, Error> {
        ensure_open_files(self.sockets + 1)?;
        let group = fixture::create_group(run, self.participants).await?;
        let after = fixture::events_cursor(run, &group).await?;
        let template = MessageTemplate {
            has_idempotency_key: true,
            first: 1,
            ..MessageTemplate::new(self.bytes)
        };
        // A single worker sends one message at a time, so sequence numbers follow the order of the conversation.
        let sender = fixture::send_worker(run, &group, &group.usernames[0], template);
        prepare(
            run,
            "missed messages",
            Schedule::PerWorker(self.missed),
            vec![sender],
        )
        .await?;
        let ((start_sender, start), (last_sender, last)) =
            (watch::channel(None), watch::channel(None));
        let storm = Arc::new(Storm {
            subscription: MessageSubscription::new(&group, &after),
            missed: self.missed,
            recorder: StatsRecorder::default(),
            delivered: AtomicU64::new(0),
            start,
            last,
        });
        let mut subscriber_tasks = JoinSet::new();
        let keep = |number, socket| {
            drop(subscriber_tasks.spawn(reconnect(socket, number, Arc::clone(&storm))))
        };
        subscribers::open_sockets(
            run,
            self.sockets,
            &group.usernames,
            None,
            &StatsRecorder::default(),
            keep,
        )
        .await?;
        let usage_meter = run.measure_usage();
        start_sender.send_replace(Some(usage_meter.started_at()));
        let sender = BackgroundSender::start(run, &group, template, self);
        let delivered = || storm.delivered.load(Ordering::Relaxed);
        subscribers::wait_for_count(
            run,
            "sockets caught up",
            self.sockets,
            || storm.recorder.count(),
            delivered,
        )
        .await;
        let (usage, mut stats) = (usage_meter.usage(), storm.recorder.snapshot());
        let (sent, failure) = sender.stop().await;
        last_sender.send_replace(Some(self.missed + sent));
        let expected = self.sockets * (self.missed + sent);
        subscribers::wait_for_count(run, "messages delivered", expected, delivered, delivered)
            .await;
        if delivered() == expected {
            // Each subscriber now pings the server to detect surplus messages. The ping has its own deadline.
            subscriber_tasks.join_all().await;
        }
        stats.failures = storm.recorder.snapshot().failures;
        failure
            .iter()
            .for_each(|failure| stats.record_failure(failure));
        let delivered = delivered();
        Ok(self.report(run, sent, delivered, (stats, usage)))
    }
}

impl StormLoad {
    fn report(
        &self,
        run: &LoadRun<'_>,
        sent: u64,
        delivered: u64,
        (stats, usage): (OperationStats, Usage),
    ) -> LoadReport {
        let expected = self.sockets * (self.missed + sent);
        let is_in_order = [LOST, REPEATED]
            .iter()
            .all(|code| !stats.failures.contains_key(*code));
        let is_complete = stats.count() == self.sockets && delivered == expected && is_in_order;
        let fault = (!is_complete && !run.stop.is_cancelled()).then(|| {
            let [caught_up, sockets, delivered, expected] = [stats.count(), self.sockets, delivered, expected].map(grouped);
            format!("{caught_up} of {sockets} sockets caught up; {delivered} messages were delivered and {expected} were expected")
        });
        let last_ms = stats
            .percentiles()
            .map_or(0.0, |percentiles| percentiles.max);
        let delivered_text = format!(
            "{} messages delivered in order of {} expected",
            grouped(delivered),
            grouped(expected)
        );
        let figures = [
            Figure::new(
                "allCurrentMs",
                last_ms,
                format!("{last_ms:.1} ms until all sockets had caught up"),
            ),
            Figure::new(
                "sentMeanwhile",
                sent as f64,
                format!("{} messages sent during the storm", grouped(sent)),
            ),
            Figure::new("delivered", delivered as f64, delivered_text),
        ];
        let description = format!(
            "{} sockets of {} users, {} messages missed, {} sends a second",
            grouped(self.sockets),
            self.participants,
            grouped(self.missed),
            self.send_rate
        );
        let operation = OperationName {
            singular: "reconnect",
            plural: "reconnects",
            timed: "from the start of the storm until the socket has received all missed messages",
        };
        LoadReport::new(run, ("storm", self), description, operation, (stats, usage))
            .with(figures)
            .with_faults(fault)
    }
}

/// Waits for the start, subscribes, and receives messages until the last one.
async fn reconnect(mut socket: LoadSocket, number: usize, storm: Arc<Storm>) {
    if let Err(failure) = receive_all(&mut socket, number, &storm).await {
        storm.recorder.record_failure(&failure);
    }
}

async fn receive_all(socket: &mut LoadSocket, number: usize, storm: &Storm) -> Result<(), Failure> {
    let (mut start, mut last) = (storm.start.clone(), storm.last.clone());
    let started_at = tokio::select! {
        // A closed channel means that the run has ended before the storm started.
        start = start.wait_for(Option::is_some) => match start.ok().and_then(|start| *start) {
            Some(started_at) => started_at,
            None => return Ok(()),
        },
        // Reading answers the server's pings. No payload can arrive before the subscription.
        payload = socket.next_payload() => return Err(payload.err().unwrap_or_else(Failure::unexpected_message)),
    };
    storm.subscription.start(socket, number).await?;
    let mut received = 0;
    loop {
        let is_last = async {
            last.wait_for(|last| last.is_some_and(|last| received >= last))
                .await
                .map(drop)
        };
        let payload = tokio::select! {
            payload = socket.next_payload() => payload?,
            // A payload after the last message is a failure, and the ping detects it.
            _ = is_last => return socket.ping().await,
        };
        let Some(BodyStamp { number, .. }) = BodyStamp::find_in(&payload) else {
            return Err(Failure::unexpected_message());
        };
        if let Some((code, is_new)) = order_fault(received, number) {
            storm.recorder.record_failure_code(
                code,
                format!("message {number} arrived after message {received}"),
            );
            if !is_new {
                continue;
            }
        }
        if received < storm.missed && number >= storm.missed {
            storm.recorder.record(started_at.elapsed());
        }
        received = number;
        storm.delivered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Checks that a message directly follows the last received one. Returns the failure code, and whether the message is new anyway.
fn order_fault(received: u64, number: u64) -> Option<(&'static str, bool)> {
    match number {
        number if number <= received => Some((REPEATED, false)),
        number if number > received + 1 => Some((LOST, true)),
        _ => None,
    }
}

/// Task that sends messages one at a time until it is stopped.
struct BackgroundSender {
    stop: CancellationToken,
    task: JoinHandle<(u64, Option<Failure>)>,
}

impl BackgroundSender {
    fn start(
        run: &LoadRun<'_>,
        group: &ConversationFixture,
        template: MessageTemplate,
        load: &StormLoad,
    ) -> Self {
        let stop = run.stop.child_token();
        let template = MessageTemplate {
            first: template.first + load.missed,
            ..template
        };
        let worker = fixture::send_worker(run, group, &group.usernames[0], template);
        Self {
            task: tokio::spawn(send_at_rate(worker, load.send_rate, stop.clone())),
            stop,
        }
    }

    /// Number of messages sent, and the failure that ended sending early.
    async fn stop(self) -> (u64, Option<Failure>) {
        self.stop.cancel();
        self.task
            .await
            .expect("the background sender does not panic")
    }
}

async fn send_at_rate(
    mut worker: RequestWorker,
    rate: u32,
    stop: CancellationToken,
) -> (u64, Option<Failure>) {
    let (start, mut sent) = (Instant::now(), 0);
    if rate == 0 {
        return (sent, None);
    }
    loop {
        let due = start + Duration::from_secs_f64(sent as f64 / f64::from(rate));
        tokio::select! {
            biased;
            () = stop.cancelled() => return (sent, None),
            () = sleep_until(due) => {}
        }
        let request = (worker.request)(sent, due);
        let mut tries = 1;
        while let Err(failure) = worker.client.post(request.clone()).await {
            if tries == SEND_TRIES_MAX || stop.is_cancelled() {
                return (sent, Some(failure));
            }
            tries += 1;
        }
        sent += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_message_in_order_has_no_fault() {
        assert_eq!(
            [(0, 1), (1, 2), (49, 50)].map(|(received, number)| order_fault(received, number)),
            [None; 3]
        );
        assert_eq!(
            [order_fault(0, 2), order_fault(7, 9)],
            [Some((LOST, true)); 2]
        );
        assert_eq!(
            [order_fault(1, 1), order_fault(7, 3), order_fault(0, 0)],
            [Some((REPEATED, false)); 3]
        );
    }
}
