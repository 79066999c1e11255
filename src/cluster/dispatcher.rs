//! Dispatcher: finds the servers with a recipient, after the event was persisted, and writes a
//! notice to the mailbox of each.
//!
//! Invariant: the directory is read after the event's batch was acknowledged. So a listener that
//! registered before it read the store either read the event or is found here.
//!
//! Invariant: a notice is delivered when one lane acknowledged it, and soon enough after its row's
//! id that the receiver's next read of the lane covers it ([`FRESH_MAX`]). A process that stalled
//! in between writes it again under a fresh id.
//!
//! Invariant: a server is left out only after its row was read as ended ([`super::peers`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lru::LruCache;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep, timeout};

use super::clock::ClusterClock;
use super::counters::Counters;
use super::jitter::Jitter;
use super::notice::{RemoteEnvelope, RemoteNotice};
use super::peers::Peers;
use crate::bus::Bus;
use crate::clock::{Clock as _, IdGenerator};
use crate::model::{ConversationId, UserId};
use crate::store;
use crate::store::Audience;
use crate::store::cluster::{
    ClusterStore, MailboxLane, MailboxRow, ServerId, Session, SessionKind,
};

/// A lane that is silent for so long gets company by the next one.
const HEDGE_AFTER: Duration = Duration::from_millis(250);
/// Deadline of one attempt over all lanes.
pub(super) const ATTEMPT_MAX: Duration = Duration::from_millis(2_500);
/// A receiver reads a lane from eight seconds before its last read: a row that became visible this
/// late after its id is in it, whatever the two clocks show.
pub(super) const FRESH_MAX: Duration = Duration::from_secs(4);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(15);

/// Conversations in which users type at the same time.
const RECENT_ROUTES_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");
/// How long a read of the servers is good enough for typing.
const ROUTES_FOR: Duration = Duration::from_secs(10);
/// The same where nobody else was there.
const NO_ROUTES_FOR: Duration = Duration::from_secs(1);

/// Recipients of a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipients {
    /// Users, on whichever servers they are. Their inboxes show the event.
    Users(Arc<[UserId]>),
    /// The same, of an event that no inbox shows.
    Streams(Arc<[UserId]>),
    /// All listeners of the notice's conversation, which is large, and a few users besides.
    Listeners(Vec<UserId>),
}

impl Recipients {
    /// These recipients and some users.
    pub fn with(self, some: &[UserId]) -> Self {
        if some.is_empty() {
            return self;
        }
        let all = |users: &[UserId]| {
            let mut all = users.to_vec();
            for user in some {
                if !users.contains(user) {
                    all.push(user.clone());
                }
            }
            all
        };
        match self {
            Self::Users(users) => Self::Users(all(&users).into()),
            Self::Streams(users) => Self::Streams(all(&users).into()),
            Self::Listeners(users) => Self::Listeners(all(&users)),
        }
    }

    /// The users by name.
    pub fn users(&self) -> &[UserId] {
        match self {
            Self::Users(users) | Self::Streams(users) => users,
            Self::Listeners(users) => users,
        }
    }

    /// The same for an event that no inbox shows.
    pub fn without_inboxes(self) -> Self {
        match self {
            Self::Users(users) => Self::Streams(users),
            recipients @ (Self::Streams(_) | Self::Listeners(_)) => recipients,
        }
    }
}

impl From<Audience> for Recipients {
    fn from(audience: Audience) -> Self {
        match audience.users {
            Some(users) => Self::Users(users),
            None => Self::Listeners(Vec::new()),
        }
    }
}

/// Name in whose sessions the streams of all agents in a conversation register. Under an agent's own name, every send of
/// all its conversations would read the servers of all its streams.
pub fn agents_in(conversation: ConversationId) -> UserId {
    UserId::parse(&format!("wideroom:agents:{conversation}")).expect("an id is short text")
}

pub(super) struct Dispatcher {
    store: Arc<dyn ClusterStore>,
    peers: Arc<Peers>,
    bus: Bus,
    clock: Arc<ClusterClock>,
    /// Identity of this server.
    own: Arc<RwLock<ServerId>>,
    ids: IdGenerator,
    undelivered: AtomicUsize,
    /// Servers with a session, by conversation in which a user types.
    recent_routes: Mutex<LruCache<ConversationId, RecentRoutes>>,
    jitter: Jitter,
    counters: Arc<Counters>,
}

#[derive(Clone)]
struct RecentRoutes {
    read_at: Instant,
    servers: Arc<[ServerId]>,
}

impl RecentRoutes {
    fn is_recent(&self) -> bool {
        let lifetime = if self.servers.is_empty() {
            NO_ROUTES_FOR
        } else {
            ROUTES_FOR
        };
        self.read_at.elapsed() < lifetime
    }
}

/// Delivery in progress, for the bound on all of them.
struct Undelivered<'a>(&'a AtomicUsize);

