//! How many messages a conversation has: checkpoints, and the rows behind them.
//!
//! A checkpoint says how many messages there are up to a place. The conversation has one, its summary, in a row of the index that belongs to
//! no bucket; each bucket that took long to count has one of its own. As a rule the summary and the rows behind it are read, whatever the
//! length of the history. Where there is no summary, the buckets' checkpoints are added up, and what they do not cover is counted.
//!
//! A checkpoint covers only ids that are [`SETTLED_MICROS`] old, and is written with the moment at which its reading began. Who writes a
//! message that is older than [`LATE_MICROS`] takes back, in the same batch, the checkpoints that may have passed it, at a moment ahead of
//! all clocks: a reading that began before the message was there cannot bring them back. The two ages lie so far apart that a slow write or
//! two clocks apart do no harm.

use super::bucket::{Bucket, Width};
use super::bucket_index::{View, row_limit};
use super::bucket_merge::{ROWS_MAX, Row, buckets_of, read_bucket};
use super::history::Lead;
use super::id_range::Span;
use crate::model::{ConversationId, Direction, Message, OrderKey, Timestamp};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::{Writes, at_once};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::cells;

/// The index row of the summary: no width of a bucket, and a start of zero.
pub(crate) const SUMMARY_WIDTH: i8 = -1;

const SETTLED_MICROS: i64 = 60 * 1_000_000;
const LATE_MICROS: i64 = 30 * 1_000_000;
/// Two clocks apart, an attempt, and as much again.
const AHEAD_MICROS: i64 = 15 * 1_000_000;
/// Rows behind a checkpoint that make a new one worth its write.
const ROWS_WORTH: u64 = 250;
/// Buckets behind the summary that do.
const BUCKETS_WORTH: usize = 2;
/// More than these behind the summary are counted by their own checkpoints.
const BUCKETS_MAX: usize = 8;
/// Rows after which the counting of one bucket is kept, so that a count that is given up is not begun anew.
const ROWS_KEPT: u64 = 10_000;
/// Checkpoints in one batch.
const BATCH_MAX: usize = 64;

statements! {
    /// The statements of this file.
    Statements {
        keep: Write "UPDATE buckets_by_conversation USING TIMESTAMP ? SET counted = ? WHERE conversation_id = ? AND width = ? AND start = ?";
        older: Read "SELECT width, start, counted FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start < ? LIMIT ?";
    }
}

/// So many messages up to a place, itself included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    up_to: OrderKey,
    count: u64,
}

impl Checkpoint {
    const NONE: Self = Self { up_to: OrderKey::MIN, count: 0 };
    /// What was counted is not known any more. The greatest of all cells: among cells of one timestamp it stays.
    const TAKEN_BACK: [u8; 24] = [0xff; 24];

    fn encode(self) -> Vec<u8> {
        [self.up_to.0.as_slice(), &self.count.to_be_bytes()].concat()
    }

    /// `None` where it was taken back.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let broken = || corrupt("buckets_by_conversation", "a checkpoint is an order key and a count");
        let (up_to, count) = bytes.split_first_chunk::<16>().ok_or_else(broken)?;
        let count = u64::from_be_bytes(count.try_into().map_err(|_| broken())?);
        Ok((bytes != Self::TAKEN_BACK).then_some(Self { up_to: OrderKey(*up_to), count }))
    }
}

impl Inner {
    /// A message that is written late lies below what may have been counted.
    pub(crate) fn uncount(&self, writes: &mut Writes, message: &Message, bucket: Bucket) {
        let now = self.clock.now();
        if message.id.moment().plus_micros(LATE_MICROS) > now {
            return;
        }
        let (at, none) = (now.plus_micros(AHEAD_MICROS), || Checkpoint::TAKEN_BACK.to_vec());
        let (keep, conversation) = (&self.statements.count.keep, message.conversation);
        writes.push_once(keep, cells![at, none(), conversation, bucket.width.number(), bucket.start]);
        writes.push_once(keep, cells![at, none(), conversation, SUMMARY_WIDTH, Timestamp::ZERO]);
    }
}

