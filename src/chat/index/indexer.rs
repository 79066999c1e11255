//! Indexer: builds the segments of a conversation step by step, in the background.
//!
//! A step adds a segment in the place of those that it replaces. A store that cannot do so at once claims the directory with
//! the segment's id first. Of several servers one succeeds. Whatever ends a step half-way, the directory names the blocks
//! that are to be deleted.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::directory::{Building, Directory, LooseMessage};
use super::{CHANGES, CHANGES_MAX, SearchIndex, makes_loose};
use crate::chat::error::{Error, Result};
use crate::metrics::{self, IntCounter, Metrics};
use crate::model::ConversationId;
use crate::store::{self, DirectoryChange, SearchSegmentKey};

/// Time after which another server may take over what one has begun.
const BUILD_MICROS: i64 = 10 * 60 * 1_000_000;
/// Age at which a directory learns of changes, though nothing else is to be done.
const FOLD_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(5);

/// Work of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexGoal {
    /// Segments of this many new messages or more, and fewer and larger ones of the older.
    Grow { messages_min: usize },
    /// The old words of changed messages leave the disk.
    Refresh,
}

impl IndexGoal {
    /// Every message is indexed.
    pub(crate) const ALL: Self = Self::Grow { messages_min: 1 };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexStep {
    /// There may be more to do.
    More,
    Done,
}

pub(super) struct IndexerMeter {
    pub(super) segments: IntCounter,
    pub(super) messages: IntCounter,
    failures: IntCounter,
}

impl IndexerMeter {
    pub(super) fn new() -> Self {
        Self {
            segments: metrics::counter(
                "wideroom_search_segments_total",
                "Segments of the search index that were built.",
            ),
            messages: metrics::counter(
                "wideroom_search_indexed_messages_total",
                "Messages that were put into segments, some several times.",
            ),
            failures: metrics::counter(
                "wideroom_search_index_failures_total",
                "Steps of the indexer that failed. Searches read history meanwhile.",
            ),
        }
    }

    pub(super) fn register(&self, metrics: &Metrics) {
        metrics.add(self.segments.clone());
        metrics.add(self.messages.clone());
        metrics.add(self.failures.clone());
    }
}

/// Task of the indexer. It ends with this value.
pub(crate) type IndexerTask = AbortOnDropHandle<()>;

/// Directory as it was read, with the bytes that a swap compares.
pub(super) struct ReadDirectory {
    pub(super) directory: Directory,
    pub(super) bytes: Option<Vec<u8>>,
    /// Whether it is another one than the stored.
    is_changed: bool,
}

impl SearchIndex {
    /// Indexes what comes into the queue. `None` where the index is off.
    pub(crate) fn start(self: &Arc<Self>) -> Option<IndexerTask> {
        let index = Arc::clone(self);
        let run = async move {
            loop {
                let (conversation, messages_min) = index.queue.next().await;
                match index.work(conversation, messages_min).await {
                    Ok(IndexStep::More) => index.queue.push(conversation, messages_min),
                    Ok(IndexStep::Done) => {}
                    Err(error) => {
                        index.meter.failures.inc();
                        tracing::warn!(%error, "the server failed to index messages for search; it tries again");
                        tokio::time::sleep(PAUSE).await;
                        // A row that cannot be read would fail for ever. The next messages try again.
                        let is_damaged = matches!(&error, Error::Store(failure) if matches!(failure.cause, store::Error::Corrupt { .. }));
                        if !is_damaged {
                            index.queue.push(conversation, messages_min);
                        }
                    }
                }
                tokio::task::yield_now().await;
            }
        };
        self.is_on
            .then(|| AbortOnDropHandle::new(tokio::spawn(run)))
    }

    async fn work(&self, id: ConversationId, messages_min: usize) -> Result<IndexStep> {
        if self.queue.take_damaged(id) {
            self.drop_all(id).await?;
        }
        self.step(id, IndexGoal::Grow { messages_min }).await
    }

    /// Takes one step towards a goal.
    pub(crate) async fn step(&self, id: ConversationId, goal: IndexGoal) -> Result<IndexStep> {
        let Some(mut read) = self.read(id).await? else {
            return Ok(IndexStep::Done);
        };
        if self.is_built_by_another(&read.directory) {
            return Ok(IndexStep::Done);
        }
        if let Some(building) = read.directory.building.take() {
            read.directory.stale.push(building.id);
            read.is_changed = true;
        }
        if read.is_changed {
            // Only then no swap that is under way can name a segment again whose blocks are deleted.
            self.swap(id, &read.bytes, &read.directory).await?;
            return Ok(IndexStep::More);
        }
        let before = read.directory.clone();
        self.delete_stale(id, &mut read.directory).await?;
        let folded_many = match self.is_plain_growth(&read.directory, goal) {
            true => false,
            false => self.fold(id, &mut read.directory).await? >= CHANGES,
        };
        if let Some(plan) = self.plan(&read.directory, goal) {
            return self.build(id, goal, read, plan).await;
        }
        let folded = before.folded.moment().plus_micros(FOLD_MICROS);
        let is_known = Directory {
            folded: before.folded,
            ..read.directory.clone()
        } == before;
        if !is_known || folded_many || folded < self.in_flight.now() && !before.segments.is_empty()
        {
            self.swap(id, &read.bytes, &read.directory).await?;
        }
        Ok(IndexStep::Done)
    }

