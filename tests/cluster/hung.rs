//! Nodes that hang, answers that do not come, and a range without a quorum: each costs its share
//! and nothing else.
//!
//! `WIDEROOM_OUTAGE=600 cargo test hung -- --ignored --nocapture` makes the brown-out so many seconds long,
//! and asserts the aims for latencies and failures, which want a machine that does nothing else.
//! Otherwise each outage lasts some ten seconds, and the figures are only printed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::line::Line;
use super::load::{Figures, Load, send_until_kept, tell};
use super::place::migrated;
use super::ranges::range_without_quorum;
use crate::binary::follower::{Follower, Place};
use crate::binary::ledger::Ledger;
use crate::binary::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage};
use crate::support::admin::Admin;
use crate::support::cassandra::{Ring, say};
use crate::support::server::Server;

const SECONDS: &str = "WIDEROOM_OUTAGE";
const PER_SECOND: u32 = 56;
/// How many conversations the load uses.
const CONVERSATIONS: usize = 28;
const WARM_UP: Duration = Duration::from_secs(4);
/// The time in which the cluster takes a node that hangs for dead, and the driver cuts its
/// connections.
const FIRST_SECONDS: Duration = Duration::from_secs(10);
/// The aims, for a node of three that hangs.
const PAGES_P99_MAX: Duration = Duration::from_millis(500);
const FAILED_SENDS_PERCENT_MAX: usize = 1;
const BROWN_OUT: Duration = Duration::from_secs(12);
/// After a brown-out.
const HEALED_MAX: Duration = Duration::from_secs(60);
/// The bound of the backlog.
const GROWTH_MAX: u64 = 64 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The length of a brown-out that was asked for.
fn given_outage() -> Option<Duration> {
    let seconds = std::env::var(SECONDS).ok()?;
    let seconds = seconds.parse().expect("a number of seconds");
    Some(Duration::from_secs(seconds))
}

