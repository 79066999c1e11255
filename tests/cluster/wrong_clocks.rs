//! Wrong clocks in a ring: two servers that are 3.8 s apart, a server whose clock jumps, and a node
//! of three that is wrong. The server that is too far off refuses writes and nobody else does, and
//! no cursor misses an event.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::watch;

use super::crowd::{Crowd, End, Keys, Try};
use super::place::migrated;
use crate::binary::follower::{Follower, Place};
use crate::binary::ledger::{Attempt, Kept, Ledger};
use crate::binary::read;
use crate::binary::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage};
use crate::support::cassandra::ring::RingOptions;
use crate::support::cassandra::{Ring, say};
use crate::support::faketime::FakeClock;
use crate::support::server::Server;
use crate::support::world::PATIENCE;

const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { uuid body } } } }";
/// Servers whose clocks are as wrong as is allowed, and one whose clock is right.
const OFFSETS: [&str; 3] = ["+1.9", "-1.9", "+0"];
/// Server whose clock jumps.
const JUMPER: usize = 0;
/// An hour back: ahead, the tokens of its clients would have expired.
const JUMPS: [&str; 2] = ["+60", "-3600"];
/// Server on which some listeners stay: what it misses, no other one tells them.
const STAYS_AT: usize = 1;
/// Node with a wrong clock, and how wrong it is.
const WRONG_NODE: u8 = 3;
const NODE_OFFSETS: [i64; 3] = [-3_600, 3_600, 60];
const WRONG_FOR: Duration = Duration::from_secs(10);
/// Line of a server that avoids the node.
const AVOIDED: &str = "the clock of a node disagrees with the others";
const SENDERS: usize = 6;
const KEPT: usize = 20;
/// One try of so many may be refused while a node is wrong: the machine has other load.
const REFUSED_SHARE_MAX: usize = 10;
/// Line of a server that refuses writes.
const FENCED: &str = "the server is not ready and refuses writes";

/// Answer of a server to a message. A ring under load may leave the outcome unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Kept,
    Refused,
    Unknown,
}

struct Scene {
    stage: Arc<Stage>,
    servers: Vec<(Server, FakeClock)>,
    place: watch::Sender<Option<Place>>,
    ledger: Ledger,
    number: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: a ring of three nodes"]
async fn a_wrong_clock_in_a_ring_stops_its_own_server_and_no_event() {
    if !FakeClock::is_available() {
        return;
    }
    let options = RingOptions {
        clock_of: Some(WRONG_NODE),
        ..RingOptions::default()
    };
    let Some(ring) = Ring::start_with(3, options).await else {
        return;
    };
    let program = migrated(|keyspace| ring.url(keyspace), "3");
    let mut scene = Scene::set(Stage::set_up(program).await);
    let stage = Arc::clone(&scene.stage);
    let listen = |at| Follower::of_messages_on_a_cluster(&stage, at, scene.place.subscribe());
    let listeners: Vec<_> = [GROUP_AT, LARGE_AT, SMALL_AT].map(listen).into();
    let (_stays, stayer) = watch::channel(Some(scene.place_at(STAYS_AT)));
    let stay = |at| Follower::of_messages_on_a_cluster(&stage, at, stayer.clone());
    let stayers: Vec<_> = [GROUP_AT, LARGE_AT, SMALL_AT].map(stay).into();
    let inbox = |user| Follower::of_inbox_on_a_cluster(&stage, user, scene.place.subscribe());
    let inboxes: Vec<_> = [0, 3].map(inbox).into();
    let places = watch::channel(scene.addresses()).1;
    let mut crowd = Crowd::gather(&stage, "clocks", SENDERS, Keys::ThreeOfFour, &places);

    // As wrong as is allowed: everybody writes.
    crowd.keeps(KEPT).await;
    scene.all_send().await;
    for jump in JUMPS {
        scene.servers[JUMPER].1.set(jump);
        let noticed = scene.waits_until(JUMPER, Said::Refused).await;
        for _ in 0..3 {
            scene.move_followers();
            let said = scene.send(JUMPER).await;
            assert_eq!(said, Said::Refused, "it has ids of another time");
            scene.waits_until(1, Said::Kept).await;
            scene.waits_until(2, Said::Kept).await;
        }
        crowd.keeps(KEPT).await;
        scene.servers[JUMPER].1.set(OFFSETS[JUMPER]);
        let well = scene.waits_until(JUMPER, Said::Kept).await;
        say(&format!(
            "clocks: a server that jumped by {jump} s refused writes after {noticed:.1?}, and took them {well:.1?} after it was set right"
        ));
    }
    let began = Instant::now();
    for (number, offset) in NODE_OFFSETS.into_iter().enumerate() {
        ring.set_clock(offset);
        let began = Instant::now();
        if number == 0 {
            for (server, _) in &scene.servers {
                server.logs(AVOIDED);
            }
            say(&format!(
                "clocks: a node that is {offset} s ahead is avoided after {:.1?}",
                began.elapsed()
            ));
        }
        while began.elapsed() < WRONG_FOR {
            crowd.keeps(KEPT).await;
            scene.all_send().await;
            scene.move_followers();
        }
    }
    ring.set_clock(0);
    crowd.keeps(KEPT).await;
    let ended = Instant::now();
    let tries = crowd.end(&mut scene.ledger).await;
    let is_with_wrong_node = |one: &&Try| one.began > began && one.began < ended;
    let tries: Vec<_> = tries.iter().filter(is_with_wrong_node).collect();
    let refused: Vec<_> = tries.iter().filter(|one| one.end != End::Kept).collect();
    say(&format!(
        "clocks: with a wrong node {} of {} tries were not kept",
        refused.len(),
        tries.len()
    ));
    let address = scene.addresses()[1];
    let found = scene.ledger.check(&stage, address).await;
    for follower in listeners.into_iter().chain(stayers) {
        follower.check_all_heard(&found).await;
    }
    for follower in inboxes {
        follower.check_all_shown(&stage, &found).await;
    }
    scene.end();
    assert!(
        refused.len() <= tries.len() / REFUSED_SHARE_MAX,
        "a wrong node stops writes: {refused:?}"
    );
}

impl Scene {
    fn set(stage: Stage) -> Self {
        let mut scene = Self {
            stage: Arc::new(stage),
            servers: Vec::new(),
            place: watch::channel(None).0,
            ledger: Ledger::default(),
            number: 0,
        };
        let program = &scene.stage.program;
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--log",
            "warn",
            "--rates",
            "off",
        ];
        for (index, offset) in OFFSETS.into_iter().enumerate() {
            let clock = FakeClock::new(program.dir.path().join(format!("clock-{index}")));
            clock.set(offset);
            let mut command = program.command(&arguments);
            clock.put_before(&mut command);
            scene.servers.push((Server::spawn(&mut command), clock));
        }
        scene.move_followers();
        scene
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let servers = self.servers.iter();
        servers.map(|(server, _)| server.address()).collect()
    }

