//! Lifecycle of a server in a cluster: its registration, the start of its tasks, and its end.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::counters::Counters;
use super::dispatcher::Dispatcher;
use super::follow_ups::FollowUps;
use super::jitter::Jitter;
use super::peers::Peers;
use super::poller::{PollStatus, Poller};
use super::presence_outbox::PresenceOutbox;
use super::registry::Registry;
use super::tasks::{beat, hear_registry, receive, supervise, watch_beats};
use super::write_times::WriteTimes;
use super::{Cluster, ClusterClock, ClusterState, NoticeHandler, Running};
use crate::bus::Bus;
use crate::clock::Clock;
use crate::store;
use crate::store::cluster::{Beat, ClusterStore, ServerId};

/// Reads by which a server learns the cluster's time when it begins: as many as confirm that its
/// own clock is wrong.
const FIRST_SAMPLES: usize = 3;
/// How long the end of the process waits for its own end to be written.
const END_MAX: Duration = Duration::from_secs(2);

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
        let cluster_clock = Arc::new(ClusterClock::new(clock));
        let times = Arc::new(WriteTimes::new(Arc::clone(&cluster_clock) as Arc<_>));
        let counters = Arc::new(Counters::new());
        put_server(&*store, &times, server).await?;
        counters.identities.inc();
        first_samples(&*store, &cluster_clock, server).await?;
        store.follow_clock(Arc::downgrade(&cluster_clock) as Weak<_>);
        let registry = Registry::new(Arc::clone(&store), Arc::clone(&times), server, jitter(1));
        let peers = Arc::new(Peers::new(Arc::clone(&store)));
        let dispatcher = Arc::new(Dispatcher::new(
            (Arc::clone(&store), bus.clone(), Arc::clone(&cluster_clock)),
            Arc::clone(&peers),
            Arc::clone(&own),
            jitter(2),
            Arc::clone(&counters),
        ));
        let stop = CancellationToken::new();
        let state = ClusterState {
            status: PollStatus::new(Arc::clone(&cluster_clock)),
            presence: Arc::new(PresenceOutbox::new(Arc::clone(&dispatcher))),
            running: OnceLock::new(),
            _stop_with_the_last: stop.clone().drop_guard(),
            store,
            cluster_clock,
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
        state.bus.listen_as(server.0);
        Ok(Self(Arc::new(state)))
    }

    /// Begins to beat, to poll and to hand the notices that it receives to this handler, until the
    /// last clone of this is dropped.
    pub fn start(&self, handler: Weak<dyn NoticeHandler>) {
        let state = &self.0;
        let follow_ups = FollowUps::new(handler, Arc::clone(&state.counters));
        let poller = Arc::new(Poller::new(
            (Arc::clone(&state.store), Arc::clone(&state.cluster_clock)),
            Arc::clone(&state.own),
            Arc::clone(&state.registry),
            Arc::clone(&follow_ups),
            Arc::clone(&state.status),
            Arc::clone(&state.counters),
        ));
        let poll_now = Arc::new(Notify::new());
        let running = Running {
            follow_ups: Arc::clone(&follow_ups),
            poller: Arc::clone(&poller),
            poll_now: Arc::clone(&poll_now),
        };
        if state.running.set(running).is_err() {
            return;
        }
        self.spawn(Arc::clone(&state.registry).keep_up());
        self.spawn(Arc::clone(&state.presence).run());
        let registry = Arc::clone(&state.registry);
        self.spawn(hear_registry(registry, Arc::clone(&follow_ups), poller));
        self.spawn(receive(state.bus.clone(), follow_ups, poll_now));
        let weak = Arc::downgrade(state);
        self.spawn(beat(weak.clone()));
        self.spawn(watch_beats(weak.clone()));
        self.spawn(supervise(weak, Arc::clone(&state.counters)));
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
}

/// Registers a server, which beats from now on.
pub(super) async fn put_server(
    store: &dyn ClusterStore,
    times: &WriteTimes,
    server: ServerId,
) -> store::Result<()> {
    store.put_server(server, times.next()).await?;
    let beat = Beat { server, number: 0 };
    store.put_beat(beat, times.next()).await
}

/// Compares this server's clock with those of the nodes, so that its time is known when it begins.
async fn first_samples(
    store: &dyn ClusterStore,
    clock: &ClusterClock,
    server: ServerId,
) -> store::Result<()> {
    for _ in 0..FIRST_SAMPLES {
        let began = Instant::now();
        if let (_, Some(time)) = store.server_and_time(server).await? {
            clock.take(began, time);
        }
        if clock.is_known() {
            break;
        }
    }
    Ok(())
}
