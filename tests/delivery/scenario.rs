//! A minute of a cluster's life, by a seed: users come, go and write, servers die, stall and are
//! ended, and the store fails in parts.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use wideroom::model::{ConversationId, TimeUuid};
use wideroom::store::cluster::MailboxLane;

use super::world::{Client, Mistakes, Node, Nodes, World, conversation, user};

const USERS: usize = 5;
const SERVERS: usize = 3;
const LASTS: Duration = Duration::from_secs(90);
/// How long a healed cluster has to deliver everything: a spread reread, and the longest backoff.
const SETTLES: Duration = Duration::from_secs(150);

/// Kinds of trouble of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trouble {
    /// One statement in so many fails.
    pub faults: Option<u64>,
    pub kills: bool,
    pub stalls: bool,
    pub wrongful_ends: bool,
    pub dead_lanes: bool,
    pub dead_users: bool,
    pub grows: bool,
    /// A user joins the small conversation in the middle of it all.
    pub joins: bool,
    /// Wall clocks of servers are set.
    pub steps: bool,
    /// Clocks of nodes are set wrong.
    pub wrong_nodes: bool,
}

impl Trouble {
    pub fn all() -> Self {
        Self {
            faults: Some(30),
            kills: true,
            stalls: true,
            wrongful_ends: true,
            dead_lanes: true,
            dead_users: true,
            grows: true,
            joins: true,
            steps: true,
            wrong_nodes: true,
        }
    }
}

/// Result of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub acknowledged: usize,
    pub streams: usize,
    /// Events that a stream missed.
    pub missed: Vec<(String, TimeUuid)>,
}

struct Run {
    world: Arc<World>,
    nodes: Nodes,
    next_node: usize,
    clients: Vec<(Arc<Client>, CancellationToken)>,
    small: ConversationId,
    large: ConversationId,
    trouble: Trouble,
}

/// Runs a seed in virtual time.
pub fn run(seed: u64, trouble: Trouble, mistakes: Mistakes) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut run = Run::begin(seed, trouble, mistakes).await;
        run.live().await;
        run.settle().await
    })
}

impl Run {
    async fn begin(seed: u64, trouble: Trouble, mistakes: Mistakes) -> Self {
        let world = World::new(seed, mistakes);
        let (small, large) = (conversation(1), conversation(2));
        let people = (0..USERS).map(user).collect();
        let some = (0..USERS - 1).map(user).collect();
        world.directory.set_conversation(small, some, false);
        world
            .directory
            .set_conversation(large, people, !trouble.grows);
        let mut run = Self {
            world,
            nodes: Nodes::new(),
            next_node: 0,
            clients: Vec::new(),
            small,
            large,
            trouble,
        };
        for _ in 0..SERVERS {
            run.start().await;
        }
        for number in 0..USERS {
            for conversation in [small, large] {
                let is_participant = conversation == large || number < USERS - 1;
                if is_participant {
                    let client = Client::new(user(number), conversation);
                    run.clients.push((client, CancellationToken::new()));
                    run.connect(run.clients.len() - 1);
                }
            }
        }
        run
    }

    async fn start(&mut self) {
        let node = self.world.start(self.trouble.faults).await;
        self.nodes.insert(self.next_node, node);
        self.next_node += 1;
    }

    fn any_node(&self) -> (usize, Arc<Node>) {
        let number = self.world.dice.below(self.nodes.len() as u64);
        let (number, node) = self.nodes.iter().nth(number as usize).unwrap();
        (*number, Arc::clone(node))
    }

    fn connect(&mut self, client: usize) {
        let node = self.any_node().1;
        let (client, closed) = &mut self.clients[client];
        *closed = CancellationToken::new();
        node.open(client, closed.clone());
    }

    async fn live(&mut self) {
        let end = Instant::now() + LASTS;
        while Instant::now() < end {
            sleep(self.world.dice.millis(150)).await;
            self.act().await;
        }
    }

