//! The same on a real Cassandra: servers in processes of their own, counted by the node itself.
//!
//! A node counts the prepared statements that it executes, and the partitions of batches apart from them (`system_views`): a batch is one
//! statement of a server, as in the counting store. What else runs on the node is not prepared, and so not counted.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use scylla::client::session::Session;
use serde_json::{Value, json};
use wideroom::clock::SystemClock;
use wideroom::load::{Document, HttpClient, LoadSocket, Process, UsageMeter};
use wideroom::store::cql::{Address, migrate};

use super::SETTLE;
use super::fleet::ENTRIES;
use crate::Size;
use crate::cassandra;
use crate::operations::{Ask as _, text};
use crate::report::{self, number};
use crate::server::Server;

const SERVERS: [usize; 3] = [1, 2, 4];
const USERS: usize = 40;
const MESSAGES: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);

const GROUP: &str = "mutation($u: [String!]!) { createGroupConversation(input: {name: \"a group\", usernames: $u}) { conversation { id } } }";
const SEND: &str = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"tomorrow at noon, by train\"}) { messageEdge { node { id } } } }";

fn start(store: &str) -> Server {
    Server::empty(&["--store", store, "--log", "error", "--admin-listen", "off"])
}

/// Reads the inbox stream of a user until this process ends.
async fn read(server: &Server, user: &str) {
    let mut socket = LoadSocket::open(&server.target, user).await.unwrap();
    let document = Document::new(ENTRIES);
    let subscribed = socket.subscribe(0, &document, &json!({})).await;
    subscribed.unwrap();
    socket.next_payload().await.unwrap();
    tokio::spawn(async move { while socket.next_payload().await.is_ok() {} });
}

async fn ask(server: &Server, user: &str, document: &str, variables: Value) -> Value {
    let mut client = HttpClient::new(&server.target, user);
    client.ask(document, variables).await
}

/// Counters of a node, and its CPU time.
#[derive(Debug, Clone, Copy)]
struct Counted {
    prepared: f64,
    batches: f64,
    cpu_micros: f64,
}

/// The node that this process has started: a child of it that runs Cassandra.
fn node_process() -> Option<u32> {
    let own = std::process::id().to_string();
    let is_node = |process: &u32| {
        let file = |name: &str| {
            std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default()
        };
        let stat = file("stat");
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1));
        parent == Some(own.as_str()) && file("cmdline").contains("CassandraDaemon")
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(is_node)
}

impl Counted {
    async fn read(node: &Node) -> Self {
        let session = &node.session;
        let sum = |rows: Vec<Value>, wanted: &str, column: &str| -> f64 {
            let of_row = |row: &Value| {
                let is_wanted = row["name"]
                    .as_str()
                    .is_some_and(|name| name.contains(wanted));
                is_wanted.then(|| row[column].as_f64()).flatten()
            };
            rows.iter().filter_map(of_row).sum()
        };
        let metrics = rows(session, "cql_metrics").await;
        let batches = rows(session, "batch_metrics").await;
        Self {
            prepared: sum(metrics, "prepared_statements_executed", "value"),
            batches: sum(batches, "partitions_per_", "count"),
            cpu_micros: node.meter.usage().cpu_micros.unwrap_or(f64::NAN),
        }
    }

    /// Statements, and the node's CPU time.
    fn since(self, before: Self) -> (f64, f64) {
        let prepared = self.prepared - before.prepared;
        let batches = self.batches - before.batches;
        (prepared + batches, self.cpu_micros - before.cpu_micros)
    }
}

struct Node {
    session: Session,
    /// Measures no process of a node that was there already.
    meter: UsageMeter,
}

async fn rows(session: &Session, view: &str) -> Vec<Value> {
    let text = format!("SELECT JSON * FROM system_views.{view}");
    let found = session.query_unpaged(text, ()).await.unwrap();
    let found = found.into_rows_result().unwrap();
    let rows = found.rows::<(String,)>().unwrap();
    rows.map(|row| serde_json::from_str(&row.unwrap().0).unwrap())
        .collect()
}

