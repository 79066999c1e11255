//! Workload `send`: messages sent over HTTP by many clients at the same time.

use std::time::Duration;

use super::{Workload, as_seconds, parse_load_duration};
use crate::load::client::{BODY_BYTES_MAX, BODY_BYTES_MIN, ensure_open_files};
use crate::load::driver::fixture::{self, MessageTemplate, PARTICIPANTS_MAX};
use crate::load::driver::requests::{Schedule, drive};
use crate::load::failure::Error;
use crate::load::report::{LoadReport, OperationName, grouped};
use crate::load::run::LoadRun;

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SendLoad {
    /// Number of conversations that receive the messages
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    conversations: u64,
    /// Number of participants in each conversation
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=PARTICIPANTS_MAX as u64))]
    participants: u64,
    /// Number of concurrent clients, each with one connection and one request in flight
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4_000))]
    in_flight: u64,
    /// How long the load lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_load_duration)]
    #[serde(serialize_with = "as_seconds")]
    duration: Duration,
    /// Size of each message body in bytes
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BODY_BYTES_MIN as u64..=BODY_BYTES_MAX as u64))]
    bytes: u64,
    /// Send an idempotencyKey with each message, as real clients should
    #[arg(long)]
    key: bool,
}

impl Workload for SendLoad {
    async fn run(&self, run: &mut LoadRun<'_>) -> Result<LoadReport, Error> {
        ensure_open_files(self.in_flight)?;
        let (conversations, participants) =
            (self.conversations as usize, self.participants as usize);
        let group = |first: usize| {
            (0..participants)
                .map(|number| run.username(first * participants + number))
                .collect()
        };
        let groups = (0..conversations).map(group).collect();
        let groups = fixture::create_groups(run, groups).await?;
        let template = MessageTemplate {
            has_idempotency_key: self.key,
            ..MessageTemplate::new(self.bytes)
        };
        let worker = |number: usize| {
            let group = &groups[number % conversations];
            fixture::send_worker(
                run,
                group,
                &group.usernames[number / conversations % participants],
                template,
            )
        };
        let workers = (0..self.in_flight as usize).map(worker).collect();
        let driven = drive(run, "sends", Schedule::ForDuration(self.duration), workers).await?;
        let description = format!(
            "{} in flight to {} conversations of {}, {} bytes each{}",
            self.in_flight,
            grouped(self.conversations),
            self.participants,
            grouped(self.bytes),
            if self.key {
                ", with idempotency keys"
            } else {
                ""
            }
        );
        let operation = OperationName {
            singular: "send",
            plural: "sends",
            timed: "from the request to the answer, when the message is persisted",
        };
        Ok(LoadReport::new(
            run,
            ("send", self),
            description,
            operation,
            driven,
        ))
    }
}
