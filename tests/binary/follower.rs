//! One who listens over `graphql-transport-ws`, is cut off by every crash, and goes on from the last cursor.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use wideroom::model::MessageId;

use super::ledger::Found;
use super::read::message_id;
use super::stage::{Stage, name};
use crate::support::client::{Cut, Socket, WebSocket, soon, try_socket};

const MESSAGES: &str = "subscription($c: ID!, $a: String) { messageAdded(conversationId: $c, after: $a) { messageEdge { cursor node { uuid body } } } }";
const INBOX: &str = "subscription($a: String) { inboxUpdated(after: $a) { cursor event { __typename ... on InboxEntryChangedEvent {
    inboxEntryEdge { node { conversation { id messageCount } lastMessage { uuid } } } } } } }";

/// A server that runs: its number tells it from the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
}

/// Codes of a socket whose token is refused: it would come back for ever and hear nothing.
const REFUSALS: [u16; 2] = [4401, 4403];
/// Delivery of the next event after an outage: a server that cannot read a lane of its mailbox has all its streams read the store after a
/// minute, within half of one. The rest is for a machine with other load.
const RECOVERY_MAX: Duration = Duration::from_secs(150);
/// How often one whose stream ended with the store comes back.
const COME_BACK_AFTER: Duration = Duration::from_millis(100);

/// Subscription of a follower.
enum Subject {
    Messages(usize),
    Inbox(usize),
}

pub(crate) struct Follower {
    subject: Subject,
    heard: watch::Receiver<Vec<Value>>,
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    pub(crate) fn of_messages(
        stage: &Arc<Stage>,
        at: usize,
        place: watch::Receiver<Option<Place>>,
    ) -> Self {
        let conversation = &stage.conversations[at];
        let variables = json!({ "c": conversation.id, "a": conversation.events_cursor });
        Self::start(
            stage,
            Subject::Messages(at),
            conversation.participants[0],
            variables,
            place,
            false,
        )
    }

    /// The same where the store may be away for a while: it comes back as often as its stream ends.
    pub(crate) fn of_messages_on_a_cluster(
        stage: &Arc<Stage>,
        at: usize,
        place: watch::Receiver<Option<Place>>,
    ) -> Self {
        let conversation = &stage.conversations[at];
        let variables = json!({ "c": conversation.id, "a": conversation.events_cursor });
        Self::start(
            stage,
            Subject::Messages(at),
            conversation.participants[0],
            variables,
            place,
            true,
        )
    }

    /// From nowhere: its first cursor is that of its first payload.
    pub(crate) fn of_inbox(
        stage: &Arc<Stage>,
        user: usize,
        place: watch::Receiver<Option<Place>>,
    ) -> Self {
        Self::start(stage, Subject::Inbox(user), user, json!({}), place, false)
    }

    /// The same where it comes back as often as its stream ends.
    pub(crate) fn of_inbox_on_a_cluster(
        stage: &Arc<Stage>,
        user: usize,
        place: watch::Receiver<Option<Place>>,
    ) -> Self {
        Self::start(stage, Subject::Inbox(user), user, json!({}), place, true)
    }

    fn start(
        stage: &Stage,
        subject: Subject,
        user: usize,
        variables: Value,
        place: watch::Receiver<Option<Place>>,
        comes_back: bool,
    ) -> Self {
        let (heard, receiver) = watch::channel(Vec::new());
        let document = if matches!(subject, Subject::Messages(_)) {
            MESSAGES
        } else {
            INBOX
        };
        let listening = Listening {
            token: stage.program.token(&name(user)),
            document,
            variables,
            heard,
            comes_back,
        };
        Self {
            subject,
            heard: receiver,
            task: tokio::spawn(listening.run(place)),
        }
    }

