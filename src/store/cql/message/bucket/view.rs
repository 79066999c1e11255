//! View of the bucket index of one conversation, as one request sees it.
//!
//! A short index is read whole by one statement, a long one in pieces from where a page needs it.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::{try_join, try_join_all};
use uuid::Uuid;

use super::checkpoint::{Checkpoint, SUMMARY_WIDTH};
use super::index::{Cached, CachedIndex, IndexRow, PAIRS_MAX, SELECT_BUCKETS, decode_checkpoint};
use super::interval_set::Interval;
use super::{Bucket, Width};
use crate::model::{ConversationId, Direction, Timestamp};
use crate::store::Result;
use crate::store::cql::driver::executor::{PARTITIONS_MAX, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, pair, row_limit, values};
use crate::store::cql::message::Messages;

/// The most that an id can be ahead of this clock: two clock skews, and the lead of an id generator.
const AHEAD_MICROS: i64 = 10 * 1_000_000;
/// Rows of an index that is read by one statement.
const WHOLE_MAX: usize = 256;
/// Rows of one piece of a long index.
const PIECE: usize = 64;

statements! {
    SELECT_INDEX: Read "SELECT width, start, counted FROM buckets_by_conversation WHERE conversation_id = ? LIMIT ?";
    SELECT_INDEXES: Read "SELECT conversation_id, width, start, counted FROM buckets_by_conversation WHERE conversation_id IN ? PER PARTITION LIMIT ?";
    SELECT_YOUNG_BUCKETS: Read "SELECT conversation_id, width, start, counted FROM buckets_by_conversation WHERE conversation_id IN ? AND (width, start) IN ?";
    SELECT_OLDER_BUCKETS: Read "SELECT start FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start < ? LIMIT ?";
    SELECT_NEWER_BUCKETS: Read "SELECT start FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start >= ? AND start < ? ORDER BY width DESC, start ASC LIMIT ?";
}

/// The next bucket of a width.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next {
    Bucket(Bucket),
    /// One of the young buckets, which were not read yet: if there is one, it starts here or later.
    NotBefore(Timestamp),
}

impl Next {
    pub(crate) const fn start(self) -> Timestamp {
        match self {
            Self::Bucket(bucket) => bucket.start,
            Self::NotBefore(start) => start,
        }
    }
}

type IndexRowOf = (Uuid, i8, i64, Option<Vec<u8>>);

fn by_conversation(rows: Vec<Vec<IndexRowOf>>) -> HashMap<ConversationId, Vec<IndexRow>> {
    let mut found: HashMap<_, Vec<_>> = HashMap::new();
    for (id, width, start, counted) in rows.into_iter().flatten() {
        let rows = found.entry(ConversationId(id)).or_default();
        rows.push((width, start, counted));
    }
    found
}

/// The index of one conversation, as one request sees it.
#[derive(Clone)]
pub(crate) struct IndexView {
    conversation: ConversationId,
    cached: CachedIndex,
    /// The young buckets, ascending.
    young: [Vec<i64>; 4],
    has_young: bool,
    /// The checkpoint of the whole conversation, if there is one. Read with the young buckets.
    pub(crate) summary: Option<Checkpoint>,
    /// The rows that this view has read.
    rows: Vec<(Bucket, Option<Checkpoint>)>,
    /// Whether these were all rows of the index at `read_at`, and all young ones since.
    has_all: bool,
}

impl IndexView {
    pub(crate) async fn open(messages: &Messages, conversation: ConversationId) -> Result<Self> {
        let now = messages.clock.now();
        let cached = match messages.index.get(conversation, now) {
            Cached::Fresh(cached) => cached,
            Cached::Long => CachedIndex::new(now, true),
            Cached::Nothing => match Self::read_whole(messages, conversation, now).await? {
                Some(view) => return Ok(view),
                None => CachedIndex::new(now, true),
            },
        };
        if cached.is_long {
            messages.index.store(conversation, &cached, &[]);
        }
        Ok(Self::new(conversation, cached))
    }

    /// Opens the index as it is now, past the cache.
    pub(crate) async fn open_anew(
        messages: &Messages,
        conversation: ConversationId,
    ) -> Result<Self> {
        let now = messages.clock.now();
        let whole = Self::read_whole(messages, conversation, now).await?;
        Ok(whole.unwrap_or_else(|| Self::new(conversation, CachedIndex::new(now, true))))
    }

    fn new(conversation: ConversationId, cached: CachedIndex) -> Self {
        Self {
            conversation,
            cached,
            young: Default::default(),
            has_young: false,
            summary: None,
            rows: Vec::new(),
            has_all: false,
        }
    }

