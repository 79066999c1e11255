//! Search index: for each conversation segments of its history, each with the messages that have a term.
//!
//! The index proposes, and the message decides: a search reads each proposed message, and judges it. What no segment has
//! is read from history: messages after the last segment, and those between two. Messages that were edited or deleted or
//! came late since a segment was built are *loose*: a search reads them all. They are those of the log of changes, so that
//! no write writes anything for the index. Without an index a search is as right, and reads more.

mod building;
pub(crate) mod content;
mod directory;
mod indexer;
mod log;
mod proposal;
mod purge;
mod queue;
mod segment;
mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

pub(crate) use self::directory::Segment;
use self::directory::{Directory, Epoch, Levels};
use self::indexer::IndexerMeter;
pub(crate) use self::indexer::IndexerTask;
use self::indexer::{IndexGoal, IndexStep};
use self::log::LooseLog;
pub(crate) use self::proposal::TermGroups;
use self::queue::IndexQueue;
use self::segment::SegmentHeader;
pub use self::upkeep::{IndexPiece, IndexUpkeep};
use super::bounds::Bounds;
use super::error::Result;
use super::in_flight_ids::InFlightIds;
use crate::metrics::Metrics;
use crate::model::{Change, ChangeKind, ConversationId, MessageId, OrderKey, Timestamp};
use crate::store::{DueRemoval, Store, hour_of};
use crate::weighted_cache::WeightedCache;

/// Memory of the caches.
const DIRECTORIES_BYTES: usize = 3 << 20;
const HEADERS_BYTES: usize = 3 << 20;
const LOGS_BYTES: usize = 1 << 20;
/// Age at which a directory is read again: another server may have added segments.
const DIRECTORY_MAX: Duration = Duration::from_secs(60);
/// Time after which a message is in no batch that was not done yet, beside the overlap window of the store.
const SETTLED_MICROS: i64 = 2_000_000;
/// Age of the newest message that a command on a cluster indexes.
const COMMAND_MICROS: i64 = 10 * 60 * 1_000_000;
/// Part of the usual number of new messages that becomes a segment where a search has read them.
const REQUESTED_PART: usize = 4;
/// Changes of one read.
const CHANGES: usize = 256;
/// Changes since the directory that a search reads. With more it reads history.
const CHANGES_MAX: usize = 4_096;
/// Age of a directory that may lack changes which the log has forgotten.
const LOG_MICROS: i64 = 34 * 24 * 3_600 * 1_000_000;

/// Index of a conversation as a search uses it.
pub(crate) struct IndexSnapshot {
    directory: Arc<Directory>,
    /// Loose messages, the newest first.
    pub(crate) loose: Vec<MessageId>,
    /// Changes that were read for them.
    pub(crate) changes: usize,
}

impl IndexSnapshot {
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.directory.segments
    }
}

#[derive(Clone)]
struct CachedDirectory {
    directory: Option<Arc<Directory>>,
    read_at: Instant,
}

/// Search index of all conversations.
pub(crate) struct SearchIndex {
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
    epoch: Epoch,
    levels: Levels,
    is_on: bool,
    /// This process, among those that build segments.
    server: Uuid,
    directories: WeightedCache<ConversationId, CachedDirectory>,
    headers: WeightedCache<Uuid, Arc<SegmentHeader>>,
    logs: WeightedCache<ConversationId, Arc<LooseLog>>,
    queue: IndexQueue,
    meter: IndexerMeter,
    has_reported_damage: AtomicBool,
}

