//! Slow nodes are not gone: one of three nodes is killed under load on a cold ring whose other nodes stand still in turn,
//! and sends go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::load::{Figures, Kind, Load, Sample, tell};
use super::place::migrated;
use crate::binary::ledger::Ledger;
use crate::binary::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage};
use crate::support::admin::Admin;
use crate::support::cassandra::ring::RingOptions;
use crate::support::cassandra::{Ring, say};
use crate::support::server::Server;

/// Requests a second, half of them sends: the most that the ring bears with all of its nodes, each of which stands still in
/// turn, on a machine that may do other things.
const PER_SECOND: [u32; 4] = [56, 28, 14, 8];
const CONVERSATIONS: usize = 28;
const KILLED: u8 = 2;
const OTHERS: [u8; 2] = [1, 3];
/// A node stands still for so long, and the next one begins so long after it went on. A node that is silent for five times as long as
/// a request waits for it alone (200 ms) counts as gone.
const STANDS_STILL: Duration = Duration::from_millis(500);
const GOES_ON: Duration = Duration::from_millis(900);
/// The ring bears a load that it answers in whole for so long, and none of it much later than a node stands still: with longer queues it
/// has no room for the work of the node that is killed, and its own time-outs end requests.
const BEFORE: Duration = Duration::from_secs(8);
const BORNE_P99_MAX: Duration = Duration::from_millis(1_500);
const AFTER: Duration = Duration::from_secs(24);
/// From then on no send is refused.
const KNOWN_AFTER: Duration = Duration::from_secs(5);
const FAILED_PERCENT_MAX: usize = 1;
const LOOK_EVERY: Duration = Duration::from_millis(50);
const ROUNDS: usize = 2;
/// Times that each load is tried on a ring that is cold, or whose machine is busy.
const TRIES: usize = 3;
const REFUSED: &str = "wideroom_cql_refused_requests_total";

