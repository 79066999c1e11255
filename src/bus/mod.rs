//! What is told. In this process: a broadcast per topic, made on first interest and dropped with the last.
//!
//! The bus is a hint that something is there; the store is the truth. It never blocks who tells, and a reader that is slow is told that
//! it missed something, and reads the store. Where several servers share a store they may also tell each other (`nats`).

mod nats;
mod signal;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

pub use self::nats::{NatsAddress, NatsAddressError, NatsError};
pub use self::signal::Signal;
use self::wire::Wire;
use crate::metrics::{self, Histogram, IntCounter, LATENCIES, Metrics};
use crate::model::{Notice, Topic};

/// Notices of a conversation that wait for a reader. One that falls further behind reads the store instead.
pub const TOPIC_NOTICES_MAX: usize = 256;
/// The same of what carries states, where only the last one counts: room for each is kept from the first listener on.
const STATES_MAX: usize = 32;
/// Of so many notices that a listener hears, the wait of one is taken.
const LAG_SAMPLE: u32 = 16;

#[derive(Clone, Default)]
pub struct Bus {
    topics: Arc<Mutex<Topics>>,
    /// Where other servers are heard.
    wire: Option<Arc<Wire>>,
    meter: Arc<Meter>,
}

/// What goes to the listeners of a topic, and when it did.
#[derive(Clone)]
struct Sent {
    heard: Heard,
    at: Instant,
}

struct Meter {
    told: IntCounter,
    lag: Histogram,
    gaps: IntCounter,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            told: metrics::counter("wideroom_bus_notices_total", "Notices that were told to a topic with listeners."),
            lag: metrics::histogram("wideroom_bus_lag_seconds", "How long a notice waited for a listener, of a sample.", LATENCIES),
            gaps: metrics::counter("wideroom_bus_gaps_total", "How often a listener missed notices, and reads the store instead."),
        }
    }
}

#[derive(Default)]
struct Topics {
    by_name: HashMap<Topic, Told>,
    now: Moment,
}

/// A topic that somebody listens to.
struct Told {
    sender: broadcast::Sender<Sent>,
    /// When something was last told, or nobody listened.
    last: Moment,
}

/// How much was told in this process: the time of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

/// What a subscriber hears next.
#[derive(Debug, Clone)]
pub enum Heard {
    Notice(Arc<Notice>),
    /// Notices were missed: read the store from where you are.
    Gap,
}

fn lock(topics: &Mutex<Topics>) -> MutexGuard<'_, Topics> {
    topics.lock().expect("no panic while holding the topics")
}

