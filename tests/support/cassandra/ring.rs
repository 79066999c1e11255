//! One node or three of them, which can be killed and started again. A usual ring of three that its test leaves whole is the next one's.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use scylla::client::session::Session;
use scylla::policies::host_filter::AllowListHostFilter;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::clock::NodeClock;
use super::net::Net;
use super::wait::Not;
use super::{builder, jars, session_with_tables, wait};

/// Ends what is left of a ring when its input ends, which it does with this process too: the nodes, then the folder of all of them.
/// Guard process. Signals from the keyboard that stop the tests also reach it, and it ignores them.
const GUARD: &str = r#"
trap '' INT HUP TERM
read -r _
for pid in "$0"/*/pid; do [ -e "$pid" ] && kill -9 "$(cat "$pid")" 2>/dev/null && sleep 0.2; done
rm -rf "$0"
"#;

/// A request holds a thread of its node while it waits for another node.
const REQUEST_THREADS_IN_A_RING: &str = "64";
/// One ring of three runs at a time: two of them, beside the shared node, would overload a small machine, and their tests would measure that.
static TURN_OF_THREE: Semaphore = Semaphore::const_new(1);
/// The ring of three of the test before. To start one takes longer than many a test on it.
static LEFT: Mutex<Option<Ring>> = Mutex::new(None);
const KEYSTORE: &str = "node.p12";
const CERTIFICATE: &str = "node.pem";

/// Nodes have the numbers from 1 on. All of it ends with this value.
pub(crate) struct Ring {
    net: Net,
    jars: &'static Path,
    /// Gone with the ring: the guard removes it.
    folder: PathBuf,
    /// `None` once the ring is another test's.
    guard: Option<Child>,
    nodes: Vec<Option<Child>>,
    options: RingOptions,
    /// Whether the next test may have it.
    is_for_others: bool,
    clock: Option<NodeClock>,
    _turn: Option<SemaphorePermit<'static>>,
}

/// How a ring differs from the usual one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RingOptions {
    /// Data centre of each node.
    pub(crate) data_centres: &'static [&'static str],
    /// Whether clients may use TLS. [`Ring::certificate`] is the root to trust.
    pub(crate) has_tls: bool,
    /// Node whose clock can be set.
    pub(crate) clock_of: Option<u8>,
    /// Whether its nodes have served no other test.
    pub(crate) is_cold: bool,
}

impl Ring {
    /// Started; every node answers and sees the others. `None` where no Cassandra can be had, which was said.
    pub(crate) async fn start(nodes: u8) -> Option<Self> {
        Self::start_with(nodes, RingOptions::default()).await
    }

    pub(crate) async fn start_with(nodes: u8, options: RingOptions) -> Option<Self> {
        assert!([1, 3].contains(&nodes), "a ring is of one node or of three");
        let jars = jars::jars().await?;
        let turn = match nodes {
            1 => None,
            _ => Some(TURN_OF_THREE.acquire().await.expect("it is never closed")),
        };
        let is_for_others = turn.is_some() && options == RingOptions::default();
        if turn.is_some()
            && let Some(mut left) = take_left()
        {
            if is_for_others {
                left._turn = turn;
                left.forget_keyspaces().await;
                left.is_whole().await;
                return Some(left);
            }
            // Two rings of three are too many.
            left.is_for_others = false;
        }
        let folder = tempfile::Builder::new()
            .prefix("wideroom-cassandra-")
            .tempdir()
            .unwrap()
            .keep();
        let mut guard = Command::new("sh");
        guard
            .args(["-c", GUARD])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let guard = guard.spawn().unwrap();
        let mut ring = Self {
            net: Net::free(nodes),
            jars,
            clock: options.clock_of.map(|_| NodeClock::new(&folder)),
            folder,
            guard: Some(guard),
            nodes: (0..nodes).map(|_| None).collect(),
            options,
            is_for_others,
            _turn: turn,
        };
        if ring.options.has_tls {
            make_key(&ring.folder, &ring.net.host(1));
        }
        // The others learn of the ring from the first.
        ring.spawn(1);
        ring.answers(1).await;
        for node in 2..=nodes {
            ring.spawn(node);
        }
        if ring.is_strict() {
            ring.make_user().await;
        }
        ring.is_whole().await;
        Some(ring)
    }

    /// Each keyspace makes the start of a node longer.
    async fn forget_keyspaces(&self) {
        let session = self.session().await;
        let state = session.get_cluster_state();
        let of_tests = state.keyspaces_iter().map(|(name, _)| name);
        for name in of_tests.filter(|name| !name.starts_with("system")) {
            let drop = Statement::new(format!("DROP KEYSPACE \"{name}\""));
            session.query_unpaged(drop, ()).await.unwrap();
        }
    }

    /// Whether every node runs, and the test that had them has not failed.
    fn may_be_left(&mut self) -> bool {
        let mut runs = self.nodes.iter_mut().map(|node| {
            let status = node.as_mut().map(Child::try_wait);
            matches!(status, Some(Ok(None)))
        });
        self.is_for_others && !std::thread::panicking() && runs.all(|runs| runs)
    }

    /// The nodes of this ring, for the next test.
    fn left(&mut self) -> Self {
        Self {
            net: self.net.clone(),
            jars: self.jars,
            folder: self.folder.clone(),
            guard: self.guard.take(),
            nodes: std::mem::take(&mut self.nodes),
            options: std::mem::take(&mut self.options),
            is_for_others: true,
            clock: self.clock.take(),
            _turn: None,
        }
    }

    /// Cassandra's guardrails hold for users alone who are none of its own, and whoever need not sign in is one. Of three nodes nobody has to
    /// sign in: the users would be lost with the node that has them.
    fn is_strict(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Whether a node that was killed finds its tables again, which costs time with each change of them.
    fn may_restart(&self) -> bool {
        !self.is_strict() && self.clock.is_none()
    }

    async fn make_user(&self) {
        let first = format!("cassandra:cassandra@{}", self.net.contact_point(1));
        let waited = wait::until("Cassandra makes a user", async || {
            let session = builder(&first)
                .build()
                .await
                .map_err(|error| Not::Yet(error.to_string()))?;
            let role =
                "CREATE ROLE IF NOT EXISTS wideroom WITH PASSWORD = 'wideroom' AND LOGIN = true";
            session
                .query_unpaged(role, ())
                .await
                .map(drop)
                .map_err(|error| Not::Yet(error.to_string()))
        });
        waited
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", last_lines(&self.log_of(1))));
    }

    /// `[user:password@]host:port[,host2:port…]`, also of nodes that were killed.
    pub(crate) fn authority(&self) -> String {
        self.with_user(&self.contact_points().join(","))
    }

    fn with_user(&self, hosts: &str) -> String {
        if self.is_strict() {
            format!("wideroom:wideroom@{hosts}")
        } else {
            hosts.to_owned()
        }
    }

    /// As `--store` has it.
    pub(crate) fn url(&self, keyspace: &str) -> String {
        format!("cql://{}/{keyspace}", self.authority())
    }

    pub(crate) async fn session(&self) -> Session {
        session_with_tables(&self.authority()).await
    }

    /// `host:port` of each node, also of one that was killed.
    pub(crate) fn contact_points(&self) -> Vec<String> {
        self.numbers()
            .map(|node| self.net.contact_point(node))
            .collect()
    }

    /// The certificate by which its nodes are to be trusted, as PEM.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join(CERTIFICATE)
    }

    /// SIGKILL. The others are not told.
    pub(crate) fn kill(&mut self, node: u8) {
        // The guard must not find another process under its number.
        std::fs::remove_file(self.folder_of(node).join("pid")).unwrap();
        let mut child = self.slot(node).take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGSTOP: the node hangs. Its connections stay open, and the others are not told.
    pub(crate) fn stop(&self, node: u8) {
        self.signal(node, Signal::STOP);
    }

    /// Lets a node that was stopped go on.
    pub(crate) fn resume(&self, node: u8) {
        self.signal(node, Signal::CONT);
    }

    /// Sets the clock of the node that has one of its own.
    pub(crate) fn set_clock(&self, seconds_ahead: i64) {
        let clock = self.clock.as_ref().expect("a node has a clock of its own");
        clock.set(seconds_ahead);
    }

    /// Fails where a node has ended by itself, with what it said last.
    pub(crate) fn assert_runs(&self, node: u8) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(self.pid(node)), options).unwrap();
        let log = || last_lines(&self.log_of(node));
        assert!(ended.is_none(), "node {node} ended: {ended:?}\n{}", log());
    }

    fn signal(&self, node: u8, signal: Signal) {
        kill_process(self.pid(node), signal).unwrap();
    }

    fn pid(&self, node: u8) -> Pid {
        let child = self.nodes[usize::from(node) - 1].as_ref().expect("it runs");
        Pid::from_raw(child.id().cast_signed()).expect("a process has a number")
    }

    /// Starts a node that was killed, with what it had kept. It answers, and where all run, they see each other.
    pub(crate) async fn restart(&mut self, node: u8) {
        assert!(self.slot(node).is_none(), "node {node} runs");
        assert!(self.may_restart(), "node {node} has lost its tables");
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
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_of(node))
            .unwrap();
        let mut command = Command::new("bash");
        command
            .arg(jars::source().join("node"))
            .arg(self.folder_of(node))
            .arg(node.to_string());
        command
            .env("CASSANDRA_JARS", self.jars)
            .env("CASSANDRA_NET", &self.net.prefix);
        command.env("CASSANDRA_CQL_PORT", self.net.cql_port.to_string());
        command.env("CASSANDRA_STORAGE_PORT", self.net.storage_port.to_string());
        command.env(
            "AUTHENTICATOR",
            if self.is_strict() {
                "PasswordAuthenticator"
            } else {
                "AllowAllAuthenticator"
            },
        );
        if !self.may_restart() {
            command.env("UNSAFE_SYSTEM", "true");
        }
        if self.is_strict() {
            command.env("REQUEST_TIMEOUT", "20s");
        } else {
            command.env("REQUEST_THREADS", REQUEST_THREADS_IN_A_RING);
        }
        if let Some(data_centre) = self.options.data_centres.get(usize::from(node) - 1) {
            command.env("DATA_CENTRE", data_centre);
        }
        if let Some(clock) = self.clock.as_ref()
            && self.options.clock_of == Some(node)
        {
            clock.put_before(&mut command);
        }
        if self.options.has_tls {
            command.env("CLIENT_KEYSTORE", self.folder.join(KEYSTORE));
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        *self.slot(node) = Some(command.spawn().unwrap());
    }

    /// Waits until a node takes connections. One that ended instead is a failure, with what it said last.
    async fn answers(&mut self, node: u8) {
        let (address, log) = (self.net.contact_point(node), self.log_of(node));
        let child = self.slot(node).as_mut().expect("it was started");
        let what = format!("node {node} of Cassandra starts");
        let waited = wait::until(&what, async || match child.try_wait() {
            Ok(None) => TcpStream::connect(&address)
                .await
                .map(drop)
                .map_err(|error| Not::Yet(error.to_string())),
            ended => Err(Not::Ever(format!("node {node} ended: {ended:?}"))),
        });
        waited
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", last_lines(&log)));
    }

    /// Waits until each node knows all others, and takes them for alive.
    pub(crate) async fn is_whole(&mut self) {
        let others = self.nodes.len() - 1;
        for node in self.numbers() {
            self.answers(node).await;
            let (host, authority) = (
                self.net.contact_point(node),
                self.with_user(&self.net.contact_point(node)),
            );
            let what = format!("node {node} of Cassandra meets the others");
            let waited = wait::until(&what, async || {
                sees(&host, &authority, others).await.map_err(Not::Yet)
            });
            waited
                .await
                .unwrap_or_else(|error| panic!("{error}\n{}", last_lines(&self.log_of(node))));
        }
    }
}

/// Whether a node knows so many others and, where there are some, reaches them: a read that wants all three of a table's replicas is refused
/// by a node that takes one of them for dead.
async fn sees(host: &str, authority: &str, others: usize) -> Result<(), String> {
    // No other node may answer in its place.
    let only = AllowListHostFilter::new([host]).map_err(|error| error.to_string())?;
    let session = builder(authority)
        .host_filter(Arc::new(only))
        .build()
        .await
        .map_err(|error| error.to_string())?;
    let peers = session
        .query_unpaged("SELECT peer FROM system.peers", ())
        .await
        .map_err(|error| error.to_string())?;
    let peers = peers
        .into_rows_result()
        .map_err(|error| error.to_string())?
        .rows_num();
    if peers != others {
        return Err(format!("it knows {peers} others"));
    }
    if others > 0 {
        let mut read = Statement::new(
            "SELECT parent_id FROM system_distributed.parent_repair_history WHERE parent_id = minTimeuuid(0)",
        );
        read.set_consistency(Consistency::All);
        session
            .query_unpaged(read, ())
            .await
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Makes a key, and a certificate that it signs itself, for a host. Java brings the tool.
pub(crate) fn make_key(folder: &Path, host: &str) {
    let keytool = std::env::var("JAVA_HOME").map_or_else(
        |_| "keytool".into(),
        |home| Path::new(&home).join("bin/keytool"),
    );
    let (keystore, certificate) = (folder.join(KEYSTORE), folder.join(CERTIFICATE));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&keytool);
        command
            .args(arguments)
            .args(["-alias", "node", "-storepass", "cassandra", "-keystore"]);
        let ended = command.arg(&keystore).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    };
    let name = format!("san=ip:{host}");
    run(&[
        "-genkeypair",
        "-keyalg",
        "EC",
        "-groupname",
        "secp256r1",
        "-dname",
        "CN=node",
        "-ext",
        &name,
        "-validity",
        "2",
        "-storetype",
        "PKCS12",
    ]);
    run(&[
        "-exportcert",
        "-rfc",
        "-file",
        certificate.to_str().unwrap(),
    ]);
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

fn take_left() -> Option<Ring> {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.take()
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.may_be_left() {
            let left = self.left();
            *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
            return;
        }
        let Some(mut guard) = self.guard.take() else {
            return;
        };
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
        drop(guard.stdin.take());
        let _ = guard.wait();
    }
}
