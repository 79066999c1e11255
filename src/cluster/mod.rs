//! Cluster: delivery of events between the servers that share a store, at a cost per message that
//! does not depend on the number of servers.
//!
//! Only where several servers share a store. Each server registers, in the directory of the store,
//! at the users and large conversations that it has streams for. A server that persists an event
//! then reads the directory, and leaves a notice in the mailboxes of exactly those servers that
//! have a recipient; each server polls its own mailbox. Where there is NATS, the same notice also
//! goes there directly.
//!
//! # Invariants
//!
//! - Invariant (handshake): a sender persists its event and *then* reads the directory; a listener
//!   registers and *then* reads the store. All four are acknowledged at a quorum. So either the
//!   listener's read has the event, or the sender finds the listener.
//! - Invariant (ends are written): a server is left out only by a sender that has read `Ended` in
//!   that server's row. A server that reads its own end registers everything under a new identity,
//!   and its streams read the store again.
//! - Invariant (watermark): a stream returns no cursor later than three seconds after the begin of
//!   its server's last full poll, and none beyond an event that this server was notified of and has
//!   not published. So a stream that is resumed elsewhere, ten seconds before its cursor, has no
//!   gap, however long its server was deaf.
//! - Invariant (blast radius): a lane of a mailbox that cannot be read or written, and a notice
//!   that cannot be followed, delays itself and nothing else.
//!
//! # Parts
//!
//! [`registry`](self) counts leases and writes their rows; `peers` knows which servers have ended;
//! `dispatcher` delivers notices; `poller` reads them, and `follow_ups` hands them to the
//! [`NoticeHandler`], which is the chat. No rule of chat lives here.

mod counters;
mod dispatcher;
mod follow_ups;
mod held_back;
mod jitter;
mod notice;
mod peers;
mod poller;
mod presence_outbox;
mod recent;
mod registry;
mod registry_events;
mod write_times;

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::dispatcher::Recipients;
pub use self::follow_ups::NoticeHandler;
pub use self::held_back::CursorScope;
pub use self::notice::{RemoteEvent, RemoteNotice};
pub use self::recent::RecentByAge;
pub use self::registry::Lease;
pub use self::registry_events::RegistryEvent;

use self::counters::Counters;
use self::dispatcher::Dispatcher;
use self::follow_ups::FollowUps;
use self::jitter::Jitter;
use self::notice::Letter;
use self::peers::{BeatsRead, Peers};
use self::poller::{PollStatus, Polled, Poller};
use self::presence_outbox::PresenceOutbox;
use self::registry::Registry;
use self::registry_events::RegistryEvents;
use self::write_times::WriteTimes;
use crate::bus::Bus;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::{ConversationId, OrderKey, UserId};
use crate::store;
use crate::store::cluster::{
    Beat, ClusterStore, CompletionHandler, Registration, ServerId, Session, SessionKind,
};

/// Version of the protocol between servers, in the row of each.
const VERSION: i32 = 1;
const POLL_EVERY: Duration = Duration::from_secs(1);
/// While notices also arrive over NATS.
const POLL_EVERY_WITH_NATS: Duration = Duration::from_secs(3);
const BEAT_EVERY: Duration = Duration::from_secs(3);
const READ_BEATS_EVERY: Duration = Duration::from_secs(5);
/// A server's row lives for 25 hours.
const RENEW_SERVER_EVERY: Duration = Duration::from_secs(25 * 3_600 / 2);
/// Within which all streams read the store after the registrations were lapsed.
const REREAD_WITHIN: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Pause before the poller is started again after a panic.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// A server without a readable lane for so long is not ready.
const DEAF_MAX: Duration = Duration::from_secs(60);
/// How long the end of the process waits for its own end to be written.
const END_MAX: Duration = Duration::from_secs(2);

