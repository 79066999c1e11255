//! A real Apache Cassandra for tests, without Docker: `tests/cassandra` says how it runs, and what it refuses.
//!
//! It wants Java 17 or later and, once, Maven. Where they are absent a line says so and the tests on Cassandra return; in CI they fail.
//! What is started ends with this process, however that ends, and leaves no folder behind.

mod jars;
mod net;
mod ring;
mod wait;

use std::io::Write as _;
use std::sync::Arc;

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::host_filter::AllowListHostFilter;
use tokio::sync::OnceCell;

pub(crate) use ring::Ring;

/// The address of a node that is there already, as `cql://127.0.0.1:9042`, in place of one that is started.
const ADDRESS: &str = "WIDEROOM_TEST_CQL";

/// The one node that all tests of this process may use at once, each with names of its own. It starts with the first who asks.
pub(crate) struct Shared {
    /// `[user:password@]host[:port][,host2…]`
    authority: String,
    /// Never dropped, being in a static: its guard ends it.
    _ring: Option<Ring>,
}

/// `None` where no Cassandra can be had, which was said.
pub(crate) async fn shared() -> Option<&'static Shared> {
    static SHARED: OnceCell<Option<Shared>> = OnceCell::const_new();
    SHARED.get_or_init(Shared::open).await.as_ref()
}

impl Shared {
    async fn open() -> Option<Self> {
        if let Ok(address) = std::env::var(ADDRESS) {
            let authority = address.strip_prefix("cql://").unwrap_or(&address).split('/').next().unwrap_or_default().to_owned();
            return Some(Self { authority, _ring: None });
        }
        let ring = Ring::start(1).await?;
        Some(Self { authority: ring.contact_points().join(","), _ring: Some(ring) })
    }

    /// `host:port` of each node that is known.
    pub(crate) fn contact_points(&self) -> Vec<String> {
        let hosts = self.authority.rsplit('@').next().unwrap_or_default();
        hosts.split(',').map(|host| if host.contains(':') { host.to_owned() } else { format!("{host}:9042") }).collect()
    }

    /// As `--store` has it.
    pub(crate) fn url(&self, keyspace: &str) -> String {
        format!("cql://{}/{keyspace}", self.authority)
    }

    pub(crate) async fn session(&self) -> Session {
        let mut builder = SessionBuilder::new().known_nodes(self.contact_points());
        if let Some((user, password)) = self.authority.rsplit_once('@').and_then(|(who, _)| who.split_once(':')) {
            builder = builder.user(user, password);
        }
        builder.build().await.unwrap()
    }
}

/// A session that speaks to this node alone.
async fn session_with(node: &str) -> Option<Session> {
    let only = AllowListHostFilter::new([node]).ok()?;
    SessionBuilder::new().known_node(node).host_filter(Arc::new(only)).build().await.ok()
}

/// A line for whoever runs the tests, also where the test passes: `eprintln!` would be kept from sight.
fn say(line: &str) {
    // In one piece, as other tests write too.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
