//! Workload `inbox`: the first page of an inbox, with the newest message and the unread count of each conversation.

use std::time::Duration;

use serde_json::json;

use super::{Workload, as_seconds, parse_load_duration};
use crate::load::client::{BODY_BYTES_MIN, Document, HttpClient, ensure_open_files};
use crate::load::driver::fixture::{self, MessageTemplate};
use crate::load::driver::requests::{RequestWorker, Schedule, drive};
use crate::load::failure::Error;
use crate::load::report::{LoadReport, OperationName};
use crate::load::run::LoadRun;

const INBOX: &str = "query($n: Int!) { inbox(first: $n) {
    edges { cursor node { lastMessage { id body createdAt } unreadCount conversation { id name } } }
    pageInfo { hasNextPage endCursor } updatesCursor } }";

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxLoad {
    /// Number of conversations in the inbox
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    conversations: u64,
    /// Number of entries on a page
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100))]
    first: u64,
    /// Number of unread messages in each conversation
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    unread: u64,
    /// Number of concurrent clients, each with one connection and one request in flight
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4_000))]
    in_flight: u64,
    /// How long the load lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_load_duration)]
    #[serde(serialize_with = "as_seconds")]
    duration: Duration,
}

impl Workload for InboxLoad {
    async fn run(&self, run: &mut LoadRun<'_>) -> Result<LoadReport, Error> {
        ensure_open_files(self.in_flight.max(self.conversations))?;
        let viewer = run.username(0);
        // The other participant creates each group, so no single user creates all of them.
        let usernames = (0..self.conversations as usize)
            .map(|number| vec![run.username(number + 1), viewer.clone()]);
        let mut groups = fixture::create_groups(run, usernames.collect()).await?;
        groups
            .iter_mut()
            .for_each(|group| group.usernames.reverse());
        fixture::send_messages_to_each(
            run,
            &groups,
            self.unread,
            MessageTemplate::new(BODY_BYTES_MIN as u64),
        )
        .await?;
        let request = Document::new(INBOX).request_body(&json!({"n": self.first}));
        let worker = |_| {
            let request = request.clone();
            RequestWorker {
                client: HttpClient::new(&run.target, &viewer),
                request: Box::new(move |_, _| request.clone()),
            }
        };
        let workers = (0..self.in_flight).map(worker).collect();
        let driven = drive(
            run,
            "inboxes",
            Schedule::ForDuration(self.duration),
            workers,
        )
        .await?;
        let (entries, unread) = (self.first.min(self.conversations), self.unread);
        let description = format!(
            "{} in flight for {entries} entries of {}, each with {unread} unread messages",
            self.in_flight, self.conversations
        );
        let operation = OperationName {
            singular: "inbox",
            plural: "inboxes",
            timed: "from the request to the whole answer",
        };
        Ok(LoadReport::new(
            run,
            ("inbox", self),
            description,
            operation,
            driven,
        ))
    }
}
