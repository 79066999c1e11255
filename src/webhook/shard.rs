//! Deliveries of one shard, by the server that holds its lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::delivery::{Deliverer, DeliveryAttempt, FailureCause, TryOutcome};
use super::metrics::ShardState;
use super::queue::{DeliveryQueue, EventDelivery, Settlement};
use super::retry::{FailureRecord, Verdict};
use crate::chat::{FeedBatch, NotificationPiece, OutboxItem, SavedPosition, ShardFeed, ShardLease};
use crate::model::{OrderKey, OutboxShard, UserId};
use crate::store::{DeadLetter, OutboxPage};

/// Deliveries of one shard at once.
pub(super) const LANES: usize = 4;
/// Interval at which the position is persisted, if it has advanced by a delivery.
const POSITION_EVERY: Duration = Duration::from_secs(2);
/// Pause after a read of the outbox failed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Time for running tries once the shard is released.
const DRAIN_MAX: Duration = Duration::from_secs(3);
/// Duration of a try from which on its conversation is slow.
const SLOW_AFTER: Duration = Duration::from_secs(2);
/// Failures in a row of one event from which on each is logged as a warning.
const WARN_FROM: u32 = 3;

/// Queue and lease of a running shard.
pub(super) struct ShardTask {
    hook: Arc<Deliverer>,
    lease: ShardLease,
    queue: DeliveryQueue,
    /// Whether an event was settled since the last renewal.
    has_advanced: bool,
}

impl ShardTask {
    pub(super) fn new(hook: Arc<Deliverer>, lease: ShardLease) -> Self {
        Self {
            queue: DeliveryQueue::new(lease.position(), lease.held()),
            hook,
            lease,
            has_advanced: false,
        }
    }

    /// Delivers until the lease is lost, or `stop` is cancelled to release the shard.
    pub(super) async fn run(mut self, stop: &CancellationToken) {
        let (hook, shard) = (Arc::clone(&self.hook), self.lease.shard());
        let is_held = self.deliver(stop).await;
        hook.metrics.record(shard, None);
        if is_held {
            let position = self.saved().await;
            if let Err(error) = self.lease.release(position).await {
                tracing::warn!(webhook = %hook.name, shard = shard.number(), %error, "the server failed to release a shard of a webhook; another server acquires it within 20 s");
            }
        } else {
            tracing::info!(webhook = %hook.name, shard = shard.number(), "another server delivers a shard of a webhook now");
        }
    }

