//! Removal: takes what lies below the floors of conversations off the disk.
//!
//! Each server works through the lists of the hours that have begun, for the shards that it holds. On a cluster one
//! server at a time holds a shard, by a lease beside its position. A lost lease means that a step is repeated, which changes
//! nothing. A message is removed once it has been below the floor of everyone for an hour: by then every change of an expiry
//! that would show it is visible.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::bounds::Bounds;
use super::components::Components;
use super::due_shards::{DueQueue, HeldShard, ShardHolder};
use super::error::Result;
use crate::chat::access::Access;
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::index::SearchIndex;
use crate::chat::late_rule::log_in_time;
use crate::metrics::{self, IntCounter, Metrics};
use crate::model::{Conversation, ConversationId, OrderKey, Timestamp};
use crate::store::{
    DUE_KEPT_HOURS, DueQuery, DueRemoval, HistoryRemoval, OldestBucket, REMOVAL_DELAY_MICROS,
    Store, hour_of, removal_hour, widest_micros,
};

/// Interval of passes.
const PASS_EVERY: Duration = Duration::from_secs(60);
/// Time after which a pass ends; the next one continues.
const PASS_MAX: Duration = Duration::from_secs(50);
/// The lists of removals, and their leases. Each pass renews them.
const QUEUE: DueQueue = DueQueue {
    reader: "wideroom:removal",
    slot: Duration::from_secs(3_600),
    late_slots: 4,
    kept_slots: DUE_KEPT_HOURS,
    new_slots: DUE_KEPT_HOURS,
    lease_for: Duration::from_secs(180),
    lease_margin: Duration::from_secs(10),
    renew_after: Duration::ZERO,
}
.checked(PASS_EVERY, PASS_MAX);
/// Entries of one read of the list.
const ENTRIES_MAX: usize = 64;
/// Messages of one step, about.
const STEP_MESSAGES: usize = 500;
/// A decision on what is below the floor is as old as this, at most.
const DECISION_MAX: Duration = Duration::from_secs(300);
/// Conversations that are scheduled at once, when the expiry of the deployment has changed.
const SCHEDULED_AT_ONCE: usize = 256;
/// Time from a change of a floor to the earliest begin of its removal: the change is stored by then.
const CHANGE_MICROS: i64 = 5 * 60 * 1_000_000;

/// Service that removes history. Clones share it.
#[derive(Clone)]
pub struct RemovalService(Arc<Remover>);

struct Remover {
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
    access: Arc<Access>,
    index: Arc<SearchIndex>,
    retention_seconds: Option<u32>,
    meter: RemovalMeter,
}

struct RemovalMeter {
    messages: IntCounter,
    conversations: IntCounter,
    failures: IntCounter,
}

/// The hour from which a change of a floor at this moment is removed from the disk.
pub(crate) fn hour_of_change(now: Timestamp) -> u32 {
    hour_of(now.plus_micros(CHANGE_MICROS)) + 1
}

impl RemovalService {
    pub(crate) fn new(components: &Components, bounds: &Bounds) -> Self {
        let retention_seconds = bounds.retention_seconds();
        components.store.set_retention(retention_seconds);
        let meter = RemovalMeter {
            messages: metrics::counter(
                "wideroom_removed_messages_total",
                "Messages below the floor that were removed from the disk.",
            ),
            conversations: metrics::counter(
                "wideroom_removals_total",
                "Conversations whose expired or truncated history was removed from the disk.",
            ),
            failures: metrics::counter(
                "wideroom_removal_failures_total",
                "Removals of history that failed and are repeated.",
            ),
        };
        Self(Arc::new(Remover {
            store: Arc::clone(&components.store),
            in_flight: components.in_flight.clone(),
            access: Arc::clone(&components.access),
            index: Arc::clone(&components.index),
            retention_seconds,
            meter,
        }))
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.add(self.0.meter.messages.clone());
        metrics.add(self.0.meter.conversations.clone());
        metrics.add(self.0.meter.failures.clone());
    }

