//! Link to peer servers over NATS: one subject for each topic, subscribed to while the topic has
//! local subscribers.
//!
//! NATS may be down or slow. The client reconnects forever, and no write waits for it.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, Message, ServerAddr, Subscriber};
use futures_util::StreamExt;
use futures_util::stream::{AbortHandle, Abortable, SelectAll};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::Bus;
use super::peer_queue::PeerQueue;
use super::signal::{self, Signal};
use crate::model::Topic;

/// Undelivered messages of one subject. On overflow NATS reports a slow consumer, and the bus polls
/// the store.
const UNDELIVERED_MAX: usize = 256;
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
    /// A bus that exchanges signals with the other servers of the same `deployment`. Deployments
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
        let prefix = format!("wideroom.{deployment}.");
        let link = NatsLink {
            client,
            prefix,
            topics: Arc::downgrade(&bus.topics),
            peers,
            subjects: HashMap::new(),
            messages: SelectAll::new(),
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
    /// Handles that unsubscribe from the subject of a topic.
    subjects: HashMap<Topic, AbortHandle>,
    messages: SelectAll<Abortable<Subscriber>>,
}

impl NatsLink {
    async fn run(mut self) {
        self.subscribe(signal::BROADCAST).await;
        let mut liveness_check = tokio::time::interval(LIVENESS_INTERVAL);
        loop {
            tokio::select! {
                () = self.peers.topics_changed.notified() => self.update_subjects().await,
                signals = self.peers.next_outgoing() => self.publish(signals).await,
                Some(message) = self.messages.next() => self.receive(&message),
                _ = liveness_check.tick() => {}
            }
            if self.topics.strong_count() == 0 {
                return;
            }
        }
    }

    async fn publish(&self, signals: Vec<Signal>) {
        for signal in signals {
            let (subject, payload) = signal.encode();
            let published = self
                .client
                .publish(format!("{}{subject}", self.prefix), payload.into());
            // Peers find the writes of dropped signals by polling the store.
            if !self.peers.is_connected()
                || !timeout(PUBLISH_MAX, published)
                    .await
                    .is_ok_and(|published| published.is_ok())
            {
                return;
            }
        }
    }

    fn receive(&self, message: &Message) {
        if let Some(signal) = message
            .subject
            .strip_prefix(&self.prefix)
            .and_then(|subject| Signal::decode(subject, &message.payload))
        {
            self.peers.push_incoming(signal);
        }
    }

    /// Subscribes to the subjects of topics with local subscribers, and unsubscribes from all
    /// others.
    async fn update_subjects(&mut self) {
        for topic in self.peers.take_changed_topics() {
            let is_wanted = self
                .topics
                .upgrade()
                .is_some_and(|topics| topics.lock().by_name.contains_key(&topic));
            if !is_wanted {
                if let Some(handle) = self.subjects.remove(&topic) {
                    handle.abort();
                }
            } else if !self.subjects.contains_key(&topic)
                && let Some(handle) = self.subscribe(&signal::subject(&topic)).await
            {
                if let Topic::Presence(user) = &topic {
                    self.peers.send(Signal::PresenceQuery(user.clone()));
                }
                self.subjects.insert(topic, handle);
            }
        }
    }

    /// Nothing is lost at the start: a new subscriber reads earlier writes from the store, and
    /// polling finds those until NATS has subscribed.
    async fn subscribe(&mut self, subject: &str) -> Option<AbortHandle> {
        let subscriber = self
            .client
            .subscribe(format!("{}{subject}", self.prefix))
            .await;
        let Ok(subscriber) = subscriber else {
            tracing::warn!(
                subject,
                "the bus failed to subscribe to a NATS subject and relies on polling; check the NATS server"
            );
            return None;
        };
        let (handle, registration) = AbortHandle::new_pair();
        self.messages.push(Abortable::new(subscriber, registration));
        Some(handle)
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