    /// Has heard all that there is, and no more.
    pub(crate) async fn check(mut self, stage: &Stage, found: &Found) {
        match self.subject {
            Subject::Messages(at) => {
                let there: Vec<_> = found.histories[at]
                    .messages
                    .iter()
                    .map(|read| (read.id, read.body.clone().unwrap()))
                    .collect();
                self.hears(|heard| heard.len() >= there.len()).await;
                let heard: Vec<_> = self
                    .heard
                    .borrow()
                    .iter()
                    .map(|data| message(&data["messageAdded"]["messageEdge"]["node"]))
                    .collect();
                let differs = heard
                    .iter()
                    .zip(&there)
                    .position(|(heard, there)| heard != there);
                let places = format!(
                    "{} heard, {} there, other from {differs:?} on",
                    heard.len(),
                    there.len()
                );
                assert!(
                    heard == there,
                    "conversation {at} was not heard in order and without repeats: {places}"
                );
            }
            Subject::Inbox(user) => {
                let newest: HashMap<_, _> = newest_of(stage, user, found).collect();
                let is_whole = |heard: &[Value]| {
                    heard.iter().filter_map(told).collect::<HashMap<_, _>>() == newest
                };
                assert!(self.hears(is_whole).await);
            }
        }
    }
}

impl Follower {
    /// Waits until it has heard enough, or nothing more for too long. Returns whether it has.
    async fn hears(&mut self, is_enough: impl Fn(&[Value]) -> bool) -> bool {
        while !is_enough(&self.heard.borrow_and_update()) {
            let Ok(Ok(())) = tokio::time::timeout(RECOVERY_MAX, self.heard.changed()).await else {
                return false;
            };
        }
        true
    }

    /// Shows every conversation of its user as it is.
    pub(crate) async fn check_all_shown(mut self, stage: &Stage, found: &Found) {
        let Subject::Inbox(user) = self.subject else {
            unreachable!("it follows an inbox")
        };
        let newest: HashMap<_, _> = newest_of(stage, user, found).collect();
        let shown = |heard: &[Value]| heard.iter().filter_map(told).collect::<HashMap<_, _>>();
        let is_whole = self.hears(|heard| shown(heard) == newest).await;
        assert!(
            is_whole,
            "{}: shown {:?}, there {newest:?}",
            name(user),
            shown(&self.heard.borrow())
        );
    }

    /// Has heard all that there is, be it late or twice.
    pub(crate) async fn check_all_heard(mut self, found: &Found) {
        let Subject::Messages(at) = self.subject else {
            unreachable!("it follows messages")
        };
        let there: HashMap<_, _> = found.histories[at]
            .messages
            .iter()
            .map(|read| (read.id, read.body.clone().unwrap()))
            .collect();
        let all = |heard: &[Value]| -> HashMap<_, _> {
            heard
                .iter()
                .map(|data| message(&data["messageAdded"]["messageEdge"]["node"]))
                .collect()
        };
        let missed = |heard: &HashMap<MessageId, String>| -> Vec<_> {
            let missed = there.iter().filter(|(id, _)| !heard.contains_key(id));
            missed.take(9).collect()
        };
        let began = Instant::now();
        let late = missed(&all(&self.heard.borrow()));
        let is_whole = self.hears(|heard| all(heard) == there).await;
        if !late.is_empty() {
            let waited = began.elapsed();
            crate::support::cassandra::say(&format!("a follower heard {late:?} {waited:.1?} late"));
        }
        let heard = all(&self.heard.borrow());
        let missed = missed(&heard);
        assert!(
            is_whole,
            "conversation {at}: {} heard, {} there, not heard {missed:?}",
            heard.len(),
            there.len()
        );
    }
}

fn message(node: &Value) -> (MessageId, String) {
    (
        message_id(node).unwrap(),
        node["body"].as_str().unwrap().to_owned(),
    )
}

/// A conversation and its newest message, as an event of an inbox tells it.
fn told(data: &Value) -> Option<(String, MessageId)> {
    let node = &data["inboxUpdated"]["event"]["inboxEntryEdge"]["node"];
    Some((
        node["conversation"]["id"].as_str()?.to_owned(),
        message_id(&node["lastMessage"])?,
    ))
}

fn newest_of(
    stage: &Stage,
    user: usize,
    found: &Found,
) -> impl Iterator<Item = (String, MessageId)> {
    stage.of_user(user).filter_map(|at| {
        Some((
            stage.conversations[at].id.clone(),
            found.histories[at].messages.last()?.id,
        ))
    })
}

struct Listening {
    token: String,
    document: &'static str,
    /// With the cursor to go on from.
    variables: Value,
    heard: watch::Sender<Vec<Value>>,
    comes_back: bool,
}

