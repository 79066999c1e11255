//! Pages of a conversation's history: the newest, or some deep inside.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::document::Document;
use super::drive::{Goal, Worker, drive};
use super::failure::Error;
use super::http::Caller;
use super::report::{Counted, Report, grouped};
use super::stage::{self, Messages};
use super::text::{BYTES_MAX, BYTES_MIN};
use super::{Run, Shape, in_seconds, parse_length};

const PAGE: &str = "query($c: ID!, $n: Int!, $after: String) { conversation(id: $c) { messages(first: $n, after: $after) {
    edges { cursor node { id body createdAt sender { username } } } pageInfo { hasNextPage endCursor } } } }";

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pages {
    /// How many messages the conversation is filled with before
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
    /// Messages of a page
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100))]
    size: u64,
    /// Pages at places all over the history, instead of the newest
    #[arg(long)]
    deep: bool,
    /// How many read at the same time, each on a connection of their own: the next page once the last is there
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4_000))]
    in_flight: u64,
    /// How long they read
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_length)]
    #[serde(serialize_with = "in_seconds")]
    duration: Duration,
    /// Bytes of each text
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u64).range(BYTES_MIN as u64..=BYTES_MAX as u64))]
    bytes: u64,
}

impl Shape for Pages {
    async fn run(&self, run: &mut Run<'_>) -> Result<Report, Error> {
        if self.deep && self.messages <= 2 * self.size {
            return Err(Error::Unfit(format!("--deep: there is nothing deep in {} messages; fill in more", self.messages)));
        }
        super::files::make_room(self.in_flight)?;
        let group = stage::group(run, 3).await?;
        stage::fill(run, &group, self.messages, Messages::of(self.bytes)).await?;
        let page = Document::new(PAGE);
        let request = |after: Option<&str>| page.with(&json!({"c": group.id, "n": self.size, "after": after}));
        let mut requests = vec![request(None)];
        if self.deep {
            let walked = stage::walk(run, &group, self.size as u32, self.messages).await?;
            // Behind each of these is a whole page.
            requests = walked.iter().rev().skip(2).map(|page| request(Some(&page.end))).collect();
        }
        let requests = Arc::new(requests);
        let worker = |number: usize| {
            let (requests, caller) = (Arc::clone(&requests), Caller::new(&run.target, &group.people[number % group.people.len()]));
            // By the golden ratio: all over, and never the same place twice in a row.
            let request = move |number: u64, _| {
                let place = (number as f64 * 0.618_033_988_749_895).fract() * requests.len() as f64;
                requests[place as usize].clone()
            };
            Worker { caller, request: Box::new(request) }
        };
        let workers = (0..self.in_flight as usize).map(worker).collect();
        let driven = drive(run, "pages", Goal::For(self.duration), workers).await?;
        let place = if self.deep { "somewhere in" } else { "at the newest end of" };
        let about = format!("{} in flight for {} messages each, {place} {}", self.in_flight, self.size, grouped(self.messages));
        let counted = Counted { one: "page", many: "pages", timed: "from asking to the whole answer" };
        Ok(Report::new(run, ("page", self), about, counted, driven))
    }
}
