//! Workload `mark-read`: read markers that advance message by message.

use std::sync::Arc;

use serde_json::json;

use super::Workload;
use crate::load::client::{BODY_BYTES_MIN, Document, HttpClient, ensure_open_files};
use crate::load::driver::fixture::{self, MessageTemplate, PARTICIPANTS_MAX};
use crate::load::driver::requests::{RequestWorker, Schedule, drive};
use crate::load::failure::Error;
use crate::load::report::{LoadReport, OperationName, grouped};
use crate::load::run::LoadRun;

const MARK: &str = "mutation($c: ID!, $m: ID!) { markRead(input: { conversationId: $c, messageId: $m }) { inboxEntry { id unreadCount } } }";
const PAGE_SIZE: u32 = 100;
/// The last participant of a group sends the messages.
const READERS_MAX: usize = PARTICIPANTS_MAX - 1;

#[derive(Debug, clap::Args, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkReadLoad {
    /// Number of concurrent readers, each with one connection and one read marker
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    in_flight: u64,
    /// Number of messages that each reader marks, oldest first; they are sent before the measurement
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    messages: u64,
}

impl Workload for MarkReadLoad {
    async fn run(&self, run: &mut LoadRun<'_>) -> Result<LoadReport, Error> {
        ensure_open_files(self.in_flight)?;
        let readers: Vec<String> = (0..self.in_flight as usize)
            .map(|number| run.username(number))
            .collect();
        let usernames = readers
            .chunks(READERS_MAX)
            .enumerate()
            .map(|(group, readers)| {
                let sender = run.username(self.in_flight as usize + group);
                [readers, &[sender]].concat()
            });
        let groups = fixture::create_groups(run, usernames.collect()).await?;
        fixture::send_messages_to_each(
            run,
            &groups,
            self.messages,
            MessageTemplate::new(BODY_BYTES_MIN as u64),
        )
        .await?;
        let (mark, mut workers) = (Arc::new(Document::new(MARK)), Vec::new());
        for group in &groups {
            let pages = fixture::read_history(run, group, PAGE_SIZE, self.messages).await?;
            let ids: Vec<String> = pages.into_iter().flat_map(|page| page.ids).collect();
            // Pages are newest first. Events of the group's creation are older than the messages.
            let ids: Arc<[String]> = ids.into_iter().take(self.messages as usize).rev().collect();
            for reader in &group.usernames[..group.usernames.len() - 1] {
                let (mark, ids, id) = (Arc::clone(&mark), Arc::clone(&ids), group.id.clone());
                let request = move |number: u64, _| {
                    mark.request_body(&json!({"c": id, "m": ids[number as usize]}))
                };
                workers.push(RequestWorker {
                    client: HttpClient::new(&run.target, reader),
                    request: Box::new(request),
                });
            }
        }
        let driven = drive(run, "markers", Schedule::PerWorker(self.messages), workers).await?;
        let description = format!(
            "{} readers, {} messages each",
            self.in_flight,
            grouped(self.messages)
        );
        let operation = OperationName {
            singular: "mark",
            plural: "marks",
            timed: "from the request to the answer, when the marker is persisted",
        };
        Ok(LoadReport::new(
            run,
            ("mark-read", self),
            description,
            operation,
            driven,
        ))
    }
}
