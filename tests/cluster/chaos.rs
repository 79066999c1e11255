//! Chaos for a minute, or as long as wanted: `WIDEROOM_CHAOS=SECONDS cargo test chaos -- --ignored`.
//!
//! Three nodes and three servers. Clients send, mark as read, add and remove participants, and
//! subscribe with cursors that they take from server to server. At random a server is killed,
//! stopped, drained, or its clock is set; a node is stopped, or killed and started again; answers
//! of the nodes are lost or late. Afterwards everything that was acknowledged is there once, every
//! stream has everything, unread counts and inboxes are as counted from the histories, and
//! `wideroom verify` finds nothing.
//!
//! Clocks are set by libfaketime, where the machine has it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::club::Club;
use super::crowd::{Crowd, Keys};
use super::line::{Line, written};
use super::place::migrated;
use crate::binary::Dice;
use crate::binary::follower::{Follower, Place};
use crate::binary::ledger::Ledger;
use crate::binary::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage};
use crate::support::cassandra::{Ring, say};
use crate::support::faketime::FakeClock;
use crate::support::server::Server;
use crate::support::world::PATIENCE;

/// Seconds of chaos, in place of a minute.
const VARIABLE: &str = "WIDEROOM_CHAOS";
const SECONDS: u64 = 60;
const NODES: u8 = 3;
const SERVERS: usize = 3;
const SENDERS: usize = 10;
/// Acknowledged sends between two troubles: it goes on.
const KEPT: usize = 10;
const START_AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    KillServer,
    StopServer,
    DrainServer,
    SetClock,
    StopNode,
    KillNode,
    LoseAnswers,
    DelayAnswers,
}

struct RunningServer {
    server: Server,
    clock: FakeClock,
}

struct Chaos {
    ring: Ring,
    stage: Arc<Stage>,
    servers: Vec<RunningServer>,
    /// Between the first server and the nodes, until a node is killed: a line ends with its node.
    line: Option<Line>,
    has_clocks: bool,
    dice: Dice,
    places: watch::Sender<Vec<SocketAddr>>,
    place: watch::Sender<Option<Place>>,
    /// Servers started, and places of the followers.
    number: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: a ring of three nodes"]
async fn chaos_of_servers_nodes_clocks_and_answers_breaks_no_promise() {
    let lasts = std::env::var(VARIABLE).map_or(SECONDS, |seconds| {
        seconds.parse().expect("a number of seconds")
    });
    let lasts = Duration::from_secs(lasts);
    let Some(ring) = Ring::start(NODES).await else {
        return;
    };
    let mut chaos = Chaos::begin(ring).await;
    let listen = |at| {
        let place = chaos.place.subscribe();
        Follower::of_messages_on_a_cluster(&chaos.stage, at, place)
    };
    let listeners: Vec<_> = [GROUP_AT, LARGE_AT, SMALL_AT, SMALL_AT + 12]
        .into_iter()
        .map(listen)
        .collect();
    let inbox = |user| {
        let place = chaos.place.subscribe();
        Follower::of_inbox_on_a_cluster(&chaos.stage, user, place)
    };
    let inboxes: Vec<_> = [0, 3, 11].into_iter().map(inbox).collect();
    let mut ledger = Ledger::default();
    let mut crowd = Crowd::gather(
        &chaos.stage,
        "chaos",
        SENDERS,
        Keys::ThreeOfFour,
        &chaos.places.subscribe(),
    );
    let address = chaos.servers[1].server.address();
    let mut club = Club::found(&chaos.stage.program, address).await;
    let meeting = club.meet_through(chaos.places.subscribe());
    crowd.keeps(KEPT).await;
    let troubles = chaos.run(lasts, &mut crowd).await;
    let tries = crowd.end(&mut ledger).await;
    let deeds = club.end(meeting).await;
    say(&format!(
        "chaos: {troubles} troubles in {lasts:?}, {} tries, {} attempts, {} marks, {deeds} deeds of a club",
        tries.len(),
        ledger.attempts.len(),
        ledger.marks.len()
    ));
    let address = chaos.servers[1].server.address();
    club.check(address).await;
    let found = ledger.check(&chaos.stage, address).await;
    for follower in listeners {
        follower.check_all_heard(&found).await;
    }
    for follower in inboxes {
        follower.check_all_shown(&chaos.stage, &found).await;
    }
    chaos.end();
}

impl Chaos {
    async fn begin(ring: Ring) -> Self {
        let program = migrated(|keyspace| ring.url(keyspace), "3");
        let stage = Arc::new(Stage::set_up(program).await);
        let nodes: Vec<SocketAddr> = ring
            .contact_points()
            .iter()
            .map(|point| point.parse().unwrap())
            .collect();
        let mut chaos = Self {
            line: Some(Line::to(&nodes).await),
            ring,
            stage,
            servers: Vec::new(),
            has_clocks: FakeClock::is_available(),
            dice: Dice::new(),
            places: watch::channel(Vec::new()).0,
            place: watch::channel(None).0,
            number: 0,
        };
        for index in 0..SERVERS {
            let server = chaos.start(index).await;
            chaos.servers.push(server);
        }
        chaos.tell_places();
        chaos
    }

    /// A supervisor: a server that ends at its start, because the nodes do not answer in time, is
    /// started again.
    async fn start(&mut self, index: usize) -> RunningServer {
        let began = Instant::now();
        loop {
            let log = match self.try_start(index) {
                Ok(started) => return started,
                Err(log) => log,
            };
            assert!(!log.contains("panicked"), "{log}");
            assert!(began.elapsed() < PATIENCE, "no server starts: {log}");
            say(&format!("chaos: a server is started again: {}", log.trim()));
            tokio::time::sleep(START_AGAIN_AFTER).await;
        }
    }

