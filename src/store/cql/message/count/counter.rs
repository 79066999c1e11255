//! Counter: one count of one conversation, bucket by bucket, and the checkpoints that it persists.

use futures_util::future::try_join;

use super::{
    AHEAD_MICROS, BATCH_ROWS_MAX, SELECT_OLDER_CHECKPOINTS, SETTLED_MICROS, UPDATE_CHECKPOINT,
};
use crate::model::{ConversationId, Direction, OrderKey, Timestamp};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::value::{row_limit, values};
use crate::store::cql::message::Messages;
use crate::store::cql::message::bucket::checkpoint::{Checkpoint, SUMMARY_WIDTH};
use crate::store::cql::message::bucket::id_range::IdRange;
use crate::store::cql::message::bucket::merge::{BucketRow as _, ROWS_MAX};
use crate::store::cql::message::bucket::view::IndexView;
use crate::store::cql::message::bucket::{Bucket, Width};
use crate::store::cql::message::history::MessageSummary;
use crate::store::rules::position_counts::CHECKPOINT_EVERY;

/// Rows after a checkpoint from which a new one is worth its write.
const ROWS_WORTH: u64 = 250;
/// Buckets after the summary from which a new one is worth its write.
const BUCKETS_WORTH: usize = 2;
/// Buckets after the summary from which the count uses the checkpoints of the buckets.
const BUCKETS_MAX: usize = 8;
/// Rows of the first read of one width of a long index.
const INDEX_ROWS_FIRST: usize = 64;
/// Rows after which the count of one bucket is persisted, so that a count that was aborted resumes there.
const ROWS_KEPT: u64 = 10_000;

/// The count of one bucket.
#[derive(Debug, Clone, Copy)]
struct BucketCount {
    bucket: Bucket,
    /// Messages after the position since which the counter counts, that a checkpoint may cover.
    settled: u64,
    /// Younger messages.
    recent: u64,
    /// Settled messages after the checkpoint of the bucket.
    advanced: u64,
    /// The checkpoint that the count allows. `None` if it reaches no further than the one before.
    reached: Option<Checkpoint>,
}

impl BucketCount {
    fn checkpoint(&self) -> Option<(Option<Bucket>, Checkpoint)> {
        Some((Some(self.bucket), self.reached?))
    }

    /// The settled and the recent messages of several buckets.
    fn sum(counts: &[Self]) -> (u64, u64) {
        counts.iter().fold((0, 0), |(settled, recent), one| {
            (settled + one.settled, recent + one.recent)
        })
    }
}

/// One count of one conversation.
pub(super) struct MessageCounter<'a> {
    messages: &'a Messages,
    conversation: ConversationId,
    pub(super) began_at: Timestamp,
    /// Ids before this watermark are old enough for a checkpoint.
    watermark: OrderKey,
}

impl<'a> MessageCounter<'a> {
    pub(super) fn begin(messages: &'a Messages, conversation: ConversationId) -> Self {
        let began_at = messages.clock.now();
        Self {
            messages,
            conversation,
            began_at,
            watermark: OrderKey::first_at(began_at.plus_micros(-SETTLED_MICROS)),
        }
    }

    /// A counter whose checkpoints win over the invalidations of an import that has ended: those are
    /// ahead of all clocks.
    pub(super) fn begin_after_import(messages: &'a Messages, conversation: ConversationId) -> Self {
        let counter = Self::begin(messages, conversation);
        Self {
            began_at: counter.began_at.plus_micros(AHEAD_MICROS + 1),
            ..counter
        }
    }

