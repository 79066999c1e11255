//! A model of a chat on a cluster: servers with streams, clients that come back with their cursors,
//! and writers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use wideroom::bus::Bus;
use wideroom::clock::{Clock, IdGenerator};
use wideroom::cluster::{
    Cluster, CursorScope, Lease, NoticeHandler, Recipients, RegistryEvent, RemoteEvent,
    RemoteNotice,
};
use wideroom::model::{ConversationId, OrderKey, TimeUuid, Timestamp, UserId};
use wideroom::store;
use wideroom::store::cluster::{ClusterStore, Registration, ServerId, SessionKind};

use super::directory::{BASE_MICROS, Conversations, Dice, Directory, Link, Logged};

/// How far before its cursor a stream reads.
const WINDOW_MICROS: i64 = 10_000_000;
/// An event that was acknowledged so long after its id is logged again.
const LATE: Duration = Duration::from_secs(4);

/// Steps that are done in the wrong order, to show that the properties see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mistakes {
    /// A stream reads the store, and then registers.
    pub reads_first: bool,
    /// A writer reads the directory and delivers, and then keeps the event.
    pub delivers_first: bool,
    /// A stream gives cursors up to now, whether or not its server hears anything.
    pub ignores_the_watermark: bool,
    /// An event that is acknowledged late is not logged again.
    pub forgets_late_ones: bool,
    /// A sender takes a conversation for settled as soon as it is large.
    pub trusts_the_growth: bool,
    /// A server is not told that the clock of a node was set wrong.
    pub trusts_the_nodes: bool,
}

/// Wall clock of a server: virtual time, and a skew.
struct VirtualClock {
    start: Instant,
    skew_micros: AtomicI64,
}

impl VirtualClock {
    fn set_skew(&self, micros: i64) {
        self.skew_micros.store(micros, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.start.elapsed().as_micros()).unwrap();
        let skew = self.skew_micros.load(Ordering::SeqCst);
        Timestamp::from_micros(BASE_MICROS + passed + skew)
    }
}

pub struct World {
    pub directory: Directory,
    pub dice: Arc<Dice>,
    pub mistakes: Mistakes,
    start: Instant,
    /// Events that were acknowledged to their writers, with the conversation.
    pub acknowledged: Mutex<Vec<(ConversationId, TimeUuid)>>,
}

/// Server process.
pub struct Node {
    world: Arc<World>,
    pub link: Link,
    clock: Arc<VirtualClock>,
    pub cluster: Cluster,
    ids: IdGenerator,
    streams: Mutex<Vec<Arc<Stream>>>,
    /// Ids that this server has allocated and not published.
    in_flight: Mutex<BTreeSet<TimeUuid>>,
    own: OnceLock<Weak<Node>>,
    pub is_dead: CancellationToken,
}

/// Stream of one client at one server.
pub struct Stream {
    conversation: ConversationId,
    client: Arc<Client>,
    closed: CancellationToken,
    /// Greatest id that it has given.
    position: Mutex<OrderKey>,
    /// Reads of the store that it waits for. What is published meanwhile waits, too.
    behind: Mutex<(usize, Vec<(TimeUuid, TimeUuid)>)>,
}

/// Person with one device, who comes back with a cursor.
pub struct Client {
    pub user: UserId,
    pub conversation: ConversationId,
    state: Mutex<ClientState>,
}

#[derive(Default)]
struct ClientState {
    /// Position at which the first stream began. Everything later is owed.
    first: Option<OrderKey>,
    cursor: Option<OrderKey>,
    seen: BTreeSet<TimeUuid>,
    /// Events that were acknowledged before the first stream began.
    not_owed: BTreeSet<TimeUuid>,
    is_open: bool,
}

impl Client {
    pub fn new(user: UserId, conversation: ConversationId) -> Arc<Self> {
        Arc::new(Self {
            user,
            conversation,
            state: Mutex::default(),
        })
    }

    pub fn missed(&self, acknowledged: &[(ConversationId, TimeUuid)]) -> Vec<TimeUuid> {
        let state = self.state.lock().unwrap();
        if state.first.is_none() || !state.is_open {
            return Vec::new();
        }
        acknowledged
            .iter()
            .filter(|(conversation, id)| {
                *conversation == self.conversation
                    && !state.seen.contains(id)
                    && !state.not_owed.contains(id)
            })
            .map(|(_, id)| *id)
            .collect()
    }

