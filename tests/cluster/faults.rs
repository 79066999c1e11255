//! One ring of three nodes, and all that may break of it: one node, two of them, and our own servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::club::Club;
use super::crowd::{Crowd, End, Keys, Try};
use super::place::{migrated, p99};
use crate::binary::follower::{Follower, Place};
use crate::binary::ledger::Ledger;
use crate::binary::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage, serve};
use crate::support::cassandra::{Ring, say};
use crate::support::server::Server;

const SENDERS: usize = 10;
/// Concurrent senders while two nodes are down.
const REFUSED_SENDERS: usize = 40;
/// Refused sends before the first sample of the server's memory, and between the first and the second.
const REFUSED_FIRST: usize = 500;
const REFUSED: usize = 1_200;
/// Pages and buffers that an allocator keeps.
const GROWTH_MAX: u64 = 48 << 20;
/// How often a server is killed.
const SERVERS_KILLED: usize = 3;

struct Play {
    ring: Ring,
    stage: Arc<Stage>,
    ledger: Ledger,
    /// Address of the server that followers subscribe to.
    place: watch::Sender<Option<Place>>,
    places: watch::Sender<Vec<SocketAddr>>,
    followers: Vec<Follower>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: a ring of three nodes"]
async fn no_death_of_nodes_or_servers_loses_or_doubles_a_message() {
    let Some(ring) = Ring::start(3).await else {
        return;
    };
    let began = Instant::now();
    let program = migrated(|keyspace| ring.url(keyspace), "3");
    let stage = Arc::new(Stage::set_up(program).await);
    say(&format!("faults: set up in {:.1?}", began.elapsed()));
    let server = serve(&stage.program);
    let place = watch::channel(Some(Place {
        number: 0,
        address: server.address(),
    }))
    .0;
    let places = watch::channel(vec![server.address()]).0;
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
        places,
        followers,
    };
    play.one_node_dies(&server).await;
    play.two_nodes_die(&server).await;
    play.servers_die(server).await;
    say(&format!("faults: all of it in {:.1?}", began.elapsed()));
}

impl Play {
    fn crowd(&self, word: &'static str, users: usize, keys: Keys) -> Crowd {
        Crowd::gather(&self.stage, word, users, keys, &self.places.subscribe())
    }

    /// Everything acknowledged is there, once; every history agrees with every inbox.
    async fn check(&self, server: &Server) {
        let began = Instant::now();
        self.ledger.check(&self.stage, server.address()).await;
        say(&format!(
            "faults: {} attempts checked in {:.1?}",
            self.ledger.attempts.len(),
            began.elapsed()
        ));
    }

    /// Sends go on without it, and with it again.
    async fn one_node_dies(&mut self, server: &Server) {
        let began = Instant::now();
        let mut crowd = self.crowd("one", SENDERS, Keys::ThreeOfFour);
        crowd.keeps(80).await;
        let killed = Instant::now();
        self.ring.kill(2);
        crowd.keeps(160).await;
        let restarted = Instant::now();
        self.ring.restart(2).await;
        let back = Instant::now();
        crowd.keeps(80).await;
        let tries = crowd.end(&mut self.ledger).await;
        let phase = |what: &str, from: Instant, to: Instant| tell(what, &tries, from, to);
        phase("three nodes", began, killed);
        say(&format!(
            "faults: nothing was kept for {:.1?} after a node died",
            gap(&tries, killed)
        ));
        phase(
            "the second in which a node dies",
            killed,
            killed + Duration::from_secs(1),
        );
        phase(
            "the next four",
            killed + Duration::from_secs(1),
            killed + Duration::from_secs(5),
        );
        phase(
            "two nodes, later",
            killed + Duration::from_secs(5),
            restarted,
        );
        // At this time the other nodes had noticed the failure.
        phase("while it comes back", restarted, back);
        phase("three nodes again", back, Instant::now());
        self.check(server).await;
    }