    pub(super) async fn count(self) -> Result<u64> {
        let mut view = IndexView::open(self.messages, self.conversation).await?;
        view.read_young(self.messages).await?;
        let Some(summary) = view.summary else {
            return self.count_all(&mut view).await;
        };
        let after = IdRange::WHOLE.after(summary.up_to);
        let buckets = self
            .messages
            .buckets_of(&mut view, after, BUCKETS_MAX + 1)
            .await?;
        if buckets.len() > BUCKETS_MAX {
            return self.count_all(&mut view).await;
        }
        let checkpoints = view.checkpoints(self.messages, &buckets).await?;
        let counts = buckets
            .iter()
            .zip(checkpoints)
            .map(|(bucket, checkpoint)| self.count_bucket(*bucket, checkpoint, summary.up_to));
        let counts = concurrently(counts).await?;
        let (settled, recent) = BucketCount::sum(&counts);
        if counts.iter().any(|count| self.is_worth_writing(count))
            || (settled > 0 && buckets.len() > BUCKETS_WORTH)
        {
            // The cached index was read before this count began and may lack a bucket that a late message has opened since.
            let read_at = self.began_at.min(view.read_at());
            let mut checkpoints: Vec<_> =
                counts.iter().filter_map(BucketCount::checkpoint).collect();
            checkpoints.extend(self.summary(summary.count + settled, Some(summary)));
            self.persist(read_at, &checkpoints).await;
        }
        Ok(summary.count + settled + recent)
    }

    /// Counts the messages after a position: the later buckets by their checkpoints, and those that it cuts by these, less the
    /// messages up to the position.
    pub(super) async fn count_after(self, position: OrderKey) -> Result<u64> {
        let late_at = self.messages.late_write_at(self.conversation);
        let (rows, late_at) = try_join(self.read_index(Some(position)), late_at).await?;
        let counts = rows.iter().map(async |(bucket, checkpoint)| {
            let range = IdRange::of_bucket(*bucket);
            if range.end <= position {
                return Ok(0);
            }
            if range.start > position {
                return self.fill_after(*bucket, *checkpoint).await;
            }
            if position >= self.watermark {
                // Few rows follow. A count from the position alone is no checkpoint of the bucket.
                let from = Checkpoint {
                    up_to: position,
                    count: 0,
                };
                let count = self.count_bucket(*bucket, Some(from), position).await?;
                return Ok(count.settled + count.recent);
            }
            let below = self.count_below(*bucket, position, late_at);
            let (below, all) = try_join(below, self.fill_after(*bucket, *checkpoint)).await?;
            Ok(all.saturating_sub(below))
        });
        Ok(concurrently(counts).await?.into_iter().sum())
    }

    /// Counts the messages of a bucket up to a settled position inside it, from the nearest position whose count is known.
    async fn count_below(
        &self,
        bucket: Bucket,
        position: OrderKey,
        late_at: Option<Timestamp>,
    ) -> Result<u64> {
        let (key, cached) = ((self.conversation, bucket), &self.messages.bucket_counts);
        let (from, mut below) = cached.nearest(key, late_at, position);
        let range = IdRange::of_bucket(bucket).after(from).up_to(position);
        let (mut rest, mut checkpoints) = (Some(range), Vec::new());
        while let Some((rows, next)) = self.some_rows(bucket, rest).await? {
            for row in rows {
                below += 1;
                if below % CHECKPOINT_EVERY == 0 {
                    checkpoints.push((row, below));
                }
            }
            rest = next;
        }
        if late_at < Some(self.began_at) {
            cached.put(key, self.began_at, (position, below), checkpoints);
        }
        Ok(below)
    }

    /// The summary of so many messages. `None` if a checkpoint that they were counted by reaches further: a server with a later clock wrote it.
    fn summary(
        &self,
        count: u64,
        counted_by: impl IntoIterator<Item = Checkpoint>,
    ) -> Option<(Option<Bucket>, Checkpoint)> {
        let up_to = self.watermark.before();
        let is_further = |checkpoint: Checkpoint| checkpoint.up_to > up_to;
        let is_whole = !counted_by.into_iter().any(is_further);
        is_whole.then_some((None, Checkpoint { up_to, count }))
    }

