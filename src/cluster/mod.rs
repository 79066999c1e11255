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
//! [`registry`](self) counts leases and writes their rows; `clock` is the time that all of it goes
//! by; `peers` knows which servers have ended;
//! `dispatcher` delivers notices; `poller` reads them, and `follow_ups` hands them to the
//! [`NoticeHandler`], which is the chat. No rule of chat lives here.

mod clock;
mod counters;
mod deduplication_window;
mod dispatcher;
mod follow_ups;
mod held_back;
mod jitter;
mod lifecycle;
mod notice;
mod peers;
mod poller;
mod presence_outbox;
mod registry;
mod tasks;
mod write_times;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::clock::{ClockFault, ClusterClock};
pub use self::deduplication_window::DeduplicationWindow;
pub use self::dispatcher::{Recipients, agents_in};
pub use self::follow_ups::NoticeHandler;
pub use self::held_back::CursorScope;
pub use self::notice::{RemoteEvent, RemoteNotice};
pub use self::registry::Lease;
pub use self::registry::events::RegistryEvent;

use self::counters::Counters;
use self::dispatcher::Dispatcher;
use self::follow_ups::FollowUps;
use self::jitter::Jitter;
use self::lifecycle::put_server;
use self::peers::Peers;
use self::poller::{PollStatus, Poller};
use self::presence_outbox::PresenceOutbox;
use self::registry::Registry;
use self::write_times::WriteTimes;
use crate::bus::Bus;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::{ChangeId, ConversationId, OrderKey, Timestamp, UserId};
use crate::store;
use crate::store::cluster::{
    ClusterStore, CompletionHandler, Registration, ServerId, Session, SessionKind,
};

const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A server without a readable lane for so long is not ready.
const DEAF_MAX: Duration = Duration::from_secs(60);

/// This server's part in a cluster.
#[derive(Clone)]
pub struct Cluster(Arc<ClusterState>);

struct ClusterState {
    store: Arc<dyn ClusterStore>,
    cluster_clock: Arc<ClusterClock>,
    bus: Bus,
    own: Arc<RwLock<ServerId>>,
    times: Arc<WriteTimes>,
    registry: Arc<Registry>,
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

    /// Settles the growth of a conversation after its notices were delivered, however long it takes.
    pub async fn settle_growth(&self, conversation: ConversationId, change: ChangeId) {
        let mut pause = RETRY_FIRST;
        while let Err(error) = self.0.store.settle_growth(conversation, change).await {
            tracing::debug!(%error, "the server cannot settle the growth of a conversation yet; it retries");
            sleep(pause).await;
            pause = (2 * pause).min(RETRY_MAX);
        }
    }

    /// Sets the owner of the events of changes that the store completes.
    pub fn set_completion_handler(&self, handler: Weak<dyn CompletionHandler>) {
        self.0.store.set_completion_handler(handler);
    }

    /// Batches of events whose notices are not delivered yet.
    pub fn undelivered(&self) -> usize {
        self.0.dispatcher.undelivered()
    }

    /// The cluster's time, by which ids and cursors go.
    pub fn now(&self) -> Timestamp {
        self.0.cluster_clock.now()
    }

    /// The clock of the cluster's time.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.cluster_clock) as Arc<_>
    }

    /// Waits until [`Cluster::now`] is the cluster's time, as long as that takes.
    pub async fn wait_for_clock(&self) {
        while !self.is_clock_known() {
            // An unknown time asks for a sample.
            let _ = self.check_clock();
            sleep(RETRY_FIRST).await;
        }
    }

    /// False after the wall clock was set, or the machine was suspended, until the next sample.
    pub fn is_clock_known(&self) -> bool {
        self.0.cluster_clock.is_known()
    }

    /// `Err` where this server must allocate no ids.
    pub fn check_clock(&self) -> Result<(), ClockFault> {
        self.0.cluster_clock.check()
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

    /// Whether the server receives the writes of other servers, and its clock is right. `Err` says
    /// in one sentence why not.
    pub fn health(&self) -> Result<(), String> {
        self.check_clock().map_err(|fault| fault.to_string())?;
        let deaf = self.0.status.since_any_lane();
        if self.0.running.get().is_some() && deaf >= DEAF_MAX {
            return Err(format!(
                "no lane of this server's mailbox could be read for {} s",
                deaf.as_secs()
            ));
        }
        Ok(())
    }

    pub fn register(&self, metrics: &Metrics) {
        self.0.counters.register(metrics);
        let read = |name: &str, help: &str, value: fn(&ClusterState) -> f64| {
            let state = Arc::downgrade(&self.0);
            metrics.read(name, help, move || {
                state.upgrade().map_or(0.0, |state| value(&state))
            });
        };
        read(
            "wideroom_cluster_seconds_since_full_poll",
            "Seconds since the begin of the last poll in which all lanes of the mailbox answered.",
            |state| state.status.since_full().as_secs_f64(),
        );
        read(
            "wideroom_cluster_clock_skew_seconds",
            "Lead of this server's wall clock over the cluster's, by the median of three nodes.",
            |state| state.cluster_clock.skew_seconds(),
        );
        read(
            "wideroom_cluster_servers",
            "Servers that beat, this one included.",
            |state| state.peers.count() as f64,
        );
        read(
            "wideroom_cluster_registrations",
            "Users and large conversations at which this server is registered.",
            |state| state.registry.len() as f64,
        );
        read(
            "wideroom_cluster_undelivered",
            "Batches of events whose notices are not delivered yet.",
            |state| state.dispatcher.undelivered() as f64,
        );
        read(
            "wideroom_cluster_follow_ups",
            "Notices that were received and are not followed yet.",
            |state| state.running.get().map_or(0, |it| it.follow_ups.waiting()) as f64,
        );
    }
}

impl ClusterState {
    async fn is_gone(&self, server: ServerId) -> bool {
        server != *self.own.read() && self.peers.has_ended(server).await
    }

    /// Takes a new identity, because the present one has ended, and registers everything again.
    async fn renew_identity(&self) {
        let server = ServerId(self.identities.uuid());
        tracing::warn!(old = %*self.own.read(), new = %server, "another server has ended this one; it registers again, and its streams read the store");
        let mut pause = RETRY_FIRST;
        while let Err(error) = put_server(&*self.store, &self.times, server).await {
            tracing::debug!(%error, "the server cannot register again yet");
            sleep(pause).await;
            pause = (2 * pause).min(RETRY_MAX);
        }
        self.counters.identities.inc();
        *self.own.write() = server;
        self.bus.listen_as(server.0);
        if let Some(running) = self.running.get() {
            running.poller.reset();
        }
        self.registry.rebind(server);
    }
}