/// This server's part in a cluster.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    store: Arc<dyn ClusterStore>,
    clock: Arc<dyn Clock>,
    bus: Bus,
    own: Arc<RwLock<ServerId>>,
    times: Arc<WriteTimes>,
    registry: Arc<Registry>,
    registry_events: Mutex<Option<Arc<RegistryEvents>>>,
    peers: Arc<Peers>,
    dispatcher: Arc<Dispatcher>,
    presence: Arc<PresenceOutbox>,
    status: Arc<PollStatus>,
    counters: Arc<Counters>,
    running: OnceLock<Running>,
    /// Source of identities.
    identities: Jitter,
    stop: CancellationToken,
    _stop_with_the_last: DropGuard,
}

struct Running {
    follow_ups: Arc<FollowUps>,
    poller: Arc<Poller>,
    /// A poll is wanted at once.
    poll_now: Arc<Notify>,
}

impl Cluster {
    /// Registers this process as a server under a fresh identity. It receives nothing before
    /// [`Cluster::start`].
    pub async fn open(
        store: Arc<dyn ClusterStore>,
        bus: Bus,
        clock: Arc<dyn Clock>,
    ) -> store::Result<Self> {
        let random = uuid::Uuid::new_v4().as_u64_pair();
        Self::open_seeded(store, bus, clock, random.0 ^ random.1).await
    }

