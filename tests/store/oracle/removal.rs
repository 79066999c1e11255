//! Removal of history from the naive engine.

use wideroom::model::HistorySettings;
use wideroom::store::{
    DueQuery, DueRemoval, HistoryRemoval, OldestBucket, RemovalStore, RemovedHistory, StoreFuture,
    removal_hour, widest_micros,
};

use super::*;

fn ttl_seconds(kept: &Kept, history: &HistorySettings) -> Option<u32> {
    [history.ttl_seconds, kept.retention]
        .into_iter()
        .flatten()
        .min()
}

/// The begin and the end of the bucket of a message.
fn slot(message: MessageId, ttl: u32) -> (Timestamp, Timestamp) {
    let (micros, width) = (message.moment().micros(), widest_micros(ttl));
    let start = Timestamp::from_micros(micros - micros.rem_euclid(width));
    (start, start.plus_micros(width))
}

/// Lists the conversation of a message that was sent for the hour in which its bucket has expired.
pub(super) fn list(kept: &mut Kept, message: &Message) {
    let stored = &kept.conversations[&message.conversation];
    let Some(ttl) = ttl_seconds(kept, &stored.record.history) else {
        return;
    };
    let (_, end) = slot(message.id, ttl);
    kept.due.insert(DueRemoval {
        hour: removal_hour(end, ttl),
        conversation: message.conversation,
    });
}

impl RemovalStore for Naive {
    fn set_retention(&self, seconds: Option<u32>) {
        self.kept().retention = seconds;
    }

    fn scheduled_retention(&self) -> StoreFuture<'_, Option<u32>> {
        Box::pin(async move { Ok(self.kept().scheduled_retention) })
    }

    fn note_scheduled_retention(&self, seconds: Option<u32>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.kept().scheduled_retention = seconds;
            Ok(())
        })
    }

    fn schedule_removal(&self, due: DueRemoval) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.kept().due.insert(due);
            Ok(())
        })
    }

    fn due_removals<'a>(&'a self, query: &'a DueQuery) -> StoreFuture<'a, Vec<DueRemoval>> {
        Box::pin(async move {
            let kept = self.kept();
            let due = kept.due.iter().filter(|due| {
                OutboxShard::of(due.conversation) == query.shard
                    && (query.from..=query.up_to).contains(&due.hour)
                    && query.after.is_none_or(|after| **due > after)
            });
            Ok(due.take(query.limit).copied().collect())
        })
    }

    fn end_removal(&self, due: DueRemoval) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.kept().due.remove(&due);
            Ok(())
        })
    }

    fn oldest_bucket(&self, conversation: ConversationId) -> StoreFuture<'_, Option<OldestBucket>> {
        Box::pin(async move {
            let kept = self.kept();
            let Some(stored) = kept.conversations.get(&conversation) else {
                return Ok(None);
            };
            let ttl = ttl_seconds(&kept, &stored.record.history).unwrap_or(u32::MAX);
            let oldest = stored.messages.keys().next();
            Ok(oldest.map(|oldest| {
                let (start, end) = slot(*oldest, ttl);
                OldestBucket {
                    first: OrderKey::first_at(start),
                    last: OrderKey::first_at(end).before(),
                }
            }))
        })
    }

    fn remove_history<'a>(
        &'a self,
        conversation: ConversationId,
        removal: &'a HistoryRemoval,
    ) -> StoreFuture<'a, RemovedHistory> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
            let below = |id: &&MessageId| id.order_key() <= removal.up_to;
            let ids: Vec<_> = stored.messages.keys().filter(below).copied().collect();
            stored.removed_up_to = stored.removed_up_to.max(removal.up_to);
            stored.removed_last = stored.removed_last.max(ids.last().copied());
            for id in &ids {
                stored.messages.remove(id);
                stored.reactions.remove(id);
            }
            Ok(RemovedHistory {
                messages: ids.len() as u64,
                is_done: true,
            })
        })
    }

    fn log_expiry(&self, conversation: ConversationId, event: TimeUuid) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let events = vec![OutboxEvent::history_expired(event)];
            self.kept().tell_outbox(conversation, events);
            Ok(())
        })
    }
}
