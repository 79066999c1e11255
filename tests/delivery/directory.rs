//! The oracle of the directory: the tables of a cluster in memory, behind links that delay, refuse
//! and lose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use wideroom::clock::Clock;
use wideroom::model::{ConversationId, OrderKey, TimeUuid, Timestamp, UserId};
use wideroom::store::cluster::{
    Beat, ClusterStore, CompletionHandler, KeyedSend, MailboxLane, MailboxRow, NodeTime,
    Registration, ServerId, ServerState, Session, WriteTime,
};
use wideroom::store::{Audience, Error, Result, StoreFuture};

/// Beginning of all clocks.
pub const BASE_MICROS: i64 = 1_700_000_000_000_000;

/// Within which a server finds that the clock of a node was set wrong.
const FAULT_FOUND_MILLIS: u64 = 3_000;
/// A server that starts later finds nothing.
const NODE_FAULT_LASTS: Duration = Duration::from_secs(30);

/// Pseudo-random numbers of a seed (SplitMix64).
pub struct Dice(Mutex<u64>);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    pub fn roll(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    pub fn millis(&self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }

    /// True once in so many times.
    pub fn one_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Row of a table: what was written, and when, by the writer's word.
#[derive(Default)]
struct Cell {
    inserted: Option<i64>,
    removed: Option<i64>,
}

impl Cell {
    fn insert(&mut self, WriteTime(at): WriteTime) {
        self.inserted = self.inserted.max(Some(at));
    }

    fn remove(&mut self, WriteTime(at): WriteTime) {
        self.removed = self.removed.max(Some(at));
    }

    /// A removal wins over an insertion of the same time, as in Cassandra.
    fn is_there(&self) -> bool {
        self.inserted > self.removed
    }
}

/// Event in the log of a conversation.
#[derive(Debug, Clone)]
pub struct Logged {
    pub id: TimeUuid,
    /// The event itself, or the one that a late mark tells of.
    pub of: TimeUuid,
    /// Whether it made the conversation large.
    pub grows: bool,
}

#[derive(Default)]
pub struct Conversation {
    pub log: BTreeMap<TimeUuid, Logged>,
    pub participants: BTreeSet<UserId>,
    pub is_large: bool,
    /// Whether all servers with streams of its participants were told that it is large. Until then
    /// their sessions count as listeners.
    pub is_settled: bool,
}

/// Node whose clock was set wrong. One request in three goes through it, until the server that makes
/// the request has found it.
#[derive(Debug, Clone, Copy)]
pub struct NodeFault {
    since: Instant,
    /// The notices that it reads seem expired. Otherwise it is behind: those that it writes are.
    is_ahead: bool,
}

impl NodeFault {
    fn is_over_at(&self, at: Instant) -> bool {
        at > self.since + NODE_FAULT_LASTS
    }
}

#[derive(Default)]
struct Tables {
    node_faults: Vec<NodeFault>,
    servers: BTreeMap<ServerId, bool>,
    beats: BTreeMap<ServerId, i64>,
    registrations: BTreeMap<(Registration, ServerId), Cell>,
    mailboxes: BTreeMap<(ServerId, MailboxLane), BTreeMap<TimeUuid, Vec<u8>>>,
    conversations: BTreeMap<ConversationId, Conversation>,
    /// Lanes that cannot be read or written until then.
    dead_lanes: BTreeMap<(ServerId, MailboxLane), Instant>,
    /// Users whose sessions cannot be read or written until then.
    dead_users: BTreeMap<UserId, Instant>,
}

/// The store that all servers share.
#[derive(Clone, Default)]
pub struct Directory(Arc<Mutex<Tables>>);

/// Way of one server to the store.
#[derive(Clone)]
pub struct Link {
    directory: Directory,
    dice: Arc<Dice>,
    start: Instant,
    /// Nothing leaves or reaches the server before this.
    stalled: watch::Sender<Option<Instant>>,
    is_dead: watch::Sender<bool>,
    /// How soon the server finds that the clock of a node was set wrong.
    finds_faults_after: Duration,
    opened: Instant,
    /// Whether the server is told of no such fault.
    trusts_nodes: bool,
    /// One operation in so many has a fault. `None`: all are well.
    faults: Arc<Mutex<Option<u64>>>,
    statements: Arc<Mutex<u64>>,
}

impl Directory {
    fn with<T>(&self, effect: impl FnOnce(&mut Tables) -> T) -> T {
        effect(&mut self.0.lock().unwrap())
    }

    pub fn link(&self, dice: Arc<Dice>, start: Instant, faults: Option<u64>) -> Link {
        Link {
            directory: self.clone(),
            finds_faults_after: dice.millis(FAULT_FOUND_MILLIS),
            opened: Instant::now(),
            trusts_nodes: false,
            dice,
            start,
            stalled: watch::Sender::new(None),
            is_dead: watch::Sender::new(false),
            faults: Arc::new(Mutex::new(faults)),
            statements: Arc::default(),
        }
    }

    pub fn set_conversation(
        &self,
        id: ConversationId,
        participants: BTreeSet<UserId>,
        is_large: bool,
    ) {
        self.with(|tables| {
            let conversation = tables.conversations.entry(id).or_default();
            conversation.participants = participants;
            (conversation.is_large, conversation.is_settled) = (is_large, is_large);
        });
    }

    pub fn conversation<T>(
        &self,
        id: ConversationId,
        read: impl FnOnce(&mut Conversation) -> T,
    ) -> T {
        self.with(|tables| read(tables.conversations.entry(id).or_default()))
    }

    /// Ends a server, as an operator or a peer with a wrong opinion would.
    pub fn end(&self, server: ServerId) {
        self.with(|tables| {
            tables.servers.insert(server, true);
        });
    }

    pub fn kill_lane(&self, server: ServerId, lane: MailboxLane, lasts: Duration) {
        let until = Instant::now() + lasts;
        self.with(|tables| tables.dead_lanes.insert((server, lane), until));
    }

    pub fn kill_user(&self, user: &UserId, lasts: Duration) {
        let until = Instant::now() + lasts;
        self.with(|tables| tables.dead_users.insert(user.clone(), until));
    }

    /// Sets the clock of a node wrong.
    pub fn set_node_clock(&self, is_ahead: bool) {
        let since = Instant::now();
        self.with(|tables| tables.node_faults.push(NodeFault { since, is_ahead }));
    }

    pub fn heal(&self) {
        self.with(|tables| {
            tables.dead_lanes.clear();
            tables.dead_users.clear();
        });
    }

    pub fn is_registered(&self, server: ServerId, registration: &Registration) -> bool {
        self.with(|tables| {
            tables
                .registrations
                .get(&(registration.clone(), server))
                .is_some_and(Cell::is_there)
        })
    }

    /// Takes a registration away, as its expiry would.
    pub fn expire(&self, server: ServerId, registration: &Registration) {
        self.with(|tables| tables.registrations.remove(&(registration.clone(), server)));
    }

    pub fn notices(&self) -> usize {
        self.with(|tables| tables.mailboxes.values().map(BTreeMap::len).sum())
    }
}

impl Link {
    /// The server is not told of faults of nodes.
    pub fn trusting_nodes(mut self, trusts_nodes: bool) -> Self {
        self.trusts_nodes = trusts_nodes;
        self
    }

    pub fn stall(&self, lasts: Duration) {
        self.stalled.send_replace(Some(Instant::now() + lasts));
    }

    pub fn kill(&self) {
        self.is_dead.send_replace(true);
    }

    pub fn heal(&self) {
        *self.faults.lock().unwrap() = None;
        self.stalled.send_replace(None);
    }

    fn has_found(&self, fault: &NodeFault) -> bool {
        fault.since < self.opened || fault.since.elapsed() >= self.finds_faults_after
    }

    /// Whether a request goes through a node whose clock is wrong that way.
    fn meets_fault(&self, is_ahead: bool) -> bool {
        let is_met = |fault: &NodeFault| fault.is_ahead == is_ahead && !self.has_found(fault);
        let is_met = self
            .directory
            .with(|tables| tables.node_faults.iter().any(is_met));
        is_met && self.dice.one_in(3)
    }

    pub fn statements(&self) -> u64 {
        *self.statements.lock().unwrap()
    }

    /// Waits while the server is stalled; for ever once it is dead.
    async fn run(&self) {
        loop {
            if *self.is_dead.borrow() {
                std::future::pending::<()>().await;
            }
            let until = *self.stalled.borrow();
            match until {
                Some(until) if until > Instant::now() => sleep_until(until).await,
                _ => return,
            }
        }
    }

    /// One statement: on its way, done, on its way back, with whatever goes wrong.
    pub async fn ask<T: Send + 'static>(
        &self,
        is_write: bool,
        effect: impl FnOnce(&mut Conversations<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        *self.statements.lock().unwrap() += 1;
        self.run().await;
        let faults = *self.faults.lock().unwrap();
        let is_faulty = faults.is_some_and(|times| self.dice.one_in(times));
        let slow = if self.dice.one_in(40) { 1_500 } else { 40 };
        sleep(self.dice.millis(slow)).await;
        self.run().await;
        if is_faulty && self.dice.one_in(2) {
            return Err(Error::Unavailable("refused".into()));
        }
        if is_faulty && is_write {
            if self.dice.one_in(2) {
                // The answer is lost.
                let _ = self
                    .directory
                    .with(|tables| effect(&mut Conversations(tables)));
            } else {
                // A coordinator does it later.
                let (directory, later) = (self.directory.clone(), self.dice.millis(5_000));
                tokio::spawn(async move {
                    sleep(later).await;
                    let _ = directory.with(|tables| effect(&mut Conversations(tables)));
                });
            }
            return Err(Error::OutcomeUnknown("no answer".into()));
        }
        let answer = self
            .directory
            .with(|tables| effect(&mut Conversations(tables)));
        sleep(self.dice.millis(20)).await;
        self.run().await;
        answer
    }

    async fn tables<T: Send + 'static>(
        &self,
        is_write: bool,
        effect: impl FnOnce(&mut Tables) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.ask(is_write, |tables| effect(tables.0)).await
    }
}