    /// The same, with the random choices of a seed.
    pub async fn open_seeded(
        store: Arc<dyn ClusterStore>,
        bus: Bus,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> store::Result<Self> {
        let jitter = |number: u64| Jitter::seeded(seed.wrapping_add(number));
        let identities = jitter(0);
        let server = ServerId(identities.uuid());
        let own = Arc::new(RwLock::new(server));
        let times = Arc::new(WriteTimes::new(Arc::clone(&clock)));
        let counters = Arc::new(Counters::new());
        let (registry, events) =
            Registry::new(Arc::clone(&store), Arc::clone(&times), server, jitter(1));
        let peers = Arc::new(Peers::new(Arc::clone(&store)));
        let dispatcher = Arc::new(Dispatcher::new(
            (Arc::clone(&store), bus.clone(), Arc::clone(&clock)),
            Arc::clone(&peers),
            Arc::clone(&own),
            jitter(2),
            Arc::clone(&counters),
        ));
        let stop = CancellationToken::new();
        let inner = Inner {
            status: PollStatus::new(Arc::clone(&clock)),
            presence: Arc::new(PresenceOutbox::new(Arc::clone(&dispatcher))),
            registry_events: Mutex::new(Some(events)),
            running: OnceLock::new(),
            _stop_with_the_last: stop.clone().drop_guard(),
            store,
            clock,
            bus,
            own,
            times,
            registry,
            peers,
            dispatcher,
            counters,
            identities,
            stop,
        };
        inner.put_server(server).await?;
        inner.bus.listen_as(server.0);
        Ok(Self(Arc::new(inner)))
    }

    /// Begins to beat, to poll and to hand the notices that it receives to this handler, until the
    /// last clone of this is dropped.
    pub fn start(&self, handler: Weak<dyn NoticeHandler>) {
        let inner = &self.0;
        let Some(events) = inner.registry_events.lock().take() else {
            return;
        };
        let follow_ups = FollowUps::new(handler, Arc::clone(&inner.counters));
        let poller = Arc::new(Poller::new(
            (Arc::clone(&inner.store), Arc::clone(&inner.clock)),
            Arc::clone(&inner.own),
            Arc::clone(&inner.registry),
            Arc::clone(&follow_ups),
            Arc::clone(&inner.status),
            Arc::clone(&inner.counters),
        ));
        let running = inner.running.get_or_init(|| Running {
            follow_ups,
            poller,
            poll_now: Arc::new(Notify::new()),
        });
        self.spawn(Arc::clone(&inner.registry).keep_up());
        self.spawn(Arc::clone(&inner.presence).run());
        self.spawn(hear_registry(
            events,
            Arc::clone(&running.follow_ups),
            Arc::clone(&running.poller),
        ));
        self.spawn(receive(
            inner.bus.clone(),
            Arc::clone(&running.follow_ups),
            Arc::clone(&running.poll_now),
        ));
        let weak = Arc::downgrade(inner);
        self.spawn(beat(weak.clone()));
        self.spawn(watch_beats(weak.clone()));
        self.spawn(supervise(weak, Arc::clone(&inner.counters)));
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stopped = self.0.stop.clone().cancelled_owned();
        tokio::spawn(async move {
            tokio::select! {
            biased;
                () = stopped => {}
                () = work => {}
            }
        });
    }

    /// Present identity of this process. It changes when another server has ended this one.
    pub fn server(&self) -> ServerId {
        *self.0.own.read()
    }

    /// Registers at something, and returns once that is acknowledged: a read of the store that
    /// begins then, and the notices that follow, miss no event together.
    pub async fn lease(&self, registration: &Registration) -> store::Result<Lease> {
        self.0.registry.lease(registration).await
    }

    /// Delivers a notice of persisted events to all other servers with a recipient, however long
    /// that takes, and says to how many.
    pub async fn deliver(&self, notice: &RemoteNotice, recipients: &Recipients) -> usize {
        self.0.dispatcher.deliver(notice, recipients).await
    }

    /// Delivers a notice of something that may be lost to the participants of its conversation,
    /// with one attempt. Nobody waits for it.
    pub fn deliver_unawaited(&self, notice: RemoteNotice) {
        let dispatcher = Arc::clone(&self.0.dispatcher);
        tokio::spawn(async move {
            if let Err(error) = dispatcher.deliver_once(&notice).await {
                tracing::debug!(%error, "the server could not deliver a notice that may be lost");
            }
        });
    }

    /// Sends a notice over NATS only, to the participants of its conversation. Without a connection
    /// it does nothing.
    pub fn send_directly(&self, notice: RemoteNotice) {
        if !self.0.bus.is_connected_to_peers() {
            return;
        }
        let dispatcher = Arc::clone(&self.0.dispatcher);
        tokio::spawn(async move {
            if let Err(error) = dispatcher.send_directly(&notice).await {
                tracing::debug!(%error, "the server could not send a notice that may be lost");
            }
        });
    }

    /// The participants of a conversation after this call, as recipients. However long it takes.
    pub async fn recipients(&self, conversation: ConversationId) -> Recipients {
        self.0.dispatcher.recipients(conversation).await
    }

    /// Sets the owner of the events of changes that the store completes.
    pub fn set_completion_handler(&self, handler: Weak<dyn CompletionHandler>) {
        self.0.store.set_completion_handler(handler);
    }

    /// Whether the bound on undelivered notices has room for another event.
    pub fn has_room(&self) -> bool {
        self.0.dispatcher.has_room()
    }

    /// The greatest cursor that a stream may return now. The events of a notice that is being
    /// published, whose oldest id is `except`, do not hold it back.
    pub fn cursor_limit(&self, scope: CursorScope<'_>, except: Option<OrderKey>) -> OrderKey {
        let limit = self.0.status.cursor_limit();
        let held = self
            .0
            .running
            .get()
            .and_then(|running| running.follow_ups.limit(scope, except));
        held.map_or(limit, |held| held.min(limit))
    }

    /// Servers that have not ended and on which these users are present, this one included.
    pub async fn present(
        &self,
        users: &[UserId],
    ) -> store::Result<HashMap<UserId, HashSet<ServerId>>> {
        let mut present: HashMap<_, HashSet<_>> = HashMap::new();
        for Session { user, kind, server } in self.0.store.sessions(users).await? {
            if kind == SessionKind::Present && !self.0.is_gone(server).await {
                present.entry(user).or_default().insert(server);
            }
        }
        Ok(present)
    }

    /// Tells the servers that follow this user's presence that it may have changed. `came`:
    /// otherwise only if no server has the user left.
    pub async fn announce(&self, user: &UserId, came: bool) -> store::Result<()> {
        let own = self.server();
        let sessions = self.0.store.sessions(std::slice::from_ref(user)).await?;
        let (mut followers, mut is_present_elsewhere) = (Vec::new(), false);
        for Session { kind, server, .. } in sessions {
            if server == own || self.0.is_gone(server).await {
                continue;
            }
            match kind {
                SessionKind::Follows => followers.push(server),
                SessionKind::Present => is_present_elsewhere = true,
                SessionKind::Acting => {}
            }
        }
        if came || !is_present_elsewhere {
            for server in followers {
                self.0.presence.add(server, user);
            }
        }
        Ok(())
    }

    /// Whether the server receives the writes of other servers. `Err` says in one sentence why not.
    pub fn health(&self) -> Result<(), String> {
        let deaf = self.0.status.since_any_lane();
        if self.0.running.get().is_some() && deaf >= DEAF_MAX {
            return Err(format!(
                "no lane of this server's mailbox could be read for {} s",
                deaf.as_secs()
            ));
        }
        Ok(())
    }

    /// Ends this server after its last stream, so that the others leave it out at once. Its
    /// registrations expire.
    pub async fn end(&self) {
        self.0.stop.cancel();
        let server = self.server();
        let end = async {
            let (store, times) = (&self.0.store, &self.0.times);
            store.end_server(server, times.next()).await?;
            store.delete_beat(server, times.next()).await
        };
        match timeout(END_MAX, end).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "the server could not write its own end; another one does")
            }
            Err(_) => {
                tracing::debug!("the server could not write its own end in time; another one does")
            }
        }
    }

    pub fn register(&self, metrics: &Metrics) {
        self.0.counters.register(metrics);
        let read = |name: &str, help: &str, value: fn(&Inner) -> f64| {
            let inner = Arc::downgrade(&self.0);
            metrics.read(name, help, move || {
                inner.upgrade().map_or(0.0, |inner| value(&inner))
            });
        };
        read(
            "wideroom_cluster_seconds_since_full_poll",
            "Seconds since the begin of the last poll in which all lanes of the mailbox answered.",
            |inner| inner.status.since_full().as_secs_f64(),
        );
        read(
            "wideroom_cluster_servers",
            "Servers that beat, this one included.",
            |inner| inner.peers.count() as f64,
        );
        read(
            "wideroom_cluster_registrations",
            "Users and large conversations at which this server is registered.",
            |inner| inner.registry.len() as f64,
        );
        read(
            "wideroom_cluster_undelivered",
            "Batches of events whose notices are not delivered yet.",
            |inner| inner.dispatcher.undelivered() as f64,
        );
        read(
            "wideroom_cluster_follow_ups",
            "Notices that were received and are not followed yet.",
            |inner| inner.running.get().map_or(0, |it| it.follow_ups.waiting()) as f64,
        );
    }
}

