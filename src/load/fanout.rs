//! Messages to all who listen to one conversation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::crowd::{self, Subscription};
use super::drive::{Goal, drive};
use super::failure::{Error, Failure};
use super::report::{Counted, Figure, Report, grouped};
use super::socket::Socket;
use super::stage::{self, Messages, PEOPLE_MAX};
use super::tally::Meter;
use super::text::{BYTES_MAX, BYTES_MIN, Mark};
use super::{Run, Shape, in_seconds, parse_length};

/// So that one slow send does not hold up the next.
const SENDERS: usize = 16;

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fanout {
    /// How many sockets listen to the one conversation
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=25_000))]
    subscribers: u64,
    /// How many people they belong to
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=PEOPLE_MAX as u64))]
    participants: u64,
    /// Messages a second, sent over HTTP, at moments that are fixed beforehand
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    rate: u32,
    /// How long they are sent
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_length)]
    #[serde(serialize_with = "in_seconds")]
    duration: Duration,
    /// Bytes of each text
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BYTES_MIN as u64..=BYTES_MAX as u64))]
    bytes: u64,
}

/// What all who listen write to.
#[derive(Default)]
struct Heard {
    /// From the send to them.
    meter: Meter,
    /// How many have heard the first message, which is not measured.
    ready: AtomicU64,
}

impl Shape for Fanout {
    async fn run(&self, run: &mut Run<'_>) -> Result<Report, Error> {
        super::files::make_room(self.subscribers + SENDERS as u64)?;
        let group = stage::group(run, self.participants).await?;
        let after = stage::cursor(run, &group).await?;
        let subscription = Subscription::new(&group, &after);
        let (heard, messages, mut listeners) = (Arc::new(Heard::default()), Messages::of(self.bytes), JoinSet::new());
        let hold = |_, socket| drop(listeners.spawn(listen(socket, messages.start, Arc::clone(&heard))));
        crowd::open(run, self.subscribers, &group.people, Some(&subscription), &Meter::default(), hold).await?;
        // What is sent once all have heard this, all are told as it comes.
        stage::fill(run, &group, 1, messages).await?;
        let ready = || heard.ready.load(Ordering::Relaxed);
        crowd::all_came(run, "listeners", self.subscribers, ready, ready).await;
        if ready() < self.subscribers {
            let deaf = Error::Broken(format!("{} of {} sockets heard a message", grouped(ready()), grouped(self.subscribers)));
            return Err(if run.stop.is_cancelled() { Error::Interrupted } else { deaf });
        }
        let messages = Messages { first: 1, ..messages };
        let senders = group.people.iter().cycle().take(SENDERS);
        let workers = senders.map(|person| stage::sender(run, &group, person, messages)).collect();
        let watch = run.watch();
        let (sends, sending) = drive(run, "sends", Goal::Paced { rate: self.rate, length: self.duration }, workers).await?;
        let due = sends.count() * self.subscribers;
        let came = || heard.meter.count();
        crowd::all_came(run, "deliveries", due, came, came).await;
        let spent = watch.spent();
        let mut tally = heard.meter.tally();
        tally.take_failures(sends.failures.clone());
        // Where a send failed it may have been told all the same.
        let is_as_sent = tally.count() == due || (tally.count() > due && sends.failed() > 0) || run.stop.is_cancelled();
        let fault = (!is_as_sent).then(|| format!("{} deliveries came, and {} were due", grouped(tally.count()), grouped(due)));
        let rate = sends.count() as f64 / sending.elapsed.max(self.duration).as_secs_f64();
        let words = format!("{} sends, {rate:.1} a second, and {} were asked for", grouped(sends.count()), self.rate);
        let sent = Figure::new("sends", sends.count() as f64, words);
        let about = format!("{} sockets of {} people, {} sends a second", grouped(self.subscribers), self.participants, self.rate);
        let counted = Counted { one: "delivery", many: "deliveries", timed: "from the moment of the send to the client" };
        Ok(Report::new(run, ("fanout", self), about, counted, (tally, spent)).with([sent]).with_faults(fault))
    }
}

async fn listen(mut socket: Socket, start: Instant, heard: Arc<Heard>) {
    loop {
        match socket.told().await.map(|told| Mark::find(&told)) {
            Ok(Some(Mark { number: 0, .. })) => drop(heard.ready.fetch_add(1, Ordering::Relaxed)),
            Ok(Some(Mark { at, .. })) => heard.meter.took(start.elapsed().saturating_sub(Duration::from_micros(at))),
            Ok(None) => heard.meter.fail(&Failure::stray()),
            Err(failure) => return heard.meter.fail(&failure),
        }
    }
}