/// The tables, as a model of a server sees them: the logs alone.
pub struct Conversations<'a>(&'a mut Tables);

impl Conversations<'_> {
    pub fn of(&mut self, id: ConversationId) -> &mut Conversation {
        self.0.conversations.entry(id).or_default()
    }
}

fn dead() -> Error {
    Error::Unavailable("the replicas are away".into())
}

impl Tables {
    fn check_user(&self, user: &UserId) -> Result<()> {
        match self.dead_users.get(user) {
            Some(until) if *until > Instant::now() => Err(dead()),
            _ => Ok(()),
        }
    }

    fn check_registration(&self, registration: &Registration) -> Result<()> {
        match registration {
            Registration::Session(user, _) => self.check_user(user),
            Registration::Listener(_) => Ok(()),
        }
    }

    fn check_lane(&self, server: ServerId, lane: MailboxLane) -> Result<()> {
        match self.dead_lanes.get(&(server, lane)) {
            Some(until) if *until > Instant::now() => Err(dead()),
            _ => Ok(()),
        }
    }
}

impl ClusterStore for Link {
    fn put_server(&self, server: ServerId, _: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(self.tables(true, move |tables| {
            tables.servers.entry(server).or_insert(false);
            Ok(())
        }))
    }

    fn server(&self, server: ServerId) -> StoreFuture<'_, ServerState> {
        Box::pin(self.tables(false, move |tables| {
            Ok(match tables.servers.get(&server) {
                Some(true) => ServerState::Ended,
                Some(false) => ServerState::Running,
                None => ServerState::Missing,
            })
        }))
    }

    /// One of three nodes answers, whose clocks are right.
    fn server_and_time(
        &self,
        server: ServerId,
    ) -> StoreFuture<'_, (ServerState, Option<NodeTime>)> {
        Box::pin(async move {
            let (node, start) = (u128::from(self.dice.below(3)), self.start);
            self.tables(false, move |tables| {
                let passed = i64::try_from(start.elapsed().as_micros()).unwrap();
                let time = NodeTime {
                    node: uuid::Uuid::from_u128(node),
                    now: Timestamp::from_micros(BASE_MICROS + passed),
                };
                Ok(match tables.servers.get(&server) {
                    Some(true) => (ServerState::Ended, Some(time)),
                    Some(false) => (ServerState::Running, Some(time)),
                    None => (ServerState::Missing, None),
                })
            })
            .await
        })
    }

    fn end_server(&self, server: ServerId, _: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(self.tables(true, move |tables| {
            tables.servers.insert(server, true);
            Ok(())
        }))
    }

    fn put_beat(&self, beat: Beat, _: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(self.tables(true, move |tables| {
            let number = tables.beats.entry(beat.server).or_insert(beat.number);
            *number = (*number).max(beat.number);
            Ok(())
        }))
    }

    fn delete_beat(&self, server: ServerId, _: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(self.tables(true, move |tables| {
            tables.beats.remove(&server);
            Ok(())
        }))
    }

    fn beats(&self) -> StoreFuture<'_, Vec<Beat>> {
        Box::pin(self.tables(false, |tables| {
            let beat = |(server, number): (&ServerId, &i64)| Beat {
                server: *server,
                number: *number,
            };
            Ok(tables.beats.iter().map(beat).collect())
        }))
    }

    fn register<'a>(
        &'a self,
        server: ServerId,
        registration: &'a Registration,
        at: WriteTime,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let registration = registration.clone();
            self.tables(true, move |tables| {
                tables.check_registration(&registration)?;
                let cell = tables.registrations.entry((registration, server));
                cell.or_default().insert(at);
                Ok(())
            })
            .await
        })
    }

    fn unregister<'a>(
        &'a self,
        server: ServerId,
        registration: &'a Registration,
        at: WriteTime,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let registration = registration.clone();
            self.tables(true, move |tables| {
                tables.check_registration(&registration)?;
                let cell = tables.registrations.entry((registration, server));
                cell.or_default().remove(at);
                Ok(())
            })
            .await
        })
    }

    fn recipients(&self, conversation: ConversationId) -> StoreFuture<'_, Audience> {
        Box::pin(self.tables(false, move |tables| {
            let there = tables.conversations.entry(conversation).or_default();
            let is_announced = there.is_large && there.is_settled;
            Ok(Audience {
                users: (!is_announced).then(|| there.participants.iter().cloned().collect()),
            })
        }))
    }

    /// The model's writers settle growth by themselves.
    fn settle_growth(&self, _: ConversationId, _: TimeUuid) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
    }

    /// A retry of a send is delivered again.
    fn note_delivered<'a>(&'a self, _: &'a KeyedSend) -> StoreFuture<'a, ()> {
        Box::pin(async move { Ok(()) })
    }

    fn set_completion_handler(&self, _: Weak<dyn CompletionHandler>) {}

    /// It has no use for the time.
    fn follow_clock(&self, _: Weak<dyn Clock>) {}

    fn sessions<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Session>> {
        Box::pin(async move {
            let users = users.to_vec();
            self.tables(false, move |tables| {
                users.iter().try_for_each(|user| tables.check_user(user))?;
                let session =
                    |((registration, server), cell): (&(Registration, ServerId), &Cell)| {
                        let Registration::Session(user, kind) = registration else {
                            return None;
                        };
                        (cell.is_there() && users.contains(user)).then(|| Session {
                            user: user.clone(),
                            kind: *kind,
                            server: *server,
                        })
                    };
                Ok(tables.registrations.iter().filter_map(session).collect())
            })
            .await
        })
    }

    fn listeners(&self, conversation: ConversationId) -> StoreFuture<'_, Vec<ServerId>> {
        Box::pin(self.tables(false, move |tables| {
            let is_listener = |((registration, _), cell): &(&(Registration, ServerId), &Cell)| {
                *registration == Registration::Listener(conversation) && cell.is_there()
            };
            let listeners = tables.registrations.iter().filter(is_listener);
            Ok(listeners.map(|((_, server), _)| *server).collect())
        }))
    }

    fn put_notice<'a>(
        &'a self,
        server: ServerId,
        lane: MailboxLane,
        row: &'a MailboxRow,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let row = row.clone();
            let is_expired = self.meets_fault(false);
            self.tables(true, move |tables| {
                tables.check_lane(server, lane)?;
                if is_expired {
                    return Ok(());
                }
                let rows = tables.mailboxes.entry((server, lane)).or_default();
                rows.insert(row.id, row.payload);
                Ok(())
            })
            .await
        })
    }

    fn notices(
        &self,
        server: ServerId,
        lane: MailboxLane,
        after: OrderKey,
        up_to: OrderKey,
    ) -> StoreFuture<'_, Vec<MailboxRow>> {
        let are_expired = self.meets_fault(true);
        Box::pin(self.tables(false, move |tables| {
            tables.check_lane(server, lane)?;
            if are_expired {
                return Ok(Vec::new());
            }
            let rows = tables.mailboxes.entry((server, lane)).or_default();
            let row = |(id, payload): (&TimeUuid, &Vec<u8>)| MailboxRow {
                id: *id,
                payload: payload.clone(),
            };
            Ok(rows
                .iter()
                .filter(|(id, _)| id.order_key() > after && id.order_key() <= up_to)
                .map(row)
                .collect())
        }))
    }

    fn clock_faults(&self) -> usize {
        if self.trusts_nodes {
            return 0;
        }
        let is_found = |fault: &&NodeFault| !fault.is_over_at(self.opened) && self.has_found(fault);
        self.directory
            .with(|tables| tables.node_faults.iter().filter(is_found).count())
    }
}
