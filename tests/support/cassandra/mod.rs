//! A real Apache Cassandra for tests, without Docker: `tests/cassandra` says how it runs, and what it refuses.
//!
//! It wants Java 17 and, once, Maven. Where they are absent a line says so and the tests on Cassandra return; in CI they fail.
//! The nodes end with this process, however it ends, and leave no folder behind.

mod clock;
mod jars;
mod net;
pub(crate) mod pool;
pub(crate) mod ring;
mod wait;

use std::io::Write as _;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use tokio::sync::OnceCell;

pub(crate) use ring::Ring;

/// The address of a node that is there already, as `cql://127.0.0.1:9042`, in place of one that is started.
const ADDRESS: &str = "WIDEROOM_TEST_CQL";

/// As a test waits for what must happen. Benchmarks have this file too, and no such test.
const PATIENCE: Duration = Duration::from_secs(120);
const TRACE_LOOKS: NonZeroU32 = NonZeroU32::new(600).expect("it is not zero");
const TRACE_LOOK_EVERY: Duration = Duration::from_millis(50);

/// The one node that all tests of this process may use at once, each with names of its own. It starts with the first who asks.
pub(crate) struct Shared {
    /// `[user:password@]host[:port][,host2…]`
    authority: String,
    /// Never dropped, being in a static: its guard ends it.
    ring: Option<Ring>,
}

/// `None` where no Cassandra can be had, which was said.
pub(crate) async fn shared() -> Option<&'static Shared> {
    static SHARED: OnceCell<Option<Shared>> = OnceCell::const_new();
    let shared = SHARED.get_or_init(Shared::open).await.as_ref()?;
    // Each test says why, in place of a refused connection.
    if let Some(ring) = &shared.ring {
        ring.assert_runs(1);
    }
    Some(shared)
}

impl Shared {
    async fn open() -> Option<Self> {
        if let Ok(address) = std::env::var(ADDRESS) {
            let authority = address
                .strip_prefix("cql://")
                .unwrap_or(&address)
                .split('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            return Some(Self {
                authority,
                ring: None,
            });
        }
        // One that did not start does not start for the next test either, which must not wait for that as long.
        static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
        assert!(
            !HAS_BEGUN.swap(true, Ordering::Relaxed),
            "the shared node did not start: see the first test that wanted it"
        );
        let ring = Ring::start(1).await?;
        Some(Self {
            authority: ring.authority(),
            ring: Some(ring),
        })
    }

    /// Whether it was started here, with the settings of `tests/cassandra`.
    pub(crate) fn is_ours(&self) -> bool {
        self.ring.is_some()
    }

    /// As `--store` has it. What is tested here is not how fast a busy machine answers.
    pub(crate) fn url(&self, keyspace: &str) -> String {
        format!("cql://{}/{keyspace}?timeout=10s", self.authority)
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) async fn session(&self) -> Session {
        session(&self.authority).await
    }
}

/// A session as `[user:password@]host:port[,host2…]` says. It knows no table: a node has the keyspaces of many tests, and to read the columns
/// of all of them takes longer than what is asked.
pub(crate) async fn session(authority: &str) -> Session {
    let builder = patient(builder(authority));
    builder.build().await.unwrap()
}

/// A session that knows the tables, and so the nodes of each row.
async fn session_with_tables(authority: &str) -> Session {
    let session = patient(builder(authority))
        .fetch_schema_metadata(true)
        .fetch_full_schema_metadata(true);
    session.build().await.unwrap()
}

/// A busy machine may stop a node for longer than the 5 and 30 s of the driver.
fn patient(builder: SessionBuilder) -> SessionBuilder {
    let profile = ExecutionProfile::builder().request_timeout(Some(PATIENCE));
    builder
        .connection_timeout(PATIENCE)
        .default_execution_profile_handle(profile.build().into_handle())
}

fn builder(authority: &str) -> SessionBuilder {
    let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    // Cassandra writes down what it did for a statement a while after it has answered.
    let builder = SessionBuilder::new()
        .known_nodes(hosts.split(','))
        .fetch_schema_metadata(false)
        .fetch_full_schema_metadata(false)
        .tracing_info_fetch_attempts(TRACE_LOOKS)
        .tracing_info_fetch_interval(TRACE_LOOK_EVERY);
    match who.split_once(':') {
        Some((user, password)) => builder.user(user, password),
        None => builder,
    }
}

/// A line for whoever runs the tests, also where the test passes: `eprintln!` would be kept from sight.
pub(crate) fn say(line: &str) {
    // In one piece, as other tests write too.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
