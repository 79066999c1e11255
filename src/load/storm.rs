//! A crowd that comes back at one moment, with its cursors, while messages go on; and whether each is told all of them, once and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::crowd::{self, Subscription};
use super::drive::{Goal, Worker, prepare};
use super::failure::{Error, Failure};
use super::report::{Counted, Figure, Report, grouped};
use super::socket::Socket;
use super::stage::{self, Group, Messages, PEOPLE_MAX};
use super::tally::Meter;
use super::text::{BYTES_MAX, BYTES_MIN, Mark};
use super::{Run, Shape};

/// A send that fails is given again with its key, and so is there once.
const TRIES: u32 = 10;
const LOST: &str = "LOST";
const REPEATED: &str = "REPEATED";

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Storm {
    /// How many sockets come back
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=25_000))]
    sockets: u64,
    /// How many people they belong to
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=PEOPLE_MAX as u64))]
    participants: u64,
    /// How many messages each has missed
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    missed: u64,
    /// Messages a second that are sent meanwhile; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    send_rate: u32,
    /// Bytes of each text
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BYTES_MIN as u64..=BYTES_MAX as u64))]
    bytes: u64,
}

/// What all who come back share.
struct Crowd {
    subscription: Subscription,
    missed: u64,
    /// Until each has what it missed.
    meter: Meter,
    /// Messages that were told, each once.
    told: AtomicU64,
    /// When they all come back.
    go: watch::Receiver<Option<Instant>>,
    /// The number of the last message, once it is known.
    last: watch::Receiver<Option<u64>>,
}

impl Shape for Storm {
    async fn run(&self, run: &mut Run<'_>) -> Result<Report, Error> {
        super::files::make_room(self.sockets + 1)?;
        let group = stage::group(run, self.participants).await?;
        let after = stage::cursor(run, &group).await?;
        let messages = Messages { is_keyed: true, first: 1, ..Messages::of(self.bytes) };
        // One after the other: their numbers are their order.
        let sender = stage::sender(run, &group, &group.people[0], messages);
        prepare(run, "messages that are missed", Goal::Each(self.missed), vec![sender]).await?;
        let ((go, gone), (last, known)) = (watch::channel(None), watch::channel(None));
        let (subscription, meter, told) = (Subscription::new(&group, &after), Meter::default(), AtomicU64::new(0));
        let crowd = Arc::new(Crowd { subscription, missed: self.missed, meter, told, go: gone, last: known });
        let mut tasks = JoinSet::new();
        let wait = |number, socket| drop(tasks.spawn(come_back(socket, number, Arc::clone(&crowd))));
        crowd::open(run, self.sockets, &group.people, None, &Meter::default(), wait).await?;
        let watch = run.watch();
        go.send_replace(Some(watch.began()));
        let sending = Sending::begin(run, &group, messages, self);
        let told = || crowd.told.load(Ordering::Relaxed);
        crowd::all_came(run, "current again", self.sockets, || crowd.meter.count(), told).await;
        let (spent, mut tally) = (watch.spent(), crowd.meter.tally());
        let (sent, failure) = sending.end().await;
        last.send_replace(Some(self.missed + sent));
        let due = self.sockets * (self.missed + sent);
        crowd::all_came(run, "messages told", due, told, told).await;
        if told() == due {
            // They look whether anything comes too much, and each look has its own deadline.
            tasks.join_all().await;
        }
        tally.failures = crowd.meter.tally().failures;
        failure.iter().for_each(|failure| tally.fail(failure));
        let came = told();
        let is_in_order = [LOST, REPEATED].iter().all(|code| !tally.failures.contains_key(*code));
        let is_whole = tally.count() == self.sockets && came == due && is_in_order;
        let fault = (!is_whole && !run.stop.is_cancelled()).then(|| {
            let (current, came, due) = (grouped(tally.count()), grouped(came), grouped(due));
            format!("{current} of {} sockets have what they missed; {came} messages came, and {due} were due", grouped(self.sockets))
        });
        let until = tally.spread().map_or(0.0, |spread| spread.max);
        let figures = [
            Figure::new("allCurrentMs", until, format!("{until:.1} ms until all were current")),
            Figure::new("sentMeanwhile", sent as f64, format!("{} messages sent meanwhile", grouped(sent))),
            Figure::new("told", came as f64, format!("{} messages told in order, and {} were due", grouped(came), grouped(due))),
        ];
        let about = format!(
            "{} sockets of {} people, {} messages missed, {} sends a second",
            grouped(self.sockets),
            self.participants,
            grouped(self.missed),
            self.send_rate
        );
        let counted = Counted { one: "return", many: "returns", timed: "from the moment of all to what was missed" };
        Ok(Report::new(run, ("storm", self), about, counted, (tally, spent)).with(figures).with_faults(fault))
    }
}

