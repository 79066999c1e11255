//! What is told. In this process: a broadcast per topic, made on first interest and dropped with the last.
//!
//! The bus is a hint that something is there; the store is the truth. It never blocks who tells, and a reader that is slow is told that
//! it missed something, and reads the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

use crate::metrics::{self, Histogram, IntCounter, LATENCIES, Metrics};
use crate::model::{Notice, Topic};

/// Notices that wait for a reader. One that falls further behind reads the store instead.
pub const TOPIC_NOTICES_MAX: usize = 256;

#[derive(Clone, Default)]
pub struct Bus {
    topics: Arc<Mutex<HashMap<Topic, broadcast::Sender<Told>>>>,
    meter: Arc<Meter>,
}

/// What a topic is told, and when.
#[derive(Clone)]
struct Told {
    heard: Heard,
    at: Instant,
}

impl Told {
    fn now(heard: Heard) -> Self {
        Self { heard, at: Instant::now() }
    }
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
            lag: metrics::histogram("wideroom_bus_lag_seconds", "How long a notice waited for a listener.", LATENCIES),
            gaps: metrics::counter("wideroom_bus_gaps_total", "How often a listener missed notices, and reads the store instead."),
        }
    }
}

/// What a subscriber hears next.
#[derive(Debug, Clone)]
pub enum Heard {
    Notice(Arc<Notice>),
    /// Notices were missed: read the store from where you are.
    Gap,
}

impl Bus {
    /// Tells those who listen now. That nobody does is no failure: what is told was kept, and will be read.
    pub fn publish(&self, topic: &Topic, notice: Arc<Notice>) {
        let topics = self.topics.lock().expect("no panic while holding the topics");
        if let Some(sender) = topics.get(topic) {
            self.meter.told.inc();
            let _ = sender.send(Told::now(Heard::Notice(notice)));
        }
    }

    /// Whether anybody listens: without, a notice need not even be made.
    pub fn has_listeners(&self, topic: &Topic) -> bool {
        self.topics.lock().expect("no panic while holding the topics").contains_key(topic)
    }

    /// Hears everything that is told from now on.
    pub fn subscribe(&self, topic: Topic) -> Subscription {
        let mut topics = self.topics.lock().expect("no panic while holding the topics");
        let sender = topics.entry(topic.clone()).or_insert_with(|| broadcast::Sender::new(TOPIC_NOTICES_MAX));
        Subscription { receiver: Some(sender.subscribe()), topic, bus: self.clone() }
    }

    /// Has everybody who listens read the store: something may have been written that nobody here was told of.
    pub fn lose(&self) {
        let topics = self.topics.lock().expect("no panic while holding the topics");
        for sender in topics.values() {
            let _ = sender.send(Told::now(Heard::Gap));
        }
    }

    /// The same for those who listen to one topic.
    pub fn lose_one(&self, topic: &Topic) {
        let topics = self.topics.lock().expect("no panic while holding the topics");
        if let Some(sender) = topics.get(topic) {
            let _ = sender.send(Told::now(Heard::Gap));
        }
    }

    /// Whether anybody listens to any inbox.
    pub fn has_inbox_listeners(&self) -> bool {
        let topics = self.topics.lock().expect("no panic while holding the topics");
        topics.keys().any(|topic| matches!(topic, Topic::Inbox(_)))
    }

    /// Tells what it counts of itself.
    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.meter.told.clone());
        metrics.add(self.meter.lag.clone());
        metrics.add(self.meter.gaps.clone());
        let bus = self.clone();
        metrics.read("wideroom_bus_topics", "Topics that somebody listens to.", move || bus.topic_count() as f64);
    }

    fn heard(&self, told: Told) -> Heard {
        match told.heard {
            Heard::Notice(_) => self.meter.lag.observe(told.at.elapsed().as_secs_f64()),
            Heard::Gap => self.meter.gaps.inc(),
        }
        told.heard
    }

    fn missed(&self) -> Heard {
        self.meter.gaps.inc();
        Heard::Gap
    }

    /// Topics that somebody listens to.
    pub fn topic_count(&self) -> usize {
        self.topics.lock().expect("no panic while holding the topics").len()
    }
}

/// One listener of one topic.
pub struct Subscription {
    /// Always there until it is dropped.
    receiver: Option<broadcast::Receiver<Told>>,
    topic: Topic,
    bus: Bus,
}

impl Subscription {
    /// `None` when there will be nothing more, which no topic says as long as this listener lives.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.receiver.as_mut()?.recv().await {
            Ok(told) => Some(self.bus.heard(told)),
            Err(RecvError::Lagged(_)) => Some(self.bus.missed()),
            Err(RecvError::Closed) => None,
        }
    }

    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// What was told already and not yet heard. `None`: nothing, for now.
    pub fn try_next(&mut self) -> Option<Heard> {
        match self.receiver.as_mut()?.try_recv() {
            Ok(told) => Some(self.bus.heard(told)),
            Err(TryRecvError::Lagged(_)) => Some(self.bus.missed()),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = self.bus.topics.lock().expect("no panic while holding the topics");
        drop(self.receiver.take());
        if topics.get(&self.topic).is_some_and(|sender| sender.receiver_count() == 0) {
            topics.remove(&self.topic);
        }
    }
}