    /// Nothing is kept, nothing hangs, and nothing piles up. Then all of it heals, and what was being written when they died is told too:
    /// no retry with its key would find it.
    async fn two_nodes_die(&mut self, server: &Server) {
        let mut crowd = self.crowd("two", SENDERS, Keys::None);
        crowd.keeps(50).await;
        let killed = Instant::now();
        self.ring.kill(2);
        self.ring.kill(3);
        let mut refused = self.crowd("refused", REFUSED_SENDERS, Keys::ThreeOfFour);
        refused.is_refused(REFUSED_FIRST).await;
        let before = server.resident_bytes();
        refused.is_refused(REFUSED).await;
        let after = server.resident_bytes();
        say(&format!(
            "faults: {} MiB resident after {REFUSED_FIRST} refusals, {} MiB after {REFUSED} more",
            before >> 20,
            after >> 20
        ));
        assert!(after < before + GROWTH_MAX, "{before} {after}");
        let restarted = Instant::now();
        self.ring.restart(2).await;
        let healed = crowd.keeps(1).await;
        let one_is_back = Instant::now();
        crowd.keeps(100).await;
        let mut tries = crowd.end(&mut self.ledger).await;
        tries.extend(refused.end(&mut self.ledger).await);
        let ended = Instant::now();
        self.ring.restart(3).await;
        tell(
            "the five seconds in which two nodes die",
            &tries,
            killed,
            killed + Duration::from_secs(5),
        );
        tell(
            "one node of three",
            &tries,
            killed + Duration::from_secs(5),
            restarted,
        );
        say(&format!(
            "faults: the first was kept {healed:.1?} after a second node took connections"
        ));
        tell("two nodes again", &tries, one_is_back, ended);
        let without = tries
            .iter()
            .filter(|one| one.began > killed && one.began < restarted);
        let slowest = without.map(|one| one.took).max().unwrap_or_default();
        say(&format!("faults: the slowest waited {slowest:.1?}"));
        self.check(server).await;
    }

    /// Another server completes the changes that a dead server left unfinished.
    async fn servers_die(&mut self, server: Server) {
        let mut servers = vec![server, serve(&self.stage.program)];
        let mut club = Club::found(&self.stage.program, servers[0].address()).await;
        self.tell_places(&servers);
        let mut crowd = self.crowd("servers", SENDERS, Keys::ThreeOfFour);
        for round in 0..SERVERS_KILLED {
            crowd.keeps(40).await;
            let meanwhile = club.meet(servers[0].address(), round);
            crowd.keeps(20).await;
            // The others come to know of it as one does: they are cut off.
            let killed = servers.remove(0);
            let log = killed.kill();
            assert!(!log.contains("panicked"), "{log}");
            self.tell_places(&servers);
            club.note(meanwhile.await.unwrap());
            club.finish(servers[0].address()).await;
            crowd.keeps(20).await;
            servers.push(serve(&self.stage.program));
            self.tell_places(&servers);
        }
        let tries = crowd.end(&mut self.ledger).await;
        let (from, to) = (
            tries.iter().map(|one| one.began).min().unwrap(),
            Instant::now(),
        );
        tell(
            "two servers, of which one is killed now and then",
            &tries,
            from,
            to,
        );
        club.check(servers[1].address()).await;
        let found = self.ledger.check(&self.stage, servers[1].address()).await;
        for follower in std::mem::take(&mut self.followers) {
            follower.check_all_heard(&found).await;
        }
        for server in servers {
            server.signal("-TERM");
            let (code, _, log) = server.end();
            assert_eq!(code, Some(0), "{log}");
            assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
        }
    }

    fn tell_places(&self, servers: &[Server]) {
        self.places
            .send_replace(servers.iter().map(Server::address).collect());
        let number = self.place.borrow().map_or(0, |place| place.number + 1);
        self.place.send_replace(Some(Place {
            number,
            address: servers[0].address(),
        }));
    }
}

/// Prints the outcomes of the tries started in a period.
fn tell(what: &str, tries: &[Try], from: Instant, to: Instant) {
    let between: Vec<_> = tries
        .iter()
        .filter(|one| one.began >= from && one.began < to)
        .collect();
    let of = |end: End| {
        between
            .iter()
            .filter(|one| one.end == end)
            .map(|one| one.took)
            .collect::<Vec<_>>()
    };
    let kept = of(End::Kept);
    let figures = [
        ("kept", &kept),
        ("not done", &of(End::NotDone)),
        ("unknown", &of(End::Unknown)),
        ("cut", &of(End::Cut)),
    ]
    .map(|(end, took)| {
        let middle = median(took);
        format!(
            "{} {end} (p50 {middle:.0?}, p99 {:.0?}, max {:.0?})",
            took.len(),
            p99(took),
            took.iter().max().copied().unwrap_or_default()
        )
    });
    say(&format!(
        "faults: {what}, {:.1?}: {}",
        to.duration_since(from),
        figures.join(", ")
    ));
}

/// How long nothing was kept, from the last that was kept before something broke.
fn gap(tries: &[Try], broke: Instant) -> Duration {
    let mut kept: Vec<_> = tries
        .iter()
        .filter(|one| one.end == End::Kept)
        .map(|one| one.began + one.took)
        .collect();
    kept.sort_unstable();
    kept.windows(2)
        .filter(|pair| pair[1] >= broke)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap_or_default()
}

fn median(latencies: &[Duration]) -> Duration {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
