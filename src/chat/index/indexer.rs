//! Indexer: builds the segments of a conversation step by step, in the background.
//!
//! A step claims the directory with the id of a new segment, writes its blocks, and puts it in place of those that it
//! replaces. Of several servers one succeeds. Whatever ends a step half-way, the directory names the blocks that are to be
//! deleted.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use uuid::Uuid;

use super::directory::{Building, Directory, LooseMessage, Segment};
use super::segment::{BYTES_MAX, MESSAGES_MAX, SegmentBuilder};
use super::{CHANGES, CHANGES_MAX, SearchIndex, makes_loose};
use crate::chat::error::{Error, Result};
use crate::metrics::{self, IntCounter, Metrics};
use crate::model::{ConversationId, Cut, Message, OrderKey, PageRequest};
use crate::store::SearchSegmentKey;

/// Messages of one read.
const READ: usize = 100;
/// Time after which another server may take over what one has begun.
const BUILD_MICROS: i64 = 10 * 60 * 1_000_000;
/// Age at which a directory learns of changes, though nothing else is to be done.
const FOLD_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// Loose messages of a segment at which it is built again.
const LOOSE_MAX: usize = 64;
/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// Attempts of a compare-and-set before a caller gets an error.
const TRIES_MAX: usize = 8;
/// Steps of one refresh.
const REFRESH_STEPS_MAX: usize = 256;

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
    segments: IntCounter,
    messages: IntCounter,
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
pub(crate) struct IndexerTask(JoinHandle<()>);

impl Drop for IndexerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Directory as it was read, with the bytes that a swap compares.
struct ReadDirectory {
    directory: Directory,
    bytes: Option<Vec<u8>>,
    /// Whether it is another one than the stored.
    is_changed: bool,
}

