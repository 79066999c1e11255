//! Background tasks of a server in a cluster: its beat, the watch over the beats of the others, the
//! supervised poller, and what arrives over NATS.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::ClusterState;
use super::counters::Counters;
use super::follow_ups::FollowUps;
use super::notice::RemoteEnvelope;
use super::peers::BeatsRead;
use super::poller::{Polled, Poller};
use super::registry::Registry;
use super::registry::events::RegistryEvent;
use crate::bus::Bus;
use crate::store::cluster::{BEAT_EVERY, Beat, SERVER_ROW_SECONDS, ServerId};

const POLL_EVERY: Duration = Duration::from_secs(1);
/// While notices also arrive over NATS.
const POLL_EVERY_WITH_NATS: Duration = Duration::from_secs(3);
pub(super) const READ_BEATS_EVERY: Duration = Duration::from_secs(5);
const RENEW_SERVER_EVERY: Duration = Duration::from_secs(SERVER_ROW_SECONDS / 2);
/// Within which all streams read the store after the registrations were lapsed.
const REREAD_WITHIN: Duration = Duration::from_secs(5);
/// Pause before the poller is started again after a panic.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Hands the events of the registry to the handler, and makes the streams read the store once
/// nothing is lapsed any more.
pub(super) async fn hear_registry(
    registry: Arc<Registry>,
    follow_ups: Arc<FollowUps>,
    poller: Arc<Poller>,
) {
    loop {
        let event = registry.events.next().await;
        if event == RegistryEvent::Healed {
            poller.reread_healed(REREAD_WITHIN);
        }
        if let Some(handler) = follow_ups.handler() {
            handler.on_registry(&event);
        }
    }
}

/// Takes the notices that come over NATS. One that may have been lost is found by a poll.
pub(super) async fn receive(bus: Bus, follow_ups: Arc<FollowUps>, poll_now: Arc<Notify>) {
    loop {
        match bus.receive_from_peers().await {
            Some(payloads) => payloads
                .iter()
                .filter_map(|payload| RemoteEnvelope::decode(payload))
                .for_each(|envelope| follow_ups.accept(envelope)),
            None => poll_now.notify_one(),
        }
    }
}

pub(super) async fn beat(state: Weak<ClusterState>) {
    let mut number = 1;
    let mut renewed = Instant::now();
    loop {
        sleep(BEAT_EVERY).await;
        let Some(state) = state.upgrade() else { return };
        let server = *state.own.read();
        let beat = Beat { server, number };
        if let Err(error) = state.store.put_beat(beat, state.times.next()).await {
            tracing::debug!(%error, "the server cannot write its beat");
        }
        number += 1;
        if renewed.elapsed() >= RENEW_SERVER_EVERY {
            let at = state.times.next();
            match state.store.put_server(server, at).await {
                Ok(()) => renewed = Instant::now(),
                Err(error) => tracing::debug!(%error, "the server cannot renew its row"),
            }
        }
    }
}

/// Reads the beats of all servers, and ends those whose beat stands still.
pub(super) async fn watch_beats(state: Weak<ClusterState>) {
    loop {
        {
            let Some(state) = state.upgrade() else { return };
            match state.peers.read_beats().await {
                Ok(BeatsRead { still, vanished }) => {
                    for server in still {
                        state.end_peer(server).await;
                    }
                    for server in vanished {
                        state.note_vanished(server).await;
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

impl ClusterState {
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
        tracing::warn!(%server, "this server ended another server, which sent no heartbeat for 20 s");
        self.peers.note_ended(server);
        if let Err(error) = self.store.delete_beat(server, self.times.next()).await {
            tracing::debug!(%error, %server, "the beat of an ended server stays until it expires");
        }
        self.tell_ended(server);
    }
}

/// Runs the poller, and starts it again after a panic: a server that receives nothing must not go
/// on unnoticed.
pub(super) async fn supervise(state: Weak<ClusterState>, counters: Arc<Counters>) {
    while AssertUnwindSafe(poll(state.clone()))
        .catch_unwind()
        .await
        .is_err()
    {
        counters.restarts.inc();
        tracing::error!("the poller of this server's mailbox panicked; it starts again");
        sleep(RESTART_AFTER).await;
    }
}

async fn poll(state: Weak<ClusterState>) {
    loop {
        let (next, poll_now, clock) = {
            let Some(state) = state.upgrade() else { return };
            let Some(running) = state.running.get() else {
                return;
            };
            let began = Instant::now();
            if running.poller.poll().await == Polled::Ended {
                state.renew_identity().await;
            }
            // A fault of the clock ends with the next sample.
            let every = if state.bus.is_connected_to_peers() && state.cluster_clock.is_known() {
                POLL_EVERY_WITH_NATS
            } else {
                POLL_EVERY
            };
            let clock = Arc::clone(&state.cluster_clock);
            (began + every, Arc::clone(&running.poll_now), clock)
        };
        tokio::select! {
            biased;
            () = sleep_until(next) => {}
            () = poll_now.notified() => {}
            () = clock.sample_wanted() => {}
        }
    }
}
