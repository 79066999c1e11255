//! Removal of history: whole buckets, from the oldest on, and the part of a bucket that a raised floor cuts.
//!
//! Rows that a bucket names go first, then its partition, then its index row. So whatever ends a removal half-way,
//! the index still names the bucket, and a repetition finishes it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::Sends;
use crate::model::{ConversationId, Direction, HistorySettings, MessageId, OutboxEvent, TimeUuid};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::cql::message::bucket::id_range::IdRange;
use crate::store::cql::message::bucket::index::candidates;
use crate::store::cql::message::bucket::{Bucket, Width};
use crate::store::{HistoryRemoval, RemovedHistory, Result, StoredMessage};

/// Buckets of a width that one step removes.
const BUCKETS_MAX: usize = 64;
/// Rows of one read of a bucket, with their contents.
const ROWS_MAX: usize = 200;

/// Rows that some messages name.
#[derive(Default)]
struct Dependents {
    newest: Option<MessageId>,
    count: u64,
    reacted: Vec<MessageId>,
    mentioned: BTreeSet<Mentioned>,
    has_pins: bool,
}

impl Dependents {
    fn add(&mut self, row: &StoredMessage) {
        self.newest = self.newest.max(Some(row.id));
        self.count += 1;
        let message = row.message.as_ref().ok();
        // A row that cannot be read may have everything.
        if message.is_none_or(|message| message.has_reactions) {
            self.reacted.push(row.id);
        }
        self.has_pins |= message.is_none_or(|message| message.pin.is_some());
        if let Some(message) = message {
            self.mentioned.extend(Mentioned::of(message));
        }
    }
}

impl Sends {
    pub(crate) fn set_retention(&self, seconds: Option<u32>) {
        self.retention
            .store(seconds.unwrap_or(0), Ordering::Relaxed);
    }

    /// The expiry of a conversation's messages: its own or the deployment's, whichever is shorter.
    pub(super) fn ttl_seconds(&self, history: &HistorySettings) -> Option<u32> {
        let retention = self.retention.load(Ordering::Relaxed);
        let retention = Some(retention).filter(|ttl| *ttl > 0);
        history.ttl_seconds.into_iter().chain(retention).min()
    }

    pub(crate) async fn remove_history(
        &self,
        id: ConversationId,
        removal: &HistoryRemoval,
    ) -> Result<RemovedHistory> {
        self.messages.note_removal(id, removal.up_to).await?;
        let mut removed = RemovedHistory {
            messages: 0,
            is_done: true,
        };
        for width in Width::ALL {
            self.remove_buckets(id, width, removal, &mut removed)
                .await?;
        }
        if removed.is_done {
            removed.messages += self.cut_buckets(id, removal).await?;
        }
        Ok(removed)
    }

    /// Removes the buckets of a width that lie below the position as a whole.
    async fn remove_buckets(
        &self,
        id: ConversationId,
        width: Width,
        removal: &HistoryRemoval,
        removed: &mut RemovedHistory,
    ) -> Result<()> {
        if !removed.is_done {
            return Ok(());
        }
        let buckets = self
            .messages
            .buckets_below(id, width, removal.up_to, BUCKETS_MAX)
            .await?;
        removed.is_done = buckets.len() < BUCKETS_MAX;
        let mut last = None;
        for bucket in buckets {
            if removed.messages >= removal.limit as u64 {
                removed.is_done = false;
                break;
            }
            let whole = IdRange::of_bucket(bucket);
            removed.messages += self.remove_dependents(id, bucket, whole).await?.count;
            self.messages.delete_messages(id, bucket, None).await?;
            last = Some(bucket);
        }
        if let Some(last) = last {
            self.messages.delete_index_rows(id, last).await?;
        }
        Ok(())
    }

    /// Removes the messages up to a position from the buckets that hold later ones, too. Buckets that soon go as a whole
    /// stay.
    async fn cut_buckets(&self, id: ConversationId, removal: &HistoryRemoval) -> Result<u64> {
        let up_to = removal.up_to;
        let widest = removal.ttl_seconds.map(|ttl| Width::widest(Some(ttl)));
        let at = TimeUuid::new(up_to.moment(), [0; 8]);
        let buckets: Vec<_> = candidates(at)
            .filter(|bucket| widest.is_none_or(|widest| bucket.width < widest))
            .collect();
        if buckets.is_empty() {
            return Ok(0);
        }
        let mut count = 0;
        for bucket in self.messages.present_buckets(id, &buckets).await? {
            let range = IdRange::of_bucket(bucket).up_to(up_to);
            let cut = self.remove_dependents(id, bucket, range).await?;
            let Some(newest) = cut.newest else { continue };
            count += cut.count;
            self.messages
                .delete_messages(id, bucket, Some(newest))
                .await?;
            let mut writes = Writes::of_one_partition();
            self.messages
                .invalidate_count(&mut writes, id, Some(bucket));
            self.executor.write_all(writes).await?;
        }
        Ok(count)
    }

    /// Removes what the rows of a range name: reactions, mentions and pins.
    async fn remove_dependents(
        &self,
        id: ConversationId,
        bucket: Bucket,
        range: IdRange,
    ) -> Result<Dependents> {
        let mut all = Dependents::default();
        let mut rest = range;
        loop {
            let rows: Vec<StoredMessage> = self
                .messages
                .read_bucket(id, bucket, rest, Direction::Forward, ROWS_MAX)
                .await?;
            rows.iter().for_each(|row| all.add(row));
            let reacted = std::mem::take(&mut all.reacted);
            self.messages.delete_reactions(id, &reacted).await?;
            match rows.last() {
                Some(last) if rows.len() == ROWS_MAX => rest = rest.after(last.id.order_key()),
                Some(_) | None => break,
            }
        }
        let Some(newest) = all.newest else {
            return Ok(all);
        };
        let mentioned = std::mem::take(&mut all.mentioned);
        let now = self.clock.now();
        let lists = mentioned.iter().map(|mentioned| {
            self.inboxes
                .delete_mentions_up_to(mentioned, id, newest, now)
        });
        concurrently(lists).await?;
        if all.has_pins {
            self.messages.delete_pins(id, newest).await?;
        }
        Ok(all)
    }

    pub(crate) async fn log_expiry(&self, id: ConversationId, event: TimeUuid) -> Result<()> {
        let events = || vec![OutboxEvent::history_expired(event)];
        let Some(row) = self.outbox.row(id, events) else {
            return Ok(());
        };
        self.outbox.write_all(Writes::logged(), Some(row)).await
    }
}
