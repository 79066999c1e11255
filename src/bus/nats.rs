//! Other servers over NATS: a subject for each topic, listened to as long as somebody here listens to the topic.
//!
//! NATS may be gone, slow, or back after a while. It is asked again for ever, and nothing waits for it.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, Message, ServerAddr, Subscriber};
use futures_util::StreamExt;
use futures_util::stream::{AbortHandle, Abortable, SelectAll};
use tokio::time::timeout;

use super::Bus;
use super::signal::{self, Signal};
use super::wire::Wire;
use crate::model::Topic;

/// Messages of one subject that wait here. One that has more says so, and the store is looked at.
const WAITING_MAX: usize = 256;
/// A connection that does not answer is found dead after a few of these.
const PING_EVERY: Duration = Duration::from_secs(5);
/// The library's queue may be full because the connection stands still.
const SAY_MAX: Duration = Duration::from_millis(100);
/// How often it is looked whether the bus is still there.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where NATS is: `nats://[user:password@]host[:port]`, or `tls://…`.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsAddress(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an address like nats://[user:password@]host[:port], or tls://…")]
pub struct NatsAddressError;

/// Why there is no way to NATS at all, as where the certificates of this machine cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NatsError(#[from] async_nats::ConnectError);

impl FromStr for NatsAddress {
    type Err = NatsAddressError;

    fn from_str(text: &str) -> Result<Self, NatsAddressError> {
        let is_known = text.starts_with("nats://") || text.starts_with("tls://");
        let is_one = is_known && ServerAddr::from_str(text).is_ok_and(|address| !address.host().is_empty());
        if is_one { Ok(Self(text.to_owned())) } else { Err(NatsAddressError) }
    }
}

/// Without user and password.
impl fmt::Display for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or_default();
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        write!(f, "{scheme}://{place}")
    }
}

impl fmt::Debug for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Bus {
    /// A bus that other servers are heard on. Those of another `deployment` are not, over the same NATS.
    pub async fn with_nats(address: &NatsAddress, deployment: &str) -> Result<Self, NatsError> {
        let wire = Arc::new(Wire::default());
        let noticed = Arc::downgrade(&wire);
        let options = ConnectOptions::new()
            .name("wideroom")
            .no_echo()
            .retry_on_initial_connect()
            .ping_interval(PING_EVERY)
            .subscription_capacity(WAITING_MAX)
            .event_callback(move |event| {
                if let Some(wire) = noticed.upgrade() {
                    notice(&wire, &event);
                }
                async {}
            });
        let client = options.connect(address.0.as_str()).await?;
        let bus = Self { wire: Some(Arc::clone(&wire)), ..Self::default() };
        let prefix = format!("wideroom.{deployment}.");
        let link = Link { client, prefix, bus: Arc::downgrade(&bus.topics), wire, stops: HashMap::new(), heard: SelectAll::new() };
        tokio::spawn(link.run());
        Ok(bus)
    }
}

fn notice(wire: &Wire, event: &Event) {
    match event {
        Event::Connected => {
            tracing::info!("NATS is there: other servers are heard at once");
            wire.set_up(true);
        }
        Event::Disconnected | Event::Closed => {
            tracing::warn!("NATS is gone: what other servers write is looked for each second");
            wire.set_up(false);
        }
        Event::SlowConsumer(_) => wire.miss(),
        Event::ServerError(_) | Event::ClientError(_) => tracing::debug!(%event, "NATS"),
        Event::LameDuckMode | Event::Draining => {}
    }
}

/// The one task that speaks with NATS.
struct Link {
    client: Client,
    prefix: String,
    bus: Weak<std::sync::Mutex<super::Topics>>,
    wire: Arc<Wire>,
    /// By which a subject is listened to no more.
    stops: HashMap<Topic, AbortHandle>,
    heard: SelectAll<Abortable<Subscriber>>,
}

impl Link {
    async fn run(mut self) {
        self.listen(signal::ASK).await;
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = self.wire.is_touched.notified() => self.follow().await,
                signals = self.wire.to_say() => self.say(signals).await,
                Some(message) = self.heard.next() => self.hear(&message),
                _ = look.tick() => {}
            }
            if self.bus.strong_count() == 0 {
                return;
            }
        }
    }

    async fn say(&self, signals: Vec<Signal>) {
        for signal in signals {
            let (subject, payload) = signal.encode();
            let said = self.client.publish(format!("{}{subject}", self.prefix), payload.into());
            // The others find by looking what they are not told.
            if !self.wire.is_up() || !timeout(SAY_MAX, said).await.is_ok_and(|said| said.is_ok()) {
                return;
            }
        }
    }

    fn hear(&self, message: &Message) {
        if let Some(signal) = message.subject.strip_prefix(&self.prefix).and_then(|subject| Signal::decode(subject, &message.payload)) {
            self.wire.hear(signal);
        }
    }

    /// Listens where somebody listens here.
    async fn follow(&mut self) {
        for topic in self.wire.take_touched() {
            let is_wanted = self.bus.upgrade().is_some_and(|topics| super::lock(&topics).by_name.contains_key(&topic));
            if !is_wanted {
                if let Some(stop) = self.stops.remove(&topic) {
                    stop.abort();
                }
            } else if !self.stops.contains_key(&topic)
                && let Some(stop) = self.listen(&signal::subject(&topic)).await
            {
                if let Topic::Presence(user) = &topic {
                    self.wire.say(Signal::WhoHas(user.clone()));
                }
                self.stops.insert(topic, stop);
            }
        }
    }

    /// What was said before it is read by whoever begins to listen; what is said until NATS knows of it is looked for.
    async fn listen(&mut self, subject: &str) -> Option<AbortHandle> {
        let subscriber = self.client.subscribe(format!("{}{subject}", self.prefix)).await;
        let Ok(subscriber) = subscriber else {
            tracing::warn!(subject, "NATS cannot be listened to there");
            return None;
        };
        let (stop, registration) = AbortHandle::new_pair();
        self.heard.push(Abortable::new(subscriber, registration));
        Some(stop)
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
        for text in ["", "example.org", "http://example.org", "nats://", "ws://example.org"] {
            assert_eq!(text.parse::<NatsAddress>().unwrap_err(), NatsAddressError, "{text}");
        }
    }
}
