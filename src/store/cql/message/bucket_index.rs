//! Which buckets of a conversation hold something: the rows of `buckets_by_conversation`, and what is remembered of them.
//!
//! Buckets that ended before (now − overlap window) are remembered for [`REMEMBERED_MICROS`]; younger ones, at most a few, are read by their
//! keys each time. A message may still come into an old bucket, by an import or by a send that another finishes hours later: the server
//! that writes it remembers nothing of that conversation for a moment (see [`Index::note_late`]), the others see a bucket that is new to
//! them once they have forgotten. A message that is asked for by its id is found at once (see `history`).
//!
//! A short index is read whole, by one statement; a long one by pieces, each from where a page wants it.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard};

use futures_util::future::try_join_all;
use lru::LruCache;
use scylla::value::CqlValue;

use super::bucket::{Bucket, Width};
use super::count::{Checkpoint, SUMMARY_WIDTH};
use super::interval_set::{Range, Ranges};
use crate::model::{ConversationId, Direction, MessageId, Timestamp};
use crate::store::Result;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{IntoCql, cells, list, pair};
use crate::store::cql::{Inner, OVERLAP_MICROS};

/// For so long the old buckets of a conversation are remembered.
const REMEMBERED_MICROS: i64 = 60 * 1_000_000;
/// A write that was begun is done after that, or was given up: an attempt takes 2 s.
const LATE_MICROS: i64 = 5 * 1_000_000;
/// Ids lie ahead of this clock by two skews and what a generator may run ahead, at most.
const AHEAD_MICROS: i64 = 10 * 1_000_000;
/// Rows of an index that is read whole.
const WHOLE_MAX: usize = 256;
/// Rows of a piece of a long one.
const PIECE: usize = 64;
const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");
const PRESENT_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");
/// Pairs in one `IN`.
const PAIRS_MAX: usize = 20;

statements! {
    /// The statements of this file.
    Statements {
        whole: Read "SELECT width, start, counted FROM buckets_by_conversation WHERE conversation_id = ? LIMIT ?";
        by_key: Read "SELECT width, start, counted FROM buckets_by_conversation WHERE conversation_id = ? AND (width, start) IN ?";
        older: Read "SELECT start FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start < ? LIMIT ?";
        newer: Read "SELECT start FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start >= ? AND start < ? ORDER BY width DESC, start ASC LIMIT ?";
    }
}

type Row = (i8, i64, Option<Vec<u8>>);

/// What this server remembers of all indexes.
pub(crate) struct Index {
    known: Mutex<LruCache<ConversationId, Known>>,
    /// When this server last wrote into an old bucket.
    late: Mutex<LruCache<ConversationId, Timestamp>>,
    /// Buckets that hold something, which stays so.
    present: Mutex<LruCache<(ConversationId, Bucket), ()>>,
}

/// What is known of the old buckets of one conversation.
#[derive(Clone)]
struct Known {
    /// Everything here was read at or after that.
    read_at: Timestamp,
    /// Too long to be read whole.
    is_long: bool,
    widths: [Ranges; 4],
}

impl Known {
    fn new(read_at: Timestamp, is_long: bool) -> Self {
        Self { read_at, is_long, widths: Default::default() }
    }

