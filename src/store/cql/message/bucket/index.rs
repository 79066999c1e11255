//! Bucket index: the buckets of a conversation that hold messages, as `buckets_by_conversation` lists them, and a cache of it.
//!
//! The cache keeps buckets that ended before (now − overlap window) for [`CACHED_MICROS`]; the few younger ones are read by their keys each
//! time. An import, or a send that another server completes hours later, can still write to an old bucket. The server that writes it caches
//! nothing of that conversation for a moment (see [`BucketIndex::note_late`]); other servers see the new bucket when their entry expires. A
//! read by id finds such a message at once (see `history`).

use std::collections::HashMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use super::checkpoint::Checkpoint;
use super::interval_set::{Interval, IntervalSet};
use super::{Bucket, Width};
use crate::model::{ConversationId, MessageId, Timestamp};
use crate::store::Result;
use crate::store::cluster::WRITE_ATTEMPT_MAX;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, pair, values};
use crate::store::cql::message::{Messages, OVERLAP_MICROS};

/// How long the old buckets of a conversation are cached.
const CACHED_MICROS: i64 = 60 * 1_000_000;
/// A write has completed or failed after this time.
const LATE_MICROS: i64 = WRITE_ATTEMPT_MAX.as_micros() as i64;
const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");
const PRESENT_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");
/// Pairs in one `IN`.
pub(super) const PAIRS_MAX: usize = 20;

statements! {
    SELECT_BUCKETS: Read "SELECT width, start, counted FROM buckets_by_conversation WHERE conversation_id = ? AND (width, start) IN ?";
}

pub(super) type IndexRow = (i8, i64, Option<Vec<u8>>);

/// Cache of the bucket indexes of all conversations.
pub(crate) struct BucketIndex {
    cached: Mutex<LruCache<ConversationId, CachedIndex>>,
    /// When this server last wrote to an old bucket.
    late: Mutex<LruCache<ConversationId, Timestamp>>,
    /// Buckets that hold messages. A removal may have emptied one.
    present: Mutex<LruCache<(ConversationId, Bucket), ()>>,
}

/// The known old buckets of one conversation.
#[derive(Clone)]
pub(super) struct CachedIndex {
    /// Everything here was read at or after this moment.
    pub(super) read_at: Timestamp,
    /// Whether the index is too long to be read whole.
    pub(super) is_long: bool,
    pub(super) widths: [IntervalSet; 4],
}

impl CachedIndex {
    pub(super) fn new(read_at: Timestamp, is_long: bool) -> Self {
        Self {
            read_at,
            is_long,
            widths: Default::default(),
        }
    }

    /// The start from which buckets of a width are young, and not cached.
    pub(super) fn young_from(&self, width: Width) -> i64 {
        Bucket::holding(self.read_at.plus_micros(-OVERLAP_MICROS), width)
            .start
            .micros()
    }
}

impl BucketIndex {
    pub(crate) fn new() -> Self {
        Self {
            cached: Mutex::new(LruCache::new(CONVERSATIONS_MAX)),
            late: Mutex::new(LruCache::new(CONVERSATIONS_MAX)),
            present: Mutex::new(LruCache::new(PRESENT_MAX)),
        }
    }

