//! Message counts: checkpoints, and the rows after them.
//!
//! A checkpoint says how many messages there are up to an order key. The conversation has one, its summary, in a row of the index that
//! belongs to no bucket. Each bucket has one of its own, in its row, which covers it wholly once it is finished. As a rule a count reads the
//! summary and the rows after it, whatever the length of the history. Without a summary it adds up the checkpoints of the buckets, and reads
//! only the rows that they do not cover.
//!
//! A checkpoint covers only ids that are [`SETTLED_MICROS`] old. Its write timestamp is the moment at which its read began. A writer of a
//! message older than [`LATE_MICROS`] invalidates, in the same batch, the checkpoints that may cover it, with a timestamp ahead of all
//! clocks: a count that began before that message cannot restore them. The two ages differ by more than a slow write or a clock skew.

pub(super) mod bucket_counts;
mod counter;

use std::sync::atomic::Ordering;

use self::counter::MessageCounter;
use super::Messages;
use super::bucket::Bucket;
use super::bucket::checkpoint::{Checkpoint, SUMMARY_WIDTH};
use crate::model::{ConversationId, Message, OrderKey, Timestamp};
use crate::store::cluster::{SKEW_MAX, WRITE_ATTEMPT_MAX};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::upgrade::form_version;
use crate::store::cql::driver::value::{Values, values};
use crate::store::{FormVersion, Result};

/// The start of another row of that width, a register of its write timestamp alone: when an old message last came late, went, or got
/// another mention. The summary cannot say that, as every count writes it.
/// A server of the first versions takes the row for a summary that was invalidated, and the summary, which follows it, for the valid one.
const LATE_START: Timestamp = Timestamp::from_micros(1);

/// The rows of the conversation itself.
const OF_CONVERSATION: [(i8, Timestamp); 2] = [
    (SUMMARY_WIDTH, Timestamp::ZERO),
    (SUMMARY_WIDTH, LATE_START),
];

pub(crate) const SETTLED_MICROS: i64 = 60 * 1_000_000;
const LATE_MICROS: i64 = 30 * 1_000_000;
/// Time of an attempt, and twice the skew of a clock.
const AHEAD_MICROS: i64 = 15 * 1_000_000;
const _: () = assert!(
    AHEAD_MICROS as u128 >= WRITE_ATTEMPT_MAX.as_micros() + 2 * SKEW_MAX.as_micros()
        && SETTLED_MICROS - LATE_MICROS >= AHEAD_MICROS
);
/// Checkpoints in one batch.
const BATCH_ROWS_MAX: usize = 64;

statements! {
    UPDATE_CHECKPOINT: Write "UPDATE buckets_by_conversation USING TIMESTAMP ? SET counted = ? WHERE conversation_id = ? AND width = ? AND start = ?";
    SELECT_LATE: Read "SELECT start, WRITETIME(counted) FROM buckets_by_conversation WHERE conversation_id = ? AND width = ?";
    SELECT_OLDER_CHECKPOINTS: Read "SELECT width, start, counted FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start < ? LIMIT ?";
}

/// The key of a bucket's row.
fn row_of(bucket: Bucket) -> (i8, Timestamp) {
    (bucket.width.number(), bucket.start)
}

/// Values that invalidate the checkpoint of a row.
fn invalidated(at: Timestamp, id: ConversationId, (width, start): (i8, Timestamp)) -> Values {
    values![at, Checkpoint::INVALIDATED.to_vec(), id, width, start]
}

impl Messages {
    /// The timestamp of invalidations, ahead of all clocks, for a message that is written late.
    fn invalidated_at(&self, message: &Message) -> Option<Timestamp> {
        let now = self.clock.now();
        let is_late = message.id.moment().plus_micros(LATE_MICROS) <= now;
        is_late.then(|| now.plus_micros(AHEAD_MICROS))
    }

    /// Invalidates the checkpoints that may cover a message which is written late.
    pub(crate) fn invalidate_late_counts(
        &self,
        writes: &mut Writes,
        message: &Message,
        bucket: Bucket,
    ) {
        let Some(at) = self.invalidated_at(message) else {
            return;
        };
        for row in [row_of(bucket)].into_iter().chain(OF_CONVERSATION) {
            writes.push_once(
                &UPDATE_CHECKPOINT,
                invalidated(at, message.conversation, row),
            );
        }
    }