/// Cost of one kill.
#[derive(Debug)]
struct Round {
    per_second: u32,
    sends: Figures,
    /// Failures of sends that began [`KNOWN_AFTER`] the kill and later, while the server was ready.
    late: usize,
    /// Requests that found no permit.
    unpermitted: f64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: a ring of three nodes, of which one is killed and the others are slow"]
async fn nightly_a_cold_ring_of_slow_nodes_refuses_one_send_of_a_hundred_when_one_is_killed() {
    let options = RingOptions {
        is_cold: true,
        ..RingOptions::default()
    };
    let Some(mut ring) = Ring::start_with(3, options).await else {
        return;
    };
    let program = migrated(|keyspace| ring.url(keyspace), "3");
    let stage = Arc::new(Stage::set_up(program).await);
    let mut play = Play {
        stage: Arc::clone(&stage),
        ledger: Ledger::default(),
    };
    for word in ["first", "second"].into_iter().take(ROUNDS) {
        let round = play.round(&mut ring, word).await;
        say(&format!(
            "slow nodes: {} a second: {round:?}",
            round.per_second
        ));
        let most = round.sends.requests * FAILED_PERCENT_MAX / 100;
        assert!(round.sends.requests > 80, "{round:?}");
        assert!(
            round.unpermitted == 0.0,
            "requests were refused for a quorum that is there: {round:?}"
        );
        assert!(round.sends.failed <= most && round.late == 0, "{round:?}");
    }
    let server = Server::start(&stage.program, &["--rates", "off"]);
    play.ledger.check(&stage, server.address()).await;
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

struct Play {
    stage: Arc<Stage>,
    ledger: Ledger,
}

impl Play {
    fn load(&self, server: &Server, word: &'static str, per_second: u32) -> Load {
        let small = SMALL_AT..SMALL_AT + CONVERSATIONS - 2;
        let conversations: Vec<_> = [GROUP_AT, LARGE_AT].into_iter().chain(small).collect();
        let stage = &self.stage;
        Load::start(stage, server.address(), word, per_second, &conversations)
    }

    /// Finds the load that the ring bears while its nodes are slow: it is cold at first.
    async fn bearable(&mut self, ring: &Ring, server: &Server, round: &str) -> u32 {
        for per_second in PER_SECOND {
            for try_number in 0..TRIES {
                // Bodies and keys of no other load.
                let word = format!("{round} {per_second} {try_number}").leak();
                let load = self.load(server, word, per_second);
                let began = Instant::now();
                while began.elapsed() < BEFORE {
                    slow_down(ring).await;
                }
                let ended = Instant::now();
                let samples = load.end(&mut self.ledger).await;
                let what = format!("slow nodes: {per_second} a second with all of them");
                let [sends, _] = tell(&what, &samples, began, ended);
                if sends.failed == 0 && sends.p99 < BORNE_P99_MAX {
                    return per_second;
                }
            }
        }
        panic!("this machine is too busy for a ring of three nodes");
    }

    /// Kills a node under load. It is there again afterwards.
    async fn round(&mut self, ring: &mut Ring, word: &'static str) -> Round {
        let arguments = ["--rates", "off", "--log", "error,wideroom::cli=info"];
        let (server, admin) = Server::start_with_admin(&self.stage.program, &arguments);
        let watch = Watch::start(admin);
        let per_second = self.bearable(ring, &server, word).await;
        let load = self.load(&server, word, per_second);
        slow_down(ring).await;
        let killed = Instant::now();
        ring.kill(KILLED);
        while killed.elapsed() < AFTER {
            slow_down(ring).await;
        }
        let ended = Instant::now();
        let samples = load.end(&mut self.ledger).await;
        let (readiness, unpermitted) = watch.end();
        ring.restart(KILLED).await;
        let known = killed + KNOWN_AFTER;
        tell("slow nodes: at first without one", &samples, killed, known);
        tell("slow nodes: later", &samples, known, ended);
        let is_late = |one: &&Sample| {
            one.kind == Kind::Send && !one.is_ok && one.began >= known && was_ready(&readiness, one)
        };
        let late = samples.iter().filter(is_late).count();
        server.signal("-TERM");
        let (code, _, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        Round {
            per_second,
            sends: Figures::of(&samples, Kind::Send, killed, ended),
            late,
            unpermitted,
        }
    }
}

/// Each of the nodes that stay stands still once.
async fn slow_down(ring: &Ring) {
    for node in OTHERS {
        ring.stop(node);
        sleep(STANDS_STILL).await;
        ring.resume(node);
        sleep(GOES_ON).await;
    }
}

/// Whether no answer of `/readyz` refused while a request ran.
fn was_ready(readiness: &[(Instant, bool)], one: &Sample) -> bool {
    let ended = one.began + one.took;
    !readiness
        .iter()
        .any(|(at, is_ready)| !is_ready && *at >= one.began && *at <= ended + KNOWN_AFTER / 5)
}

/// Watch over `/readyz`, and over the requests that find no permit.
struct Watch {
    thread: JoinHandle<Vec<(Instant, bool)>>,
    is_over: Arc<AtomicBool>,
    admin: Arc<Admin>,
}

impl Watch {
    fn start(admin: Admin) -> Self {
        let (admin, is_over) = (Arc::new(admin), Arc::<AtomicBool>::default());
        let (asked, ended) = (Arc::clone(&admin), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let mut readiness = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                readiness.push((Instant::now(), asked.get("/readyz").0 == 200));
                std::thread::sleep(LOOK_EVERY);
            }
            readiness
        });
        Self {
            thread,
            is_over,
            admin,
        }
    }

    /// The answers of `/readyz`, and the requests without a permit.
    fn end(self) -> (Vec<(Instant, bool)>, f64) {
        self.is_over.store(true, Ordering::Relaxed);
        let readiness = self.thread.join().unwrap();
        (readiness, self.admin.series(REFUSED).unwrap())
    }
}