impl<'a> Undelivered<'a> {
    fn count(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::SeqCst);
        Self(all)
    }
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Dispatcher {
    pub(super) fn new(
        (store, bus, clock): (Arc<dyn ClusterStore>, Bus, Arc<ClusterClock>),
        peers: Arc<Peers>,
        own: Arc<RwLock<ServerId>>,
        jitter: Jitter,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            store,
            peers,
            bus,
            clock,
            own,
            ids: IdGenerator::new(jitter.next().to_be_bytes()),
            undelivered: AtomicUsize::new(0),
            recent_routes: Mutex::new(LruCache::new(RECENT_ROUTES_MAX)),
            jitter,
            counters,
        }
    }

    pub(super) fn undelivered(&self) -> usize {
        self.undelivered.load(Ordering::SeqCst)
    }

    /// Delivers a notice to all other servers with a recipient, however long it takes, and says to
    /// how many. Its event is persisted already.
    pub(super) async fn deliver(&self, notice: &RemoteNotice, recipients: &Recipients) -> usize {
        let _undelivered = Undelivered::count(&self.undelivered);
        let mut pause = RETRY_FIRST;
        let routes = loop {
            match self.routes(notice, recipients).await {
                Ok(routes) => break routes,
                Err(error) => {
                    self.counters.route_errors.inc();
                    tracing::debug!(%error, "the server cannot read which servers to notify; it retries");
                    self.pause(&mut pause).await;
                }
            }
        };
        let envelopes = routes.into_iter().map(|(server, users)| {
            let envelope = self.envelope(notice.for_users(users));
            self.deliver_to(server, envelope)
        });
        join_all(envelopes).await.len()
    }

    /// Delivers a notice without waiting callers: one attempt at each server.
    pub(super) async fn deliver_once(&self, notice: &RemoteNotice) -> store::Result<()> {
        let Some(conversation) = notice.conversation() else {
            return Ok(());
        };
        let recipients: Recipients = self.store.recipients(conversation).await?.into();
        let routes = self.routes(notice, &recipients.without_inboxes()).await?;
        let attempts = routes.into_iter().map(async |(server, users)| {
            let payload = self.envelope(notice.for_users(users)).encode();
            self.bus.send_to_peer(server.0, &payload);
            let attempt = self.attempt(server, &payload);
            let _ = timeout(ATTEMPT_MAX, attempt).await;
        });
        join_all(attempts).await;
        Ok(())
    }

    /// Sends a notice over NATS alone.
    pub(super) async fn send_directly(&self, notice: &RemoteNotice) -> store::Result<()> {
        let Some(conversation) = notice.conversation() else {
            return Ok(());
        };
        let recent = self.recent_routes.lock().get(&conversation).cloned();
        let servers = match recent.filter(RecentRoutes::is_recent) {
            Some(recent) => recent.servers,
            None => self.read_routes(conversation, notice).await?,
        };
        let payload = self.envelope(notice.clone()).encode();
        for server in servers.iter() {
            self.bus.send_to_peer(server.0, &payload);
        }
        Ok(())
    }

    async fn read_routes(
        &self,
        conversation: ConversationId,
        notice: &RemoteNotice,
    ) -> store::Result<Arc<[ServerId]>> {
        let read_at = Instant::now();
        let recipients: Recipients = self.store.recipients(conversation).await?.into();
        let routes = self.routes(notice, &recipients.without_inboxes()).await?;
        let servers: Arc<[ServerId]> = routes.into_keys().collect();
        let recent = RecentRoutes {
            read_at,
            servers: Arc::clone(&servers),
        };
        self.recent_routes.lock().put(conversation, recent);
        Ok(servers)
    }

    pub(super) async fn recipients(&self, conversation: ConversationId) -> Recipients {
        let _undelivered = Undelivered::count(&self.undelivered);
        let mut pause = RETRY_FIRST;
        loop {
            match self.store.recipients(conversation).await {
                Ok(audience) => return audience.into(),
                Err(error) => {
                    self.counters.route_errors.inc();
                    tracing::debug!(%error, "the server cannot read the participants to notify; it retries");
                    self.pause(&mut pause).await;
                }
            }
        }
    }

    fn envelope(&self, notice: RemoteNotice) -> RemoteEnvelope {
        RemoteEnvelope {
            delivery: self.ids.next(self.clock.now()),
            sender: *self.own.read(),
            notice,
        }
    }

    /// The other servers to notify, each with the users there whose inboxes the notice concerns. The sessions of the
    /// agents are those of the conversation's ([`agents_in`]).
    async fn routes(
        &self,
        notice: &RemoteNotice,
        recipients: &Recipients,
    ) -> store::Result<BTreeMap<ServerId, Vec<UserId>>> {
        let listeners = match (recipients, notice.conversation()) {
            (Recipients::Listeners(_), Some(conversation)) => {
                self.store.listeners(conversation).await?
            }
            _ => Vec::new(),
        };
        let named = recipients.users();
        let conversation = notice.conversation();
        let agents = conversation.filter(|_| named.iter().any(UserId::is_agent));
        let agents = agents.map(agents_in);
        let users: Cow<'_, [UserId]> = match &agents {
            Some(agents) => {
                let people = named.iter().filter(|user| !user.is_agent());
                people.chain([agents]).cloned().collect()
            }
            None => named.into(),
        };
        let sessions = if users.is_empty() {
            Vec::new()
        } else {
            self.store.sessions(&users).await?
        };
        let has_inboxes = !matches!(recipients, Recipients::Streams(_));
        let mut routes: BTreeMap<ServerId, Vec<UserId>> = listeners
            .into_iter()
            .map(|server| (server, Vec::new()))
            .collect();
        for Session { user, kind, server } in sessions {
            let hears = match kind {
                SessionKind::Present | SessionKind::Acting => true,
                SessionKind::Follows => false,
            };
            if hears {
                let users = routes.entry(server).or_default();
                let has_inbox = has_inboxes && Some(&user) != agents.as_ref();
                if has_inbox && !users.contains(&user) {
                    users.push(user);
                }
            }
        }
        routes.remove(&self.own.read());
        self.without_ended(routes).await
    }

    async fn without_ended<T>(
        &self,
        routes: BTreeMap<ServerId, T>,
    ) -> store::Result<BTreeMap<ServerId, T>> {
        let ended = join_all(routes.keys().map(|server| self.peers.has_ended(*server))).await;
        Ok(routes
            .into_iter()
            .zip(ended)
            .filter(|(_, has_ended)| !has_ended)
            .map(|(route, _)| route)
            .collect())
    }

    /// Delivers a notice to one server, without a look at the directory.
    pub(super) async fn deliver_directly(&self, server: ServerId, notice: RemoteNotice) {
        self.deliver_to(server, self.envelope(notice)).await;
    }

    /// Writes until a lane acknowledged it in time, or the receiver has ended.
    async fn deliver_to(&self, server: ServerId, envelope: RemoteEnvelope) {
        let payload = envelope.encode();
        self.bus.send_to_peer(server.0, &payload);
        let mut pause = RETRY_FIRST;
        loop {
            let attempt = self.attempt(server, &payload);
            if timeout(ATTEMPT_MAX, attempt).await.unwrap_or(false) {
                self.counters.notices_sent.inc();
                return;
            }
            self.counters.mailbox_errors.inc();
            self.pause(&mut pause).await;
            if self.peers.has_ended(server).await {
                return;
            }
        }
    }

    async fn pause(&self, pause: &mut Duration) {
        sleep(*pause / 2 + self.jitter.up_to(*pause / 2)).await;
        *pause = (2 * *pause).min(RETRY_MAX);
    }

    /// Writes to one lane after the other until one has acknowledged it: the next at once after a
    /// refusal, and beside a silent one after a while. False if all refused.
    async fn attempt(&self, server: ServerId, payload: &[u8]) -> bool {
        let mut lanes = MailboxLane::from(self.jitter.below(MailboxLane::COUNT));
        let mut running = FuturesUnordered::new();
        running.extend(
            lanes
                .next()
                .map(|lane| self.write(server, lane, payload).boxed()),
        );
        let mut has_more = true;
        loop {
            tokio::select! {
                biased;
                Some(is_written) = running.next() => {
                    if is_written {
                        return true;
                    }
                    match lanes.next() {
                        Some(lane) => running.push(self.write(server, lane, payload).boxed()),
                        None if running.is_empty() => return false,
                        None => has_more = false,
                    }
                }
                () = sleep(HEDGE_AFTER), if has_more => match lanes.next() {
                    Some(lane) => {
                        self.counters.hedges.inc();
                        running.push(self.write(server, lane, payload).boxed());
                    }
                    None => has_more = false,
                },
            }
        }
    }

    /// Whether the row was acknowledged while it was fresh. With an unknown time, the receiver might
    /// pass over it.
    async fn write(&self, server: ServerId, lane: MailboxLane, payload: &[u8]) -> bool {
        if !self.clock.is_known() {
            return false;
        }
        let (began, began_at) = (self.clock.now(), Instant::now());
        let row = MailboxRow {
            id: self.ids.next(began),
            payload: payload.to_vec(),
        };
        if let Err(error) = self.store.put_notice(server, lane, &row).await {
            tracing::debug!(%error, %server, ?lane, "the server failed to write to a lane of a mailbox");
            return false;
        }
        // The monotonic clock stands still while the machine is suspended; then the time is unknown.
        let is_fresh = began_at.elapsed() <= FRESH_MAX && self.clock.is_known();
        if !is_fresh {
            tracing::warn!(%server, "a write to a mailbox was acknowledged late; the server writes it again");
        }
        is_fresh
    }
}