    fn place_at(&self, index: usize) -> Place {
        Place {
            number: self.number,
            address: self.addresses()[index],
        }
    }

    /// To the next server, with the cursors of this one.
    fn move_followers(&mut self) {
        self.number += 1;
        let place = self.place_at(self.number % OFFSETS.len());
        self.place.send_replace(Some(place));
    }

    /// Sends a message to a server.
    async fn send(&mut self, index: usize) -> Said {
        self.number += 1;
        let user = self.stage.conversations[LARGE_AT].participants[20 + index];
        let body = format!("clock {index} {}", self.number);
        let began = Instant::now();
        let mut caller = self.stage.caller(self.addresses()[index], user).await;
        let variables = json!({
            "c": self.stage.conversations[LARGE_AT].id,
            "b": body,
            "k": body.replace(' ', "-"),
        });
        let reply = caller.ask(SEND, &variables).await.expect("the server runs");
        let node = &reply.body["data"]["sendMessage"]["messageEdge"]["node"];
        let is_kept = node.is_object();
        if !is_kept {
            assert_eq!(reply.code(), "UNAVAILABLE", "{}", reply.body);
            if reply.outcome() == "NOT_DONE" {
                return Said::Refused;
            }
        }
        self.ledger.attempts.push(Attempt {
            task: index,
            conversation: LARGE_AT,
            user,
            key: Some(body.replace(' ', "-")),
            body,
            began,
            kept: is_kept.then(|| Kept {
                id: read::message_id(node).unwrap(),
                at: Instant::now(),
            }),
        });
        if is_kept { Said::Kept } else { Said::Unknown }
    }

    async fn all_send(&mut self) {
        for index in 0..OFFSETS.len() {
            self.waits_until(index, Said::Kept).await;
        }
    }

    /// Waits until a server takes messages, or refuses them. How long that took.
    async fn waits_until(&mut self, index: usize, said: Said) -> Duration {
        let began = Instant::now();
        while self.send(index).await != said {
            assert!(began.elapsed() < PATIENCE, "{said:?} is never said");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }

    fn end(self) {
        for (index, (server, _)) in self.servers.into_iter().enumerate() {
            server.signal("-TERM");
            let (code, _, log) = server.end();
            assert_eq!(code, Some(0), "{log}");
            assert!(!log.contains("panicked"), "{log}");
            assert_eq!(log.contains(FENCED), index == JUMPER, "{index}: {log}");
        }
    }
}
