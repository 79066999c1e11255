//! Removal of buckets: one deletion of the partition, and one range deletion of index rows for all removed buckets of a width.
//!
//! The index rows of a width go from the oldest on, by ranges without a lower end. A later range covers the earlier ones, so
//! that readers of the index meet one tombstone and not one for each removed bucket.

use super::{Bucket, Width};
use crate::model::{ConversationId, MessageId, OrderKey};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, order_key, row_limit, values};
use crate::store::cql::message::Messages;
use crate::store::{OldestBucket, Result};

/// How far ahead of the clock the deletion of an index row is: counts are invalidated with timestamps ahead of all clocks.
const AHEAD_MICROS: i64 = 60 * 1_000_000;

statements! {
    SELECT_OLDEST_BUCKETS: Read "SELECT start FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start <= ? ORDER BY width DESC, start ASC LIMIT ?";
    DELETE_BUCKET: Write "DELETE FROM messages_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND width = ? AND start = ?";
    DELETE_MESSAGES: Write "DELETE FROM messages_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id <= ?";
    DELETE_INDEX_ROWS: Write "DELETE FROM buckets_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND width = ? AND start <= ?";
    DELETE_REACTIONS: Write "DELETE FROM reactions_by_message USING TIMESTAMP ? WHERE conversation_id = ? AND message_id = ?";
    DELETE_ALL_ENDED_REACTIONS: Write "DELETE FROM ended_reactions_by_message USING TIMESTAMP ? WHERE conversation_id = ? AND message_id = ?";
    DELETE_PINS: Write "DELETE FROM pins_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND message_id <= ?";
    UPDATE_REMOVED_UP_TO: Write "UPDATE conversations USING TIMESTAMP ? SET removed_up_to = ? WHERE conversation_id = ?";
    SELECT_REMOVED_UP_TO: Read "SELECT removed_up_to FROM conversations WHERE conversation_id = ?";
}

impl Messages {
    /// The last position up to which messages were removed.
    pub(crate) async fn removed_up_to(&self, conversation: ConversationId) -> Result<OrderKey> {
        let bytes = self
            .executor
            .read_cell::<Vec<u8>>(&SELECT_REMOVED_UP_TO, values![conversation])
            .await?;
        let position = bytes.map(|bytes| order_key("conversations", &bytes));
        Ok(position.transpose()?.unwrap_or(OrderKey::MIN))
    }

    /// Advances that position, before anything is removed.
    pub(crate) async fn note_removal(
        &self,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()> {
        let values = values![REGISTER_TIMESTAMP, up_to, conversation];
        self.executor.write(&UPDATE_REMOVED_UP_TO, values).await
    }

    /// The oldest buckets of a width that lie below a position as a whole.
    pub(crate) async fn buckets_below(
        &self,
        conversation: ConversationId,
        width: Width,
        up_to: OrderKey,
        limit: usize,
    ) -> Result<Vec<Bucket>> {
        // The end of a bucket is at most the next moment.
        let last = up_to.moment().plus_micros(1 - width.micros());
        let buckets = self
            .oldest_buckets(conversation, width, last.micros(), limit)
            .await?;
        let is_below = |bucket: &Bucket| bucket.order_keys().1.before() <= up_to;
        Ok(buckets.into_iter().filter(is_below).collect())
    }

    async fn oldest_buckets(
        &self,
        conversation: ConversationId,
        width: Width,
        start_max: i64,
        limit: usize,
    ) -> Result<Vec<Bucket>> {
        let values = values![conversation, width.number(), start_max, row_limit(limit)];
        let rows: Vec<(i64,)> = self.executor.read(&SELECT_OLDEST_BUCKETS, values).await?;
        rows.into_iter()
            .map(|(start,)| Bucket::from_row(width.number(), start))
            .collect()
    }

    /// The bucket that ends first.
    pub(crate) async fn oldest_bucket(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<OldestBucket>> {
        let reads = Width::ALL.map(|width| self.oldest_buckets(conversation, width, i64::MAX, 1));
        let oldest = concurrently(reads).await?;
        let oldest = oldest.into_iter().flatten();
        Ok(oldest.min_by_key(|bucket| bucket.end()).map(|bucket| {
            let (first, end) = bucket.order_keys();
            OldestBucket {
                first,
                last: end.before(),
            }
        }))
    }

    /// Deletes the messages of a bucket: all, or those up to one. A message that arrives late carries the microsecond of its
    /// id, and stays deleted.
    pub(crate) async fn delete_messages(
        &self,
        conversation: ConversationId,
        bucket: Bucket,
        up_to: Option<MessageId>,
    ) -> Result<()> {
        let (now, Bucket { width, start }) = (self.clock.now(), bucket);
        match up_to {
            None => {
                let values = values![now, conversation, width.number(), start];
                self.executor.write(&DELETE_BUCKET, values).await
            }
            Some(up_to) => {
                let values = values![now, conversation, width.number(), start, up_to];
                self.executor.write(&DELETE_MESSAGES, values).await
            }
        }
    }

    /// Takes all buckets of a width up to one off the index, and invalidates the count of the conversation.
    pub(crate) async fn delete_index_rows(
        &self,
        conversation: ConversationId,
        last: Bucket,
    ) -> Result<()> {
        let at = self.clock.now().plus_micros(AHEAD_MICROS);
        let mut writes = Writes::of_one_partition();
        let values = values![at, conversation, last.width.number(), last.start];
        writes.push(&DELETE_INDEX_ROWS, values);
        self.invalidate_count(&mut writes, conversation, None);
        self.executor.write_all(writes).await?;
        self.index.forget(conversation);
        Ok(())
    }

    pub(crate) async fn delete_reactions(
        &self,
        conversation: ConversationId,
        messages: &[MessageId],
    ) -> Result<()> {
        let now = self.clock.now();
        let delete = |message: &MessageId| {
            [&DELETE_REACTIONS, &DELETE_ALL_ENDED_REACTIONS].map(|statement| {
                let values = values![now, conversation, *message];
                self.executor.write(statement, values)
            })
        };
        concurrently(messages.iter().flat_map(delete))
            .await
            .map(drop)
    }

    /// Deletes the pins of all messages up to one.
    pub(crate) async fn delete_pins(
        &self,
        conversation: ConversationId,
        up_to: MessageId,
    ) -> Result<()> {
        let values = values![self.clock.now(), conversation, up_to];
        self.executor.write(&DELETE_PINS, values).await?;
        self.change_pin_list(conversation, |list| list.remove_up_to(up_to))
            .await
    }
}