impl Listening {
    async fn run(mut self, mut place: watch::Receiver<Option<Place>>) {
        let mut last = None;
        while let Ok(now) = place
            .wait_for(|now| now.is_some() && *now != last)
            .await
            .map(|now| *now)
        {
            last = now;
            if let Some(now) = now {
                let mut other = place.clone();
                // To be cut off is how it ends, by the server's end or by the way to it.
                tokio::select! {
                    _ = self.listen(now.address) => {}
                    _ = other.wait_for(|other| other.is_some_and(|other| other != now)) => {}
                }
            }
            if self.comes_back {
                tokio::time::sleep(COME_BACK_AFTER).await;
                last = None;
            }
        }
    }

    async fn listen(&mut self, address: SocketAddr) -> Result<(), Cut> {
        let mut socket = try_socket(address, Some("graphql-transport-ws"))
            .await
            .map_err(|_| Cut)?;
        let authorization = format!("Bearer {}", self.token);
        say(
            &mut socket,
            &json!({ "type": "connection_init", "payload": { "Authorization": authorization } }),
        )
        .await?;
        let payload = json!({ "query": self.document, "variables": self.variables });
        loop {
            // How long it is quiet is not its business; who waits for what it has heard has the deadline.
            let text = match socket.next().await {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Ping(_))) => continue,
                Some(Ok(Message::Close(Some(end)))) => {
                    assert!(!REFUSALS.contains(&end.code.into()), "{end}");
                    return Err(Cut);
                }
                _ => return Err(Cut),
            };
            let mut heard: Value = serde_json::from_str(&text).unwrap();
            match heard["type"].as_str().unwrap() {
                "connection_ack" => {
                    say(
                        &mut socket,
                        &json!({ "type": "subscribe", "id": "1", "payload": payload }),
                    )
                    .await?
                }
                // The store was away.
                "error" if self.comes_back => return Err(Cut),
                "next" if self.comes_back && heard["payload"]["errors"].is_array() => {
                    return Err(Cut);
                }
                "next" => self.take(heard["payload"].take()),
                _ => panic!("{heard}"),
            }
        }
    }

    fn take(&mut self, mut payload: Value) {
        assert!(payload.get("errors").is_none(), "{payload}");
        let data = payload["data"].take();
        let cursors = [
            &data["messageAdded"]["messageEdge"]["cursor"],
            &data["inboxUpdated"]["cursor"],
        ];
        self.variables["a"] = cursors
            .into_iter()
            .find(|cursor| cursor.is_string())
            .unwrap()
            .clone();
        self.heard.send_modify(|heard| heard.push(data));
    }
}

async fn say(socket: &mut WebSocket, message: &Value) -> Result<(), Cut> {
    soon(socket.send(Message::text(message.to_string())))
        .await
        .map_err(|_| Cut)
}

/// Resumed from the `updatesCursor` of an earlier look, an inbox tells of every conversation that has something newer.
pub(crate) async fn check_resumed_inbox(
    stage: &Stage,
    address: SocketAddr,
    user: usize,
    before: &Found,
    now: &Found,
) {
    let known: HashMap<_, _> = newest_of(stage, user, before).collect();
    let mut missing: HashMap<_, _> = newest_of(stage, user, now)
        .filter(|(id, newest)| known.get(id) != Some(newest))
        .collect();
    let mut socket = Socket::connect(address, &stage.program.token(&name(user))).await;
    let cursor = &before.inboxes[user].updates_cursor;
    let payload = json!({ "query": INBOX, "variables": { "a": cursor } });
    socket
        .say(&json!({ "type": "subscribe", "id": "1", "payload": payload }))
        .await;
    let first = socket.hear().await;
    assert_eq!(
        first["payload"]["data"]["inboxUpdated"],
        json!({ "cursor": cursor, "event": null }),
        "{first}"
    );
    while !missing.is_empty() {
        let heard = socket.hear().await;
        assert_eq!(heard["type"], "next", "{heard}");
        if let Some((conversation, newest)) = told(&heard["payload"]["data"]) {
            let expected = missing.remove(&conversation);
            assert!(
                expected.is_none_or(|expected| expected == newest),
                "{heard}"
            );
        }
    }
}