    /// A worker of this server. It holds no shard yet.
    pub fn worker(&self) -> RemovalWorker {
        RemovalWorker {
            remover: Arc::clone(&self.0),
            shards: ShardHolder::new(QUEUE, Arc::clone(&self.0.store), self.0.in_flight.clone()),
        }
    }
}

/// Works through the lists of removals. A server has one.
pub struct RemovalWorker {
    remover: Arc<Remover>,
    shards: ShardHolder,
}

impl RemovalWorker {
    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut passes = interval(PASS_EVERY);
        passes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            passes.tick().await;
            if let Err(error) = self.pass().await {
                tracing::warn!(%error, "the server failed to remove expired history from the disk; it tries again");
            }
        }
    }

    /// Removes everything that is due in the shards that this server holds or can acquire, as far as the time of one pass
    /// goes.
    pub async fn pass(&mut self) -> Result<()> {
        let began = Instant::now();
        let now = self.remover.in_flight.now();
        self.shards.acquire(now).await?;
        if self.shards.holds_first() {
            self.remover.schedule_all(now).await?;
        }
        let mut worked = Ok(());
        for shard in self.shards.held_mut() {
            let done = self.remover.work_through(shard, now, began).await;
            worked = worked.and(done);
        }
        self.shards.renew().await?;
        worked
    }
}

impl Remover {
    /// Schedules every conversation with an expiry or a floor once, after an import and when the expiry of the deployment has
    /// changed.
    async fn schedule_all(&self, now: Timestamp) -> Result<()> {
        let retention = self.retention_seconds;
        if self.store.scheduled_retention().await? == retention {
            return Ok(());
        }
        let mut after = None;
        loop {
            let found = self
                .store
                .all_conversations(after, SCHEDULED_AT_ONCE)
                .await?;
            let bounded = found.iter().filter(|(one, _)| {
                let ttl = one.history.ttl_seconds.or(retention);
                ttl.is_some() || one.history.floor > OrderKey::MIN
            });
            let schedule = |(one, _): &(Conversation, Option<Timestamp>)| {
                self.store.schedule_removal(DueRemoval {
                    hour: hour_of(now),
                    conversation: one.id,
                })
            };
            try_join_all(bounded.map(schedule)).await?;
            if found.len() < SCHEDULED_AT_ONCE {
                break;
            }
            after = found.last().map(|(one, _)| one.id);
        }
        Ok(self.store.note_scheduled_retention(retention).await?)
    }

    /// Handles the entries of a shard until the present hour.
    async fn work_through(
        &self,
        shard: &mut HeldShard,
        now: Timestamp,
        began: Instant,
    ) -> Result<()> {
        let (mut after, mut failed) = (None, None);
        loop {
            let query = DueQuery {
                shard: shard.shard,
                from: shard.from,
                up_to: hour_of(now),
                after,
                limit: ENTRIES_MAX,
            };
            let entries = self.store.due_removals(&query).await?;
            for due in &entries {
                if began.elapsed() > PASS_MAX || !shard.is_valid() {
                    return Ok(());
                }
                if let Err(error) = self.remove(*due).await {
                    // One conversation does not hold up the others. Its entry stays.
                    self.meter.failures.inc();
                    failed = Some(error);
                }
            }
            after = entries.last().copied();
            if entries.len() < ENTRIES_MAX {
                return match failed {
                    Some(error) => Err(error),
                    None => {
                        shard.advance(hour_of(now));
                        Ok(())
                    }
                };
            }
        }
    }

