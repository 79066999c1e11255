//! Bucket merge: the messages of a range of ids, newest or oldest first, merged from all buckets that the range meets.
//!
//! The merge reads only buckets that the index lists, each once, and only the part of it that can still enter the result. It reads one
//! bucket first, then growing waves of buckets concurrently until the result is complete.

use scylla::deserialize::row::DeserializeRow;

use super::view::{IndexView, Next};
use super::{Bucket, Width};
use crate::model::{ConversationId, Direction, OrderKey, TimeUuid};
use crate::store::Result;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::Statement;
use crate::store::cql::driver::value::{row_limit, values};
use crate::store::cql::message::Messages;
use crate::store::cql::message::bucket::id_range::IdRange;

/// BucketQueue that one wave reads concurrently.
const WAVE_MAX: usize = 32;
/// Rows of one read; at least the second number after rows that are no message made an answer short.
pub(crate) const ROWS_MAX: usize = 1_000;
const ROWS_AGAIN_MIN: usize = 100;

/// A part of a message's row that a merge can read.
pub(crate) trait BucketRow: Sized + Send + Sync {
    type Columns: for<'frame> DeserializeRow<'frame, 'frame> + Send;

    /// The statement that reads one bucket between two ids, in a direction of time.
    fn statement(direction: Direction) -> &'static Statement;
    /// Decodes a row: its id, and `None` if the row is no message.
    fn decode(
        conversation: ConversationId,
        columns: Self::Columns,
    ) -> Result<(TimeUuid, Option<Self>)>;
    fn order_key(&self) -> OrderKey;
}