impl Inner {
    async fn put_server(&self, server: ServerId) -> store::Result<()> {
        self.store
            .put_server(server, VERSION, self.times.next())
            .await?;
        self.counters.identities.inc();
        let beat = Beat { server, number: 0 };
        self.store.put_beat(beat, self.times.next()).await
    }

    async fn is_gone(&self, server: ServerId) -> bool {
        server != *self.own.read() && self.peers.has_ended(server).await
    }

    /// Takes a new identity, because the present one has ended, and registers everything again.
    async fn renew_identity(&self) {
        let server = ServerId(self.identities.uuid());
        tracing::warn!(old = %*self.own.read(), new = %server, "another server has ended this one; it registers again, and its streams read the store");
        let mut pause = RETRY_FIRST;
        while let Err(error) = self.put_server(server).await {
            tracing::debug!(%error, "the server cannot register again yet");
            sleep(pause).await;
            pause = (2 * pause).min(RETRY_MAX);
        }
        *self.own.write() = server;
        self.bus.listen_as(server.0);
        if let Some(running) = self.running.get() {
            running.poller.reset();
        }
        self.registry.rebind(server);
    }
}

/// Hands the events of the registry to the handler, and makes the streams read the store once
/// nothing is lapsed any more.
async fn hear_registry(
    events: Arc<RegistryEvents>,
    follow_ups: Arc<FollowUps>,
    poller: Arc<Poller>,
) {
    loop {
        let event = events.next().await;
        if event == RegistryEvent::Healed {
            poller.reread_healed(REREAD_WITHIN);
        }
        if let Some(handler) = follow_ups.handler() {
            handler.on_registry(&event);
        }
    }
}