/// What was counted of a conversation is not known any more.
pub(crate) async fn forget_counts(inner: &Inner, conversation: ConversationId) -> Result<()> {
    let counting = Counting::begin(inner, conversation);
    let at = counting.began_at.plus_micros(AHEAD_MICROS);
    let buckets = counting.read_index().await?.into_iter().map(|(bucket, _)| (bucket.width.number(), bucket.start));
    let rows: Vec<_> = buckets.chain([(SUMMARY_WIDTH, Timestamp::ZERO)]).collect();
    for piece in rows.chunks(BATCH_MAX) {
        let mut writes = Writes::of_one_partition();
        for (width, start) in piece {
            let none = Checkpoint::TAKEN_BACK.to_vec();
            writes.push(&inner.statements.count.keep, cells![at, none, conversation, *width, *start]);
        }
        inner.cluster.write_all(writes).await?;
    }
    Ok(())
}

pub(crate) async fn message_counts(inner: &Inner, conversations: &[ConversationId]) -> Result<Vec<u64>> {
    at_once(conversations.iter().map(|conversation| Counting::begin(inner, *conversation).count()).collect()).await
}

/// Messages that were counted: those that a checkpoint may cover, and younger ones.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    settled: u64,
    recent: u64,
    /// Of them, those that were looked at now.
    rows: u64,
}

impl Tally {
    fn sum(tallies: impl IntoIterator<Item = Self>) -> Self {
        tallies.into_iter().fold(Self::default(), |sum, one| Self {
            settled: sum.settled + one.settled,
            recent: sum.recent + one.recent,
            rows: sum.rows + one.rows,
        })
    }
}

/// One count of one conversation.
struct Counting<'a> {
    inner: &'a Inner,
    conversation: ConversationId,
    began_at: Timestamp,
    /// What lies before it is settled.
    horizon: OrderKey,
}

impl<'a> Counting<'a> {
    fn begin(inner: &'a Inner, conversation: ConversationId) -> Self {
        let began_at = inner.clock.now();
        Self { inner, conversation, began_at, horizon: OrderKey::first_at(began_at.plus_micros(-SETTLED_MICROS)) }
    }

    async fn count(self) -> Result<u64> {
        let mut view = View::open(self.inner, self.conversation).await?;
        view.read_young(self.inner).await?;
        let Some(summary) = view.summary else {
            return self.count_all(view.rows.take()).await;
        };
        let behind = Span::WHOLE.behind(summary.up_to);
        let buckets = buckets_of(self.inner, &mut view, behind, BUCKETS_MAX + 1).await?;
        if buckets.len() > BUCKETS_MAX {
            return self.count_all(view.rows.take()).await;
        }
        let tallies = at_once(buckets.iter().map(|bucket| self.count_rows(*bucket, behind)).collect()).await?;
        let tally = Tally::sum(tallies);
        if tally.settled >= ROWS_WORTH || (tally.settled > 0 && buckets.len() > BUCKETS_WORTH) {
            // What the view remembers was read before this began: a late message that it does not know may have come since.
            let read_at = self.began_at.min(view.read_at());
            self.keep(read_at, &[(None, self.settled_to_here(summary.count + tally.settled))]).await;
        }
        Ok(summary.count + tally.settled + tally.recent)
    }

    fn settled_to_here(&self, count: u64) -> Checkpoint {
        Checkpoint { up_to: self.horizon.before(), count }
    }

    async fn count_rows(&self, bucket: Bucket, span: Span) -> Result<Tally> {
        Ok(self.count_behind(bucket, span, None).await?.0)
    }

    /// Adds up the buckets, by their checkpoints as far as they go. `rows` is the index, where it was read just now.
    async fn count_all(&self, rows: Option<Vec<(Bucket, Option<Checkpoint>)>>) -> Result<u64> {
        let rows = match rows {
            Some(rows) => rows,
            None => self.read_index().await?,
        };
        let counted = rows.iter().map(|(bucket, checkpoint)| self.count_bucket(*bucket, *checkpoint)).collect();
        let counted: Vec<(Bucket, Tally, Option<Checkpoint>)> = at_once(counted).await?;
        let tally = Tally::sum(counted.iter().map(|(_, tally, _)| *tally));
        let is_worth = |tally: &Tally| tally.rows >= ROWS_WORTH || (tally.rows > 0 && rows.len() > BUCKETS_MAX);
        let worth = counted.iter().filter(|(_, tally, _)| is_worth(tally));
        let mut kept: Vec<_> = worth.filter_map(|(bucket, _, reached)| Some((Some(*bucket), (*reached)?))).collect();
        if tally.settled > 0 {
            kept.push((None, self.settled_to_here(tally.settled)));
        }
        self.keep(self.began_at, &kept).await;
        Ok(tally.settled + tally.recent)
    }