    /// The buckets of this width that start from here on are not remembered.
    fn old_up_to(&self, width: Width) -> i64 {
        Bucket::holding(self.read_at.plus_micros(-OVERLAP_MICROS), width).start.micros()
    }
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::new(LruCache::new(CONVERSATIONS_MAX)),
            late: Mutex::new(LruCache::new(CONVERSATIONS_MAX)),
            present: Mutex::new(LruCache::new(PRESENT_MAX)),
        }
    }

    fn known(&self) -> MutexGuard<'_, LruCache<ConversationId, Known>> {
        self.known.lock().expect("no panic while holding the index")
    }

    /// Something is about to be written into this bucket. Where it is an old one, nothing that was read until the write is done is
    /// remembered.
    pub(crate) fn note_late(&self, conversation: ConversationId, bucket: Bucket, now: Timestamp) {
        if bucket.end() <= now.plus_micros(-OVERLAP_MICROS) {
            self.late.lock().expect("no panic while holding the index").put(conversation, now);
        }
    }

    /// A bucket that was seen to hold something: a message of its stretch that is asked for by id is looked for there first.
    pub(crate) fn note_present(&self, conversation: ConversationId, bucket: Bucket) {
        self.present.lock().expect("no panic while holding the index").put((conversation, bucket), ());
    }

    /// The buckets that may hold this message and are known to hold something.
    pub(crate) fn likely(&self, conversation: ConversationId, id: MessageId) -> Vec<Bucket> {
        let mut present = self.present.lock().expect("no panic while holding the index");
        candidates(id).filter(|bucket| present.get(&(conversation, *bucket)).is_some()).collect()
    }

    fn remembered(&self, conversation: ConversationId, now: Timestamp) -> Remembered {
        let late = self.late.lock().expect("no panic while holding the index").get(&conversation).copied();
        let Some(known) = self.known().get(&conversation).cloned() else { return Remembered::Nothing };
        let is_young = known.read_at <= now && now < known.read_at.plus_micros(REMEMBERED_MICROS);
        let is_untouched = late.is_none_or(|late| known.read_at > late.plus_micros(LATE_MICROS));
        match (is_young && is_untouched, known.is_long) {
            (true, _) => Remembered::Fresh(known),
            (false, true) => Remembered::Long,
            (false, false) => Remembered::Nothing,
        }
    }

    /// Keeps what a view has read, beside what others have read since it began.
    fn remember(&self, conversation: ConversationId, known: &Known, read: &[(Width, Range)]) {
        let mut all = self.known();
        match all.get_mut(&conversation) {
            Some(kept) if kept.read_at > known.read_at => {}
            Some(kept) if kept.read_at == known.read_at => {
                for (width, range) in read {
                    kept.widths[*width as usize].add(range.clone());
                }
            }
            Some(_) | None => {
                all.put(conversation, known.clone());
            }
        }
    }
}

enum Remembered {
    Fresh(Known),
    /// Only that it is long.
    Long,
    Nothing,
}

/// The buckets that a message may lie in: one of each width.
pub(crate) fn candidates(id: MessageId) -> impl Iterator<Item = Bucket> {
    Width::ALL.into_iter().map(move |width| Bucket::holding(id.moment(), width))
}

/// Of these buckets those that hold something. Not from memory.
pub(crate) async fn which_exist(inner: &Inner, conversation: ConversationId, buckets: &[Bucket]) -> Result<Vec<Bucket>> {
    let mut there = Vec::new();
    for piece in buckets.chunks(PAIRS_MAX) {
        let keys = list(piece.iter().map(|bucket| pair(bucket.width.number(), bucket.start)));
        let rows: Vec<Row> = inner.cluster.read(&inner.statements.index.by_key, cells![conversation, keys]).await?;
        for (width, start, _) in rows {
            there.push(Bucket::from_row(width, start)?);
        }
    }
    Ok(there)
}

/// Where the next bucket of a width is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next {
    Bucket(Bucket),
    /// Among the young ones, which were not read: if there is one, it starts here or later.
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

/// The index of one conversation as one request sees it.
pub(crate) struct View {
    conversation: ConversationId,
    known: Known,
    /// The young buckets, ascending.
    young: [Vec<i64>; 4],
    has_young: bool,
    /// How many messages the conversation had up to a place, where that is known. Read with the young buckets.
    pub(crate) summary: Option<Checkpoint>,
    /// All rows, where they were read whole just now.
    pub(crate) rows: Option<Vec<(Bucket, Option<Checkpoint>)>>,
}

