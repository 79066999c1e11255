//! Publish/subscribe within one process: a broadcast channel per topic, created for its first
//! subscriber and dropped with its last.
//!
//! The bus only notifies; the store is the source of truth. Publishing never blocks: a slow
//! subscriber receives [`Received::Lagged`] instead of the notices it has missed, and reads the
//! store. Servers that share a store can also send payloads to each other over NATS.

mod channel;
mod envelope;
mod nats;
mod peer_queue;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;
use uuid::Uuid;

use self::channel::{Published, TopicChannel, TopicReceiver};
pub use self::envelope::NoticeEnvelope;
pub use self::nats::{NatsAddress, NatsAddressError, NatsError};
use self::peer_queue::PeerQueue;
use crate::metrics::{self, Histogram, IntCounter, LATENCIES, Metrics};
use crate::model::Topic;

/// Notices of a conversation that wait for a subscriber. A subscriber that lags further behind
/// reads the store instead.
pub const TOPIC_NOTICES_MAX: usize = 256;
/// The same for topics of states, of which only the latest counts.
const STATE_NOTICES_MAX: usize = 32;
/// The lag histogram samples one in this many notices of a subscriber.
const LAG_SAMPLE_INTERVAL: u32 = 16;

#[derive(Clone, Default)]
pub struct Bus {
    topics: Arc<Mutex<Topics>>,
    /// Payloads to and from other servers. `None` for a single server.
    peers: Option<Arc<PeerQueue>>,
    metrics: Arc<BusMetrics>,
}

struct BusMetrics {
    published: IntCounter,
    lag: Histogram,
    gaps: IntCounter,
}

impl Default for BusMetrics {
    fn default() -> Self {
        Self {
            published: metrics::counter(
                "wideroom_bus_notices_total",
                "Notices published to topics with subscribers.",
            ),
            lag: metrics::histogram(
                "wideroom_bus_lag_seconds",
                "Time from the publication of a notice to its delivery to a subscriber, sampled.",
                LATENCIES,
            ),
            gaps: metrics::counter(
                "wideroom_bus_gaps_total",
                "Times that a subscriber missed notices and read the store instead.",
            ),
        }
    }
}

#[derive(Default)]
struct Topics {
    by_name: HashMap<Topic, TopicChannel>,
    sequence: Sequence,
}

/// Number of publications of this process so far: the logical clock of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Sequence(u64);

/// Next item of a subscriber.
#[derive(Debug, Clone)]
pub enum Received {
    Notice(Arc<NoticeEnvelope>),
    /// The subscriber has missed notices, and must read the store from its own position on.
    Lagged,
}

impl Bus {
    /// Whether payloads of other servers arrive. If not, the poller must find their writes.
    pub fn is_connected_to_peers(&self) -> bool {
        self.peers
            .as_ref()
            .is_some_and(|peers| peers.is_connected())
    }

    /// Sends a payload to another server, best effort. Without a link to peers it does nothing.
    pub fn send_to_peer(&self, server: Uuid, payload: &[u8]) {
        if let Some(peers) = &self.peers {
            peers.send(server, payload);
        }
    }

    /// Sets the address of this server, under which its peers send to it.
    pub fn listen_as(&self, server: Uuid) {
        if let Some(peers) = &self.peers {
            peers.set_own(server);
        }
    }

    /// Waits for payloads of other servers. `None` if some may have been lost. Without a link to
    /// peers it never returns.
    pub async fn receive_from_peers(&self) -> Option<Vec<Vec<u8>>> {
        match &self.peers {
            Some(peers) => peers.receive().await,
            None => std::future::pending().await,
        }
    }

    /// Delivers a notice to the current subscribers. Without subscribers the notice is dropped; its
    /// content is in the store.
    pub fn publish(&self, topic: &Topic, notice: impl Into<Arc<NoticeEnvelope>>) {
        let received = Received::Notice(notice.into());
        if self.topics.lock().publish(topic, received) {
            self.metrics.published.inc();
        }
    }

    /// Whether the topic has subscribers. Publishers skip building notices for topics without
    /// subscribers.
    pub fn has_subscribers(&self, topic: &Topic) -> bool {
        self.topics.lock().by_name.contains_key(topic)
    }

    pub fn subscriber_count(&self, topic: &Topic) -> usize {
        self.topics
            .lock()
            .by_name
            .get(topic)
            .map_or(0, |channel| channel.subscriber_count())
    }

    /// Current sequence. A read of the store that starts after this call sees everything published
    /// before it.
    pub fn sequence(&self) -> Sequence {
        self.topics.lock().sequence
    }