/// Waits for the moment, subscribes, and hears until the last message.
async fn come_back(mut socket: Socket, number: usize, crowd: Arc<Crowd>) {
    if let Err(failure) = hear(&mut socket, number, &crowd).await {
        crowd.meter.fail(&failure);
    }
}

async fn hear(socket: &mut Socket, number: usize, crowd: &Crowd) -> Result<(), Failure> {
    let (mut go, mut last) = (crowd.go.clone(), crowd.last.clone());
    let began = tokio::select! {
        // Nobody is there any more to say when: there is nothing to come back for.
        moment = go.wait_for(Option::is_some) => match moment.ok().and_then(|moment| *moment) { Some(began) => began, None => return Ok(()) },
        // Only for its pings: it has no subscription yet.
        told = socket.told() => return Err(told.err().unwrap_or_else(Failure::stray)),
    };
    crowd.subscription.begin(socket, number).await?;
    let mut heard = 0;
    loop {
        let is_last = async { last.wait_for(|last| last.is_some_and(|last| heard >= last)).await.map(drop) };
        let told = tokio::select! {
            told = socket.told() => told?,
            // Nothing may come after it.
            _ = is_last => return socket.echo().await,
        };
        let Some(Mark { number, .. }) = Mark::find(&told) else {
            return Err(Failure::stray());
        };
        if let Some((code, is_new)) = fault(heard, number) {
            crowd.meter.count_failure(code, format!("message {number} came after {heard}"));
            if !is_new {
                continue;
            }
        }
        if heard < crowd.missed && number >= crowd.missed {
            crowd.meter.took(began.elapsed());
        }
        heard = number;
        crowd.told.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is wrong with this message after that one, and whether it is new all the same.
fn fault(heard: u64, number: u64) -> Option<(&'static str, bool)> {
    match number {
        number if number <= heard => Some((REPEATED, false)),
        number if number > heard + 1 => Some((LOST, true)),
        _ => None,
    }
}

/// Messages that go on, one after the other, until it is enough.
struct Sending {
    enough: CancellationToken,
    task: JoinHandle<(u64, Option<Failure>)>,
}

impl Sending {
    fn begin(run: &Run<'_>, group: &Group, messages: Messages, storm: &Storm) -> Self {
        let enough = run.stop.child_token();
        let messages = Messages { first: messages.first + storm.missed, ..messages };
        let worker = stage::sender(run, group, &group.people[0], messages);
        Self { task: tokio::spawn(send_on(worker, storm.send_rate, enough.clone())), enough }
    }

    /// How many were sent, and why no more could be.
    async fn end(self) -> (u64, Option<Failure>) {
        self.enough.cancel();
        self.task.await.expect("who sends does not panic")
    }
}

async fn send_on(mut worker: Worker, rate: u32, enough: CancellationToken) -> (u64, Option<Failure>) {
    let (start, mut sent) = (Instant::now(), 0);
    if rate == 0 {
        return (sent, None);
    }
    loop {
        let moment = start + Duration::from_secs_f64(sent as f64 / f64::from(rate));
        tokio::select! {
            biased;
            () = enough.cancelled() => return (sent, None),
            () = sleep_until(moment) => {}
        }
        let request = (worker.request)(sent, moment);
        let mut tries = 1;
        while let Err(failure) = worker.caller.ask(request.clone()).await {
            if tries == TRIES || enough.is_cancelled() {
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
    fn every_message_comes_once_and_in_order_or_it_is_told() {
        assert_eq!([(0, 1), (1, 2), (49, 50)].map(|(heard, number)| fault(heard, number)), [None; 3]);
        assert_eq!([fault(0, 2), fault(7, 9)], [Some((LOST, true)); 2]);
        assert_eq!([fault(1, 1), fault(7, 3), fault(0, 0)], [Some((REPEATED, false)); 3]);
    }
}