/// Takes the notices that come over NATS. One that may have been lost is found by a poll.
async fn receive(bus: Bus, follow_ups: Arc<FollowUps>, poll_now: Arc<Notify>) {
    loop {
        match bus.receive_from_peers().await {
            Some(payloads) => payloads
                .iter()
                .filter_map(|payload| Letter::decode(payload))
                .for_each(|letter| follow_ups.accept(letter)),
            None => poll_now.notify_one(),
        }
    }
}

async fn beat(inner: Weak<Inner>) {
    let mut number = 1;
    let mut renewed = Instant::now();
    loop {
        sleep(BEAT_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        let server = *inner.own.read();
        let beat = Beat { server, number };
        if let Err(error) = inner.store.put_beat(beat, inner.times.next()).await {
            tracing::debug!(%error, "the server cannot write its beat");
        }
        number += 1;
        if renewed.elapsed() >= RENEW_SERVER_EVERY {
            let at = inner.times.next();
            match inner.store.put_server(server, VERSION, at).await {
                Ok(()) => renewed = Instant::now(),
                Err(error) => tracing::debug!(%error, "the server cannot renew its row"),
            }
        }
    }
}

/// Reads the beats of all servers, and ends those whose beat stands still.
async fn watch_beats(inner: Weak<Inner>) {
    loop {
        {
            let Some(inner) = inner.upgrade() else { return };
            match inner.peers.read_beats().await {
                Ok(BeatsRead { still, vanished }) => {
                    for server in still {
                        inner.end_peer(server).await;
                    }
                    for server in vanished {
                        inner.note_vanished(server).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the server cannot read the beats of the others")
                }
            }
        }
        sleep(READ_BEATS_EVERY).await;
    }
}

impl Inner {
    /// A beat that is gone is that of a server that has ended, or cannot write it.
    async fn note_vanished(&self, server: ServerId) {
        if server != *self.own.read() && self.peers.has_ended(server).await {
            self.tell_ended(server);
        }
    }

    fn tell_ended(&self, server: ServerId) {
        if let Some(handler) = self.running.get().and_then(|it| it.follow_ups.handler()) {
            handler.on_ended(server);
        }
    }

    async fn end_peer(&self, server: ServerId) {
        if server == *self.own.read() {
            return;
        }
        if let Err(error) = self.store.end_server(server, self.times.next()).await {
            tracing::debug!(%error, %server, "the server cannot write the end of another one");
            return;
        }
        tracing::warn!(%server, "a server has not beaten for 20 s; it was ended");
        self.peers.note_ended(server);
        if let Err(error) = self.store.delete_beat(server, self.times.next()).await {
            tracing::debug!(%error, %server, "the beat of an ended server stays until it expires");
        }
        self.tell_ended(server);
    }
}

/// Runs the poller, and starts it again after a panic: a server that receives nothing must not go
/// on unnoticed.
async fn supervise(inner: Weak<Inner>, counters: Arc<Counters>) {
    while AssertUnwindSafe(poll(inner.clone()))
        .catch_unwind()
        .await
        .is_err()
    {
        counters.restarts.inc();
        tracing::error!("the poller of this server's mailbox panicked; it starts again");
        sleep(RESTART_AFTER).await;
    }
}

async fn poll(inner: Weak<Inner>) {
    loop {
        let (next, poll_now) = {
            let Some(inner) = inner.upgrade() else { return };
            let Some(running) = inner.running.get() else {
                return;
            };
            let began = Instant::now();
            if running.poller.poll().await == Polled::Ended {
                inner.renew_identity().await;
            }
            let every = if inner.bus.is_connected_to_peers() {
                POLL_EVERY_WITH_NATS
            } else {
                POLL_EVERY
            };
            (began + every, Arc::clone(&running.poll_now))
        };
        tokio::select! {
            biased;
            () = sleep_until(next) => {}
            () = poll_now.notified() => {}
        }
    }
}
