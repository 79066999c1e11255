//! Messages sent by many at once, over HTTP.

use std::time::Duration;

use super::drive::{Goal, drive};
use super::failure::Error;
use super::report::{Counted, Report, grouped};
use super::stage::{self, Messages, PEOPLE_MAX};
use super::text::{BYTES_MAX, BYTES_MIN};
use super::{Run, Shape, in_seconds, parse_length};

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sends {
    /// How many conversations there are to send to
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    conversations: u64,
    /// How many are in each
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=PEOPLE_MAX as u64))]
    participants: u64,
    /// How many send at the same time, each on a connection of their own: the next once the last is answered
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4_000))]
    in_flight: u64,
    /// How long they send
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_length)]
    #[serde(serialize_with = "in_seconds")]
    duration: Duration,
    /// Bytes of each text
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BYTES_MIN as u64..=BYTES_MAX as u64))]
    bytes: u64,
    /// Give each send an idempotencyKey, as clients should
    #[arg(long)]
    key: bool,
}

impl Shape for Sends {
    async fn run(&self, run: &mut Run<'_>) -> Result<Report, Error> {
        super::files::make_room(self.in_flight)?;
        let (conversations, participants) = (self.conversations as usize, self.participants as usize);
        let people = (0..conversations).map(|one| (0..participants).map(|person| run.person(one * participants + person)).collect());
        let groups = stage::groups(run, people.collect()).await?;
        let messages = Messages { is_keyed: self.key, ..Messages::of(self.bytes) };
        let worker = |number: usize| {
            let group = &groups[number % conversations];
            stage::sender(run, group, &group.people[number / conversations % participants], messages)
        };
        let workers = (0..self.in_flight as usize).map(worker).collect();
        let driven = drive(run, "sends", Goal::For(self.duration), workers).await?;
        let about = format!(
            "{} in flight to {} conversations of {}, {} bytes each{}",
            self.in_flight,
            grouped(self.conversations),
            self.participants,
            grouped(self.bytes),
            if self.key { ", with keys" } else { "" }
        );
        let counted = Counted { one: "send", many: "sends", timed: "from asking to the answer, when it is kept" };
        Ok(Report::new(run, ("send", self), about, counted, driven))
    }
}