    /// Opens the indexes of several conversations together, none named twice, in their order. Short ones have their young buckets.
    pub(crate) async fn open_many(
        messages: &Messages,
        conversations: &[ConversationId],
    ) -> Result<Vec<Self>> {
        let now = messages.clock.now();
        let mut views = HashMap::with_capacity(conversations.len());
        let (mut unknown, mut cached, mut long) = (Vec::new(), Vec::new(), Vec::new());
        for conversation in conversations {
            match messages.index.get(*conversation, now) {
                Cached::Fresh(index) if !index.is_long => {
                    cached.push(Self::new(*conversation, index));
                }
                Cached::Fresh(_) | Cached::Long => long.push(*conversation),
                Cached::Nothing => unknown.push(*conversation),
            }
        }
        let (whole, cached) = try_join(
            Self::read_wholes(messages, &unknown),
            Self::read_young_of(messages, cached, now),
        )
        .await?;
        let mut whole = by_conversation(whole);
        for conversation in unknown {
            let rows = whole.remove(&conversation).unwrap_or_default();
            match Self::of_whole(messages, conversation, now, rows)? {
                Some(view) => drop(views.insert(conversation, view)),
                None => long.push(conversation),
            }
        }
        views.extend(cached.into_iter().map(|view| (view.conversation, view)));
        for conversation in long {
            views.insert(conversation, Self::open(messages, conversation).await?);
        }
        Ok(conversations
            .iter()
            .filter_map(|conversation| views.remove(conversation))
            .collect())
    }

    async fn read_wholes(
        messages: &Messages,
        conversations: &[ConversationId],
    ) -> Result<Vec<Vec<IndexRowOf>>> {
        let limit = row_limit(WHOLE_MAX + 1);
        let reads = conversations.chunks(PARTITIONS_MAX).map(|piece| {
            let ids = list(piece.iter().copied());
            messages.executor.read(&SELECT_INDEXES, values![ids, limit])
        });
        concurrently(reads).await
    }

    /// Reads the young buckets of cached indexes.
    async fn read_young_of(
        messages: &Messages,
        views: Vec<Self>,
        now: Timestamp,
    ) -> Result<Vec<Self>> {
        let reads = views.chunks(PARTITIONS_MAX).map(|piece| {
            let keys: BTreeSet<_> = piece.iter().flat_map(|view| view.young_keys(now)).collect();
            let keys = list(keys.into_iter().map(|(width, start)| pair(width, start)));
            let ids = list(piece.iter().map(|view| view.conversation));
            messages
                .executor
                .read(&SELECT_YOUNG_BUCKETS, values![ids, keys])
        });
        let mut rows = by_conversation(concurrently(reads).await?);
        let mut opened = Vec::with_capacity(views.len());
        for mut view in views {
            view.take_young(rows.remove(&view.conversation).unwrap_or_default())?;
            opened.push(view);
        }
        Ok(opened)
    }

    /// Reads the whole index by one statement. `None` if it is too long.
    async fn read_whole(
        messages: &Messages,
        conversation: ConversationId,
        now: Timestamp,
    ) -> Result<Option<Self>> {
        let limit = row_limit(WHOLE_MAX + 1);
        let rows = messages
            .executor
            .read(&SELECT_INDEX, values![conversation, limit])
            .await?;
        Self::of_whole(messages, conversation, now, rows)
    }

    /// All rows of a short index, by one statement. `None` if it is long.
    pub(crate) async fn read_short(
        messages: &Messages,
        conversation: ConversationId,
    ) -> Result<Option<Vec<(Bucket, Option<Checkpoint>)>>> {
        let now = messages.clock.now();
        if messages.index.get(conversation, now).is_long() {
            return Ok(None);
        }
        let view = Self::read_whole(messages, conversation, now).await?;
        Ok(view.and_then(|mut view| view.take_whole()))
    }

