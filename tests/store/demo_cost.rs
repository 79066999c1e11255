//! Cost of the documents of the demo page, taken from the package that it imports: statements on Cassandra, operations on the embedded store.
//!
//! Figures with `--nocapture`.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use async_graphql::Variables;
use serde_json::{Value, json};
use wideroom::chat::Bounds;
use wideroom::clock::SystemClock;
use wideroom::graphql::{Api, DocumentBounds, OperationExecutor as _};
use wideroom::metrics::Metrics;
use wideroom::model::UserId;
use wideroom::store::cql::Cql;
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{InstrumentedStore, StoreAdmin};

use super::stage::keyspace;
use crate::support::cost::{RUNS_MAX, least_cost};
use crate::support::words::{crowd, new_salt, new_salt_among_others};
use crate::support::world::chat_on;

const PACKAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/src/server/pages/client/documents.js"
);
const PRINT: &str = "const { documentsWith } = await import(process.argv[1]);
    console.log(JSON.stringify(documentsWith()));";
/// Entries of the page's inbox, as its document asks for them.
const ENTRIES: usize = 30;

/// The documents of the package by their names, as it makes them. `None` without Node.js.
fn documents() -> Option<BTreeMap<String, String>> {
    let output = Command::new("node")
        .args(["--input-type=module", "-e", PRINT, PACKAGE])
        .output();
    match output {
        Ok(output) => Some(serde_json::from_slice(&output.stdout).unwrap()),
        Err(error) => {
            println!("left out: node cannot be run: {error}");
            assert!(
                std::env::var_os("CI").is_none_or(|value| value != "true"),
                "node is missing"
            );
            None
        }
    }
}

/// A chat on one of the stores, and the counter of what it asks of that store.
pub(super) struct Stand {
    pub(super) api: Arc<Api>,
    documents: BTreeMap<String, String>,
    pub(super) spent: Box<dyn Fn() -> u64>,
    /// Document, least cost, allowed cost.
    costs: Vec<(String, u64, u64)>,
    folder: Option<tempfile::TempDir>,
}

impl Stand {
    pub(super) async fn cassandra() -> Option<Self> {
        let address = keyspace().await?;
        new_salt_among_others();
        let store = Arc::new(Cql::open(address, Arc::new(SystemClock)).await.unwrap());
        let counted = Arc::clone(&store);
        Some(Self::of(store, Box::new(move || counted.statements_sent()), None).await)
    }

    pub(super) async fn embedded() -> Self {
        new_salt();
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(folder.path())
        };
        let store = Embedded::open(options, Arc::new(SystemClock))
            .await
            .unwrap();
        let measured = InstrumentedStore::new(Arc::new(store));
        let metrics = Metrics::default();
        measured.register(&metrics);
        let spent = move || {
            let text = metrics.text();
            let counts = text
                .lines()
                .filter(|line| line.starts_with("wideroom_store_operation_seconds_count"));
            counts
                .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
                .sum()
        };
        Self::of(Arc::new(measured), Box::new(spent), Some(folder)).await
    }

    async fn of(
        store: Arc<dyn StoreAdmin>,
        spent: Box<dyn Fn() -> u64>,
        folder: Option<tempfile::TempDir>,
    ) -> Self {
        let chat = chat_on(store, Arc::new(SystemClock), Bounds::default()).await;
        Self {
            api: Arc::new(Api::new(chat, DocumentBounds::default())),
            documents: BTreeMap::new(),
            spent,
            costs: Vec::new(),
            folder,
        }
    }

    async fn ask(&self, viewer: &UserId, name: &str, variables: Value) -> Value {
        let prepared = self.api.prepare(&self.documents[name], None).unwrap();
        let variables = Variables::from_json(variables);
        let answer = self.api.execute(
            &prepared,
            variables,
            Some(viewer.clone().into()),
            Arc::default(),
        );
        let answer = answer.await;
        assert!(answer.errors.is_empty(), "{name}: {:?}", answer.errors);
        answer.data.into_json().unwrap()
    }

    /// Notes what a document costs, and what it may cost.
    async fn note(
        &mut self,
        what: &str,
        most: u64,
        viewer: &UserId,
        name: &str,
        variables: impl Fn(usize) -> Value,
    ) -> Value {
        let mut answer = Value::Null;
        let least = least_cost(&self.spent, most, async |number| {
            answer = self.ask(viewer, name, variables(number)).await;
        });
        let least = least.await;
        self.costs.push((format!("{name}, {what}"), least, most));
        answer
    }

    fn judge(self, unit: &str) {
        for (what, least, most) in &self.costs {
            println!("{what}: {least} {unit}, at most {most}");
        }
        let over: Vec<_> = self
            .costs
            .iter()
            .filter(|(_, least, most)| least > most)
            .collect();
        assert!(over.is_empty(), "{over:?}");
        drop(self.folder);
    }
}

/// The allowed cost of each document.
struct Costs {
    inbox: u64,
    busy_inbox: u64,
    room: u64,
    page: u64,
    send: u64,
    mark_read: u64,
    mark_delivered: u64,
    typing: u64,
    start_direct: u64,
}