impl Bus {
    fn topics(&self) -> MutexGuard<'_, Topics> {
        lock(&self.topics)
    }

    /// Says something to the other servers, where there are some to be heard. It may be lost.
    pub fn say(&self, signal: impl FnOnce() -> Signal) {
        if let Some(wire) = &self.wire {
            wire.say(signal());
        }
    }

    /// Whether other servers are heard: else one has to look for what they write.
    pub fn hears_others(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.is_up())
    }

    /// What other servers said, once they did. `None`: something may have been missed. Without others: never.
    pub async fn hear_others(&self) -> Option<Vec<Signal>> {
        match &self.wire {
            Some(wire) => wire.heard().await,
            None => std::future::pending().await,
        }
    }

    fn touch(&self, topic: &Topic) {
        if let Some(wire) = &self.wire {
            wire.touch(topic);
        }
    }

    /// Tells those who listen now. That nobody does is no failure: what is told was kept, and will be read.
    pub fn publish(&self, topic: &Topic, notice: Arc<Notice>) {
        if self.topics().tell(topic, Heard::Notice(notice)) {
            self.meter.told.inc();
        }
    }

    /// Whether anybody listens: without, a notice need not even be made.
    pub fn has_listeners(&self, topic: &Topic) -> bool {
        self.topics().by_name.contains_key(topic)
    }

    pub fn listener_count(&self, topic: &Topic) -> usize {
        self.topics().by_name.get(topic).map_or(0, |told| told.sender.receiver_count())
    }

    /// Now: what is read from here on shows all that was told before.
    pub fn now(&self) -> Moment {
        self.topics().now
    }

    /// Hears everything that is told from now on.
    pub fn subscribe(&self, topic: Topic) -> Subscription {
        let mut topics = self.topics();
        let Topics { by_name, now } = &mut *topics;
        let told = by_name.entry(topic.clone()).or_insert_with(|| {
            let room = if let Topic::Conversation(_) = topic { TOPIC_NOTICES_MAX } else { STATES_MAX };
            // Until now nobody was told anything, whatever there was to tell.
            now.0 += 1;
            self.touch(&topic);
            Told { sender: broadcast::Sender::new(room), last: *now }
        });
        Subscription { receiver: Some(told.sender.subscribe()), since: told.last, unsampled: 0, topic, bus: self.clone() }
    }

    /// Has everybody who listens read the store: something may have been written that nobody here was told of.
    pub fn lose(&self) {
        let mut topics = self.topics();
        topics.now.0 += 1;
        let now = topics.now;
        for told in topics.by_name.values_mut() {
            told.last = now;
            told.send(Heard::Gap);
        }
    }

    /// The same for those who listen to one topic.
    pub fn lose_one(&self, topic: &Topic) {
        self.topics().tell(topic, Heard::Gap);
    }

    /// Whether anybody listens to any inbox.
    pub fn has_inbox_listeners(&self) -> bool {
        self.topics().by_name.keys().any(|topic| matches!(topic, Topic::Inbox(_)))
    }

    /// Tells what it counts of itself.
    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.meter.told.clone());
        metrics.add(self.meter.lag.clone());
        metrics.add(self.meter.gaps.clone());
        let bus = self.clone();
        metrics.read("wideroom_bus_topics", "Topics that somebody listens to.", move || bus.topic_count() as f64);
    }

    /// Topics that somebody listens to.
    pub fn topic_count(&self) -> usize {
        self.topics().by_name.len()
    }
}

impl Topics {
    /// Whether anybody listens.
    fn tell(&mut self, topic: &Topic, heard: Heard) -> bool {
        let Some(told) = self.by_name.get_mut(topic) else { return false };
        self.now.0 += 1;
        told.last = self.now;
        told.send(heard);
        true
    }
}

impl Told {
    fn send(&self, heard: Heard) {
        let _ = self.sender.send(Sent { heard, at: Instant::now() });
    }
}

/// One listener of one topic.
pub struct Subscription {
    /// Always there until it is dropped.
    receiver: Option<broadcast::Receiver<Sent>>,
    since: Moment,
    /// Notices until the wait of one is taken.
    unsampled: u32,
    topic: Topic,
    bus: Bus,
}

impl Subscription {
    /// `None` when there will be nothing more, which no topic says as long as this listener lives.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.receiver.as_mut()?.recv().await {
            Ok(sent) => Some(self.heard(sent)),
            Err(RecvError::Lagged(_)) => Some(self.gap()),
            Err(RecvError::Closed) => None,
        }
    }

    fn heard(&mut self, sent: Sent) -> Heard {
        match sent.heard {
            Heard::Notice(notice) => {
                self.sample_lag(sent.at);
                Heard::Notice(notice)
            }
            Heard::Gap => self.gap(),
        }
    }

    fn sample_lag(&mut self, sent: Instant) {
        if self.unsampled == 0 {
            self.unsampled = LAG_SAMPLE;
            self.bus.meter.lag.observe(sent.elapsed().as_secs_f64());
        }
        self.unsampled -= 1;
    }

    /// What is read from now on shows what was missed.
    fn gap(&mut self) -> Heard {
        self.bus.meter.gaps.inc();
        self.since = self.bus.now();
        Heard::Gap
    }

    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// What was read from this moment on and what is heard here have no gap between them.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// What was told already and not yet heard. `None`: nothing, for now.
    pub fn try_next(&mut self) -> Option<Heard> {
        match self.receiver.as_mut()?.try_recv() {
            Ok(sent) => Some(self.heard(sent)),
            Err(TryRecvError::Lagged(_)) => Some(self.gap()),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = self.bus.topics();
        drop(self.receiver.take());
        if topics.by_name.get(&self.topic).is_some_and(|told| told.sender.receiver_count() == 0) {
            topics.by_name.remove(&self.topic);
            self.bus.touch(&self.topic);
        }
    }
}