    /// The view of all rows of an index, and its cache entry. `None` if they are too many.
    fn of_whole(
        messages: &Messages,
        conversation: ConversationId,
        now: Timestamp,
        rows: Vec<IndexRow>,
    ) -> Result<Option<Self>> {
        if rows.len() > WHOLE_MAX {
            // The next view need not read it whole to find that out.
            let cached = CachedIndex::new(now, true);
            messages.index.store(conversation, &cached, &[]);
            return Ok(None);
        }
        let mut view = Self::new(conversation, CachedIndex::new(now, false));
        let mut old: [Vec<i64>; 4] = Default::default();
        for bucket in view.take_rows(rows)? {
            let position = if bucket.start.micros() < view.cached.young_from(bucket.width) {
                &mut old
            } else {
                &mut view.young
            };
            position[bucket.width as usize].push(bucket.start.micros());
        }
        for width in Width::ALL {
            view.young[width as usize].sort_unstable();
            let mut starts = std::mem::take(&mut old[width as usize]);
            starts.sort_unstable();
            let end = view.cached.young_from(width);
            view.cached.widths[width as usize].add(Interval {
                start: i64::MIN,
                end,
                starts,
            });
        }
        (view.has_all, view.has_young) = (true, true);
        messages.index.store(conversation, &view.cached, &[]);
        Ok(Some(view))
    }

    /// Reads the young buckets: they are so few that each is read by its key.
    pub(crate) async fn read_young(&mut self, messages: &Messages) -> Result<()> {
        if self.has_young {
            return Ok(());
        }
        let keys = self.young_keys(messages.clock.now());
        debug_assert!(
            keys.len() <= PAIRS_MAX,
            "a cached index is younger than two minutes"
        );
        let keys = list(keys.into_iter().map(|(width, start)| pair(width, start)));
        let rows = messages
            .executor
            .read(&SELECT_BUCKETS, values![self.conversation, keys])
            .await?;
        self.take_young(rows)
    }

    /// The keys of the index rows that young buckets can have, and that of the summary.
    fn young_keys(&self, now: Timestamp) -> Vec<(i8, i64)> {
        let last = now.plus_micros(AHEAD_MICROS).micros();
        let mut keys = vec![(SUMMARY_WIDTH, 0)];
        for width in Width::ALL {
            let starts = (self.cached.young_from(width)..=last)
                .step_by(usize::try_from(width.micros()).expect("a width is positive"));
            keys.extend(starts.map(|start| (width.number(), start)));
        }
        keys
    }

    /// Takes the rows of the young buckets. There may be others, which other views asked for.
    fn take_young(&mut self, rows: Vec<IndexRow>) -> Result<()> {
        // A message that is written late to an old bucket, unnoticed by this view, writes the row of the summary.
        let has_no_summary = rows.iter().all(|(width, ..)| *width != SUMMARY_WIDTH);
        for bucket in self.take_rows(rows)? {
            if bucket.start.micros() >= self.cached.young_from(bucket.width) {
                self.young[bucket.width as usize].push(bucket.start.micros());
            }
        }
        for starts in &mut self.young {
            starts.sort_unstable();
        }
        self.has_young = true;
        self.has_all = has_no_summary && Width::ALL.into_iter().all(|width| self.has_no_old(width));
        Ok(())
    }

    /// Whether the index is known to have no old bucket of a width.
    fn has_no_old(&self, width: Width) -> bool {
        let read = &self.cached.widths[width as usize];
        read.last_before(self.cached.young_from(width)) == Err(i64::MIN)
    }

    /// Takes the rows of an index, and returns their buckets.
    fn take_rows(&mut self, rows: Vec<IndexRow>) -> Result<Vec<Bucket>> {
        let mut buckets = Vec::with_capacity(rows.len());
        for (width, start, counted) in rows {
            let counted = decode_checkpoint(counted)?;
            if width == SUMMARY_WIDTH {
                // The other row of this width holds no checkpoint.
                if start == 0 {
                    self.summary = counted;
                }
            } else {
                let bucket = Bucket::from_row(width, start)?;
                buckets.push(bucket);
                self.rows.push((bucket, counted));
            }
        }
        Ok(buckets)
    }

    /// All rows, if this view has read or knows the whole index.
    pub(crate) fn take_whole(&mut self) -> Option<Vec<(Bucket, Option<Checkpoint>)>> {
        self.has_all.then(|| std::mem::take(&mut self.rows))
    }

    /// The checkpoints of some buckets. Reads those that this view has not read.
    pub(crate) async fn checkpoints(
        &self,
        messages: &Messages,
        buckets: &[Bucket],
    ) -> Result<Vec<Option<Checkpoint>>> {
        let mut checkpoints: HashMap<_, _> = self.rows.iter().copied().collect();
        let missing: Vec<_> = buckets
            .iter()
            .copied()
            .filter(|bucket| !checkpoints.contains_key(bucket))
            .collect();
        let read = messages
            .read_checkpoints(self.conversation, &missing)
            .await?;
        checkpoints.extend(read.into_iter().map(|(bucket, one)| (bucket, Some(one))));
        Ok(buckets
            .iter()
            .map(|bucket| checkpoints.get(bucket).copied().flatten())
            .collect())
    }

