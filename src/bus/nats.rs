//! Link to peer servers over NATS: one subject for each server, to which the others send what they
//! also leave in its mailbox.
//!
//! NATS may be down or slow. The client reconnects forever, and no write waits for it. It must be
//! private to the deployment: the server believes what it receives about typing, which is in no
//! store.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, Message, ServerAddr, Subscriber};
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::time::{Instant, interval_at, timeout};
use uuid::Uuid;

use super::Bus;
use super::peer_queue::PeerQueue;

/// Messages that the client holds for this server. On overflow NATS reports a slow consumer, and
/// the server polls the store.
const UNDELIVERED_MAX: usize = 65_536;
/// The client closes a connection after a few pings without an answer.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Deadline of a publish. The library's queue is full while the connection stalls.
const PUBLISH_MAX: Duration = Duration::from_millis(100);
/// Interval of checks that the bus still exists.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(5);

/// Address of a NATS server: `nats://[user:password@]host[:port]`, or `tls://…`.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsAddress(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an address like nats://[user:password@]host[:port], or tls://…")]
pub struct NatsAddressError;

/// Failure to start the NATS client at all, for example because this machine's certificates are
/// unreadable.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NatsError(#[from] async_nats::ConnectError);

impl FromStr for NatsAddress {
    type Err = NatsAddressError;

    fn from_str(text: &str) -> Result<Self, NatsAddressError> {
        let has_scheme = text.starts_with("nats://") || text.starts_with("tls://");
        let is_valid = has_scheme
            && ServerAddr::from_str(text).is_ok_and(|address| !address.host().is_empty());
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(NatsAddressError)
        }
    }
}

/// Omits user and password.
impl fmt::Display for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or_default();
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        write!(f, "{scheme}://{host}")
    }
}

impl fmt::Debug for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Bus {
    /// A bus that exchanges payloads with the other servers of the same `deployment`. Deployments
    /// can share a NATS server.
    pub async fn with_nats(address: &NatsAddress, deployment: &str) -> Result<Self, NatsError> {
        let peers = Arc::new(PeerQueue::default());
        let weak_peers = Arc::downgrade(&peers);
        let options = ConnectOptions::new()
            .name("wideroom")
            .no_echo()
            .retry_on_initial_connect()
            .ping_interval(PING_INTERVAL)
            .subscription_capacity(UNDELIVERED_MAX)
            .event_callback(move |event| {
                if let Some(peers) = weak_peers.upgrade() {
                    on_event(&peers, &event);
                }
                async {}
            });
        let client = options.connect(address.0.as_str()).await?;
        let bus = Self {
            peers: Some(Arc::clone(&peers)),
            ..Self::default()
        };
        let link = NatsLink {
            client,
            prefix: format!("wideroom.{deployment}.server."),
            topics: Arc::downgrade(&bus.topics),
            peers,
            own: None,
            has_reported: false,
        };
        tokio::spawn(link.run());
        Ok(bus)
    }
}

fn on_event(peers: &PeerQueue, event: &Event) {
    match event {
        Event::Connected => {
            tracing::info!("the bus connected to NATS: writes of other servers arrive at once");
            peers.set_connected(true);
        }
        Event::Disconnected | Event::Closed => {
            tracing::warn!(
                "the bus lost its connection to NATS and polls the store each second for writes of other servers; check the NATS server"
            );
            peers.set_connected(false);
        }
        Event::SlowConsumer(_) => peers.mark_lost(),
        Event::ServerError(_) | Event::ClientError(_) => {
            tracing::debug!(%event, "the NATS client reported an error")
        }
        Event::LameDuckMode | Event::Draining => {}
    }
}

/// Task that owns the NATS client.
struct NatsLink {
    client: Client,
    prefix: String,
    topics: Weak<Mutex<super::Topics>>,
    peers: Arc<PeerQueue>,
    /// The subject of this server. Dropping it unsubscribes.
    own: Option<Subscriber>,
    /// Whether the first check of the connection was made.
    has_reported: bool,
}

impl NatsLink {
    async fn run(mut self) {
        self.subscribe().await;
        let mut liveness_check = interval_at(Instant::now() + LIVENESS_INTERVAL, LIVENESS_INTERVAL);
        let peers = Arc::clone(&self.peers);
        loop {
            tokio::select! {
                () = peers.own_changed.notified() => self.subscribe().await,
                payloads = peers.next_outgoing() => self.publish(payloads).await,
                Some(message) = next(&mut self.own) => peers.push_incoming(message.payload.to_vec()),
                _ = liveness_check.tick() => self.report_once(),
            }
            if self.topics.strong_count() == 0 {
                return;
            }
        }
    }

    /// Warns after a start at which NATS was away. The client itself reports only a connection that it had.
    fn report_once(&mut self) {
        if !std::mem::replace(&mut self.has_reported, true) && !self.peers.is_connected() {
            tracing::warn!(
                "the bus has no connection to NATS yet and polls the store each second for writes of other servers; check the NATS server"
            );
        }
    }

    async fn publish(&self, payloads: Vec<(Uuid, Vec<u8>)>) {
        for (server, payload) in payloads {
            let published = self.client.publish(self.subject(server), payload.into());
            // Peers find the writes of dropped payloads by polling the store.
            if !self.peers.is_connected()
                || !timeout(PUBLISH_MAX, published)
                    .await
                    .is_ok_and(|published| published.is_ok())
            {
                return;
            }
        }
    }

    fn subject(&self, server: Uuid) -> String {
        format!("{}{}", self.prefix, server.simple())
    }

    /// Nothing is lost at the start: polling finds what is sent before NATS has subscribed.
    async fn subscribe(&mut self) {
        let Some(server) = self.peers.own() else {
            return;
        };
        match self.client.subscribe(self.subject(server)).await {
            Ok(subscriber) => self.own = Some(subscriber),
            Err(error) => {
                tracing::warn!(%error, "the bus failed to subscribe to its NATS subject and relies on polling; check the NATS server");
            }
        }
    }
}

/// The next message to this server. It never returns while there is no subscription.
async fn next(own: &mut Option<Subscriber>) -> Option<Message> {
    match own {
        Some(subscriber) => subscriber.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_never_shows_its_password() {
        let address: NatsAddress = "nats://me:hunter2@example.org:4222".parse().unwrap();
        assert_eq!(address.to_string(), "nats://example.org:4222");
        assert!(!format!("{address:?}").contains("hunter2"));
        for text in [
            "",
            "example.org",
            "http://example.org",
            "nats://",
            "ws://example.org",
        ] {
            assert_eq!(
                text.parse::<NatsAddress>().unwrap_err(),
                NatsAddressError,
                "{text}"
            );
        }
    }
}