    /// The first server has the line between itself and the nodes, while there is one.
    fn try_start(&mut self, index: usize) -> Result<RunningServer, String> {
        self.number += 1;
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--log",
            "warn",
            "--rates",
            "off",
        ];
        let mut command = self.stage.program.command(&arguments);
        let folder = self.stage.program.dir.path();
        let clock = FakeClock::new(folder.join(format!("clock-{}", self.number)));
        clock.put_before(&mut command);
        if let Some(line) = self.line.as_ref().filter(|_| index == 0) {
            let keyspace = self.stage.program.store().rsplit_once('/').unwrap().1;
            command.env(
                "WIDEROOM_STORE",
                format!("cql://{}/{keyspace}", line.address),
            );
        }
        let server = Server::try_spawn(&mut command)?;
        Ok(RunningServer { server, clock })
    }

    /// Clients whose server is gone go to the next one; those who follow all go to one of them.
    fn tell_places(&mut self) {
        let all: Vec<_> = self
            .servers
            .iter()
            .map(|one| one.server.address())
            .collect();
        self.number += 1;
        let place = Place {
            number: self.number,
            address: *self.dice.pick(&all),
        };
        self.places.send_replace(all);
        self.place.send_replace(Some(place));
    }

    /// Trouble after trouble; each time the clients go on.
    async fn run(&mut self, lasts: Duration, crowd: &mut Crowd) -> usize {
        let (began, mut count) = (Instant::now(), 0);
        // The first half has no dead nodes, and so a line.
        let half = began + lasts / 2;
        while began.elapsed() < lasts {
            let trouble = self.choose(Instant::now() < half);
            let at = began.elapsed();
            self.make(trouble, crowd).await;
            self.tell_places();
            let took = crowd.keeps(KEPT).await;
            say(&format!(
                "chaos: {trouble:?} at {at:.0?}; {KEPT} more were kept in {took:.1?} after it"
            ));
            count += 1;
        }
        count
    }

    fn choose(&mut self, has_line: bool) -> Trouble {
        let mut all = vec![
            Trouble::KillServer,
            Trouble::StopServer,
            Trouble::DrainServer,
            Trouble::StopNode,
        ];
        if self.has_clocks {
            all.extend([Trouble::SetClock, Trouble::SetClock]);
        }
        if has_line {
            all.extend([Trouble::LoseAnswers, Trouble::DelayAnswers]);
        } else if self.line.is_some() {
            // The first time.
            return Trouble::KillNode;
        } else if self.dice.roll(4) == 0 {
            all.push(Trouble::KillNode);
        }
        *self.dice.pick(&all)
    }

    fn some_millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.dice.roll(most - least))
    }

    async fn make(&mut self, trouble: Trouble, crowd: &mut Crowd) {
        let index = usize::try_from(self.dice.roll(SERVERS as u64)).unwrap();
        let node = 1 + u8::try_from(self.dice.roll(u64::from(NODES))).unwrap();
        match trouble {
            Trouble::KillServer => {
                let gone = self.servers.remove(index);
                let log = gone.server.kill();
                assert!(!log.contains("panicked"), "{log}");
                self.replace(index).await;
            }
            Trouble::DrainServer => {
                let gone = self.servers.remove(index);
                self.tell_places();
                gone.server.signal("-TERM");
                let (code, _, log) = gone.server.end();
                assert_eq!(code, Some(0), "{log}");
                assert!(!log.contains("panicked"), "{log}");
                self.replace(index).await;
            }
            Trouble::StopServer => {
                self.servers[index].server.signal("-STOP");
                tokio::time::sleep(self.some_millis(1_000, 6_000)).await;
                self.servers[index].server.signal("-CONT");
            }
            Trouble::SetClock => {
                let offset = *self
                    .dice
                    .pick(&["+60", "-60", "+1.9", "-1.9", "+3", "-0.5"]);
                self.servers[index].clock.set(offset);
                tokio::time::sleep(self.some_millis(2_000, 6_000)).await;
                self.servers[index].clock.set("+0");
            }
            Trouble::StopNode => {
                self.ring.stop(node);
                tokio::time::sleep(self.some_millis(1_000, 5_000)).await;
                self.ring.resume(node);
            }
            Trouble::KillNode => {
                if self.line.take().is_some() {
                    let gone = self.servers.remove(0);
                    gone.server.kill();
                    self.replace(0).await;
                }
                self.ring.kill(node);
                crowd.keeps(KEPT).await;
                self.ring.restart(node).await;
            }
            Trouble::LoseAnswers | Trouble::DelayAnswers => {
                let (delay, lasts) = (self.some_millis(50, 900), self.some_millis(1_000, 4_000));
                let line = self.line.as_mut().expect("it is between them");
                if trouble == Trouble::LoseAnswers {
                    line.lose(written(), 20);
                } else {
                    line.delay(delay);
                }
                tokio::time::sleep(lasts).await;
                line.heal();
            }
        }
    }

    /// A server in the place of one that is gone.
    async fn replace(&mut self, index: usize) {
        self.tell_places();
        tokio::time::sleep(self.some_millis(100, 3_000)).await;
        let server = self.start(index).await;
        self.servers.insert(index, server);
    }

    /// Every server ends in order, and the store is sound.
    fn end(self) {
        for RunningServer { server, .. } in self.servers {
            server.signal("-TERM");
            let (code, _, log) = server.end();
            assert_eq!(code, Some(0), "{log}");
            assert!(!log.contains("panicked"), "{log}");
        }
        let verified = self.stage.program.run(&["verify"]);
        say(&format!(
            "chaos: verify said {}",
            verified.succeeded().trim()
        ));
    }
}