async fn the_documents_cost(stand: &mut Stand, most: Costs) {
    let people = crowd(ENTRIES + 1);
    let (viewer, others) = people.split_first().unwrap();
    let name = |user: &UserId| user.as_str().to_owned();
    let mut conversations = Vec::new();
    for (index, other) in others.iter().enumerate() {
        let made = if index % 2 == 0 {
            let input = json!({"input": {"username": name(viewer)}});
            stand.ask(other, "startDirectConversation", input).await["startDirectConversation"]
                .take()
        } else {
            let usernames = [name(viewer), name(&others[index - 1])];
            let input = json!({"input": {"name": "Us", "usernames": usernames}});
            stand.ask(other, "createGroupConversation", input).await["createGroupConversation"]
                .take()
        };
        let conversation = &made["inboxEntryEdge"]["node"]["conversation"];
        let id = conversation["id"].as_str().unwrap().to_owned();
        conversations.push((id, other.clone()));
    }
    let say = async |stand: &Stand| {
        for (id, other) in &conversations {
            let input = json!({"input": {"conversationId": id, "body": "Hello"}});
            stand.ask(other, "sendMessage", input).await;
        }
    };
    say(stand).await;
    let page = stand
        .note(
            "one unread each",
            most.inbox,
            viewer,
            "INBOX",
            |_| json!({}),
        )
        .await;
    let edges = page["inbox"]["edges"].as_array().unwrap();
    let is_whole = |edge: &Value| {
        let node = &edge["node"];
        node["unreadCount"] == 1 && node["lastMessage"]["body"] == "Hello"
    };
    assert!(edges.len() == ENTRIES && edges.iter().all(is_whole));
    for _ in 1..RUNS_MAX {
        say(stand).await;
    }
    let page = stand
        .note("ten unread each", most.busy_inbox, viewer, "INBOX", |_| {
            json!({})
        })
        .await;
    let edges = page["inbox"]["edges"].as_array().unwrap();
    assert!(
        edges
            .iter()
            .all(|edge| edge["node"]["unreadCount"] == RUNS_MAX)
    );

    let (direct, peer) = &conversations[0];
    let room = stand
        .note(
            "direct",
            most.room,
            viewer,
            "CONVERSATION",
            |_| json!({"id": direct, "first": 30}),
        )
        .await;
    let messages = room["conversation"]["messages"]["edges"]
        .as_array()
        .unwrap();
    // Each run marks a later one.
    assert_eq!(messages.len(), RUNS_MAX);
    stand
        .note(
            "group",
            most.room,
            viewer,
            "CONVERSATION",
            |_| json!({"id": conversations[1].0, "first": 30}),
        )
        .await;
    stand
        .note(
            "the first page",
            most.page,
            viewer,
            "PAGE",
            |_| json!({"id": direct, "first": 30}),
        )
        .await;
    stand
        .note("with a key", most.send, peer, "sendMessage", |number| {
            let key = format!("key {number}");
            json!({"input": {"conversationId": direct, "body": "Hello", "idempotencyKey": key}})
        })
        .await;
    let read = |number: usize| json!({"input": {"conversationId": direct, "messageId": messages[RUNS_MAX - 1 - number]["node"]["id"]}});
    stand
        .note("a later message", most.mark_read, viewer, "markRead", read)
        .await;
    let here = |_| json!({"input": {"conversationId": conversations[2].0}});
    stand
        .note(
            "the newest",
            most.mark_delivered,
            viewer,
            "markDelivered",
            here,
        )
        .await;
    stand
        .note(
            "on and off",
            most.typing,
            viewer,
            "setTyping",
            |number| json!({"input": {"conversationId": direct, "typing": number % 2 == 0}}),
        )
        .await;
    stand
        .note(
            "an old one",
            most.start_direct,
            viewer,
            "startDirectConversation",
            |_| json!({"input": {"username": name(peer)}}),
        )
        .await;
}

#[tokio::test]
async fn the_demo_pages_documents_cost_few_statements_on_cassandra() {
    let Some(documents) = documents() else {
        return;
    };
    let Some(mut stand) = Stand::cassandra().await else {
        return;
    };
    stand.documents = documents;
    // The inbox reads the rows and the large conversations, the memberships of 31 entries, their bucket indexes and the profiles of 30 senders,
    // each 16 to a statement; one read of each conversation's newest messages, and a second one where more than a few are unread.
    // If messages expire, the page asks for the expiry of the first unread one apart. The mentions and the blocked senders of a page are
    // four statements. A conversation's page has its pins, its viewer's mentions and the blocked senders, and a send the blocked sender.
    // A mark reads the participants' version and their sessions, to notify the servers that they are on.
    let most = Costs {
        inbox: 2 + 2 + 2 + 2 + 4 + ENTRIES as u64,
        busy_inbox: 2 + 2 + 2 + 2 + 4 + 2 * ENTRIES as u64,
        room: 27,
        page: 6,
        send: 10,
        mark_read: 10,
        // Nothing is left to write after the first one.
        mark_delivered: 4,
        typing: 2,
        start_direct: 12,
    };
    the_documents_cost(&mut stand, most).await;
    stand.judge("statements");
}

#[tokio::test]
async fn the_demo_pages_documents_cost_few_operations_on_the_embedded_store() {
    let Some(documents) = documents() else {
        return;
    };
    let mut stand = Stand::embedded().await;
    stand.documents = documents;
    let most = Costs {
        inbox: 6,
        busy_inbox: 6,
        room: 20,
        page: 5,
        send: 6,
        mark_read: 5,
        mark_delivered: 3,
        typing: 2,
        start_direct: 8,
    };
    the_documents_cost(&mut stand, most).await;
    stand.judge("operations");
}