    async fn count_bucket(&self, bucket: Bucket, checkpoint: Option<Checkpoint>) -> Result<(Bucket, Tally, Option<Checkpoint>)> {
        let checkpoint = checkpoint.unwrap_or(Checkpoint::NONE);
        let behind = Span::WHOLE.behind(checkpoint.up_to);
        let (mut tally, reached) = self.count_behind(bucket, behind, Some(checkpoint)).await?;
        tally.settled += checkpoint.count;
        Ok((bucket, tally, reached))
    }

    /// Counts a bucket's rows in a span, and says how far a checkpoint of it may reach now: `None` where it goes no further.
    async fn count_behind(&self, bucket: Bucket, span: Span, from: Option<Checkpoint>) -> Result<(Tally, Option<Checkpoint>)> {
        let mut rest = span.and(Span::of_bucket(bucket));
        let settled_end = self.horizon.min(Span::of_bucket(bucket).end);
        let mut tally = Tally::default();
        let mut kept = 0;
        while rest.ids().is_some() {
            let leads: Vec<Lead> = read_bucket(self.inner, self.conversation, bucket, rest, Direction::Forward, ROWS_MAX).await?;
            let settled = leads.iter().filter(|lead| lead.place() < settled_end).count() as u64;
            tally.settled += settled;
            tally.recent += leads.len() as u64 - settled;
            tally.rows += leads.len() as u64;
            let Some(last) = leads.last().filter(|_| leads.len() == ROWS_MAX) else { break };
            rest = rest.behind(last.place());
            if let Some(from) = from
                && last.place() < settled_end
                && tally.rows >= kept + ROWS_KEPT
            {
                kept = tally.rows;
                let checkpoint = Checkpoint { up_to: last.place(), count: from.count + tally.settled };
                self.keep(self.began_at, &[(Some(bucket), checkpoint)]).await;
            }
        }
        let reached = from.map(|from| Checkpoint { up_to: settled_end.before(), count: from.count + tally.settled });
        Ok((tally, reached.filter(|reached| from.is_some_and(|from| reached.up_to > from.up_to))))
    }

    /// The whole index with its checkpoints, width by width.
    async fn read_index(&self) -> Result<Vec<(Bucket, Option<Checkpoint>)>> {
        let widths = Width::ALL.into_iter().map(|width| self.read_index_of(width)).collect();
        Ok(at_once(widths).await?.concat())
    }

    async fn read_index_of(&self, width: Width) -> Result<Vec<(Bucket, Option<Checkpoint>)>> {
        let mut all = Vec::new();
        let mut before = i64::MAX;
        loop {
            let values = cells![self.conversation, width.number(), before, row_limit(ROWS_MAX)];
            let rows: Vec<(i8, i64, Option<Vec<u8>>)> = self.inner.cluster.read(&self.inner.statements.count.older, values).await?;
            let is_all = rows.len() < ROWS_MAX;
            for (width, start, counted) in rows {
                before = start;
                all.push((Bucket::from_row(width, start)?, counted.as_deref().map(Checkpoint::decode).transpose()?.flatten()));
            }
            if is_all {
                return Ok(all);
            }
        }
    }

    /// Keeps checkpoints of buckets, and of the whole where there is no bucket. What is not kept is counted again: no fault.
    async fn keep(&self, read_at: Timestamp, checkpoints: &[(Option<Bucket>, Checkpoint)]) {
        for piece in checkpoints.chunks(BATCH_MAX) {
            let mut writes = Writes::of_one_partition();
            for (bucket, checkpoint) in piece {
                let (width, start) = bucket.map_or((SUMMARY_WIDTH, Timestamp::ZERO), |bucket| (bucket.width.number(), bucket.start));
                let values = cells![read_at, checkpoint.encode(), self.conversation, width, start];
                writes.push(&self.inner.statements.count.keep, values);
            }
            if let Err(error) = self.inner.cluster.write_all(writes).await {
                tracing::debug!(conversation = %self.conversation, %error, "the store failed to cache a message count");
                return;
            }
        }
    }
}
