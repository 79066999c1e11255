//! What a load needs before it begins, made through the API: groups, messages in them, and places in their history.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Run;
use super::document::Document;
use super::drive::{Goal, Worker, prepare};
use super::failure::{Error, Failure};
use super::http::Caller;
use super::text::Mark;

const AT_ONCE: usize = 16;
/// So large a group is still told everything: receipts and markers, too.
pub(super) const PEOPLE_MAX: usize = 32;

const CREATE: &str = "mutation($n: String!, $u: [String!]!) {
    createGroupConversation(input: { name: $n, usernames: $u }) { conversation { id } } }";
const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: { conversationId: $c, body: $b, idempotencyKey: $k }) { messageEdge { cursor node { id createdAt } } } }";
const CURSOR: &str = "query($c: ID!) { conversation(id: $c) { eventsCursor } }";
const WALK: &str = "query($c: ID!, $n: Int!, $after: String) { conversation(id: $c) { messages(first: $n, after: $after) {
    edges { node { id } } pageInfo { endCursor hasNextPage } } } }";

/// A conversation of a run.
pub(super) struct Group {
    /// Its global id.
    pub(super) id: String,
    pub(super) people: Vec<String>,
}

/// New groups of these people, each started by its first.
pub(super) async fn groups(run: &mut Run<'_>, people: Vec<Vec<String>>) -> Result<Vec<Group>, Error> {
    let of = people.len() as u64;
    let (target, name, create) = (Arc::clone(&run.target), format!("Bench {}", run.id()), Document::new(CREATE));
    let make = async |people: Vec<String>| {
        let body = create.with(&json!({"n": name, "u": people[1..]}));
        let made = Caller::new(&target, &people[0]).data(body).await?;
        let id = text(&made["createGroupConversation"]["conversation"]["id"])?;
        Ok::<_, Failure>(Group { id, people })
    };
    let mut making = std::pin::pin!(stream::iter(people).map(make).buffered(AT_ONCE));
    let mut groups = Vec::new();
    while let Some(group) = run.unless_stopped(async { making.next().await.transpose() }).await? {
        groups.push(group);
        let made = groups.len() as u64;
        run.tell("conversations", made, of, &format!("conversations made: {made} of {of}"));
    }
    Ok(groups)
}

/// One new group of so many.
pub(super) async fn group(run: &mut Run<'_>, people: u64) -> Result<Group, Error> {
    let people = (0..people as usize).map(|number| run.person(number)).collect();
    Ok(groups(run, vec![people]).await?.remove(0))
}

/// How the messages of a worker are to be.
#[derive(Clone, Copy)]
pub(super) struct Messages {
    pub(super) bytes: usize,
    pub(super) is_keyed: bool,
    /// By which the time in a text goes.
    pub(super) start: Instant,
    /// The number of the first.
    pub(super) first: u64,
}

impl Messages {
    pub(super) fn of(bytes: u64) -> Self {
        Self { bytes: bytes as usize, is_keyed: false, start: Instant::now(), first: 0 }
    }
}

/// Who sends messages to a group.
pub(super) fn sender(run: &Run<'_>, group: &Group, person: &str, messages: Messages) -> Worker {
    let (id, run_id, send) = (group.id.clone(), run.id().to_owned(), Document::new(SEND));
    let request = move |number: u64, due: Instant| {
        let number = messages.first + number;
        let at = u64::try_from(due.duration_since(messages.start).as_micros()).unwrap_or(u64::MAX);
        let key = messages.is_keyed.then(|| format!("bench-{run_id}-{number}"));
        send.with(&json!({"c": id, "b": Mark { number, at }.text(messages.bytes), "k": key}))
    };
    Worker { caller: Caller::new(&run.target, person), request: Box::new(request) }
}

/// So many messages in one group, of all who are in it but the first.
pub(super) async fn fill(run: &mut Run<'_>, group: &Group, count: u64, messages: Messages) -> Result<(), Error> {
    let senders = group.people.iter().skip(1).cycle().take(AT_ONCE.min(count as usize));
    let workers = senders.map(|person| sender(run, group, person, messages)).collect();
    prepare(run, "messages to begin with", Goal::Times(count), workers).await
}

/// So many messages in each group, of the last who is in it.
pub(super) async fn fill_each(run: &mut Run<'_>, groups: &[Group], count: u64, messages: Messages) -> Result<(), Error> {
    let last = |group: &Group| group.people.last().cloned().unwrap_or_default();
    let workers = groups.iter().map(|group| sender(run, group, &last(group), messages)).collect();
    prepare(run, "messages to begin with", Goal::Each(count), workers).await
}

/// Where the events of a group are now.
pub(super) async fn cursor(run: &Run<'_>, group: &Group) -> Result<String, Error> {
    let asked = async {
        let data = Caller::new(&run.target, &group.people[0]).data(Document::new(CURSOR).with(&json!({"c": group.id}))).await?;
        text(&data["conversation"]["eventsCursor"])
    };
    run.unless_stopped(asked).await
}

/// A page of history.
pub(super) struct Walked {
    /// The newest first.
    pub(super) ids: Vec<String>,
    pub(super) end: String,
    pub(super) has_next: bool,
}

/// All of a group's history, the newest first.
pub(super) async fn walk(run: &mut Run<'_>, group: &Group, page: u32, messages: u64) -> Result<Vec<Walked>, Error> {
    let (document, mut caller) = (Document::new(WALK), Caller::new(&run.target, &group.people[0]));
    let mut pages: Vec<Walked> = Vec::new();
    while pages.last().is_none_or(|page| page.has_next) {
        let variables = json!({"c": group.id, "n": page, "after": pages.last().map(|page| &page.end)});
        let data = run.unless_stopped(caller.data(document.with(&variables))).await?;
        let walked = walked(&data["conversation"]["messages"]).map_err(|failure| Error::refused(&run.target, failure))?;
        pages.push(walked);
        let seen = pages.len() as u64 * u64::from(page);
        run.tell("places in history", seen, messages, &format!("places in history: {seen} of {messages} messages"));
    }
    Ok(pages)
}

fn walked(connection: &Value) -> Result<Walked, Failure> {
    let edges = connection["edges"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = edges.iter().map(|edge| text(&edge["node"]["id"])).collect::<Result<_, _>>()?;
    let info = &connection["pageInfo"];
    Ok(Walked { ids, end: text(&info["endCursor"])?, has_next: info["hasNextPage"].as_bool().unwrap_or(false) })
}

fn text(value: &Value) -> Result<String, Failure> {
    value.as_str().map(str::to_owned).ok_or_else(|| Failure::Foreign(format!("a text was expected, not {value}")))
}
