//! Fixtures of a workload, created through the API before the measurement: conversations, messages in them, and cursors into their history.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::requests::{RequestWorker, Schedule, prepare};
use crate::load::client::{BodyStamp, Document, HttpClient};
use crate::load::failure::{Error, Failure};
use crate::load::run::LoadRun;

const CONCURRENCY: usize = 16;
/// In larger groups the server sends no receipts and no read markers to other participants.
pub(crate) const PARTICIPANTS_MAX: usize = 32;

const CREATE: &str = "mutation($n: String!, $u: [String!]!) {
    createGroupConversation(input: { name: $n, usernames: $u }) { conversation { id } } }";
const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: { conversationId: $c, body: $b, idempotencyKey: $k }) { messageEdge { cursor node { id createdAt } } } }";
const CURSOR: &str = "query($c: ID!) { conversation(id: $c) { eventsCursor } }";
const HISTORY: &str = "query($c: ID!, $n: Int!, $after: String) { conversation(id: $c) { messages(first: $n, after: $after) {
    edges { node { id } } pageInfo { endCursor hasNextPage } } } }";

/// A group conversation that this run has created.
pub(crate) struct ConversationFixture {
    /// Global id.
    pub(crate) id: String,
    pub(crate) usernames: Vec<String>,
}

/// Creates one group for each list of users. The first user of a list creates the group.
pub(crate) async fn create_groups(
    run: &mut LoadRun<'_>,
    usernames: Vec<Vec<String>>,
) -> Result<Vec<ConversationFixture>, Error> {
    let total = usernames.len() as u64;
    let (target, name, create) = (
        Arc::clone(&run.target),
        format!("Bench {}", run.id()),
        Document::new(CREATE),
    );
    let create_one = async |usernames: Vec<String>| {
        let body = create.request_body(&json!({"n": name, "u": usernames[1..]}));
        let data = HttpClient::new(&target, &usernames[0]).query(body).await?;
        let id = string(&data["createGroupConversation"]["conversation"]["id"])?;
        Ok::<_, Failure>(ConversationFixture { id, usernames })
    };
    let mut pending = std::pin::pin!(
        stream::iter(usernames)
            .map(create_one)
            .buffered(CONCURRENCY)
    );
    let mut conversations = Vec::new();
    while let Some(conversation) = run
        .unless_cancelled(async { pending.next().await.transpose() })
        .await?
    {
        conversations.push(conversation);
        let done = conversations.len() as u64;
        run.report_progress(
            "conversations",
            done,
            total,
            &format!("conversations created: {done} of {total}"),
        );
    }
    Ok(conversations)
}

/// Creates one group with this many participants.
pub(crate) async fn create_group(
    run: &mut LoadRun<'_>,
    participants: u64,
) -> Result<ConversationFixture, Error> {
    let usernames = (0..participants as usize)
        .map(|number| run.username(number))
        .collect();
    Ok(create_groups(run, vec![usernames]).await?.remove(0))
}

/// Properties of the messages that a worker sends.
#[derive(Clone, Copy)]
pub(crate) struct MessageTemplate {
    pub(crate) body_bytes: usize,
    pub(crate) has_idempotency_key: bool,
    /// Stamps in bodies count their send time from here.
    pub(crate) start: Instant,
    /// Sequence number of the first message.
    pub(crate) first: u64,
}

impl MessageTemplate {
    pub(crate) fn new(body_bytes: u64) -> Self {
        Self {
            body_bytes: body_bytes as usize,
            has_idempotency_key: false,
            start: Instant::now(),
            first: 0,
        }
    }
}

/// Send time of a stamp.
pub(crate) fn micros_between(start: Instant, due: Instant) -> u64 {
    u64::try_from(due.duration_since(start).as_micros()).unwrap_or(u64::MAX)
}