impl View {
    pub(crate) async fn open(inner: &Inner, conversation: ConversationId) -> Result<Self> {
        let now = inner.clock.now();
        let known = match inner.index.remembered(conversation, now) {
            Remembered::Fresh(known) => known,
            Remembered::Long => Known::new(now, true),
            Remembered::Nothing => match Self::read_whole(inner, conversation, now).await? {
                Some(view) => return Ok(view),
                None => Known::new(now, true),
            },
        };
        if known.is_long {
            inner.index.remember(conversation, &known, &[]);
        }
        Ok(Self::new(conversation, known))
    }

    fn new(conversation: ConversationId, known: Known) -> Self {
        Self { conversation, known, young: Default::default(), has_young: false, summary: None, rows: None }
    }

    /// `None` where it is too long.
    async fn read_whole(inner: &Inner, conversation: ConversationId, now: Timestamp) -> Result<Option<Self>> {
        let limit = WHOLE_MAX + 1;
        let rows: Vec<Row> = inner.cluster.read(&inner.statements.index.whole, cells![conversation, row_limit(limit)]).await?;
        if rows.len() == limit {
            return Ok(None);
        }
        let mut view = Self::new(conversation, Known::new(now, false));
        let (mut old, mut all): ([Vec<i64>; 4], _) = (Default::default(), Vec::new());
        for (bucket, counted) in view.take_rows(rows)? {
            let place = if bucket.start.micros() < view.known.old_up_to(bucket.width) { &mut old } else { &mut view.young };
            place[bucket.width as usize].push(bucket.start.micros());
            all.push((bucket, counted));
        }
        for width in Width::ALL {
            view.young[width as usize].sort_unstable();
            let mut starts = std::mem::take(&mut old[width as usize]);
            starts.sort_unstable();
            let end = view.known.old_up_to(width);
            view.known.widths[width as usize].add(Range { start: i64::MIN, end, starts });
        }
        (view.rows, view.has_young) = (Some(all), true);
        inner.index.remember(conversation, &view.known, &[]);
        Ok(Some(view))
    }

    /// The buckets that are not remembered are so few that each is asked for by its key.
    pub(crate) async fn read_young(&mut self, inner: &Inner) -> Result<()> {
        if self.has_young {
            return Ok(());
        }
        let last = inner.clock.now().plus_micros(AHEAD_MICROS).micros();
        let mut keys: Vec<CqlValue> = vec![pair(SUMMARY_WIDTH, 0_i64)];
        for width in Width::ALL {
            let starts = (self.known.old_up_to(width)..=last).step_by(usize::try_from(width.micros()).expect("a width is positive"));
            keys.extend(starts.map(|start| pair(width.number(), start)));
        }
        debug_assert!(keys.len() <= PAIRS_MAX, "what is remembered is younger than two minutes");
        let rows = inner.cluster.read(&inner.statements.index.by_key, cells![self.conversation, list(keys)]).await?;
        for (bucket, _) in self.take_rows(rows)? {
            self.young[bucket.width as usize].push(bucket.start.micros());
        }
        for starts in &mut self.young {
            starts.sort_unstable();
        }
        self.has_young = true;
        Ok(())
    }

    fn take_rows(&mut self, rows: Vec<Row>) -> Result<Vec<(Bucket, Option<Checkpoint>)>> {
        let mut buckets = Vec::with_capacity(rows.len());
        for (width, start, counted) in rows {
            let counted = counted.as_deref().map(Checkpoint::decode).transpose()?.flatten();
            if width == SUMMARY_WIDTH {
                self.summary = counted;
            } else {
                buckets.push((Bucket::from_row(width, start)?, counted));
            }
        }
        Ok(buckets)
    }

    /// Since when the index may have changed without this view knowing.
    pub(crate) const fn read_at(&self) -> Timestamp {
        self.known.read_at
    }