    /// Whether the next count is much shorter by this checkpoint. That of a finished bucket is written once, and serves for good.
    fn is_worth_writing(&self, count: &BucketCount) -> bool {
        let is_finished = IdRange::of_bucket(count.bucket).end <= self.watermark;
        count.reached.is_some() && (is_finished || count.advanced >= ROWS_WORTH)
    }

    /// Adds up all buckets, by their checkpoints as far as these reach. Reads the index, unless the view
    /// has all of it.
    async fn count_all(&self, view: &mut IndexView) -> Result<u64> {
        let (read_at, rows) = match view.take_whole() {
            Some(rows) => (self.began_at.min(view.read_at()), rows),
            None => (self.began_at, self.read_index(None).await?),
        };
        let counts = rows.iter().map(async |(bucket, checkpoint)| {
            let since = checkpoint.map_or(OrderKey::MIN, |checkpoint| checkpoint.up_to);
            self.count_bucket(*bucket, *checkpoint, since).await
        });
        let counts = concurrently(counts).await?;
        let (mut settled, recent) = BucketCount::sum(&counts);
        let counted_by = || rows.iter().filter_map(|(_, checkpoint)| *checkpoint);
        settled += counted_by().map(|checkpoint| checkpoint.count).sum::<u64>();
        let worth = counts.iter().filter(|count| self.is_worth_writing(count));
        let mut checkpoints: Vec<_> = worth.filter_map(BucketCount::checkpoint).collect();
        if settled > 0 {
            checkpoints.extend(self.summary(settled, counted_by()));
        }
        self.persist(read_at, &checkpoints).await;
        Ok(settled + recent)
    }

    /// Counts the messages of a bucket after a position. The rows that neither the position nor the checkpoint of the bucket covers are read;
    /// those after the checkpoint make the next one.
    async fn count_bucket(
        &self,
        bucket: Bucket,
        checkpoint: Option<Checkpoint>,
        since: OrderKey,
    ) -> Result<BucketCount> {
        let whole = IdRange::of_bucket(bucket);
        let from = checkpoint.unwrap_or(Checkpoint::NONE);
        let settled_end = self.watermark.min(whole.end);
        let range = IdRange::WHOLE.after(since.min(from.up_to)).intersect(whole);
        let mut count = BucketCount {
            bucket,
            settled: 0,
            recent: 0,
            advanced: 0,
            reached: None,
        };
        let (mut rest, mut kept) = (Some(range), 0);
        while let Some((rows, next)) = self.some_rows(bucket, rest).await? {
            for key in &rows {
                let is_settled = *key < settled_end;
                count.advanced += u64::from(is_settled && *key > from.up_to);
                count.settled += u64::from(is_settled && *key > since);
                count.recent += u64::from(!is_settled && *key > since);
            }
            rest = next;
            let last = rows.last().filter(|_| next.is_some());
            if let Some(up_to) = last.copied().filter(|last| *last < settled_end)
                && count.advanced >= kept + ROWS_KEPT
            {
                kept = count.advanced;
                let checkpoint = Checkpoint {
                    up_to,
                    count: from.count + count.advanced,
                };
                self.persist(self.began_at, &[(Some(bucket), checkpoint)])
                    .await;
            }
        }
        let reached = Checkpoint {
            up_to: settled_end.before(),
            count: from.count + count.advanced,
        };
        count.reached = Some(reached).filter(|reached| reached.up_to > from.up_to);
        Ok(count)
    }

    /// The next keys of a range, and what of it comes after them. `None` if nothing is left.
    async fn some_rows(
        &self,
        bucket: Bucket,
        rest: Option<IdRange>,
    ) -> Result<Option<(Vec<OrderKey>, Option<IdRange>)>> {
        let Some(rest) = rest.filter(|rest| rest.ids().is_some()) else {
            return Ok(None);
        };
        let rows: Vec<MessageSummary> = self
            .messages
            .read_bucket(
                self.conversation,
                bucket,
                rest,
                Direction::Forward,
                ROWS_MAX,
            )
            .await?;
        let keys: Vec<_> = rows.iter().map(MessageSummary::order_key).collect();
        let last = keys.last().filter(|_| keys.len() == ROWS_MAX);
        let next = last.map(|last| rest.after(*last));
        Ok(Some((keys, next)))
    }