impl Messages {
    /// At most `count` messages of a range. Forward begins with the oldest.
    pub(crate) async fn merge<R: BucketRow>(
        &self,
        conversation: ConversationId,
        range: IdRange,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<R>> {
        if count == 0 || range.ids().is_none() {
            return Ok(Vec::new());
        }
        let mut view = IndexView::open(self, conversation).await?;
        self.merge_in(&mut view, range, direction, count).await
    }

    /// The same by an index that was opened before.
    pub(crate) async fn merge_in<R: BucketRow>(
        &self,
        view: &mut IndexView,
        range: IdRange,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<R>> {
        if count == 0 || range.ids().is_none() {
            return Ok(Vec::new());
        }
        let conversation = view.conversation();
        let mut merge = Merge {
            direction,
            range,
            count,
            found: Vec::new(),
        };
        let mut buckets = BucketQueue::new(direction, range);
        let mut read_count = 0;
        loop {
            let wave = merge.wave(self, view, &mut buckets, read_count).await?;
            if wave.is_empty() {
                return Ok(merge.found);
            }
            read_count += wave.len();
            let open = merge.open();
            let reads = wave
                .into_iter()
                .map(|bucket| self.read_bucket::<R>(conversation, bucket, open, direction, count));
            for rows in concurrently(reads).await? {
                merge.found.extend(rows);
            }
            merge.found.sort_unstable_by_key(BucketRow::order_key);
            if direction == Direction::Backward {
                merge.found.reverse();
            }
            merge.found.truncate(count);
        }
    }

    /// The first `limit` buckets that meet a range, by their starts.
    pub(crate) async fn buckets_of(
        &self,
        view: &mut IndexView,
        range: IdRange,
        limit: usize,
    ) -> Result<Vec<Bucket>> {
        let mut buckets = BucketQueue::new(Direction::Forward, range);
        let mut all = Vec::new();
        while all.len() < limit
            && let Some(next) = buckets.peek(self, view).await?
        {
            match next {
                Next::NotBefore(_) => buckets.read_young(self, view).await?,
                Next::Bucket(next) => {
                    buckets.take(next);
                    all.push(next);
                }
            }
        }
        Ok(all)
    }
}

struct Merge<R> {
    direction: Direction,
    range: IdRange,
    count: usize,
    /// The result so far, in the order of the merge.
    found: Vec<R>,
}

impl<R: BucketRow> Merge<R> {
    /// The range in which a message can still enter the result.
    fn open(&self) -> IdRange {
        match (self.found.get(self.count - 1), self.direction) {
            (None, _) => self.range,
            (Some(last), Direction::Forward) => self.range.before(last.order_key()),
            (Some(last), Direction::Backward) => self.range.after(last.order_key()),
        }
    }

    /// The buckets to read next.
    async fn wave(
        &self,
        messages: &Messages,
        view: &mut IndexView,
        buckets: &mut BucketQueue,
        read_count: usize,
    ) -> Result<Vec<Bucket>> {
        let open = self.open();
        let missing = self.count - self.found.len();
        // Enough buckets for the missing messages, if they are as full as those before. The first bucket may have been read only in part and
        // says little, so a wave at most doubles.
        let likely = (missing * read_count).div_ceil(self.found.len().max(1));
        let wanted = likely.min(read_count * 2).clamp(1, WAVE_MAX);
        let mut wave: Vec<Bucket> = Vec::new();
        while wave.len() < WAVE_MAX
            && let Some(next) = buckets.peek(messages, view).await?
        {
            match next {
                Next::NotBefore(start)
                    if wave.len() >= wanted || OrderKey::first_at(start) >= open.end =>
                {
                    break;
                }
                Next::NotBefore(_) => buckets.read_young(messages, view).await?,
                Next::Bucket(next) if IdRange::of_bucket(next).intersect(open).is_empty() => break,
                // A bucket that overlaps the beginning of the first one is needed in any case.
                Next::Bucket(next)
                    if wave.len() >= wanted
                        && !wave
                            .first()
                            .is_some_and(|first| buckets.is_beside(*first, next)) =>
                {
                    break;
                }
                Next::Bucket(next) => {
                    buckets.take(next);
                    wave.push(next);
                }
            }
        }
        Ok(wave)
    }
}

/// The buckets that meet a range, in the order in which a merge in this direction reaches them.
struct BucketQueue {
    direction: Direction,
    range: IdRange,
    /// The start from which the next bucket of each width is searched. `None` if there are no more.
    from: [Option<i64>; 4],
    next: [Option<Next>; 4],
}

impl BucketQueue {
    fn new(direction: Direction, range: IdRange) -> Self {
        let edge = match direction {
            Direction::Forward => range.start.moment(),
            Direction::Backward => range.end.before().moment(),
        };
        let from = Width::ALL.map(|width| {
            let bucket = Bucket::holding(edge, width);
            match direction {
                Direction::Forward => Some(bucket.start.micros()),
                Direction::Backward => Some(bucket.start.micros() + 1),
            }
        });
        Self {
            direction,
            range,
            from,
            next: [None; 4],
        }
    }

    async fn peek(&mut self, messages: &Messages, view: &mut IndexView) -> Result<Option<Next>> {
        let wanted = Width::ALL
            .map(|width| self.from[width as usize].filter(|_| self.next[width as usize].is_none()));
        if wanted.iter().any(Option::is_some) {
            let found = view.next(messages, self.direction, wanted).await?;
            for width in Width::ALL
                .map(|width| width as usize)
                .into_iter()
                .filter(|width| wanted[*width].is_some())
            {
                self.next[width] = found[width].filter(|next| match next {
                    Next::Bucket(bucket) => {
                        !IdRange::of_bucket(*bucket).intersect(self.range).is_empty()
                    }
                    Next::NotBefore(start) => OrderKey::first_at(*start) < self.range.end,
                });
                self.from[width] = self.next[width].map(|next| match (next, self.direction) {
                    (Next::Bucket(bucket), Direction::Forward) => bucket.start.micros() + 1,
                    (next, _) => next.start().micros(),
                });
            }
        }
        let next = self.next.iter().flatten().copied();
        Ok(match self.direction {
            Direction::Forward => next.min_by_key(|next| next.start()),
            Direction::Backward => next.max_by_key(|next| match next {
                Next::Bucket(bucket) => bucket.end(),
                Next::NotBefore(start) => *start,
            }),
        })
    }

    /// Reads the young buckets. Afterwards the next bucket of every width is known.
    async fn read_young(&mut self, messages: &Messages, view: &mut IndexView) -> Result<()> {
        view.read_young(messages).await?;
        for next in &mut self.next {
            next.take_if(|next| matches!(next, Next::NotBefore(_)));
        }
        Ok(())
    }

    fn take(&mut self, bucket: Bucket) {
        self.next[bucket.width as usize] = None;
    }

    /// Whether the second bucket covers the point of the range at which the first one begins.
    fn is_beside(&self, first: Bucket, second: Bucket) -> bool {
        let (first, second) = (
            IdRange::of_bucket(first).intersect(self.range),
            IdRange::of_bucket(second).intersect(self.range),
        );
        match self.direction {
            Direction::Forward => second.start <= first.start,
            Direction::Backward => second.end >= first.end,
        }
    }
}

impl Messages {
    /// The first messages of one bucket in a range. Rows that are no message do not count.
    pub(crate) async fn read_bucket<R: BucketRow>(
        &self,
        conversation: ConversationId,
        bucket: Bucket,
        range: IdRange,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<R>> {
        let mut rest = range.intersect(IdRange::of_bucket(bucket));
        let mut messages = Vec::new();
        let mut limit = count.min(ROWS_MAX);
        while let Some((first, last)) = rest.ids() {
            let values = values![
                conversation,
                bucket.width.number(),
                bucket.start,
                first,
                last,
                row_limit(limit)
            ];
            let rows: Vec<R::Columns> = self.executor.read(R::statement(direction), values).await?;
            let is_all = rows.len() < limit;
            for columns in rows {
                let (id, message) = R::decode(conversation, columns)?;
                rest = match direction {
                    Direction::Forward => rest.after(id.order_key()),
                    Direction::Backward => rest.before(id.order_key()),
                };
                messages.extend(message);
            }
            if is_all || messages.len() >= count {
                break;
            }
            limit = (count - messages.len()).clamp(ROWS_AGAIN_MIN, ROWS_MAX);
        }
        messages.truncate(count);
        Ok(messages)
    }
}
