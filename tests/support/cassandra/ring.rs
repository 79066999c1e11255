//! One node or three of them, which can be killed and started again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use tokio::net::TcpStream;
use uuid::Uuid;

use super::net::Net;
use super::{jars, session_with, wait};

/// Ends what is left of a ring when its input ends, which it does with this process too: the nodes, then the folder of all of them.
/// What stops the tests from the keyboard reaches it as well, and must not stop it.
const GUARD: &str = r#"
trap '' INT HUP TERM
read -r _
for pid in "$0"/*/pid; do [ -e "$pid" ] && kill -9 "$(cat "$pid")" 2>/dev/null && sleep 0.2; done
rm -rf "$0"
"#;

/// Nodes have the numbers from 1 on. All of it ends with this value.
pub(crate) struct Ring {
    net: Net,
    jars: &'static Path,
    /// Gone with the ring: the guard removes it.
    folder: PathBuf,
    guard: Child,
    nodes: Vec<Option<Child>>,
}

impl Ring {
    /// Started; every node answers and sees the others. `None` where no Cassandra can be had, which was said.
    pub(crate) async fn start(nodes: u8) -> Option<Self> {
        assert!([1, 3].contains(&nodes), "a ring is of one node or of three");
        let jars = jars::jars().await?;
        let folder = tempfile::Builder::new().prefix("wideroom-cassandra-").tempdir().unwrap().keep();
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD]).arg(&folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let guard = guard.spawn().unwrap();
        let mut ring = Self { net: Net::free(nodes), jars, folder, guard, nodes: (0..nodes).map(|_| None).collect() };
        // The others learn of the ring from the first.
        ring.spawn(1);
        ring.answers(1).await;
        for node in 2..=nodes {
            ring.spawn(node);
        }
        ring.is_whole().await;
        Some(ring)
    }

    /// `host:port` of each node, also of one that was killed.
    pub(crate) fn contact_points(&self) -> Vec<String> {
        self.numbers().map(|node| self.net.contact_point(node)).collect()
    }

    /// SIGKILL. The others are not told.
    pub(crate) fn kill(&mut self, node: u8) {
        // The guard must not find another process under its number.
        std::fs::remove_file(self.folder_of(node).join("pid")).unwrap();
        let mut child = self.slot(node).take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts a node that was killed, with what it had kept. It answers, and where all run, they see each other.
    pub(crate) async fn restart(&mut self, node: u8) {
        assert!(self.slot(node).is_none(), "node {node} runs");
        self.spawn(node);
        self.answers(node).await;
        if self.nodes.iter().all(Option::is_some) {
            self.is_whole().await;
        }
    }

    fn numbers(&self) -> std::ops::RangeInclusive<u8> {
        1..=u8::try_from(self.nodes.len()).unwrap()
    }

    fn slot(&mut self, node: u8) -> &mut Option<Child> {
        &mut self.nodes[usize::from(node) - 1]
    }

    fn folder_of(&self, node: u8) -> PathBuf {
        self.folder.join(node.to_string())
    }

    fn log_of(&self, node: u8) -> PathBuf {
        self.folder.join(format!("{node}.log"))
    }

    fn spawn(&mut self, node: u8) {
        let log = File::options().create(true).append(true).open(self.log_of(node)).unwrap();
        let mut command = Command::new("bash");
        command.arg(jars::source().join("node")).arg(self.folder_of(node)).arg(node.to_string());
        command.env("CASSANDRA_JARS", self.jars).env("CASSANDRA_NET", &self.net.prefix);
        command.env("CASSANDRA_CQL_PORT", self.net.cql_port.to_string());
        command.env("CASSANDRA_STORAGE_PORT", self.net.storage_port.to_string());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        *self.slot(node) = Some(command.spawn().unwrap());
    }

    /// Waits until a node takes connections. One that ended instead is a failure, with what it said last.
    async fn answers(&mut self, node: u8) {
        let (address, log) = (self.net.contact_point(node), self.log_of(node));
        let child = self.slot(node).as_mut().expect("it was started");
        let what = format!("node {node} of Cassandra starts");
        let waited = wait::until(&what, async || {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("node {node} ended: {status}"));
            }
            Ok(TcpStream::connect(&address).await.ok())
        });
        waited.await.unwrap_or_else(|error| panic!("{error}\n{}", last_lines(&log)));
    }

    /// Waits until each node knows all others, and takes them for alive.
    async fn is_whole(&mut self) {
        let others = self.nodes.len() - 1;
        for node in self.numbers() {
            self.answers(node).await;
            let address = self.net.contact_point(node);
            let what = format!("node {node} of Cassandra meets the others");
            let waited = wait::until(&what, async || {
                let Some(session) = session_with(&address).await else { return Ok(None) };
                Ok(sees(&session, others).await.filter(|sees| *sees))
            });
            waited.await.unwrap_or_else(|error| panic!("{error}\n{}", last_lines(&self.log_of(node))));
        }
    }
}

/// Whether a node knows so many others and, where there are some, reaches them: a read that wants all three of a table's replicas is refused
/// by a node that takes one of them for dead.
async fn sees(session: &Session, others: usize) -> Option<bool> {
    let peers = session.query_unpaged("SELECT peer FROM system.peers", ()).await.ok()?.into_rows_result().ok()?.rows_num();
    if others > 0 {
        let mut read = Statement::new("SELECT parent_id FROM system_distributed.parent_repair_history WHERE parent_id = ?");
        read.set_consistency(Consistency::All);
        session.query_unpaged(read, (Uuid::nil(),)).await.ok()?;
    }
    Some(peers == others)
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

impl Drop for Ring {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().flatten() {
            let _ = child.kill();
        }
        for (node, child) in (1..).zip(&mut self.nodes) {
            if let Some(mut child) = child.take() {
                let _ = std::fs::remove_file(self.folder.join(format!("{node}/pid")));
                let _ = child.wait();
            }
        }
        // The end of its input is the guard's sign.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