    /// Delivers. Returns whether this server still holds the lease.
    async fn deliver(&mut self, stop: &CancellationToken) -> bool {
        let (batches, mut received) = mpsc::channel(1);
        let feed = self.hook.chat.outbox.shard_feed(
            self.lease.shard(),
            self.lease.position(),
            &self.hook.types,
        );
        let reader = read_batches(feed, batches, self.lease.shard());
        let _reader = AbortOnDropHandle::new(tokio::spawn(reader));
        let mut tries = FuturesUnordered::new();
        // At most one read of what was passed over.
        let mut rereads = FuturesUnordered::new();
        let mut ticks = interval(POSITION_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = Instant::now();
            let pause = self.hook.pause_end(now);
            while tries.len() < LANES && pause.is_none() && self.lease.is_valid() {
                let Some(delivery) = self.queue.take(now) else {
                    break;
                };
                let hook = Arc::clone(&self.hook);
                tries.push(async move {
                    let attempt = hook.attempt(&delivery).await;
                    (delivery, attempt)
                });
            }
            if rereads.is_empty()
                && let Some((after, end)) = self.queue.wants()
            {
                let (hook, shard) = (Arc::clone(&self.hook), self.lease.shard());
                rereads.push(async move { (after, read_again(&hook, shard, after, end).await) });
            }
            let has_lane = tries.len() < LANES && self.lease.is_valid();
            let due = self.queue.next_due(now).filter(|_| has_lane);
            let due = due.map(|due| pause.map_or(due, |pause| pause.max(due)));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = ticks.tick() => {
                    if !self.keep().await {
                        return false;
                    }
                }
                Some((delivery, attempt)) = tries.next(), if !tries.is_empty() => {
                    self.settle(&delivery, attempt).await;
                }
                Some((after, page)) = rereads.next(), if !rereads.is_empty() => {
                    self.queue.catch_up(after, page, &self.hook.types);
                }
                batch = received.recv(), if self.queue.has_room() => match batch {
                    Some(batch) => self.queue.add(batch, &self.hook.types),
                    None => break,
                },
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => {}
            }
        }
        // Their outcomes still count; the others are tries of the next holder.
        let drain = async {
            while let Some((delivery, attempt)) = tries.next().await {
                self.settle(&delivery, attempt).await;
            }
        };
        let _ = timeout(DRAIN_MAX, drain).await;
        true
    }

    /// Renews the lease and persists the position, if it is time. Returns false once another server has acquired
    /// the shard.
    async fn keep(&mut self) -> bool {
        let position = self.queue.position();
        let state = ShardState {
            position,
            lag: self.hook.chat.outbox.lag(position),
            waiting: self.queue.len(),
            held: self.queue.held(),
        };
        self.hook.metrics.record(self.lease.shard(), Some(state));
        if !self.has_advanced && !self.lease.is_renewal_due() {
            return true;
        }
        let position = self.saved().await;
        match self.lease.renew(position).await {
            Ok(true) => {
                self.has_advanced = false;
                true
            }
            Ok(false) => false,
            Err(error) => {
                tracing::warn!(webhook = %self.hook.name, shard = self.lease.shard().number(), %error, "the server failed to persist the position of a webhook; it tries again, and delivers nothing once its lease has ended");
                true
            }
        }
    }

    async fn saved(&self) -> SavedPosition {
        let held_max = self.hook.chat.outbox.held_max().await;
        self.queue.saved(self.lease.position(), held_max)
    }

    async fn settle(&mut self, delivery: &EventDelivery, attempt: DeliveryAttempt) {
        let DeliveryAttempt {
            outcome,
            next,
            took,
        } = attempt;
        let (now, mut record) = (Instant::now(), delivery.record);
        let done = match outcome {
            TryOutcome::Delivered => {
                self.queue.wake_silent();
                record = FailureRecord::default();
                None
            }
            TryOutcome::Nothing => {
                record = record.next_event();
                None
            }
            TryOutcome::Failed(cause, reason) => {
                let (verdict, is_silent) = self.failed(&mut record, now, took, cause);
                if record.failures >= WARN_FROM {
                    tracing::warn!(webhook = %self.hook.name, event = %delivery.item.event.id, failures = record.failures, reason, "the receiver of a webhook fails; the event is tried again, and holds back its conversation");
                }
                self.carry_out(delivery, verdict, &mut record, reason, is_silent)
                    .await
            }
            TryOutcome::Refused(reason) => {
                let verdict = self.hook.policy.refused(&mut record);
                self.carry_out(delivery, verdict, &mut record, reason, false)
                    .await
            }
            TryOutcome::Gone => {
                if !self.hook.is_gone.is_cancelled() {
                    tracing::error!(webhook = %self.hook.name, "the receiver of a webhook answers 410: the webhook is off until the server starts again. Remove it from the configuration");
                }
                self.hook.is_gone.cancel();
                // The event stays where it is.
                Some(Settlement::Again {
                    at: now + self.hook.policy.longest,
                    is_silent: false,
                })
            }
        };
        let settlement = done.unwrap_or_else(|| next.map_or(Settlement::Done, Settlement::Next));
        self.has_advanced |= !matches!(settlement, Settlement::Again { .. });
        self.queue
            .settle(delivery, settlement, record, took > SLOW_AFTER, now);
    }

    /// Decides about an event that failed, and whether the receiver is silent for all. One that took others' events during
    /// the try is not.
    fn failed(
        &self,
        record: &mut FailureRecord,
        now: Instant,
        took: Duration,
        cause: FailureCause,
    ) -> (Verdict, bool) {
        let policy = &self.hook.policy;
        if cause == FailureCause::Server {
            return (Verdict::Again(policy.failed_here(record)), false);
        }
        let taken_at = *self.hook.taken_at.lock();
        let takes_others = taken_at.is_some_and(|taken_at| taken_at + took > now);
        let is_silent = cause == FailureCause::Silence && !takes_others;
        (policy.failed(record, now, taken_at), is_silent)
    }

    /// Carries out a decision about an event that was not delivered. `None` if the event is done.
    async fn carry_out(
        &self,
        delivery: &EventDelivery,
        verdict: Verdict,
        record: &mut FailureRecord,
        reason: String,
        is_silent: bool,
    ) -> Option<Settlement> {
        let pause = match verdict {
            Verdict::Again(pause) => pause,
            Verdict::DeadLetter if self.bury(delivery, *record, reason).await => {
                *record = record.next_event();
                return None;
            }
            Verdict::DeadLetter => self.hook.policy.pause(1),
        };
        Some(Settlement::Again {
            at: Instant::now() + pause,
            is_silent,
        })
    }

    /// Stores a dead letter. Returns whether that was done.
    async fn bury(&self, delivery: &EventDelivery, record: FailureRecord, reason: String) -> bool {
        let letter = DeadLetter {
            conversation: delivery.conversation,
            event: delivery.item.event.clone(),
            part: part_of(&delivery.item),
            died_at: self.hook.chat.outbox.now(),
            tries: record.failures.max(record.strikes),
            reason,
        };
        tracing::error!(webhook = %self.hook.name, event = %delivery.item.event.id, reason = letter.reason, tries = letter.tries, "the receiver of a webhook does not take an event, which is now a dead letter; see `wideroom webhook list`");
        let name = self.hook.name.as_str();
        match self.hook.chat.store().put_dead_letter(name, &letter).await {
            Ok(()) => {
                self.hook.metrics.dead.inc();
                true
            }
            Err(error) => {
                tracing::warn!(webhook = %self.hook.name, %error, "the server failed to store a dead letter; it tries again");
                false
            }
        }
    }
}

