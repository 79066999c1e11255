//! Deliveries of one shard, by the server that holds its lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::delivery::{Deliverer, DeliveryAttempt, TryOutcome};
use super::metrics::ShardState;
use super::queue::{DeliveryQueue, EventDelivery, Settlement};
use crate::chat::{FeedBatch, NotificationPiece, OutboxItem, ShardFeed, ShardLease};
use crate::model::{OrderKey, OutboxShard, Timestamp, UserId};
use crate::store::DeadLetter;

/// Deliveries of one shard at once.
const LANES: usize = 4;
/// Interval at which the position is persisted, if it has advanced by a delivery.
const POSITION_EVERY: Duration = Duration::from_secs(2);
/// Pause after a read of the outbox failed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Time for running tries once the shard is released.
const DRAIN_MAX: Duration = Duration::from_secs(3);
/// Failures in a row of one event from which on each is logged as a warning.
const WARN_FROM: u32 = 3;

pub(super) struct ShardTask {
    pub(super) hook: Arc<Deliverer>,
    pub(super) lease: ShardLease,
    /// Cancelled to release the shard.
    pub(super) stop: CancellationToken,
}

/// Queue and lease of a running shard.
struct RunningShard {
    hook: Arc<Deliverer>,
    lease: ShardLease,
    queue: DeliveryQueue,
    /// Whether an event was settled since the last renewal.
    has_advanced: bool,
}

impl ShardTask {
    /// Delivers until the lease is lost, or the task is stopped.
    pub(super) async fn run(self) {
        let Self { hook, lease, stop } = self;
        let shard = lease.shard();
        let mut running = RunningShard {
            queue: DeliveryQueue::new(lease.position()),
            hook: Arc::clone(&hook),
            lease,
            has_advanced: false,
        };
        let is_held = running.deliver(&stop).await;
        hook.metrics.record(shard, None);
        if is_held {
            let position = running.queue.position();
            if let Err(error) = running.lease.release(position).await {
                tracing::warn!(webhook = %hook.name, shard = shard.number(), %error, "the server failed to release a shard of a webhook; another server acquires it within 20 s");
            }
        } else {
            tracing::info!(webhook = %hook.name, shard = shard.number(), "another server delivers a shard of a webhook now");
        }
    }
}

impl RunningShard {
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
        let position = self.queue.position().max(self.lease.position());
        let lag = self.hook.chat.outbox.lag(position);
        let waiting = self.queue.len();
        let state = ShardState {
            position,
            lag,
            waiting,
        };
        self.hook.metrics.record(self.lease.shard(), Some(state));
        if !self.has_advanced && !self.lease.is_renewal_due() {
            return true;
        }
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

    async fn settle(&mut self, delivery: &EventDelivery, attempt: DeliveryAttempt) {
        let DeliveryAttempt { outcome, next } = attempt;
        let now = Instant::now();
        let settlement = match outcome {
            TryOutcome::Delivered => {
                self.queue.wake_silent();
                Settlement::Done
            }
            TryOutcome::Nothing => Settlement::Done,
            TryOutcome::Failed { reason, is_silent } => {
                let failures = delivery.failures.saturating_add(1);
                if failures >= WARN_FROM {
                    tracing::warn!(webhook = %self.hook.name, event = %delivery.item.event.id, failures, reason, "the receiver of a webhook fails; the event is tried again, and holds back its conversation");
                }
                Settlement::Failed {
                    again_at: now + self.hook.again_after(failures),
                    is_silent,
                }
            }
            TryOutcome::Refused { reason } => self.refused(delivery, reason).await,
            TryOutcome::Gone => {
                if !self.hook.is_gone.is_cancelled() {
                    tracing::error!(webhook = %self.hook.name, "the receiver of a webhook answers 410: the webhook is off until the server starts again. Remove it from the configuration");
                }
                self.hook.is_gone.cancel();
                // The event stays where it is.
                Settlement::Failed {
                    again_at: now + self.hook.again_after(u32::MAX),
                    is_silent: false,
                }
            }
        };
        self.has_advanced |= settlement == Settlement::Done;
        match next.filter(|_| settlement == Settlement::Done) {
            Some(next) => self.queue.replace(delivery, next),
            None => self.queue.settle(delivery, settlement),
        }
    }

    /// A refused event is tried twice more, then stored as a dead letter.
    async fn refused(&mut self, delivery: &EventDelivery, reason: String) -> Settlement {
        let (now, refusals) = (Instant::now(), delivery.refusals.saturating_add(1));
        if let Some(pause) = self.hook.policy.refusal_pause(refusals) {
            return Settlement::Refused {
                again_at: now + pause,
            };
        }
        let letter = DeadLetter {
            conversation: delivery.conversation,
            event: delivery.item.event.clone(),
            part: part_of(&delivery.item),
            died_at: wall_clock(),
            tries: refusals,
            reason,
        };
        tracing::error!(webhook = %self.hook.name, event = %delivery.item.event.id, reason = letter.reason, "the receiver of a webhook refuses an event for good; see `wideroom webhook list`");
        let name = self.hook.name.as_str();
        match self.hook.chat.store().put_dead_letter(name, &letter).await {
            Ok(()) => {
                self.hook.metrics.dead.inc();
                Settlement::Done
            }
            Err(error) => {
                tracing::warn!(webhook = %self.hook.name, %error, "the server failed to store a dead letter; it tries again");
                Settlement::Failed {
                    again_at: now + self.hook.again_after(1),
                    is_silent: false,
                }
            }
        }
    }
}

pub(super) fn wall_clock() -> Timestamp {
    let nanos = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
    Timestamp::from_micros(i64::try_from(nanos / 1_000).unwrap_or(i64::MAX))
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
