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
use crate::store::cql::driver::value::values;
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

impl Messages {
    /// Invalidates the checkpoints that may cover a message which is written late.
    pub(crate) fn invalidate_late_counts(
        &self,
        writes: &mut Writes,
        message: &Message,
        bucket: Bucket,
    ) {
        let now = self.clock.now();
        if message.id.moment().plus_micros(LATE_MICROS) > now {
            return;
        }
        let (at, none) = (now.plus_micros(AHEAD_MICROS), || {
            Checkpoint::INVALIDATED.to_vec()
        });
        let conversation = message.conversation;
        writes.push_once(
            &UPDATE_CHECKPOINT,
            values![
                at,
                none(),
                conversation,
                bucket.width.number(),
                bucket.start
            ],
        );
        for start in [Timestamp::ZERO, LATE_START] {
            writes.push_once(
                &UPDATE_CHECKPOINT,
                values![at, none(), conversation, SUMMARY_WIDTH, start],
            );
        }
    }

    /// Invalidates the lists of unread mentions that may cover a message to which a mention is added.
    pub(crate) fn invalidate_mentions(&self, writes: &mut Writes, message: &Message) {
        let now = self.clock.now();
        if message.id.moment().plus_micros(LATE_MICROS) > now {
            return;
        }
        let (at, none) = (now.plus_micros(AHEAD_MICROS), Checkpoint::INVALIDATED);
        let conversation = message.conversation;
        writes.push_once(
            &UPDATE_CHECKPOINT,
            values![at, none.to_vec(), conversation, SUMMARY_WIDTH, LATE_START],
        );
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
        let rows = bucket.map(|bucket| (bucket.width.number(), bucket.start));
        for (width, start) in rows.into_iter().chain(OF_CONVERSATION) {
            let none = Checkpoint::INVALIDATED.to_vec();
            writes.push(
                &UPDATE_CHECKPOINT,
                values![at, none, conversation, width, start],
            );
        }
    }

    /// Invalidates all checkpoints of a conversation.
    pub(crate) async fn invalidate_counts(&self, conversation: ConversationId) -> Result<()> {
        let counter = MessageCounter::begin(self, conversation);
        let at = counter.began_at.plus_micros(AHEAD_MICROS);
        let buckets = counter
            .read_index(None)
            .await?
            .into_iter()
            .map(|(bucket, _)| (bucket.width.number(), bucket.start));
        let rows: Vec<_> = buckets.chain(OF_CONVERSATION).collect();
        for piece in rows.chunks(BATCH_ROWS_MAX) {
            let mut writes = Writes::of_one_partition();
            for (width, start) in piece {
                let none = Checkpoint::INVALIDATED.to_vec();
                writes.push(
                    &UPDATE_CHECKPOINT,
                    values![at, none, conversation, *width, *start],
                );
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