    /// Removes what is due of one conversation, and schedules the rest.
    async fn remove(&self, due: DueRemoval) -> Result<()> {
        let id = due.conversation;
        let decided_at = Instant::now();
        let found = self.store.conversations(&[id]).await?.pop().flatten();
        let Some(conversation) = found else {
            return Ok(self.store.end_removal(due).await?);
        };
        let now = self.in_flight.now();
        let ttl = self.access.ttl_seconds(&conversation);
        let settled = now.plus_micros(-REMOVAL_DELAY_MICROS);
        let expired = self.access.expired_at(&conversation, settled);
        let raised = conversation.history.floor;
        let (mut messages, mut removed) = (0, raised);
        if raised > OrderKey::MIN {
            messages += self.remove_up_to(id, raised, None, decided_at).await?;
        }
        let oldest = self.store.oldest_bucket(id).await?;
        if let Some(expired) = expired.filter(|expired| is_due(oldest, *expired, ttl)) {
            self.log_expiry(id).await?;
            messages += self.remove_up_to(id, expired, ttl, decided_at).await?;
            removed = removed.max(expired);
        }
        // The words of messages that are gone, and of those that were edited or deleted.
        self.index.trim(id, removed).await?;
        if messages > 0 {
            self.meter.conversations.inc();
        }
        if let Some(hour) = self.next_hour(&conversation, ttl, expired, now).await? {
            let next = DueRemoval {
                hour,
                conversation: id,
            };
            self.store.schedule_removal(next).await?;
        }
        Ok(self.store.end_removal(due).await?)
    }

    async fn remove_up_to(
        &self,
        id: ConversationId,
        up_to: OrderKey,
        ttl_seconds: Option<u32>,
        decided_at: Instant,
    ) -> Result<u64> {
        let removal = HistoryRemoval {
            up_to,
            ttl_seconds,
            limit: STEP_MESSAGES,
        };
        let mut messages = 0;
        loop {
            if decided_at.elapsed() > DECISION_MAX {
                // Another pass decides anew.
                return Err(super::Error::Busy);
            }
            let removed = self.store.remove_history(id, &removal).await?;
            messages += removed.messages;
            self.meter.messages.inc_by(removed.messages);
            if removed.is_done {
                return Ok(messages);
            }
            tokio::task::yield_now().await;
        }
    }

    /// The hour in which the oldest messages that stay are due. `None` without an expiry or a message.
    async fn next_hour(
        &self,
        conversation: &Conversation,
        ttl: Option<u32>,
        expired: Option<OrderKey>,
        now: Timestamp,
    ) -> Result<Option<u32>> {
        let (Some(ttl), Some(expired)) = (ttl, expired) else {
            return Ok(None);
        };
        let Some(oldest) = self.store.oldest_bucket(conversation.id).await? else {
            return Ok(None);
        };
        let mut end = oldest.last.moment().plus_micros(1);
        if is_wide(oldest, ttl) {
            // It goes part by part.
            let next = expired.max(oldest.first).moment();
            end = end.min(next.plus_micros(widest_micros(ttl)));
        }
        Ok(Some(removal_hour(end, ttl).max(hour_of(now) + 1)))
    }

    /// Persists the event of an expiry.
    async fn log_expiry(&self, id: ConversationId) -> Result<()> {
        let lease = self.in_flight.allocate(id, 1).await?;
        let written = self.store.log_expiry(id, lease.newest()).await;
        let (lease, ()) = lease.if_persisted(written)?;
        let log = |event| self.store.log_expiry(id, event);
        Ok(log_in_time(&self.in_flight, id, lease, log).await?)
    }
}

/// Whether a bucket is wider than those of messages with this expiry.
fn is_wide(bucket: OldestBucket, ttl_seconds: u32) -> bool {
    let micros = bucket.last.moment().micros() - bucket.first.moment().micros();
    micros > widest_micros(ttl_seconds)
}

/// Whether messages of the oldest bucket are to be removed.
fn is_due(oldest: Option<OldestBucket>, expired: OrderKey, ttl: Option<u32>) -> bool {
    let is_cut = |oldest: OldestBucket| {
        oldest.first <= expired && ttl.is_some_and(|ttl| is_wide(oldest, ttl))
    };
    oldest.is_some_and(|oldest| oldest.last <= expired || is_cut(oldest))
}