    pub fn is_open(&self) -> bool {
        self.state.lock().unwrap().is_open
    }
}

impl World {
    /// Skew of a clock that is corrected.
    fn small_skew(&self) -> i64 {
        i64::try_from(self.dice.below(3_800_000)).unwrap() - 1_900_000
    }

    pub fn new(seed: u64, mistakes: Mistakes) -> Arc<Self> {
        Arc::new(Self {
            directory: Directory::default(),
            dice: Arc::new(Dice::new(seed)),
            mistakes,
            start: Instant::now(),
            acknowledged: Mutex::default(),
        })
    }

    /// Starts a server whose clock is off by less than 2 s. `faults`: one statement in so many
    /// fails.
    pub async fn start(self: &Arc<Self>, faults: Option<u64>) -> Arc<Node> {
        let link = self
            .directory
            .link(Arc::clone(&self.dice), self.start, faults);
        let link = link.trusting_nodes(self.mistakes.trusts_the_nodes);
        let clock = Arc::new(VirtualClock {
            start: self.start,
            skew_micros: AtomicI64::new(self.small_skew()),
        });
        let cluster = loop {
            let opened = Cluster::open_seeded(
                Arc::new(link.clone()) as Arc<dyn ClusterStore>,
                Bus::default(),
                Arc::clone(&clock) as Arc<dyn Clock>,
                self.dice.roll(),
            );
            match opened.await {
                Ok(cluster) => break cluster,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        let node = Arc::new(Node {
            world: Arc::clone(self),
            link,
            clock,
            cluster,
            ids: IdGenerator::new(self.dice.roll().to_be_bytes()),
            streams: Mutex::default(),
            in_flight: Mutex::default(),
            own: OnceLock::new(),
            is_dead: CancellationToken::new(),
        });
        node.own.set(Arc::downgrade(&node)).unwrap();
        let handler: Weak<dyn NoticeHandler> = Arc::downgrade(&(Arc::clone(&node) as Arc<_>));
        node.cluster.start(handler);
        node
    }
}

impl Node {
    fn this(&self) -> Arc<Self> {
        self.own.get().unwrap().upgrade().unwrap()
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let is_dead = self.is_dead.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = is_dead.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// The wall clock is set: to a minute or an hour ahead or behind, or nearly right.
    pub fn step_clock(&self) {
        let wrong = [60, -60, 3_600, -3_600].map(|seconds| seconds * 1_000_000);
        let choice = wrong.get(self.world.dice.below(8) as usize).copied();
        let skew = choice.unwrap_or_else(|| self.world.small_skew());
        self.clock.set_skew(skew);
    }

    /// The process is gone: nothing that it has begun goes on, and its clients are cut off.
    pub fn kill(&self) {
        self.link.kill();
        self.is_dead.cancel();
        for stream in std::mem::take(&mut *self.streams.lock().unwrap()) {
            stream.close();
        }
    }

    pub fn registration_of(user: &UserId) -> Registration {
        Registration::Session(user.clone(), SessionKind::Present)
    }

    async fn ask<T: Send + 'static>(
        &self,
        is_write: bool,
        effect: impl Fn(&mut Conversations<'_>) -> T + Clone + Send + 'static,
    ) -> T {
        loop {
            let effect = effect.clone();
            match self
                .link
                .ask(is_write, move |tables| Ok(effect(tables)))
                .await
            {
                Ok(answer) => return answer,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Keeps an event, publishes it here, delivers it to the other servers, and acknowledges it.
    pub fn send(&self, conversation: ConversationId, grows: bool) {
        let node = self.this();
        self.spawn(async move { node.write(conversation, grows).await });
    }

    async fn write(&self, conversation: ConversationId, grows: bool) {
        if self.cluster.check_clock().is_err() {
            return;
        }
        let id = self.allocate();
        if self.world.mistakes.delivers_first {
            self.deliver(conversation, id).await;
        }
        self.keep(conversation, id, id, grows).await;
        self.publish(conversation, id, id);
        self.in_flight.lock().unwrap().remove(&id);
        while grows && self.become_listener(conversation, id).await.is_err() {
            sleep(Duration::from_millis(200)).await;
        }
        if !self.world.mistakes.delivers_first {
            self.deliver(conversation, id).await;
        }
        if grows {
            self.ask(true, move |tables| {
                tables.of(conversation).is_settled = true
            })
            .await;
        }
        let mut last = id;
        while self.is_late(last) && !self.world.mistakes.forgets_late_ones {
            self.cluster.wait_for_clock().await;
            last = self.allocate();
            self.keep(conversation, last, id, false).await;
            // Here, too: a stream that began after the event was published reads only what lies in
            // its window.
            self.publish(conversation, last, id);
            self.in_flight.lock().unwrap().remove(&last);
            self.deliver(conversation, last).await;
        }
        let mut acknowledged = self.world.acknowledged.lock().unwrap();
        acknowledged.push((conversation, id));
    }

    fn allocate(&self) -> TimeUuid {
        let mut in_flight = self.in_flight.lock().unwrap();
        let id = self.ids.next(self.cluster.now());
        in_flight.insert(id);
        id
    }

    fn is_late(&self, id: TimeUuid) -> bool {
        let age = self.cluster.now().micros() - id.moment().micros();
        let is_old = Duration::from_micros(u64::try_from(age).unwrap_or(0)) > LATE;
        is_old || !self.cluster.is_clock_known()
    }

    async fn keep(&self, conversation: ConversationId, id: TimeUuid, of: TimeUuid, grows: bool) {
        self.ask(true, move |tables| {
            let there = tables.of(conversation);
            there.log.insert(id, Logged { id, of, grows });
            there.is_large |= grows;
        })
        .await;
    }

    /// The recipients are read after the event was kept.
    async fn deliver(&self, conversation: ConversationId, id: TimeUuid) {
        let trusts = self.world.mistakes.trusts_the_growth;
        let is_large = self
            .ask(false, move |tables| tables.of(conversation).is_large)
            .await;
        let recipients = if trusts && is_large {
            Recipients::Listeners(Vec::new())
        } else {
            // The server that made it large may have died before it told anybody.
            self.cluster.recipients(conversation).await
        };
        let notice = RemoteNotice::Events {
            conversation,
            events: vec![RemoteEvent::Message(id)],
            users: Vec::new(),
            is_large,
        };
        self.cluster.deliver(&notice, &recipients).await;
    }

    fn publish(&self, conversation: ConversationId, id: TimeUuid, of: TimeUuid) {
        let streams = self.streams_of(conversation);
        for stream in streams {
            {
                let mut behind = stream.behind.lock().unwrap();
                if behind.0 > 0 {
                    behind.1.push((id, of));
                    continue;
                }
            }
            self.give(&stream, id, of);
        }
    }

    fn streams_of(&self, conversation: ConversationId) -> Vec<Arc<Stream>> {
        let streams = self.streams.lock().unwrap();
        streams
            .iter()
            .filter(|stream| stream.conversation == conversation)
            .cloned()
            .collect()
    }

    /// The client gets an event, and with it how far the stream has come.
    fn give(&self, stream: &Stream, id: TimeUuid, of: TimeUuid) {
        if stream.closed.is_cancelled() {
            return;
        }
        let mut position = stream.position.lock().unwrap();
        *position = (*position).max(id.order_key());
        let cursor = self.bounded(stream, *position);
        let mut client = stream.client.state.lock().unwrap();
        client.seen.extend([id, of]);
        client.cursor = client.cursor.max(Some(cursor));
    }

    fn bounded(&self, stream: &Stream, position: OrderKey) -> OrderKey {
        if self.world.mistakes.ignores_the_watermark {
            return position;
        }
        let scope = CursorScope::Conversation(stream.conversation);
        position.min(self.cluster.cursor_limit(scope, None))
    }

    /// A quiet stream tells how far it has come: as far as nothing is in flight here.
    pub fn tell_positions(&self) {
        let settled = {
            let in_flight = self.in_flight.lock().unwrap();
            let now = OrderKey::first_at(self.cluster.now()).before();
            in_flight
                .first()
                .map_or(now, |first| first.order_key().before())
        };
        for stream in self.streams.lock().unwrap().iter() {
            if stream.closed.is_cancelled() || stream.behind.lock().unwrap().0 > 0 {
                continue;
            }
            let cursor = self.bounded(stream, settled);
            let mut client = stream.client.state.lock().unwrap();
            // A stream that has not read the store yet has no position.
            if client.is_open {
                client.cursor = client.cursor.max(Some(cursor));
            }
        }
    }

    /// Opens a stream for a client, which stays until the server or the client goes.
    pub fn open(&self, client: &Arc<Client>, closed: CancellationToken) {
        let (node, client) = (self.this(), Arc::clone(client));
        let stream = Arc::new(Stream {
            conversation: client.conversation,
            client,
            closed,
            position: Mutex::new(OrderKey::MIN),
            behind: Mutex::new((1, Vec::new())),
        });
        self.spawn(async move { node.follow_stream(stream).await });
    }

    async fn follow_stream(self: Arc<Self>, stream: Arc<Stream>) {
        self.streams.lock().unwrap().push(Arc::clone(&stream));
        let leases = if self.world.mistakes.reads_first {
            self.read(&stream, None).await;
            self.register(&stream).await
        } else {
            let leases = self.register(&stream).await;
            self.read(&stream, None).await;
            leases
        };
        let Some(leases) = leases else {
            self.streams
                .lock()
                .unwrap()
                .retain(|other| !Arc::ptr_eq(other, &stream));
            return;
        };
        stream.closed.cancelled().await;
        self.streams
            .lock()
            .unwrap()
            .retain(|other| !Arc::ptr_eq(other, &stream));
        drop(leases);
    }

    /// The session first, then whether the conversation is large, then its listener row. `None`
    /// where the client has gone.
    async fn register(&self, stream: &Stream) -> Option<Vec<Lease>> {
        let session = self
            .lease(stream, &Self::registration_of(&stream.client.user))
            .await?;
        let conversation = stream.conversation;
        let is_large = self
            .ask(false, move |tables| tables.of(conversation).is_large)
            .await;
        if !is_large {
            return Some(vec![session]);
        }
        let listener = self
            .lease(stream, &Registration::Listener(conversation))
            .await?;
        Some(vec![session, listener])
    }

    async fn lease(&self, stream: &Stream, registration: &Registration) -> Option<Lease> {
        while !stream.closed.is_cancelled() {
            if let Ok(lease) = self.cluster.lease(registration).await {
                return Some(lease);
            }
            sleep(Duration::from_millis(200)).await;
        }
        None
    }

    /// Reads what the client has missed, from a window before its cursor, or before an earlier
    /// event.
    async fn read(&self, stream: &Arc<Stream>, from: Option<OrderKey>) {
        let conversation = stream.conversation;
        let cursor = stream.client.state.lock().unwrap().cursor;
        let from = match (cursor, from) {
            (Some(cursor), Some(from)) => Some(cursor.min(from)),
            (cursor, from) => cursor.or(from),
        };
        // A stream without a cursor begins at the newest event: what was acknowledged before is not
        // owed.
        let acknowledged: Vec<_> = self.world.acknowledged.lock().unwrap().clone();
        let after = from.map(|from| OrderKey::first_at(from.moment().plus_micros(-WINDOW_MICROS)));
        let log: Vec<Logged> = self
            .ask(false, move |tables| {
                let log = &tables.of(conversation).log;
                log.values()
                    .filter(|logged| after.is_none_or(|after| logged.id.order_key() > after))
                    .cloned()
                    .collect()
            })
            .await;
        if stream.closed.is_cancelled() {
            return;
        }
        {
            let mut client = stream.client.state.lock().unwrap();
            if client.first.is_none() {
                let newest = log.iter().map(|logged| logged.id.order_key()).max();
                let first = self.bounded(stream, newest.unwrap_or(OrderKey::MIN));
                (client.first, client.cursor) = (Some(first), Some(first));
                let before = acknowledged.iter().filter(|(of, _)| *of == conversation);
                client.not_owed.extend(before.map(|(_, id)| *id));
                client.seen.extend(log.iter().map(|logged| logged.of));
            }
            client.is_open = true;
        }
        for logged in log {
            self.give(stream, logged.id, logged.of);
        }
        let waiting = {
            let mut behind = stream.behind.lock().unwrap();
            behind.0 -= 1;
            if behind.0 == 0 {
                std::mem::take(&mut behind.1)
            } else {
                Vec::new()
            }
        };
        for (id, of) in waiting {
            self.give(stream, id, of);
        }
    }

    /// Its streams of a conversation that has grown become listeners, and then read from the growth
    /// on.
    async fn become_listener(
        &self,
        conversation: ConversationId,
        growth: TimeUuid,
    ) -> store::Result<()> {
        let registration = Registration::Listener(conversation);
        let lease = self.cluster.lease(&registration).await?;
        for stream in self.streams_of(conversation) {
            self.reread_now(&stream, Some(growth.order_key()));
        }
        let dead = self.is_dead.clone();
        self.spawn(async move {
            dead.cancelled().await;
            drop(lease);
        });
        Ok(())
    }

    fn reread_now(&self, stream: &Arc<Stream>, from: Option<OrderKey>) {
        stream.behind.lock().unwrap().0 += 1;
        let (node, stream) = (self.this(), Arc::clone(stream));
        self.spawn(async move {
            node.listen_if_large(&stream).await;
            node.read(&stream, from).await;
        });
    }

    /// The conversation may have become large since the stream registered.
    async fn listen_if_large(&self, stream: &Arc<Stream>) {
        let conversation = stream.conversation;
        let is_large = self
            .ask(false, move |tables| tables.of(conversation).is_large)
            .await;
        if !is_large {
            return;
        }
        let registration = Registration::Listener(conversation);
        if let Some(lease) = self.lease(stream, &registration).await {
            let stream = Arc::clone(stream);
            self.spawn(async move {
                stream.closed.cancelled().await;
                drop(lease);
            });
        }
    }
}

impl Stream {
    fn close(&self) {
        self.closed.cancel();
        self.client.state.lock().unwrap().is_open = false;
    }
}

impl Client {
    /// The connection is cut. The client keeps its cursor.
    pub fn cut(&self, closed: &CancellationToken) {
        closed.cancel();
        self.state.lock().unwrap().is_open = false;
    }
}

impl NoticeHandler for Node {
    fn follow<'a>(&'a self, notice: &'a RemoteNotice) -> store::StoreFuture<'a, ()> {
        Box::pin(async move {
            let RemoteNotice::Events {
                conversation,
                events,
                ..
            } = notice
            else {
                return Ok(());
            };
            let conversation = *conversation;
            let ids: Vec<_> = events.iter().map(RemoteEvent::id).collect();
            let wanted = ids.clone();
            let load = self.link.ask(false, move |tables| {
                let log = &tables.of(conversation).log;
                let found = wanted.iter().filter_map(|id| log.get(id)).cloned();
                Ok(found.collect::<Vec<_>>())
            });
            let found = timeout(Duration::from_secs(30), load)
                .await
                .map_err(|_| store::Error::Unavailable("no answer".into()))??;
            for logged in &found {
                self.publish(conversation, logged.id, logged.of);
            }
            if let Some(growth) = found.iter().find(|logged| logged.grows) {
                self.become_listener(conversation, growth.id).await?;
            }
            Ok(())
        })
    }

    fn reread(&self, within: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let streams: Vec<_> = self.streams.lock().unwrap().clone();
            for stream in streams {
                sleep(within / 10).await;
                self.reread_now(&stream, None);
            }
        })
    }

    fn reread_of(&self, conversation: Option<ConversationId>, _: &[UserId]) {
        let Some(conversation) = conversation else {
            return;
        };
        for stream in self.streams_of(conversation) {
            self.reread_now(&stream, None);
        }
    }

    fn on_registry(&self, _: &RegistryEvent) {}

    fn on_ended(&self, _: ServerId) {}
}

/// Conversations by their numbers, the same in each run.
pub fn conversation(number: u128) -> ConversationId {
    ConversationId(uuid::Uuid::from_u128(number))
}

pub fn user(number: usize) -> UserId {
    UserId::parse(&format!("user{number}")).unwrap()
}

/// Servers by their numbers.
pub type Nodes = BTreeMap<usize, Arc<Node>>;