/// Run of messages that becomes one segment in the place of others.
struct SegmentPlan {
    after: OrderKey,
    until: OrderKey,
    messages_min: usize,
    messages_max: usize,
    replaced: Vec<Uuid>,
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
                        tracing::warn!(%error, "the server failed to index messages for search; it tries again with the next ones");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                tokio::task::yield_now().await;
            }
        };
        self.is_on.then(|| IndexerTask(tokio::spawn(run)))
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
        let folded_many = self.fold(id, &mut read.directory).await? >= CHANGES;
        if let Some(plan) = self.plan(&read.directory, goal) {
            return self.build(id, read, plan).await;
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

    /// The directory, or a new one in the place of one that is of no use. `None` for that of a later version.
    async fn read(&self, id: ConversationId) -> Result<Option<ReadDirectory>> {
        let read = self.store.search_directories(&[id]).await?;
        let bytes = read.into_iter().next().flatten();
        let Some(present) = &bytes else {
            let directory = Directory::new(self.epoch, self.settled());
            return Ok(Some(ReadDirectory {
                directory,
                bytes,
                is_changed: false,
            }));
        };
        let Some(mut directory) = Directory::decode(present) else {
            return Ok(None);
        };
        let is_usable = directory.epoch == self.epoch
            && (directory.segments.is_empty() || self.has_all_changes(id, &directory).await?);
        if !is_usable {
            directory = self.begun_anew(&directory);
        }
        Ok(Some(ReadDirectory {
            directory,
            bytes,
            is_changed: !is_usable,
        }))
    }

    fn begun_anew(&self, directory: &Directory) -> Directory {
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
    async fn delete_stale(&self, id: ConversationId, directory: &mut Directory) -> Result<()> {
        for segment in std::mem::take(&mut directory.stale) {
            let key = SearchSegmentKey {
                conversation: id,
                segment,
            };
            self.store.delete_search_segment(key).await?;
            self.headers.forget(&segment);
        }
        Ok(())
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

    fn plan(&self, directory: &Directory, goal: IndexGoal) -> Option<SegmentPlan> {
        if let Some(segment) = self.to_rebuild(directory, goal) {
            return Some(SegmentPlan {
                after: segment.after.max(directory.removed),
                until: segment.until,
                messages_min: 0,
                messages_max: MESSAGES_MAX,
                replaced: vec![segment.id],
            });
        }
        let IndexGoal::Grow { messages_min } = goal else {
            return None;
        };
        let run = directory
            .to_merge(&self.levels, BYTES_MAX)
            .unwrap_or_default();
        if let [first, .., last] = run {
            return Some(SegmentPlan {
                after: first.after,
                until: last.until,
                messages_min: 0,
                messages_max: MESSAGES_MAX,
                replaced: run.iter().map(|segment| segment.id).collect(),
            });
        }
        let (after, until) = (directory.until(), self.settled());
        (after < until).then(|| SegmentPlan {
            after,
            until,
            messages_min,
            messages_max: self.levels[2] as usize,
            replaced: Vec::new(),
        })
    }

    fn to_rebuild(&self, directory: &Directory, goal: IndexGoal) -> Option<Segment> {
        let least = match goal {
            IndexGoal::Refresh => 1,
            IndexGoal::Grow { .. } => LOOSE_MAX,
        };
        let is_due = |segment: &&Segment| {
            let loose = directory.loose.iter();
            let loose = loose.filter(|one| segment.has(one.message.order_key()));
            loose.count() >= least
                || segment.has(directory.removed) && segment.until > directory.removed
        };
        directory.segments.iter().find(is_due).copied()
    }

    /// Builds a segment, and puts it in the place of those that it replaces.
    async fn build(
        &self,
        id: ConversationId,
        read: ReadDirectory,
        plan: SegmentPlan,
    ) -> Result<IndexStep> {
        let (built, now) = (self.built_at(), self.in_flight.now());
        let collected = self.collect(id, &plan).await?;
        if collected.messages < plan.messages_min.max(1) && plan.replaced.is_empty() {
            // Changes alone are worth no write.
            return Ok(IndexStep::Done);
        }
        let segment = Uuid::new_v4();
        let mut directory = read.directory;
        directory.building = Some(Building {
            id: segment,
            server: self.server,
            since: now,
        });
        if !self.swap(id, &read.bytes, &directory).await? {
            return Ok(IndexStep::More);
        }
        let claimed = directory.encode();
        let key = SearchSegmentKey {
            conversation: id,
            segment,
        };
        directory.building = None;
        let is_replaced = |one: &Segment| plan.replaced.contains(&one.id);
        directory.segments.retain(|one| !is_replaced(one));
        directory.stale.extend(&plan.replaced);
        if collected.messages > 0 {
            let bytes = collected.builder.bytes();
            let blocks = collected.builder.build();
            self.store.put_search_segment(key, &blocks).await?;
            let at = directory
                .segments
                .partition_point(|one| one.until <= plan.after);
            let new = Segment {
                id: segment,
                after: plan.after,
                until: collected.until,
                built,
                messages: u32::try_from(collected.messages).unwrap_or(u32::MAX),
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            };
            directory.segments.insert(at, new);
        }
        directory.settle(self.window_micros());
        if !self.swap(id, &Some(claimed), &directory).await? {
            self.store.delete_search_segment(key).await?;
            return Ok(IndexStep::More);
        }
        self.meter.segments.inc();
        self.meter.messages.inc_by(collected.messages as u64);
        // They stay in the directory until the next step, which deletes them again if this fails.
        self.delete_stale(id, &mut directory).await?;
        Ok(IndexStep::More)
    }

    /// Reads the messages of a plan, the oldest first, as many as a segment has.
    async fn collect(&self, id: ConversationId, plan: &SegmentPlan) -> Result<Collected> {
        let is_new = plan.replaced.is_empty();
        let messages_max = plan.messages_max;
        let cut = Cut {
            start: Bound::Excluded(plan.after),
            end: Bound::Included(plan.until),
        };
        let mut collected = Collected {
            builder: SegmentBuilder::default(),
            messages: 0,
            until: plan.until,
        };
        let mut request = PageRequest::last(READ);
        loop {
            let page = self.store.history(id, &cut, &request).await?;
            for message in page.items.iter().rev() {
                collected.add(message);
                let is_full = collected.builder.is_full();
                if is_new && (is_full || collected.messages >= messages_max) {
                    return Ok(collected);
                }
            }
            let Some(newest) = page.items.first().filter(|_| page.has_previous) else {
                if !is_new {
                    collected.until = plan.until;
                }
                return Ok(collected);
            };
            request.before = Some(newest.id.order_key());
            tokio::task::yield_now().await;
        }
    }

    async fn swap(
        &self,
        id: ConversationId,
        seen: &Option<Vec<u8>>,
        to: &Directory,
    ) -> Result<bool> {
        let bytes = to.encode();
        let swapped = self
            .store
            .swap_search_directory(id, seen.as_deref(), &bytes)
            .await;
        match swapped {
            Ok(true) => {
                self.note_read(id, Some(&bytes));
                Ok(true)
            }
            Ok(false) => {
                self.forget(id);
                Ok(false)
            }
            Err(error) => {
                self.forget(id);
                Err(error.into())
            }
        }
    }

    /// Forgets messages up to a position, which were removed from the disk, with their words.
    pub(crate) async fn trim(&self, id: ConversationId, up_to: OrderKey) -> Result<()> {
        let is_touched = |directory: &Directory| {
            up_to > directory.removed && directory.segments.iter().any(|one| one.after < up_to)
        };
        self.change(id, |directory| {
            if !is_touched(directory) {
                return false;
            }
            directory.removed = up_to;
            let gone = directory.segments.iter().filter(|one| one.until <= up_to);
            let gone: Vec<_> = gone.map(|one| one.id).collect();
            directory.segments.retain(|one| one.until > up_to);
            directory.stale.extend(gone);
            true
        })
        .await?;
        self.refresh(id).await
    }

    /// Deletes the index of a conversation. It is built again in the background.
    pub(crate) async fn drop_all(&self, id: ConversationId) -> Result<()> {
        self.change(id, |directory| {
            let is_empty = directory.all_ids().next().is_none();
            *directory = self.begun_anew(directory);
            !is_empty
        })
        .await?;
        self.request(id);
        Ok(())
    }

    /// Builds the segments with changed messages again, so that the old words leave the disk.
    pub(crate) async fn refresh(&self, id: ConversationId) -> Result<()> {
        if !self.is_on || self.directory(id).await?.is_none() {
            return Ok(());
        }
        for _ in 0..REFRESH_STEPS_MAX {
            if self.step(id, IndexGoal::Refresh).await? == IndexStep::Done {
                break;
            }
        }
        Ok(())
    }

    /// Changes a directory that exists, and deletes what it then names as stale. `change` returns whether anything is
    /// to be written.
    async fn change(
        &self,
        id: ConversationId,
        change: impl Fn(&mut Directory) -> bool,
    ) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let read = self.store.search_directories(&[id]).await?;
            let Some(bytes) = read.into_iter().next().flatten() else {
                return Ok(());
            };
            let Some(mut directory) = Directory::decode(&bytes) else {
                return Ok(());
            };
            if !change(&mut directory) {
                return Ok(());
            }
            if self.swap(id, &Some(bytes), &directory).await? {
                return self.delete_stale(id, &mut directory).await;
            }
        }
        Err(Error::Busy)
    }
}

struct Collected {
    builder: SegmentBuilder,
    messages: usize,
    /// The last position that was read.
    until: OrderKey,
}

impl Collected {
    fn add(&mut self, message: &Message) {
        self.builder.add(message);
        self.messages += 1;
        self.until = message.id.order_key();
    }
}
