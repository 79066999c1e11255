//! Metrics of webhooks, by their names.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::chat::ReaderName;
use crate::metrics::{
    self, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, LATENCIES,
    Metrics,
};
use crate::model::{OrderKey, OutboxShard};

/// Metrics of all webhooks of a server.
pub(super) struct WebhookMetrics {
    tries: IntCounterVec,
    dead: IntCounterVec,
    seconds: HistogramVec,
    shards: IntGaugeVec,
    waiting: IntGaugeVec,
    held: IntGaugeVec,
    position: IntGaugeVec,
    lag: IntGaugeVec,
}

impl WebhookMetrics {
    pub(super) fn new() -> Self {
        let gauges = |name, help| metrics::gauges(name, help, &["webhook"]);
        Self {
            tries: metrics::counters(
                "wideroom_webhook_tries_total",
                "Tries to deliver an event to a webhook, by outcome.",
                &["webhook", "outcome"],
            ),
            dead: metrics::counters(
                "wideroom_webhook_dead_letters_total",
                "Events that the receiver of a webhook refused for good.",
                &["webhook"],
            ),
            seconds: metrics::histograms(
                "wideroom_webhook_seconds",
                "Duration of the tries of a webhook, from the load of the event to the answer.",
                &["webhook"],
                LATENCIES,
            ),
            shards: gauges(
                "wideroom_webhook_shards",
                "Shards of the outbox that this server delivers to a webhook: 16 over all servers.",
            ),
            waiting: gauges(
                "wideroom_webhook_waiting",
                "Events in memory that wait for their delivery to a webhook.",
            ),
            held: gauges(
                "wideroom_webhook_held",
                "Conversations that a webhook delivers apart from the others, because an event failed, took long, or was one of many.",
            ),
            position: gauges(
                "wideroom_webhook_position_seconds",
                "Time up to which this server has delivered all events to a webhook, since 1970.",
            ),
            lag: gauges(
                "wideroom_webhook_lag_seconds",
                "Age of the position up to which this server has delivered all events to a webhook.",
            ),
        }
    }

    pub(super) fn register(&self, metrics: &Metrics) {
        metrics.add(self.tries.clone());
        metrics.add(self.dead.clone());
        metrics.add(self.seconds.clone());
        metrics.add(self.shards.clone());
        metrics.add(self.waiting.clone());
        metrics.add(self.held.clone());
        metrics.add(self.position.clone());
        metrics.add(self.lag.clone());
    }

    pub(super) fn of(&self, webhook: &ReaderName) -> HookMetrics {
        let name = &[webhook.as_str()];
        let tries = |outcome| self.tries.with_label_values(&[webhook.as_str(), outcome]);
        HookMetrics {
            delivered: tries("delivered"),
            refused: tries("refused"),
            failed: tries("failed"),
            dead: self.dead.with_label_values(name),
            seconds: self.seconds.with_label_values(name),
            shards: self.shards.with_label_values(name),
            waiting: self.waiting.with_label_values(name),
            held_conversations: self.held.with_label_values(name),
            position: self.position.with_label_values(name),
            lag: self.lag.with_label_values(name),
            held: Mutex::default(),
        }
    }
}

/// Metrics of one webhook.
pub(super) struct HookMetrics {
    pub(super) delivered: IntCounter,
    pub(super) refused: IntCounter,
    pub(super) failed: IntCounter,
    pub(super) dead: IntCounter,
    pub(super) seconds: Histogram,
    shards: IntGauge,
    waiting: IntGauge,
    held_conversations: IntGauge,
    position: IntGauge,
    lag: IntGauge,
    /// State of each shard that this server delivers.
    held: Mutex<HashMap<OutboxShard, ShardState>>,
}

#[derive(Clone, Copy)]
pub(super) struct ShardState {
    pub(super) position: OrderKey,
    pub(super) lag: Duration,
    pub(super) waiting: usize,
    pub(super) held: usize,
}

impl HookMetrics {
    /// Records the state of a shard. `None`: this server delivers it no more.
    pub(super) fn record(&self, shard: OutboxShard, state: Option<ShardState>) {
        let mut held = self.held.lock();
        match state {
            Some(state) => held.insert(shard, state),
            None => held.remove(&shard),
        };
        let waiting: usize = held.values().map(|state| state.waiting).sum();
        let apart: usize = held.values().map(|state| state.held).sum();
        let lag = held
            .values()
            .map(|state| state.lag)
            .max()
            .unwrap_or_default();
        let oldest = held.values().map(|state| state.position).min();
        let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.shards.set(whole(held.len()));
        self.waiting.set(whole(waiting));
        self.held_conversations.set(whole(apart));
        self.lag.set(lag.as_secs().cast_signed());
        let seconds = |position: OrderKey| position.moment().micros() / 1_000_000;
        self.position.set(oldest.map_or(0, seconds));
    }
}