    /// Whether a step only adds messages. Then the changes of the others may wait for a later step.
    fn is_plain_growth(&self, directory: &Directory, goal: IndexGoal) -> bool {
        let folded = directory.folded.moment().plus_micros(FOLD_MICROS);
        let is_growth = match goal {
            IndexGoal::Grow { messages_min } => messages_min >= self.levels[0] as usize,
            IndexGoal::Refresh => false,
        };
        is_growth && folded > self.in_flight.now() && self.to_replace(directory, goal).is_none()
    }

    /// The directory, or a new one in the place of one that is of no use. `None` for that of a later version.
    async fn read(&self, id: ConversationId) -> Result<Option<ReadDirectory>> {
        // A single server knows what it wrote. A swap tells if not.
        let known = match self.in_flight.is_shared() {
            true => None,
            false => self.cached(id).flatten(),
        };
        let bytes = match known {
            Some(known) => Some(known.encode()),
            None => self.store.search_directories(&[id]).await?.pop().flatten(),
        };
        let (directory, is_changed) = match bytes.as_deref().map(Directory::decode) {
            None => (Directory::new(self.epoch, self.settled()), false),
            Some(None) => return Ok(None),
            Some(Some(present)) => {
                let is_usable = present.epoch == self.epoch
                    && (present.segments.is_empty() || self.has_all_changes(id, &present).await?);
                match is_usable {
                    true => (present, false),
                    false => (self.begun_anew(&present), true),
                }
            }
        };
        Ok(Some(ReadDirectory {
            directory,
            bytes,
            is_changed,
        }))
    }

    pub(super) fn begun_anew(&self, directory: &Directory) -> Directory {
        Directory {
            stale: directory.all_ids().collect(),
            removed: directory.removed,
            ..Directory::new(self.epoch, self.settled())
        }
    }

    fn is_built_by_another(&self, directory: &Directory) -> bool {
        let began = |building: &Building| building.since.plus_micros(BUILD_MICROS);
        let building = directory.building.as_ref();
        building.is_some_and(|one| {
            one.server != self.server
                && self.in_flight.is_shared()
                && began(one) > self.in_flight.now()
        })
    }

    /// Deletes the blocks of segments that were replaced, or never finished.
    pub(super) async fn delete_stale(
        &self,
        id: ConversationId,
        directory: &mut Directory,
    ) -> Result<()> {
        let stale = std::mem::take(&mut directory.stale);
        if stale.is_empty() {
            return Ok(());
        }
        stale
            .iter()
            .for_each(|segment| self.headers.forget(segment));
        let key = |segment: &Uuid| SearchSegmentKey {
            conversation: id,
            segment: *segment,
        };
        let keys: Vec<_> = stale.iter().map(key).collect();
        Ok(self.store.delete_search_segments(&keys).await?)
    }

    /// Adds the settled changes of the log to the loose messages, and forgets those that segments have. Returns how many changes it
    /// read.
    async fn fold(&self, id: ConversationId, directory: &mut Directory) -> Result<usize> {
        let settled = self.settled();
        let mut read = 0;
        while directory.folded < settled {
            let changes = self.store.changes(id, directory.folded, CHANGES).await?;
            read += changes.len();
            let last = changes.last().filter(|_| changes.len() == CHANGES);
            directory.folded = last.map_or(settled, |last| settled.min(last.id.order_key()));
            let known = changes.iter().filter(|one| one.id.order_key() <= settled);
            let known = known.filter(|change| makes_loose(change));
            directory.loose.extend(known.map(|change| LooseMessage {
                message: change.message,
                change: change.id,
            }));
            if read >= CHANGES_MAX {
                break;
            }
        }
        directory.settle(self.window_micros());
        Ok(read)
    }

    pub(super) async fn swap(
        &self,
        id: ConversationId,
        seen: &Option<Vec<u8>>,
        to: &Directory,
    ) -> Result<bool> {
        let bytes = to.encode();
        let swapped = self
            .store
            .swap_search_directory(id, seen.as_deref(), &bytes);
        let swapped = swapped.await;
        self.note_swap(id, &bytes, swapped)
    }

    /// Adds a segment that the directory names after a change.
    pub(super) async fn add_segment(
        &self,
        id: ConversationId,
        segment: Uuid,
        blocks: &[Vec<u8>],
        change: DirectoryChange,
    ) -> Result<bool> {
        let conversation = id;
        let key = SearchSegmentKey {
            conversation,
            segment,
        };
        let added = self.store.add_search_segment(key, blocks, &change).await;
        self.note_swap(id, &change.to, added)
    }

    fn note_swap(
        &self,
        id: ConversationId,
        to: &[u8],
        swapped: store::Result<bool>,
    ) -> Result<bool> {
        if let Ok(true) = swapped {
            self.note_read(id, Some(to));
        } else {
            self.forget(id);
        }
        Ok(swapped?)
    }
}