/// Worker that sends messages of one user to one conversation.
pub(crate) fn send_worker(
    run: &LoadRun<'_>,
    conversation: &ConversationFixture,
    username: &str,
    template: MessageTemplate,
) -> RequestWorker {
    let (id, run_id, send) = (
        conversation.id.clone(),
        run.id().to_owned(),
        Document::new(SEND),
    );
    let request = move |number: u64, due: Instant| {
        let number = template.first + number;
        let sent_micros = micros_between(template.start, due);
        let key = template
            .has_idempotency_key
            .then(|| format!("bench-{run_id}-{number}"));
        send.request_body(&json!({"c": id, "b": BodyStamp { number, sent_micros }.body(template.body_bytes), "k": key}))
    };
    RequestWorker {
        client: HttpClient::new(&run.target, username),
        request: Box::new(request),
    }
}

/// Sends this many messages to one conversation, from all participants except the first.
pub(crate) async fn send_messages(
    run: &mut LoadRun<'_>,
    conversation: &ConversationFixture,
    count: u64,
    template: MessageTemplate,
) -> Result<(), Error> {
    let senders = conversation
        .usernames
        .iter()
        .skip(1)
        .cycle()
        .take(CONCURRENCY.min(count as usize));
    let workers = senders
        .map(|username| send_worker(run, conversation, username, template))
        .collect();
    prepare(run, "initial messages", Schedule::Total(count), workers).await
}

/// Sends this many messages to each conversation, from its last participant.
pub(crate) async fn send_messages_to_each(
    run: &mut LoadRun<'_>,
    conversations: &[ConversationFixture],
    count: u64,
    template: MessageTemplate,
) -> Result<(), Error> {
    let last = |conversation: &ConversationFixture| {
        conversation.usernames.last().cloned().unwrap_or_default()
    };
    let workers = conversations
        .iter()
        .map(|conversation| send_worker(run, conversation, &last(conversation), template))
        .collect();
    prepare(run, "initial messages", Schedule::PerWorker(count), workers).await
}

/// Cursor of the newest event of a conversation.
pub(crate) async fn events_cursor(
    run: &LoadRun<'_>,
    conversation: &ConversationFixture,
) -> Result<String, Error> {
    let query = async {
        let request = Document::new(CURSOR).request_body(&json!({"c": conversation.id}));
        let data = HttpClient::new(&run.target, &conversation.usernames[0])
            .query(request)
            .await?;
        string(&data["conversation"]["eventsCursor"])
    };
    run.unless_cancelled(query).await
}

pub(crate) struct HistoryPage {
    /// Message ids, newest first.
    pub(crate) ids: Vec<String>,
    pub(crate) end_cursor: String,
    pub(crate) has_next: bool,
}

/// Reads the whole history of a conversation in pages, newest first.
pub(crate) async fn read_history(
    run: &mut LoadRun<'_>,
    conversation: &ConversationFixture,
    page_size: u32,
    messages: u64,
) -> Result<Vec<HistoryPage>, Error> {
    let (document, mut client) = (
        Document::new(HISTORY),
        HttpClient::new(&run.target, &conversation.usernames[0]),
    );
    let mut pages: Vec<HistoryPage> = Vec::new();
    while pages.last().is_none_or(|page| page.has_next) {
        let variables = json!({"c": conversation.id, "n": page_size, "after": pages.last().map(|page| &page.end_cursor)});
        let data = run
            .unless_cancelled(client.query(document.request_body(&variables)))
            .await?;
        let page = history_page(&data["conversation"]["messages"])
            .map_err(|failure| Error::refused(run.target.url(), failure))?;
        pages.push(page);
        let read = pages.len() as u64 * u64::from(page_size);
        run.report_progress(
            "history",
            read,
            messages,
            &format!("history read: {read} of {messages} messages"),
        );
    }
    Ok(pages)
}

fn history_page(connection: &Value) -> Result<HistoryPage, Failure> {
    let edges = connection["edges"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let ids = edges
        .iter()
        .map(|edge| string(&edge["node"]["id"]))
        .collect::<Result<_, _>>()?;
    let info = &connection["pageInfo"];
    Ok(HistoryPage {
        ids,
        end_cursor: string(&info["endCursor"])?,
        has_next: info["hasNextPage"].as_bool().unwrap_or(false),
    })
}

fn string(value: &Value) -> Result<String, Failure> {
    value.as_str().map(str::to_owned).ok_or_else(|| {
        Failure::Unexpected(format!("the server answered {value} instead of a string"))
    })
}