    async fn act(&mut self) {
        let dice = Arc::clone(&self.world.dice);
        match dice.below(100) {
            0..55 => {
                let conversation = if dice.one_in(2) {
                    self.small
                } else {
                    self.large
                };
                self.any_node().1.send(conversation, false);
            }
            55..75 => {
                // Somebody is cut off, and comes back within milliseconds or seconds, elsewhere.
                let number = dice.below(self.clients.len() as u64) as usize;
                let (client, closed) = &self.clients[number];
                client.cut(closed);
                sleep(dice.millis(if dice.one_in(2) { 20 } else { 2_000 })).await;
                self.connect(number);
            }
            75..85 => self.nodes.values().for_each(|node| node.tell_positions()),
            85 | 86 if self.trouble.kills => self.replace().await,
            87 | 88 if self.trouble.stalls => {
                let lasts = if dice.one_in(2) { 11 } else { 27 };
                self.any_node().1.link.stall(Duration::from_secs(lasts));
            }
            89 | 90 if self.trouble.wrongful_ends => {
                let server = self.any_node().1.cluster.server();
                self.world.directory.end(server);
            }
            91 | 92 if self.trouble.dead_lanes => {
                let server = self.any_node().1.cluster.server();
                let lane = MailboxLane::from(dice.below(4) as usize).next().unwrap();
                let lasts = if dice.one_in(3) { 75 } else { 6 };
                self.world
                    .directory
                    .kill_lane(server, lane, Duration::from_secs(lasts));
            }
            93 if self.trouble.dead_users => {
                let user = user(dice.below(USERS as u64) as usize);
                self.world
                    .directory
                    .kill_user(&user, Duration::from_secs(4));
            }
            94 if self.trouble.grows => {
                let is_large = self
                    .world
                    .directory
                    .conversation(self.large, |it| it.is_large);
                if !is_large {
                    self.any_node().1.send(self.large, true);
                }
            }
            95 if self.trouble.joins => self.join(),
            96 | 97 if self.trouble.steps => self.any_node().1.step_clock(),
            98 if self.trouble.wrong_nodes => self.world.directory.set_node_clock(dice.one_in(2)),
            _ => {}
        }
    }

    /// The last user joins the small conversation, and opens a stream of it at once.
    fn join(&mut self) {
        let (small, newcomer) = (self.small, user(USERS - 1));
        let is_new = self
            .world
            .directory
            .conversation(small, |it| it.participants.insert(newcomer.clone()));
        if is_new {
            let client = Client::new(newcomer, small);
            self.clients.push((client, CancellationToken::new()));
            self.connect(self.clients.len() - 1);
        }
    }

    /// A server dies, and another one is started. Its clients come back to any.
    async fn replace(&mut self) {
        let (number, node) = self.any_node();
        let orphans: Vec<_> = (0..self.clients.len())
            .filter(|client| self.clients[*client].0.is_open())
            .collect();
        node.kill();
        self.nodes.remove(&number);
        self.start().await;
        for client in orphans {
            if !self.clients[client].0.is_open() {
                self.connect(client);
            }
        }
    }

    /// Everything is well again, and stays so for long enough.
    async fn settle(mut self) -> Outcome {
        self.world.directory.heal();
        self.nodes.values().for_each(|node| node.link.heal());
        for client in 0..self.clients.len() {
            if !self.clients[client].0.is_open() {
                let (there, closed) = &self.clients[client];
                there.cut(closed);
                self.connect(client);
            }
        }
        sleep(SETTLES).await;
        let acknowledged = self.world.acknowledged.lock().unwrap().clone();
        let missed = self.clients.iter().flat_map(|(client, _)| {
            let name = format!("{} in {:?}", client.user, client.conversation.0);
            client
                .missed(&acknowledged)
                .into_iter()
                .map(move |id| (name.clone(), id))
        });
        let outcome = Outcome {
            acknowledged: acknowledged.len(),
            streams: self.clients.iter().filter(|(it, _)| it.is_open()).count(),
            missed: missed.collect(),
        };
        self.nodes.values().for_each(|node| node.kill());
        outcome
    }
}