    /// The number of messages in one bucket. It keeps the checkpoint, so the next one reads only the rows after it.
    pub(super) async fn fill(&self, bucket: Bucket) -> Result<u64> {
        let checkpoints = self
            .messages
            .read_checkpoints(self.conversation, &[bucket])
            .await?;
        self.fill_after(bucket, checkpoints.get(&bucket).copied())
            .await
    }

    /// The same, by a checkpoint that was read.
    async fn fill_after(&self, bucket: Bucket, checkpoint: Option<Checkpoint>) -> Result<u64> {
        let since = checkpoint.map_or(OrderKey::MIN, |checkpoint| checkpoint.up_to);
        let count = self.count_bucket(bucket, checkpoint, since).await?;
        if self.is_worth_writing(&count) {
            let checkpoints: Vec<_> = count.checkpoint().into_iter().collect();
            self.persist(self.began_at, &checkpoints).await;
        }
        Ok(checkpoint.map_or(0, |checkpoint| checkpoint.count) + count.settled + count.recent)
    }

    /// The index with its checkpoints: a short one by one statement, a long one width by width. Of a long one, buckets that end before
    /// a position may be left out.
    pub(super) async fn read_index(
        &self,
        after: Option<OrderKey>,
    ) -> Result<Vec<(Bucket, Option<Checkpoint>)>> {
        if let Some(rows) = IndexView::read_short(self.messages, self.conversation).await? {
            return Ok(rows);
        }
        let widths = Width::ALL
            .into_iter()
            .map(|width| self.read_index_of(width, after.unwrap_or(OrderKey::MIN)));
        Ok(concurrently(widths).await?.concat())
    }

    async fn read_index_of(
        &self,
        width: Width,
        after: OrderKey,
    ) -> Result<Vec<(Bucket, Option<Checkpoint>)>> {
        let mut all = Vec::new();
        let mut before = i64::MAX;
        let mut rows_max = INDEX_ROWS_FIRST;
        loop {
            let values = values![
                self.conversation,
                width.number(),
                before,
                row_limit(rows_max)
            ];
            let rows: Vec<(i8, i64, Option<Vec<u8>>)> = self
                .messages
                .executor
                .read(&SELECT_OLDER_CHECKPOINTS, values)
                .await?;
            let mut is_all = rows.len() < rows_max;
            for (width, start, counted) in rows {
                before = start;
                let bucket = Bucket::from_row(width, start)?;
                // The newest comes first.
                is_all |= IdRange::of_bucket(bucket).end <= after;
                let checkpoint = counted.as_deref().map(Checkpoint::decode);
                all.push((bucket, checkpoint.transpose()?.flatten()));
            }
            if is_all {
                return Ok(all);
            }
            rows_max = ROWS_MAX;
        }
    }

    /// Persists checkpoints of buckets, or of the summary (`None`). A failure costs only another count.
    async fn persist(&self, read_at: Timestamp, checkpoints: &[(Option<Bucket>, Checkpoint)]) {
        for piece in checkpoints.chunks(BATCH_ROWS_MAX) {
            let mut writes = Writes::of_one_partition();
            for (bucket, checkpoint) in piece {
                let (width, start) = bucket.map_or((SUMMARY_WIDTH, Timestamp::ZERO), |bucket| {
                    (bucket.width.number(), bucket.start)
                });
                let values = values![
                    read_at,
                    checkpoint.encode(),
                    self.conversation,
                    width,
                    start
                ];
                writes.push(&UPDATE_CHECKPOINT, values);
            }
            if let Err(error) = self.messages.executor.write_all(writes).await {
                tracing::debug!(conversation = %self.conversation, %error, "the store failed to cache a message count");
                return;
            }
        }
    }
}