    /// For each width the next bucket from a start on: forward the first that does not start before it, backward the last that starts
    /// before it. What is not known is read, for all of them at once.
    pub(crate) async fn next(&mut self, inner: &Inner, direction: Direction, from: [Option<i64>; 4]) -> Result<[Option<Next>; 4]> {
        if direction == Direction::Backward
            && Width::ALL.into_iter().any(|width| from[width as usize].is_some_and(|from| from > self.known.old_up_to(width)))
        {
            self.read_young(inner).await?;
        }
        let mut from = from;
        let missing = Width::ALL.into_iter().filter_map(|width| Some((width, self.gap(width, direction, from[width as usize]?)?)));
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            let reads = missing.iter().map(|(width, at)| self.piece(inner, *width, direction, *at));
            let read = try_join_all(reads).await?;
            // Up to where it was missing there is none.
            for (width, at) in missing {
                from[width as usize] = Some(at);
            }
            for (width, range) in &read {
                self.known.widths[*width as usize].add(range.clone());
            }
            inner.index.remember(self.conversation, &self.known, &read);
        }
        let next = |width: Width| {
            let from = from[width as usize]?;
            match self.find(width, direction, from) {
                Some(start) => Some(Next::Bucket(Bucket { width, start: Timestamp::from_micros(start) })),
                None if direction == Direction::Backward || self.has_young => None,
                None => Some(Next::NotBefore(Timestamp::from_micros(from.max(self.known.old_up_to(width))))),
            }
        };
        Ok(Width::ALL.map(next))
    }

    /// Where something must be read before the next bucket is known.
    fn gap(&self, width: Width, direction: Direction, from: i64) -> Option<i64> {
        let (known, old_up_to) = (&self.known.widths[width as usize], self.known.old_up_to(width));
        match direction {
            Direction::Forward if from >= old_up_to => None,
            Direction::Forward => known.first_from(from).err().filter(|gap| *gap < old_up_to),
            Direction::Backward if self.young[width as usize].first().is_some_and(|start| *start < from) => None,
            Direction::Backward => known.last_before(from.min(old_up_to)).err().filter(|gap| *gap > i64::MIN),
        }
    }

    /// Once there is no gap.
    fn find(&self, width: Width, direction: Direction, from: i64) -> Option<i64> {
        let (known, young) = (&self.known.widths[width as usize], &self.young[width as usize]);
        match direction {
            Direction::Forward => known.first_from(from).ok().or_else(|| young.iter().find(|start| **start >= from).copied()),
            Direction::Backward => {
                let young = young.iter().rfind(|start| **start < from).copied();
                young.or_else(|| known.last_before(from.min(self.known.old_up_to(width))).ok())
            }
        }
    }

    async fn piece(&self, inner: &Inner, width: Width, direction: Direction, at: i64) -> Result<(Width, Range)> {
        let (statements, end) = (&inner.statements.index, self.known.old_up_to(width));
        let (conversation, number, limit) = (self.conversation, width.number(), row_limit(PIECE));
        let range = match direction {
            Direction::Forward => {
                let rows: Vec<(i64,)> = inner.cluster.read(&statements.newer, cells![conversation, number, at, end, limit]).await?;
                let starts: Vec<_> = rows.into_iter().map(|(start,)| start).collect();
                let is_all = starts.len() < PIECE;
                Range { start: at, end: if is_all { end } else { starts[PIECE - 1] + 1 }, starts }
            }
            Direction::Backward => {
                let rows: Vec<(i64,)> = inner.cluster.read(&statements.older, cells![conversation, number, at, limit]).await?;
                let starts: Vec<_> = rows.into_iter().rev().map(|(start,)| start).collect();
                let is_all = starts.len() < PIECE;
                Range { start: if is_all { i64::MIN } else { starts[0] }, end: at, starts }
            }
        };
        Ok((width, range))
    }
}

pub(crate) fn row_limit(rows: usize) -> CqlValue {
    i32::try_from(rows).expect("statements ask for few rows").into_cql()
}
