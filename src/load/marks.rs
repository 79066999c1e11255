//! Read markers that go forward, one message after the other.

use std::sync::Arc;

use serde_json::json;

use super::document::Document;
use super::drive::{Goal, Worker, drive};
use super::failure::Error;
use super::http::Caller;
use super::report::{Counted, Report, grouped};
use super::stage::{self, Messages, PEOPLE_MAX};
use super::text::BYTES_MIN;
use super::{Run, Shape};

const MARK: &str =
    "mutation($c: ID!, $m: ID!) { markRead(input: { conversationId: $c, messageId: $m }) { inboxEntry { id unreadCount } } }";
const PAGE: u32 = 100;
/// One of them writes.
const READERS: usize = PEOPLE_MAX - 1;

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Marks {
    /// How many read at the same time, each on a connection of their own and with a marker of their own
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    in_flight: u64,
    /// How many messages each of them marks, the oldest first; the conversations are filled with them before
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    messages: u64,
}

impl Shape for Marks {
    async fn run(&self, run: &mut Run<'_>) -> Result<Report, Error> {
        super::files::make_room(self.in_flight)?;
        let readers: Vec<String> = (0..self.in_flight as usize).map(|number| run.person(number)).collect();
        let people = readers.chunks(READERS).enumerate().map(|(place, readers)| {
            let writer = run.person(self.in_flight as usize + place);
            [readers, &[writer]].concat()
        });
        let groups = stage::groups(run, people.collect()).await?;
        stage::fill_each(run, &groups, self.messages, Messages::of(BYTES_MIN as u64)).await?;
        let (mark, mut workers) = (Arc::new(Document::new(MARK)), Vec::new());
        for group in &groups {
            let walked = stage::walk(run, group, PAGE, self.messages).await?;
            let ids: Vec<String> = walked.into_iter().flat_map(|page| page.ids).collect();
            // The newest came first; what is older than the messages is how the group began.
            let ids: Arc<[String]> = ids.into_iter().take(self.messages as usize).rev().collect();
            for reader in &group.people[..group.people.len() - 1] {
                let (mark, ids, id) = (Arc::clone(&mark), Arc::clone(&ids), group.id.clone());
                let request = move |number: u64, _| mark.with(&json!({"c": id, "m": ids[number as usize]}));
                workers.push(Worker { caller: Caller::new(&run.target, reader), request: Box::new(request) });
            }
        }
        let driven = drive(run, "marks", Goal::Each(self.messages), workers).await?;
        let about = format!("{} readers, each through {} messages", self.in_flight, grouped(self.messages));
        let counted = Counted { one: "mark", many: "marks", timed: "from asking to the answer, when it is kept" };
        Ok(Report::new(run, ("mark-read", self), about, counted, driven))
    }
}