struct Play {
    ring: Ring,
    stage: Arc<Stage>,
    ledger: Ledger,
    /// Address of the server that the followers subscribe to.
    place: watch::Sender<Option<Place>>,
    followers: Vec<Follower>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: a ring of three nodes, of which some hang"]
async fn nightly_hung_nodes_lost_answers_and_a_range_without_quorum_stay_within_bounds() {
    let Some(ring) = Ring::start(3).await else {
        return;
    };
    let program = migrated(|keyspace| ring.url(keyspace), "3");
    let stage = Arc::new(Stage::set_up(program).await);
    let place = watch::channel(None).0;
    let listen = |at| Follower::of_messages_on_a_cluster(&stage, at, place.subscribe());
    let followers = [GROUP_AT, LARGE_AT, SMALL_AT + 12]
        .into_iter()
        .map(listen)
        .collect();
    let mut play = Play {
        ring,
        stage,
        ledger: Ledger::default(),
        place,
        followers,
    };
    let [sends, pages] = play.one_node_hangs().await;
    play.answers_are_lost().await;
    range_without_quorum(&mut play.ring, given_outage().is_some()).await;
    if given_outage().is_some() {
        assert!(pages.failed == 0 && pages.p99 < PAGES_P99_MAX, "{pages:?}");
        let most = sends.requests * FAILED_SENDS_PERCENT_MAX / 100;
        assert!(sends.failed <= most, "{sends:?}");
    }
}

fn end(server: Server) {
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// Waits until a gauge has a value. How long that took.
async fn gauge(admin: &Admin, name: &str, value: u64) -> Duration {
    let began = Instant::now();
    let line = format!("{name} {value}");
    while !admin.get("/metrics").1.lines().any(|other| other == line) {
        assert!(began.elapsed() < 2 * HEALED_MAX, "{name} is not {value}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    began.elapsed()
}

impl Play {
    fn move_followers_to(&self, server: &Server) {
        let number = self.place.borrow().map_or(0, |place| place.number + 1);
        self.place.send_replace(Some(Place {
            number,
            address: server.address(),
        }));
    }

    fn load(&self, server: &Server, word: &'static str) -> Load {
        let small = SMALL_AT..SMALL_AT + CONVERSATIONS - 2;
        let conversations: Vec<_> = [GROUP_AT, LARGE_AT].into_iter().chain(small).collect();
        Load::start(
            &self.stage,
            server.address(),
            word,
            PER_SECOND,
            &conversations,
        )
    }

    /// Other nodes take its requests, and every conversation goes on.
    async fn one_node_hangs(&mut self) -> [Figures; 2] {
        let (server, admin) = Server::start_with_admin(&self.stage.program, &["--rates", "off"]);
        self.move_followers_to(&server);
        let load = self.load(&server, "hung");
        let began = Instant::now();
        tokio::time::sleep(WARM_UP).await;
        let stopped = Instant::now();
        self.ring.stop(2);
        let noticed = gauge(&admin, "wideroom_cql_silent_nodes", 1).await;
        let sent = self.all_send(&server, "without it", stopped).await;
        let length = given_outage().map_or(FIRST_SECONDS, |_| 3 * FIRST_SECONDS);
        tokio::time::sleep(length.saturating_sub(stopped.elapsed())).await;
        let resumed = Instant::now();
        tell_counters(&admin);
        self.ring.resume(2);
        let back = gauge(&admin, "wideroom_cql_silent_nodes", 0).await;
        self.all_send(&server, "with it", resumed).await;
        let ended = Instant::now();
        let samples = load.end(&mut self.ledger).await;
        say(&format!(
            "hung: noticed after {noticed:.1?}, all conversations took a message {sent:.1?} after it hung; used again {back:.1?} after it went on"
        ));
        tell("hung: three nodes", &samples, began, stopped);
        let first = stopped + FIRST_SECONDS;
        let what = "hung: the first seconds without one";
        let [sends, pages] = tell(what, &samples, stopped, first);
        tell("hung: later without it", &samples, first, resumed);
        tell("hung: with it again", &samples, resumed, ended);
        self.ring.is_whole().await;
        self.ledger.check(&self.stage, server.address()).await;
        end(server);
        [sends, pages]
    }

    /// A brown-out: no answer comes from any node, though some writes are done. Unsettled writes
    /// are bounded, and all of them are settled afterwards: nothing acknowledged is lost, there
    /// twice, or not delivered.
    async fn answers_are_lost(&mut self) {
        let nodes = self.ring.contact_points();
        let nodes: Vec<_> = nodes.iter().map(|node| node.parse().unwrap()).collect();
        let mut line = Line::to(&nodes).await;
        let keyspace = self.stage.program.store().rsplit_once('/').unwrap().1;
        let store = format!("cql://{}/{keyspace}", line.address);
        let arguments = ["--store", &store, "--rates", "off"];
        let (server, admin) = Server::start_with_admin(&self.stage.program, &arguments);
        self.move_followers_to(&server);
        let load = self.load(&server, "brown-out");
        tokio::time::sleep(WARM_UP).await;
        let began = Instant::now();
        line.lose_all();
        let length = given_outage().unwrap_or(BROWN_OUT);
        tokio::time::sleep(length / 4).await;
        let before = server.resident_bytes();
        tokio::time::sleep(length - length / 4).await;
        let after = server.resident_bytes();
        tell_counters(&admin);
        let healed = Instant::now();
        line.heal();
        let took = self.all_send(&server, "after the brown-out", healed).await;
        gauge(&admin, "wideroom_unsettled_writes", 0).await;
        let settled = healed.elapsed();
        let ended = Instant::now();
        let samples = load.end(&mut self.ledger).await;
        gauge(&admin, "wideroom_backlog_writes", 0).await;
        tell("brown-out: no answers", &samples, began, healed);
        tell("brown-out: afterwards", &samples, healed, ended);
        say(&format!(
            "brown-out: all conversations took a message {took:.1?} after it, all writes were settled after {settled:.1?}; {} MiB resident, then {} MiB",
            before >> 20,
            after >> 20
        ));
        assert!(after < before + GROWTH_MAX, "{before} {after}");
        assert!(
            took < HEALED_MAX && settled < HEALED_MAX,
            "{took:?} {settled:?}"
        );
        let found = self.ledger.check(&self.stage, server.address()).await;
        for follower in std::mem::take(&mut self.followers) {
            follower.check_all_heard(&found).await;
        }
        end(server);
    }

    /// Waits until every conversation of the load takes a message.
    async fn all_send(&mut self, server: &Server, word: &'static str, since: Instant) -> Duration {
        let probes = (0..CONVERSATIONS).map(|at| {
            let (stage, address) = (Arc::clone(&self.stage), server.address());
            tokio::spawn(async move { send_until_kept(&stage, address, word, at).await })
        });
        for probe in probes.collect::<Vec<_>>() {
            let attempt = tokio::time::timeout(2 * HEALED_MAX, probe).await;
            self.ledger
                .attempts
                .push(attempt.expect("every conversation takes messages").unwrap());
        }
        since.elapsed()
    }
}

/// Prints which requests waited for a node, and what was done about it.
fn tell_counters(admin: &Admin) {
    let (_, text) = admin.get("/metrics");
    let is_told = |line: &&str| {
        ["wideroom_cql_", "wideroom_unsettled", "wideroom_backlog"]
            .iter()
            .any(|prefix| line.starts_with(prefix))
            && !line.contains("_bucket")
            && !line.ends_with(" 0")
    };
    let told: Vec<_> = text.lines().filter(is_told).collect();
    say(&format!(
        "hung: {}",
        told.join(", ").replace("wideroom_", "")
    ));
}