    pub(crate) const fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// The moment since which other servers may have changed the index unnoticed by this view.
    pub(crate) const fn read_at(&self) -> Timestamp {
        self.cached.read_at
    }

    /// The next bucket of each width from a start: forward the first that starts there or later, backward the last that starts before it.
    /// Reads the unknown parts of all widths concurrently.
    pub(crate) async fn next(
        &mut self,
        messages: &Messages,
        direction: Direction,
        from: [Option<i64>; 4],
    ) -> Result<[Option<Next>; 4]> {
        if direction == Direction::Backward
            && Width::ALL.into_iter().any(|width| {
                from[width as usize].is_some_and(|from| from > self.cached.young_from(width))
            })
        {
            self.read_young(messages).await?;
        }
        let mut from = from;
        let missing = Width::ALL
            .into_iter()
            .filter_map(|width| Some((width, self.gap(width, direction, from[width as usize]?)?)));
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            let reads = missing
                .iter()
                .map(|(width, at)| self.piece(messages, *width, direction, *at));
            let read = try_join_all(reads).await?;
            // No bucket lies before the gap.
            for (width, at) in missing {
                from[width as usize] = Some(at);
            }
            for (width, range) in &read {
                self.cached.widths[*width as usize].add(range.clone());
            }
            messages.index.store(self.conversation, &self.cached, &read);
        }
        let next = |width: Width| {
            let from = from[width as usize]?;
            match self.find(width, direction, from) {
                Some(start) => Some(Next::Bucket(Bucket {
                    width,
                    start: Timestamp::from_micros(start),
                })),
                None if direction == Direction::Backward || self.has_young => None,
                None => Some(Next::NotBefore(Timestamp::from_micros(
                    from.max(self.cached.young_from(width)),
                ))),
            }
        };
        Ok(Width::ALL.map(next))
    }

    /// The position of an unknown part that must be read before the next bucket is known.
    fn gap(&self, width: Width, direction: Direction, from: i64) -> Option<i64> {
        let (read, young_from) = (
            &self.cached.widths[width as usize],
            self.cached.young_from(width),
        );
        match direction {
            Direction::Forward if from >= young_from => None,
            Direction::Forward => read.first_from(from).err().filter(|gap| *gap < young_from),
            Direction::Backward
                if self.young[width as usize]
                    .first()
                    .is_some_and(|start| *start < from) =>
            {
                None
            }
            Direction::Backward => read
                .last_before(from.min(young_from))
                .err()
                .filter(|gap| *gap > i64::MIN),
        }
    }

    /// The next bucket, if there is no gap before it.
    fn find(&self, width: Width, direction: Direction, from: i64) -> Option<i64> {
        let (read, young) = (
            &self.cached.widths[width as usize],
            &self.young[width as usize],
        );
        match direction {
            Direction::Forward => read
                .first_from(from)
                .ok()
                .or_else(|| young.iter().find(|start| **start >= from).copied()),
            Direction::Backward => {
                let young = young.iter().rfind(|start| **start < from).copied();
                young.or_else(|| {
                    read.last_before(from.min(self.cached.young_from(width)))
                        .ok()
                })
            }
        }
    }

    async fn piece(
        &self,
        messages: &Messages,
        width: Width,
        direction: Direction,
        at: i64,
    ) -> Result<(Width, Interval)> {
        let end = self.cached.young_from(width);
        let (conversation, number, limit) = (self.conversation, width.number(), row_limit(PIECE));
        let range = match direction {
            Direction::Forward => {
                let rows: Vec<(i64,)> = messages
                    .executor
                    .read(
                        &SELECT_NEWER_BUCKETS,
                        values![conversation, number, at, end, limit],
                    )
                    .await?;
                let starts: Vec<_> = rows.into_iter().map(|(start,)| start).collect();
                let is_all = starts.len() < PIECE;
                Interval {
                    start: at,
                    end: if is_all { end } else { starts[PIECE - 1] + 1 },
                    starts,
                }
            }
            Direction::Backward => {
                let rows: Vec<(i64,)> = messages
                    .executor
                    .read(
                        &SELECT_OLDER_BUCKETS,
                        values![conversation, number, at, limit],
                    )
                    .await?;
                let starts: Vec<_> = rows.into_iter().rev().map(|(start,)| start).collect();
                let is_all = starts.len() < PIECE;
                Interval {
                    start: if is_all { i64::MIN } else { starts[0] },
                    end: at,
                    starts,
                }
            }
        };
        Ok((width, range))
    }
}
