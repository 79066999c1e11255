//! The first page of an inbox, with the newest message and the unread count of each conversation.

use std::time::Duration;

use serde_json::json;

use super::document::Document;
use super::drive::{Goal, Worker, drive};
use super::failure::Error;
use super::http::Caller;
use super::report::{Counted, Report};
use super::stage::{self, Messages};
use super::text::BYTES_MIN;
use super::{Run, Shape, in_seconds, parse_length};

const INBOX: &str = "query($n: Int!) { inbox(first: $n) {
    edges { cursor node { lastMessage { id body createdAt } unreadCount conversation { id name } } }
    pageInfo { hasNextPage endCursor } updatesCursor } }";

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inboxes {
    /// How many conversations the inbox has
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    conversations: u64,
    /// Entries of a page
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100))]
    first: u64,
    /// Unread messages in each conversation
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    unread: u64,
    /// How many read at the same time, each on a connection of their own: the next page once the last is there
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4_000))]
    in_flight: u64,
    /// How long they read
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_length)]
    #[serde(serialize_with = "in_seconds")]
    duration: Duration,
}

impl Shape for Inboxes {
    async fn run(&self, run: &mut Run<'_>) -> Result<Report, Error> {
        super::files::make_room(self.in_flight.max(self.conversations))?;
        let viewer = run.person(0);
        // Each is started by the other one, so that nobody makes them all.
        let people = (0..self.conversations as usize).map(|one| vec![run.person(one + 1), viewer.clone()]);
        let mut groups = stage::groups(run, people.collect()).await?;
        groups.iter_mut().for_each(|group| group.people.reverse());
        stage::fill_each(run, &groups, self.unread, Messages::of(BYTES_MIN as u64)).await?;
        let request = Document::new(INBOX).with(&json!({"n": self.first}));
        let worker = |_| {
            let request = request.clone();
            Worker { caller: Caller::new(&run.target, &viewer), request: Box::new(move |_, _| request.clone()) }
        };
        let workers = (0..self.in_flight).map(worker).collect();
        let driven = drive(run, "inboxes", Goal::For(self.duration), workers).await?;
        let (entries, unread) = (self.first.min(self.conversations), self.unread);
        let about = format!("{} in flight for {entries} entries each, of {} with {unread} unread", self.in_flight, self.conversations);
        let counted = Counted { one: "inbox", many: "inboxes", timed: "from asking to the whole answer" };
        Ok(Report::new(run, ("inbox", self), about, counted, driven))
    }
}