    fn cached(&self) -> MutexGuard<'_, LruCache<ConversationId, CachedIndex>> {
        self.cached.lock()
    }

    /// Announces a write to a bucket. If it is an old one, nothing that is read before the write has completed enters the cache.
    pub(crate) fn note_late(&self, conversation: ConversationId, bucket: Bucket, now: Timestamp) {
        if bucket.end() <= now.plus_micros(-OVERLAP_MICROS) {
            self.late.lock().put(conversation, now);
        }
    }

    /// Evicts the cached index of a conversation.
    pub(super) fn forget(&self, conversation: ConversationId) {
        self.cached().pop(&conversation);
    }

    /// Remembers that a bucket holds messages. A read by id tries it first.
    pub(crate) fn note_present(&self, conversation: ConversationId, bucket: Bucket) {
        self.present.lock().put((conversation, bucket), ());
    }

    /// The buckets that can hold a message and are known to hold some.
    pub(crate) fn likely(&self, conversation: ConversationId, id: MessageId) -> Vec<Bucket> {
        let mut present = self.present.lock();
        candidates(id)
            .filter(|bucket| present.get(&(conversation, *bucket)).is_some())
            .collect()
    }

    pub(super) fn get(&self, conversation: ConversationId, now: Timestamp) -> Cached {
        let late = self.late.lock().get(&conversation).copied();
        let Some(known) = self.cached().get(&conversation).cloned() else {
            return Cached::Nothing;
        };
        let is_young = known.read_at <= now && now < known.read_at.plus_micros(CACHED_MICROS);
        let is_untouched = late.is_none_or(|late| known.read_at > late.plus_micros(LATE_MICROS));
        match (is_young && is_untouched, known.is_long) {
            (true, _) => Cached::Fresh(known),
            (false, true) => Cached::Long,
            (false, false) => Cached::Nothing,
        }
    }

    /// Stores what a view has read, merged with what other views have read since it was opened.
    pub(super) fn store(
        &self,
        conversation: ConversationId,
        known: &CachedIndex,
        read: &[(Width, Interval)],
    ) {
        let mut all = self.cached();
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

/// The answer of the cache.
pub(super) enum Cached {
    Fresh(CachedIndex),
    /// The entry has expired; the index is still too long to be read whole.
    Long,
    Nothing,
}

impl Cached {
    /// Whether the index is known to be too long to be read whole.
    pub(super) const fn is_long(&self) -> bool {
        matches!(
            self,
            Self::Long | Self::Fresh(CachedIndex { is_long: true, .. })
        )
    }
}

/// The buckets that can hold a message: one of each width.
pub(crate) fn candidates(id: MessageId) -> impl Iterator<Item = Bucket> {
    Width::ALL
        .into_iter()
        .map(move |width| Bucket::holding(id.moment(), width))
}

pub(super) fn decode_checkpoint(counted: Option<Vec<u8>>) -> Result<Option<Checkpoint>> {
    let decoded = counted.as_deref().map(Checkpoint::decode).transpose()?;
    Ok(decoded.flatten())
}

impl Messages {
    /// The checkpoints of those among these buckets that have one.
    pub(crate) async fn read_checkpoints(
        &self,
        conversation: ConversationId,
        buckets: &[Bucket],
    ) -> Result<HashMap<Bucket, Checkpoint>> {
        let mut found = HashMap::new();
        for (width, start, counted) in self.read_rows(conversation, buckets).await? {
            if let Some(checkpoint) = decode_checkpoint(counted)? {
                found.insert(Bucket::from_row(width, start)?, checkpoint);
            }
        }
        Ok(found)
    }

    /// The index rows of some buckets.
    async fn read_rows(
        &self,
        conversation: ConversationId,
        buckets: &[Bucket],
    ) -> Result<Vec<IndexRow>> {
        let reads = buckets.chunks(PAIRS_MAX).map(|piece| {
            let keys = list(
                piece
                    .iter()
                    .map(|bucket| pair(bucket.width.number(), bucket.start)),
            );
            self.executor
                .read::<IndexRow>(&SELECT_BUCKETS, values![conversation, keys])
        });
        let rows = concurrently(reads).await?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Remembers that a bucket holds messages: a client may read one of them by id next.
    pub(crate) fn note_bucket(&self, conversation: ConversationId, bucket: Bucket) {
        self.index.note_present(conversation, bucket);
    }

    /// The buckets among these that hold messages, not from the cache.
    pub(crate) async fn present_buckets(
        &self,
        conversation: ConversationId,
        buckets: &[Bucket],
    ) -> Result<Vec<Bucket>> {
        let rows = self.read_rows(conversation, buckets).await?;
        rows.into_iter()
            .map(|(width, start, _)| Bucket::from_row(width, start))
            .collect()
    }
}