impl SearchIndex {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        in_flight: InFlightIds,
        imported_at: Timestamp,
        bounds: &Bounds,
    ) -> Self {
        let levels = bounds.search_segments;
        Self {
            store,
            in_flight,
            epoch: Epoch::since(imported_at),
            levels,
            is_on: bounds.is_search_indexed,
            server: Uuid::new_v4(),
            directories: WeightedCache::new(usize::MAX, DIRECTORIES_BYTES),
            headers: WeightedCache::new(usize::MAX, HEADERS_BYTES),
            logs: WeightedCache::new(usize::MAX, LOGS_BYTES),
            queue: IndexQueue::new(levels[0] as usize),
            meter: IndexerMeter::new(),
            has_reported_damage: AtomicBool::new(false),
        }
    }

    pub(crate) fn register(self: &Arc<Self>, metrics: &Metrics) {
        self.meter.register(metrics);
        let index = Arc::clone(self);
        metrics.read(
            "wideroom_search_index_queue",
            "Conversations that wait to be indexed.",
            move || index.queue.len() as f64,
        );
        let index = Arc::clone(self);
        metrics.read(
            "wideroom_search_cache_bytes",
            "Bytes of the parts of the search index that are in memory.",
            move || (index.directories.size().1 + index.headers.size().1) as f64,
        );
    }

    /// How long after its id an event may become visible, at most, or it is logged as late.
    fn window_micros(&self) -> i64 {
        match self.store.overlap_micros() {
            0 => 0,
            overlap => overlap + SETTLED_MICROS,
        }
    }

    /// The position up to which all events are visible, or are logged as late.
    fn settled(&self) -> OrderKey {
        // Ids of this server that are in flight hold it back.
        let low_watermark = self.in_flight.low_watermark();
        let window = self.window_micros();
        if window == 0 {
            return low_watermark;
        }
        let mut moment = self.in_flight.now().plus_micros(-window);
        if !self.in_flight.is_shared() {
            // The clock of a command is not held against those of servers.
            moment = moment.plus_micros(-COMMAND_MICROS);
        }
        low_watermark.min(OrderKey::first_at(moment).before())
    }

    /// The moment for a segment that is built now: it has every change from before it, as far as the window goes.
    fn built_at(&self) -> Timestamp {
        self.settled().moment().plus_micros(self.window_micros())
    }

    /// Notes new messages of a conversation.
    pub(crate) fn note_sent(&self, conversation: ConversationId, count: usize) {
        if self.is_on {
            self.queue.note_sent(conversation, count);
        }
    }

    /// Has a conversation indexed in the background.
    pub(crate) fn request(&self, conversation: ConversationId) {
        if self.is_on {
            let least = self.levels[0] as usize / REQUESTED_PART;
            self.queue.push(conversation, least);
        }
    }

    /// Prepares an edit or deletion of a message: the segment that has it is built again within some hours, so that the
    /// old words leave the disk, even if this server ends. So do those of an index that was turned off.
    pub(crate) async fn prepare_change(
        &self,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<()> {
        let Some(directory) = self.directory(conversation).await? else {
            return Ok(());
        };
        let position = message.order_key();
        // A message without a segment may come into one at this moment.
        let is_new = position > directory.until();
        if !is_new && !directory.segments.iter().any(|one| one.has(position)) {
            return Ok(());
        }
        self.schedule_refresh(conversation).await
    }

    /// Has segments with changed messages built again within some hours, even if this server ends.
    async fn schedule_refresh(&self, conversation: ConversationId) -> Result<()> {
        let hour = hour_of(self.in_flight.now()) + 1;
        if self.queue.is_scheduled(conversation, hour) {
            return Ok(());
        }
        let due = DueRemoval { hour, conversation };
        self.store.schedule_removal(due).await?;
        self.queue.note_scheduled(conversation, hour);
        Ok(())
    }

    /// The index of a conversation. `None` where history is to be read.
    pub(crate) async fn snapshot(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<IndexSnapshot>> {
        if !self.is_on {
            return Ok(None);
        }
        let Some(directory) = self.directory(conversation).await? else {
            return Ok(None);
        };
        if directory.segments.is_empty() {
            return Ok(None);
        }
        let changes = match self.has_all_changes(conversation, &directory).await? {
            true => self.loose_since(conversation, directory.folded).await?,
            false => None,
        };
        let Some((changed, read)) = changes else {
            self.request(conversation);
            return Ok(None);
        };
        if read > CHANGES {
            self.request(conversation);
        }
        let known = directory.loose.iter().map(|loose| loose.message);
        let mut loose: Vec<_> = known.chain(changed).collect();
        loose.sort_unstable_by(|one, other| other.cmp(one));
        loose.dedup();
        Ok(Some(IndexSnapshot {
            directory,
            loose,
            changes: read,
        }))
    }

    /// Reads the directories of these conversations, those that are not known.
    pub(crate) async fn prefetch(&self, conversations: &[ConversationId]) -> Result<()> {
        let is_unknown = |id: &&ConversationId| self.cached(**id).is_none();
        let unknown: Vec<_> = conversations.iter().filter(is_unknown).copied().collect();
        if self.is_on && !unknown.is_empty() {
            let read = self.store.search_directories(&unknown).await?;
            for (id, bytes) in unknown.into_iter().zip(read) {
                self.note_read(id, bytes.as_deref());
            }
        }
        Ok(())
    }

    /// Whether the log still has every change after the directory.
    async fn has_all_changes(&self, id: ConversationId, directory: &Directory) -> Result<bool> {
        let oldest = self.in_flight.now().plus_micros(-LOG_MICROS);
        if directory.folded.moment() > oldest {
            return Ok(true);
        }
        let newest = self.store.newest_events(&[id]).await?.pop().flatten();
        Ok(newest.is_none_or(|newest| newest.order_key() <= directory.folded))
    }

    /// The directory, as it was some seconds ago at most. `None` if there is none of this epoch.
    async fn directory(&self, conversation: ConversationId) -> Result<Option<Arc<Directory>>> {
        if let Some(known) = self.cached(conversation) {
            return Ok(known);
        }
        let read = self.store.search_directories(&[conversation]).await?;
        let bytes = read.into_iter().next().flatten();
        Ok(self.note_read(conversation, bytes.as_deref()))
    }

    fn cached(&self, conversation: ConversationId) -> Option<Option<Arc<Directory>>> {
        let cached = self.directories.get(&conversation)?;
        let is_fresh = cached.read_at.elapsed() < DIRECTORY_MAX || !self.in_flight.is_shared();
        is_fresh.then_some(cached.directory)
    }

    fn note_read(&self, id: ConversationId, bytes: Option<&[u8]>) -> Option<Arc<Directory>> {
        let directory = bytes.and_then(Directory::decode);
        let directory = directory.filter(|one| one.epoch == self.epoch);
        let directory = directory.map(Arc::new);
        let cached = CachedDirectory {
            directory: directory.clone(),
            read_at: Instant::now(),
        };
        self.directories
            .put(id, cached, bytes.map_or(0, <[u8]>::len) + 128);
        directory
    }

    /// Whether a stored directory has these segments.
    fn is_named(&self, segments: &[Segment], bytes: Option<Vec<u8>>) -> bool {
        let directory = bytes.and_then(|bytes| Directory::decode(&bytes));
        directory.is_some_and(|directory| directory.segments == segments)
    }

    /// Reads a directory again at its next use: a segment that it names is gone.
    pub(crate) fn forget(&self, conversation: ConversationId) {
        self.directories.forget(&conversation);
    }

    /// Has the index of a conversation built again, of which segments cannot be read.
    pub(crate) fn rebuild_damaged(&self, conversation: ConversationId) {
        self.queue.note_damaged(conversation);
        self.request(conversation);
    }

    /// Logs once that a segment is damaged.
    fn report_damage(&self, conversation: ConversationId) {
        if !self.has_reported_damage.swap(true, Ordering::Relaxed) {
            tracing::error!(%conversation, "a segment of the search index is damaged; searches read history until it is built again");
        }
    }
}

fn makes_loose(change: &Change) -> bool {
    match change.kind {
        ChangeKind::MessageEdited | ChangeKind::MessageDeleted | ChangeKind::MessageLate => true,
        ChangeKind::ParticipantAdded
        | ChangeKind::ParticipantRemoved
        | ChangeKind::RoleChanged
        | ChangeKind::ConversationRenamed
        | ChangeKind::ReactionsChanged
        | ChangeKind::ParticipantUpdated
        | ChangeKind::ConversationUpdated
        | ChangeKind::PinsChanged
        | ChangeKind::HistoryRaised => false,
    }
}