    /// Invalidates the lists of unread mentions that may cover a message to which a mention is added.
    pub(crate) fn invalidate_mentions(&self, writes: &mut Writes, message: &Message) {
        if let Some(at) = self.invalidated_at(message) {
            let row = (SUMMARY_WIDTH, LATE_START);
            writes.push_once(
                &UPDATE_CHECKPOINT,
                invalidated(at, message.conversation, row),
            );
        }
    }

    /// When an old message may last have come, gone, or got a mention, ahead of all clocks: what was read of settled messages before
    /// that is void. While a server of version 0.2 may write, it is the last write of the summary, too.
    pub(crate) async fn late_write_at(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<Timestamp>> {
        let is_alone = self.has_late_register().await?;
        let values = values![conversation, SUMMARY_WIDTH];
        let rows: Vec<(i64, Option<i64>)> = self.executor.read(&SELECT_LATE, values).await?;
        let newest = rows
            .into_iter()
            .filter(|(start, _)| !is_alone || *start == LATE_START.micros())
            .filter_map(|(_, written_at)| written_at)
            .max();
        Ok(newest.map(Timestamp::from_micros))
    }

    /// Whether every server that may write knows the register of late writes.
    pub(super) async fn has_late_register(&self) -> Result<bool> {
        if self.has_late_register.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let is_known = form_version(&self.executor).await? >= FormVersion::LATE_WRITES;
        if is_known {
            self.has_late_register.store(true, Ordering::Relaxed);
        }
        Ok(is_known)
    }

    /// Invalidates the checkpoint of the conversation, and that of a bucket, after a removal; and what was read before.
    pub(crate) fn invalidate_count(
        &self,
        writes: &mut Writes,
        conversation: ConversationId,
        bucket: Option<Bucket>,
    ) {
        let at = self.clock.now().plus_micros(AHEAD_MICROS);
        for row in bucket.map(row_of).into_iter().chain(OF_CONVERSATION) {
            writes.push(&UPDATE_CHECKPOINT, invalidated(at, conversation, row));
        }
    }

    /// Invalidates all checkpoints of a conversation.
    pub(crate) async fn invalidate_counts(&self, conversation: ConversationId) -> Result<()> {
        let counter = MessageCounter::begin(self, conversation);
        let at = counter.began_at.plus_micros(AHEAD_MICROS);
        let buckets = counter.read_index(None).await?.into_iter();
        let buckets = buckets.map(|(bucket, _)| row_of(bucket));
        let rows: Vec<_> = buckets.chain(OF_CONVERSATION).collect();
        for piece in rows.chunks(BATCH_ROWS_MAX) {
            let mut writes = Writes::of_one_partition();
            for row in piece {
                writes.push(&UPDATE_CHECKPOINT, invalidated(at, conversation, *row));
            }
            self.executor.write_all(writes).await?;
        }
        Ok(())
    }

    /// The number of messages in one bucket, of whichever server. It does not grow with the bucket's history, but for the first one.
    pub(crate) async fn bucket_fill(
        &self,
        conversation: ConversationId,
        bucket: Bucket,
    ) -> Result<u64> {
        MessageCounter::begin(self, conversation).fill(bucket).await
    }

    /// Counts a conversation whose import has just ended.
    pub(crate) async fn count_imported(&self, conversation: ConversationId) -> Result<()> {
        let counter = MessageCounter::begin_after_import(self, conversation);
        counter.count().await.map(drop)
    }

    pub(crate) async fn message_counts(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<u64>> {
        concurrently(
            conversations
                .iter()
                .map(|conversation| MessageCounter::begin(self, *conversation).count()),
        )
        .await
    }
}

impl Messages {
    /// The number of messages after each position. Buckets after it are counted by their checkpoints.
    pub(crate) async fn message_counts_after(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<u64>> {
        let count = |(conversation, position): &(ConversationId, OrderKey)| {
            MessageCounter::begin(self, *conversation).count_after(*position)
        };
        concurrently(positions.iter().map(count)).await
    }
}