pub async fn measure(size: &Size) {
    let Some(shared) = cassandra::shared().await else {
        return;
    };
    let process = node_process().filter(|_| shared.is_ours());
    let node = Node {
        session: shared.session().await,
        meter: UsageMeter::start(process.map(|id| Process::new(id).unwrap())),
    };
    let rest = Duration::from_secs(if size.messages < crate::FULL.messages {
        10
    } else {
        30
    });
    report::heading(&format!(
        "A real Cassandra: {USERS} users who are online, servers in processes of their own; statements, by the node's counters"
    ));
    println!(
        "  {:>9}  {:>18}  {:>16}  {:>16}  {:>28}",
        "processes",
        "at rest, a second",
        "a message of two",
        "of eight",
        "µs of the node, a statement"
    );
    for processes in SERVERS {
        let keyspace = format!("bench_{}", uuid::Uuid::new_v4().simple());
        let store = shared.url(&keyspace);
        let address: Address = store.parse().unwrap();
        migrate(&address, Some(1), &SystemClock).await.unwrap();
        with_processes(processes, &store, (&node, rest)).await;
    }
}

async fn with_processes(count: usize, store: &str, (node, rest): (&Node, Duration)) {
    let processes: Vec<_> = (0..count).map(|_| start(store)).collect();
    let users: Vec<_> = (0..USERS)
        .map(|number| format!("user{number:02}"))
        .collect();
    let of_user = |number: usize| (&processes[number % count], users[number].as_str());
    let mut conversations = Vec::new();
    for participants in [2, 8] {
        let mut of_kind = Vec::new();
        for first in (0..USERS).step_by(participants) {
            let (process, owner) = of_user(first);
            let others = &users[first + 1..first + participants];
            let made = ask(process, owner, GROUP, json!({"u": others})).await;
            let id = text(&made["createGroupConversation"]["conversation"]["id"]);
            of_kind.push((first, id));
        }
        conversations.push((participants, of_kind));
    }
    join_all((0..USERS).map(async |number| {
        let (process, user) = of_user(number);
        read(process, user).await;
    }))
    .await;
    let send = async |conversation: &(usize, String), participants: usize, number: usize| {
        let (process, sender) = of_user(conversation.0 + number % participants);
        ask(process, sender, SEND, json!({"c": conversation.1})).await;
    };
    for (participants, of_kind) in &conversations {
        for conversation in of_kind {
            for number in 0..*participants {
                send(conversation, *participants, number).await;
            }
        }
    }
    tokio::time::sleep(2 * SETTLE).await;
    let (before, began) = (Counted::read(node).await, Instant::now());
    tokio::time::sleep(rest).await;
    let (statements, cpu) = Counted::read(node).await.since(before);
    let seconds = began.elapsed().as_secs_f64();
    let (resting, resting_cpu) = (statements / seconds, cpu / seconds);
    let (mut costs, mut all, mut all_cpu) = (Vec::new(), 0.0, 0.0);
    for (participants, of_kind) in &conversations {
        let (before, began) = (Counted::read(node).await, Instant::now());
        for number in 0..MESSAGES {
            let conversation = &of_kind[number % of_kind.len()];
            send(conversation, *participants, number / of_kind.len()).await;
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(SETTLE).await;
        let (statements, cpu) = Counted::read(node).await.since(before);
        let seconds = began.elapsed().as_secs_f64();
        let statements = statements - resting * seconds;
        (all, all_cpu) = (all + statements, all_cpu + cpu - resting_cpu * seconds);
        costs.push(number(statements / MESSAGES as f64));
    }
    println!(
        "  {count:>9}  {:>18}  {:>16}  {:>16}  {:>28}",
        number(resting / count as f64),
        costs[0],
        costs[1],
        number(all_cpu / all)
    );
}
