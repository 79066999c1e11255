//! A walk through a history: the messages of a stretch, the newest or the oldest first, merged from the buckets that it meets.
//!
//! Only buckets that hold something are asked, each once, and only as far as they can still matter: once enough was found, what lies behind
//! the last of it is not read. One bucket is asked first; where that is not enough, more and more of them at once.

use scylla::deserialize::row::DeserializeRow;
use scylla::statement::prepared::PreparedStatement;

use super::bucket::{Bucket, Width};
use super::bucket_index::{Next, View, row_limit};
use super::id_range::Span;
use crate::model::{ConversationId, Direction, OrderKey, TimeUuid};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::at_once;
use crate::store::cql::driver::value::cells;

/// Buckets that are asked at once.
const WAVE_MAX: usize = 32;
/// Rows of one statement, at most and, where rows without a message made an answer short, at least.
pub(crate) const ROWS_MAX: usize = 1_000;
const ROWS_AGAIN_MIN: usize = 100;

/// What is read of a message, and how.
pub(crate) trait Row: Sized + Send + Sync {
    type Columns: for<'frame> DeserializeRow<'frame, 'frame> + Send;

    /// Of one bucket, between two ids, at most so many: in this direction of time.
    fn statement(inner: &Inner, direction: Direction) -> &PreparedStatement;
    /// The row's id, and `None` beside it where the row is no message.
    fn read(conversation: ConversationId, columns: Self::Columns) -> Result<(TimeUuid, Option<Self>)>;
    fn place(&self) -> OrderKey;
}

/// Up to `count` messages of a span. Forward is from the oldest on.
pub(crate) async fn walk<R: Row>(
    inner: &Inner,
    conversation: ConversationId,
    span: Span,
    direction: Direction,
    count: usize,
) -> Result<Vec<R>> {
    if count == 0 || span.ids().is_none() {
        return Ok(Vec::new());
    }
    let mut view = View::open(inner, conversation).await?;
    let mut walk = Walk { direction, span, count, found: Vec::new() };
    let mut buckets = Buckets::new(direction, span);
    let mut asked = 0;
    loop {
        let wave = walk.wave(inner, &mut view, &mut buckets, asked).await?;
        if wave.is_empty() {
            return Ok(walk.found);
        }
        asked += wave.len();
        let open = walk.open();
        let reads = wave.into_iter().map(|bucket| read_bucket::<R>(inner, conversation, bucket, open, direction, count)).collect();
        for rows in at_once(reads).await? {
            walk.found.extend(rows);
        }
        walk.found.sort_unstable_by_key(Row::place);
        if direction == Direction::Backward {
            walk.found.reverse();
        }
        walk.found.truncate(count);
    }
}

/// The buckets that meet a span, at most so many, by their starts.
pub(crate) async fn buckets_of(inner: &Inner, view: &mut View, span: Span, limit: usize) -> Result<Vec<Bucket>> {
    let mut buckets = Buckets::new(Direction::Forward, span);
    let mut all = Vec::new();
    while all.len() < limit
        && let Some(next) = buckets.peek(inner, view).await?
    {
        match next {
            Next::NotBefore(_) => buckets.read_young(inner, view).await?,
            Next::Bucket(next) => {
                buckets.take(next);
                all.push(next);
            }
        }
    }
    Ok(all)
}

struct Walk<R> {
    direction: Direction,
    span: Span,
    count: usize,
    /// The best so far, in the order of the walk.
    found: Vec<R>,
}

impl<R: Row> Walk<R> {
    /// Where something better than what was found may lie.
    fn open(&self) -> Span {
        match (self.found.get(self.count - 1), self.direction) {
            (None, _) => self.span,
            (Some(last), Direction::Forward) => self.span.before(last.place()),
            (Some(last), Direction::Backward) => self.span.behind(last.place()),
        }
    }

