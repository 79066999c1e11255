//! List of due removals: conversations by the hour from which they have messages to remove.

use uuid::Uuid;

use super::Messages;
use crate::model::{ConversationId, OutboxShard};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::slot_by_slot;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{row_limit, values};
use crate::store::rules::expiry;
use crate::store::{DueQuery, DueRemoval, Result};

/// Seconds for which an entry outlives its hour.
const KEPT_SECONDS: i64 = expiry::DUE_KEPT_HOURS as i64 * 3_600;
/// Longest TTL. Some clusters refuse one that ends after 2038; an entry of a later hour has none.
const TTL_MAX_SECONDS: i64 = 3 * 365 * 24 * 3_600;

statements! {
    INSERT_DUE: Write "INSERT INTO expiries_by_hour (hour, shard, conversation_id) VALUES (?, ?, ?) USING TIMESTAMP ? AND TTL ?";
    DELETE_DUE: Write "DELETE FROM expiries_by_hour USING TIMESTAMP ? WHERE hour = ? AND shard = ? AND conversation_id = ?";
    SELECT_DUE: Read "SELECT conversation_id FROM expiries_by_hour WHERE hour = ? AND shard = ? AND conversation_id > ? LIMIT ?";
}

fn hour_number(hour: u32) -> i32 {
    i32::try_from(hour).unwrap_or(i32::MAX)
}

fn shard_number(shard: OutboxShard) -> i8 {
    shard.number().cast_signed()
}

impl Messages {
    /// Lists a conversation, with the microsecond of the write that makes it due.
    pub(crate) fn put_due(&self, writes: &mut Writes, due: DueRemoval, at: i64) {
        let begin = i64::from(due.hour) * (expiry::HOUR_MICROS / 1_000_000);
        let seconds = begin - self.clock.now().micros() / 1_000_000 + KEPT_SECONDS;
        let ttl = Some(seconds).filter(|seconds| (1..=TTL_MAX_SECONDS).contains(seconds));
        // 0 is no TTL.
        let ttl = ttl.and_then(|ttl| i32::try_from(ttl).ok()).unwrap_or(0);
        let shard = shard_number(OutboxShard::of(due.conversation));
        let hour = hour_number(due.hour);
        writes.push(&INSERT_DUE, values![hour, shard, due.conversation, at, ttl]);
    }

    pub(crate) async fn schedule_removal(&self, due: DueRemoval) -> Result<()> {
        let mut writes = Writes::of_one_partition();
        self.put_due(&mut writes, due, self.clock.now().micros());
        self.executor.write_all(writes).await
    }

    pub(crate) async fn end_removal(&self, due: DueRemoval) -> Result<()> {
        let shard = shard_number(OutboxShard::of(due.conversation));
        let values = values![
            self.clock.now(),
            hour_number(due.hour),
            shard,
            due.conversation
        ];
        self.executor.write(&DELETE_DUE, values).await
    }

    pub(crate) async fn due_removals(&self, query: &DueQuery) -> Result<Vec<DueRemoval>> {
        let first = query.after.map_or(query.from, |after| after.hour);
        let read = |hour, left| self.due_of_hour(query, hour, left);
        slot_by_slot(first..=query.up_to, query.limit, read).await
    }

    async fn due_of_hour(
        &self,
        query: &DueQuery,
        hour: u32,
        limit: usize,
    ) -> Result<Vec<DueRemoval>> {
        let after = query.after.filter(|after| after.hour == hour);
        // No id is smaller than that of zeros.
        let after = after.map_or(ConversationId(Uuid::nil()), |after| after.conversation);
        let values = values![
            hour_number(hour),
            shard_number(query.shard),
            after,
            row_limit(limit)
        ];
        let rows: Vec<(Uuid,)> = self.executor.read(&SELECT_DUE, values).await?;
        let due = |(id,): (Uuid,)| DueRemoval {
            hour,
            conversation: ConversationId(id),
        };
        Ok(rows.into_iter().map(due).collect())
    }
}