/// A page of the rows that were passed over. Repeats the read until the store answers.
async fn read_again(
    hook: &Deliverer,
    shard: OutboxShard,
    after: OrderKey,
    end: OrderKey,
) -> OutboxPage {
    loop {
        match hook.chat.outbox.shard_page(shard, after, end).await {
            Ok(page) => return page,
            Err(error) => {
                tracing::debug!(shard = shard.number(), %error, "the server failed to read the outbox again for a webhook; it tries again");
            }
        }
        sleep(READ_AGAIN_AFTER).await;
    }
}

/// Reads the shard ahead of the deliveries, by one batch.
async fn read_batches(mut feed: ShardFeed, batches: mpsc::Sender<FeedBatch>, shard: OutboxShard) {
    let mut has_failed = false;
    loop {
        match feed.next().await {
            Ok(batch) => {
                has_failed = false;
                if batches.send(batch).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                if !has_failed {
                    tracing::warn!(shard = shard.number(), %error, "the server failed to read the outbox for a webhook; it tries again");
                }
                has_failed = true;
                sleep(READ_AGAIN_AFTER).await;
            }
        }
    }
}

/// Part of a dead letter that holds a notification.
const NOTIFICATION_PART: &str = "notification";

fn part_of(item: &OutboxItem) -> String {
    match &item.piece {
        None => String::new(),
        Some(NotificationPiece { after: None }) => NOTIFICATION_PART.to_owned(),
        Some(NotificationPiece { after: Some(user) }) => format!("{NOTIFICATION_PART}:{user}"),
    }
}

/// Item of a dead letter.
pub(super) fn item_of(letter: &DeadLetter) -> OutboxItem {
    OutboxItem {
        event: letter.event.clone(),
        piece: letter.part.strip_prefix(NOTIFICATION_PART).map(|rest| {
            let after = rest
                .strip_prefix(':')
                .and_then(|name| UserId::parse(name).ok());
            NotificationPiece { after }
        }),
    }
}

/// Position of a dead letter, for its cursor: that of its event.
pub(super) fn position_of(letter: &DeadLetter) -> OrderKey {
    letter.event.id.order_key()
}