    /// The buckets to be asked next.
    async fn wave(&self, inner: &Inner, view: &mut View, buckets: &mut Buckets, asked: usize) -> Result<Vec<Bucket>> {
        let open = self.open();
        let missing = self.count - self.found.len();
        // As many as hold what is missing, if they are as full as those before them. Of the first one only a piece may have been asked for,
        // so that it says little: no more than twice as many as before.
        let likely = (missing * asked).div_ceil(self.found.len().max(1));
        let wanted = likely.min(asked * 2).clamp(1, WAVE_MAX);
        let mut wave: Vec<Bucket> = Vec::new();
        while wave.len() < WAVE_MAX
            && let Some(next) = buckets.peek(inner, view).await?
        {
            match next {
                Next::NotBefore(start) if wave.len() >= wanted || OrderKey::first_at(start) >= open.end => break,
                Next::NotBefore(_) => buckets.read_young(inner, view).await?,
                Next::Bucket(next) if Span::of_bucket(next).and(open).is_empty() => break,
                // One that lies across the beginning of the first one is needed whatever that holds.
                Next::Bucket(next) if wave.len() >= wanted && !wave.first().is_some_and(|first| buckets.is_beside(*first, next)) => break,
                Next::Bucket(next) => {
                    buckets.take(next);
                    wave.push(next);
                }
            }
        }
        Ok(wave)
    }
}

/// The buckets that meet a span, in the order in which their stretches begin for one who walks.
struct Buckets {
    direction: Direction,
    span: Span,
    /// Where the next one of each width is looked for. `None` where there are no more.
    from: [Option<i64>; 4],
    next: [Option<Next>; 4],
}

impl Buckets {
    fn new(direction: Direction, span: Span) -> Self {
        let edge = match direction {
            Direction::Forward => span.start.moment(),
            Direction::Backward => span.end.before().moment(),
        };
        let from = Width::ALL.map(|width| {
            let bucket = Bucket::holding(edge, width);
            match direction {
                Direction::Forward => Some(bucket.start.micros()),
                Direction::Backward => Some(bucket.start.micros() + 1),
            }
        });
        Self { direction, span, from, next: [None; 4] }
    }

    async fn peek(&mut self, inner: &Inner, view: &mut View) -> Result<Option<Next>> {
        let wanted = Width::ALL.map(|width| self.from[width as usize].filter(|_| self.next[width as usize].is_none()));
        if wanted.iter().any(Option::is_some) {
            let found = view.next(inner, self.direction, wanted).await?;
            for width in Width::ALL.map(|width| width as usize).into_iter().filter(|width| wanted[*width].is_some()) {
                self.next[width] = found[width].filter(|next| match next {
                    Next::Bucket(bucket) => !Span::of_bucket(*bucket).and(self.span).is_empty(),
                    Next::NotBefore(start) => OrderKey::first_at(*start) < self.span.end,
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

    /// The next ones of all widths are known after that.
    async fn read_young(&mut self, inner: &Inner, view: &mut View) -> Result<()> {
        view.read_young(inner).await?;
        for next in &mut self.next {
            next.take_if(|next| matches!(next, Next::NotBefore(_)));
        }
        Ok(())
    }

    fn take(&mut self, bucket: Bucket) {
        self.next[bucket.width as usize] = None;
    }

    /// Whether the second lies at the place of the span where the first one begins.
    fn is_beside(&self, first: Bucket, second: Bucket) -> bool {
        let (first, second) = (Span::of_bucket(first).and(self.span), Span::of_bucket(second).and(self.span));
        match self.direction {
            Direction::Forward => second.start <= first.start,
            Direction::Backward => second.end >= first.end,
        }
    }
}

/// The first messages of one bucket in a span. Rows that are none do not count.
pub(crate) async fn read_bucket<R: Row>(
    inner: &Inner,
    conversation: ConversationId,
    bucket: Bucket,
    span: Span,
    direction: Direction,
    count: usize,
) -> Result<Vec<R>> {
    let mut rest = span.and(Span::of_bucket(bucket));
    let mut messages = Vec::new();
    let mut limit = count.min(ROWS_MAX);
    while let Some((first, last)) = rest.ids() {
        let values = cells![conversation, bucket.width.number(), bucket.start, first, last, row_limit(limit)];
        let rows: Vec<R::Columns> = inner.cluster.read(R::statement(inner, direction), values).await?;
        let is_all = rows.len() < limit;
        for columns in rows {
            let (id, message) = R::read(conversation, columns)?;
            rest = match direction {
                Direction::Forward => rest.behind(id.order_key()),
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