    /// Subscribes to all notices from now on.
    pub fn subscribe(&self, topic: Topic) -> TopicSubscription {
        let mut topics = self.topics.lock();
        let Topics { by_name, sequence } = &mut *topics;
        let channel = by_name.entry(topic.clone()).or_insert_with(|| {
            let capacity = if let Topic::Conversation(_) = topic {
                TOPIC_NOTICES_MAX
            } else {
                STATE_NOTICES_MAX
            };
            // Publishers skip topics without subscribers, so earlier publications may have advanced
            // no sequence.
            sequence.0 += 1;
            TopicChannel::new(capacity, *sequence)
        });
        TopicSubscription {
            receiver: Some(channel.subscribe()),
            since: channel.last,
            unsampled: 0,
            topic,
            bus: self.clone(),
        }
    }

    /// Makes the subscribers of one topic read the store.
    pub fn invalidate(&self, topic: &Topic) {
        self.topics.lock().publish(topic, Received::Lagged);
    }

    /// Topics with subscribers that can read the store: all but typing, which is never persisted.
    pub fn readable_topics(&self) -> Vec<Topic> {
        self.topics
            .lock()
            .by_name
            .keys()
            .filter(|topic| !matches!(topic, Topic::Typing(_)))
            .cloned()
            .collect()
    }

    /// Adds the metrics of the bus to those of the process.
    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.metrics.published.clone());
        metrics.add(self.metrics.lag.clone());
        metrics.add(self.metrics.gaps.clone());
        let bus = self.clone();
        let linked = self.clone();
        metrics.read(
            "wideroom_nats_down",
            "1 while the server has no connection to NATS (--nats) and polls the store instead, else 0.",
            move || {
                let is_down = linked.peers.is_some() && !linked.is_connected_to_peers();
                f64::from(u8::from(is_down))
            },
        );
        metrics.read(
            "wideroom_bus_topics",
            "Topics with at least one subscriber.",
            move || bus.topic_count() as f64,
        );
    }

    /// Number of topics with at least one subscriber.
    pub fn topic_count(&self) -> usize {
        self.topics.lock().by_name.len()
    }
}

impl Topics {
    /// False if the topic has no subscribers.
    fn publish(&mut self, topic: &Topic, received: Received) -> bool {
        let Some(channel) = self.by_name.get_mut(topic) else {
            return false;
        };
        self.sequence.0 += 1;
        channel.last = self.sequence;
        channel.send(received);
        true
    }
}

/// Subscriber of one topic.
pub struct TopicSubscription {
    /// `None` only while the subscription is being dropped.
    receiver: Option<TopicReceiver>,
    since: Sequence,
    /// Notices until the next lag sample.
    unsampled: u32,
    topic: Topic,
    bus: Bus,
}

impl TopicSubscription {
    /// Waits for the next item. `None` would mean a closed channel, which cannot happen while this
    /// subscription exists.
    pub async fn next(&mut self) -> Option<Received> {
        match self.receiver.as_mut()?.recv().await {
            Ok(published) => Some(self.accept(published)),
            Err(RecvError::Lagged(_)) => Some(self.lag()),
            Err(RecvError::Closed) => None,
        }
    }

    fn accept(&mut self, published: Published) -> Received {
        match published.received {
            Received::Notice(notice) => {
                self.sample_lag(published.at);
                Received::Notice(notice)
            }
            Received::Lagged => self.lag(),
        }
    }

    fn sample_lag(&mut self, published_at: Instant) {
        if self.unsampled == 0 {
            self.unsampled = LAG_SAMPLE_INTERVAL;
            self.bus
                .metrics
                .lag
                .observe(published_at.elapsed().as_secs_f64());
        }
        self.unsampled -= 1;
    }

    /// A read of the store from now on sees the missed notices.
    fn lag(&mut self) -> Received {
        self.bus.metrics.gaps.inc();
        self.since = self.bus.sequence();
        Received::Lagged
    }

    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Sequence from which on a read of the store and this subscription together miss no notice.
    pub fn since(&self) -> Sequence {
        self.since
    }

    /// Next item that has already been published. `None` if there is none at the moment.
    pub fn try_next(&mut self) -> Option<Received> {
        match self.receiver.as_mut()?.try_recv() {
            Ok(published) => Some(self.accept(published)),
            Err(TryRecvError::Lagged(_)) => Some(self.lag()),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

impl Drop for TopicSubscription {
    fn drop(&mut self) {
        let mut topics = self.bus.topics.lock();
        drop(self.receiver.take());
        if topics
            .by_name
            .get(&self.topic)
            .is_some_and(|channel| channel.subscriber_count() == 0)
        {
            topics.by_name.remove(&self.topic);
        }
    }
}
