//! Workload `page`: pages of a conversation's history, the newest or random older ones.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::json;

use super::{Workload, as_seconds, parse_load_duration};
use crate::load::client::{
    BODY_BYTES_MAX, BODY_BYTES_MIN, Document, HttpClient, ensure_open_files,
};
use crate::load::driver::fixture::{self, ConversationFixture, MessageTemplate};
use crate::load::driver::requests::{RequestWorker, Schedule, drive};
use crate::load::failure::Error;
use crate::load::report::{LoadReport, OperationName, grouped};
use crate::load::run::LoadRun;

const PAGE: &str = "query($c: ID!, $n: Int!, $after: String) { conversation(id: $c) { messages(first: $n, after: $after) {
    edges { cursor node { id body createdAt sender { username } } } pageInfo { hasNextPage endCursor } } } }";

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageLoad {
    /// Number of messages sent to the conversation before the measurement
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
    /// Number of messages on a page
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100))]
    size: u64,
    /// Read pages spread over the whole history instead of the newest page
    #[arg(long)]
    deep: bool,
    /// Number of concurrent clients, each with one connection and one request in flight
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4_000))]
    in_flight: u64,
    /// How long the load lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_load_duration)]
    #[serde(serialize_with = "as_seconds")]
    duration: Duration,
    /// Size of each message body in bytes
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BODY_BYTES_MIN as u64..=BODY_BYTES_MAX as u64))]
    bytes: u64,
}

impl Workload for PageLoad {
    async fn run(&self, run: &mut LoadRun<'_>) -> Result<LoadReport, Error> {
        if self.deep && self.messages <= 2 * self.size {
            return Err(Error::Options(format!(
                "--deep: {} messages are too few for deep pages; raise --messages above twice --size",
                self.messages
            )));
        }
        ensure_open_files(self.in_flight)?;
        let group = fixture::create_group(run, 3).await?;
        fixture::send_messages(run, &group, self.messages, MessageTemplate::new(self.bytes))
            .await?;
        let requests = Arc::new(self.requests(run, &group).await?);
        let worker = |number: usize| {
            let (requests, client) = (
                Arc::clone(&requests),
                HttpClient::new(
                    &run.target,
                    &group.usernames[number % group.usernames.len()],
                ),
            );
            // Multiples of the golden ratio spread evenly over the history, and never hit the same page twice in a row.
            let request = move |number: u64, _| {
                let index = (number as f64 * 0.618_033_988_749_895).fract() * requests.len() as f64;
                requests[index as usize].clone()
            };
            RequestWorker {
                client,
                request: Box::new(request),
            }
        };
        let workers = (0..self.in_flight as usize).map(worker).collect();
        let driven = drive(run, "pages", Schedule::ForDuration(self.duration), workers).await?;
        let position = if self.deep {
            "anywhere in"
        } else {
            "at the newest end of"
        };
        let description = format!(
            "{} in flight for pages of {} messages, {position} {}",
            self.in_flight,
            self.size,
            grouped(self.messages)
        );
        let operation = OperationName {
            singular: "page",
            plural: "pages",
            timed: "from the request to the whole answer",
        };
        Ok(LoadReport::new(
            run,
            ("page", self),
            description,
            operation,
            driven,
        ))
    }
}

impl PageLoad {
    /// Bodies of the requests: one for the newest page, or with `--deep` one for each page of the history.
    async fn requests(
        &self,
        run: &mut LoadRun<'_>,
        group: &ConversationFixture,
    ) -> Result<Vec<Bytes>, Error> {
        let page = Document::new(PAGE);
        let request = |after: Option<&str>| {
            page.request_body(&json!({"c": group.id, "n": self.size, "after": after}))
        };
        if !self.deep {
            return Ok(vec![request(None)]);
        }
        let pages = fixture::read_history(run, group, self.size as u32, self.messages).await?;
        // Without the last two cursors, so that each request returns a full page.
        Ok(pages
            .iter()
            .rev()
            .skip(2)
            .map(|page| request(Some(&page.end_cursor)))
            .collect())
    }
}
