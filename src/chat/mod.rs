//! Chat: the rules. Each service decides on its part of the API, persists through the store, and
//! publishes on the bus.
//!
//! Invariant: persisted before published. Only typing and presence are published without being
//! persisted. Invariant: an object that the viewer may not see is indistinguishable from one that
//! does not exist.
//!
//! Sub-folders and files point one way, and `tests/house.rs` checks it: streams, writes, inbox and
//! presence are above `participants` and `history`, those above `access`, and all above the shared
//! parts.

mod access;
mod agent_sends;
mod bounds;
mod components;
mod due_shards;
mod erasure;
mod error;
mod history;
mod in_flight_ids;
mod inbox;
mod index;
mod late_rule;
mod listing;
mod live;
mod live_feed;
mod outbox;
mod participants;
mod presence;
mod publisher;
mod rate_limit;
mod recent_ids;
mod remote_notices;
mod removal;
mod replay_limiter;
mod safety;
mod search;
mod single_flight;
mod stream;
mod write;
mod write_tasks;

use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::DropGuard;

pub use self::access::blocks::{BlockList, BlockLists};
pub use self::access::membership_guard::MembershipGuard;
pub use self::access::restrictions::{Refusal, RestrictionWatch, Restrictions};
pub use self::access::{Access, VisibleConversation, client_key};
pub use self::bounds::{Bounds, RateBounds};
pub use self::erasure::ErasureService;
pub use self::error::{Error, Result, StoreFailure};
pub use self::history::{HistoryRequest, HistoryService};
pub use self::inbox::InboxService;
pub use self::inbox::PreviewFields;
pub use self::inbox::entry_settings::EntrySettings;
pub use self::inbox::page::{InboxFilter, InboxPage};
pub use self::inbox::summary::{InboxSummary, SharedSummary, SummaryFields};
pub use self::index::content::ContentKind;
pub use self::index::{IndexPiece, IndexUpkeep};
pub use self::listing::{FilteredPage, ListingService, ScanPage};
pub use self::live::{LiveService, LiveSettler, LiveView, LiveWriteInput, LiveWritten};
pub use self::outbox::notification::{
    NOTIFICATION, NotificationPiece, NotificationReason, NotificationRecipient, NotificationService,
};
pub use self::outbox::{
    FeedBatch, LoadedEvent, LoadedItem, OUTBOX_BEGINS_AFTER_MICROS, OutboxFilter, OutboxItem,
    OutboxService, OutboxTypes, OutboxUpdate, OutboxUpdates, ReaderName, SavedPosition, ShardFeed,
    ShardLease,
};
pub use self::participants::ParticipantService;
pub use self::presence::typing::TypingService;
pub use self::presence::{PresenceGuard, PresenceService};
pub use self::removal::{RemovalService, RemovalWorker};
pub use self::safety::block::{BlockKey, BlockService, Blocked, Unblocked};
pub use self::safety::report::{ReportInput, ReportPage, ReportService};
pub use self::safety::send_hook::{
    HookFailureMode, LiveTextMode, SendHook, SendHookError, SendHookSettings,
};
pub use self::search::{
    MatchPage, MessageMatch, Search, SearchFilter, SearchInput, SearchKey, SearchService,
};
pub use self::stream::StreamService;
pub use self::stream::conversation_event::ConversationEvent;
pub use self::stream::conversation_updates::{ConversationUpdate, ConversationUpdates};
pub use self::stream::inbox_updates::{InboxUpdate, InboxUpdates};
pub use self::stream::large_entries::{LoadedEntry, LoadedUnread};
pub use self::stream::live_updates::{LiveChange, LiveUpdate, LiveUpdates};
pub use self::stream::message_updates::{MessageUpdate, MessageUpdates};
pub use self::stream::presence_updates::{PresenceUpdate, PresenceUpdates};
pub use self::stream::typing_updates::{TypingUpdate, TypingUpdates};
pub use self::stream::update_key::UpdateKey;
pub use self::write::WriteService;
pub use self::write::command::draft::{AttachmentDraft, Draft, DraftInput};
pub use self::write::command::group::{BanInput, GroupInput};
pub use self::write::command::history::{ConversationSettings, PostingRolesInput};
pub use self::write::command::profile::ConversationProfileInput;
pub use self::write::command::revision::EditInput;
pub use self::write::group_moderation::Banned;
pub use self::write::profile::ProfileInput;

use self::components::Components;
use self::in_flight_ids::InFlightIds;
use self::index::IndexerTask;
use self::remote_notices::RemoteNotices;
use crate::bus::Bus;
use crate::clock::{Clock, IdGenerator};
use crate::cluster::{Cluster, NoticeHandler};
use crate::metrics::Metrics;
use crate::model::{Timestamp, UserId};
use crate::store::{self, ReadShares, Store};

/// Handle to the services of a chat. Clones share them.
#[derive(Clone)]
pub struct Chat(Arc<Services>);

/// Services of a chat, by the part of the API.
pub struct Services {
    pub access: Arc<Access>,
    pub restrictions: Arc<Restrictions>,
    pub history: Arc<HistoryService>,
    pub participants: Arc<ParticipantService>,
    pub listing: ListingService,
    pub writes: Arc<WriteService>,
    pub inbox: Arc<InboxService>,
    pub blocks: Arc<BlockService>,
    pub reports: Arc<ReportService>,
    pub erasure: Arc<ErasureService>,
    pub search: SearchService,
    pub index: IndexUpkeep,
    pub presence: Arc<PresenceService>,
    pub typing: TypingService,
    pub streams: Arc<StreamService>,
    pub outbox: OutboxService,
    pub notifications: Arc<NotificationService>,
    pub removals: RemovalService,
    pub lives: Arc<LiveService>,
    components: Components,
    read_shares: Arc<ReadShares>,
    bounds: Bounds,
    /// The cluster holds it weakly.
    _remote_notices: Option<Arc<RemoteNotices>>,
    _erasure_stop: DropGuard,
    _indexer: Option<IndexerTask>,
}

impl Deref for Chat {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}

impl Chat {
    /// Opens a chat over a store. Its ids are greater than all that the store has.
    pub async fn open(
        store: Arc<dyn Store>,
        bus: Bus,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
    ) -> Result<Self, store::Error> {
        let ids = Arc::new(IdGenerator::random());
        if let Some(newest) = store.newest_id().await? {
            ids.observe(newest);
        }
        let imported_at = store.imported_at().await?.unwrap_or_default();
        // Events before either time may be missing, or may have been others.
        let resumable_since = store
            .restored_at()
            .await?
            .unwrap_or_default()
            .max(imported_at);
        // Later ids are greater, even if the clock was set back since.
        ids.pass(resumable_since);
        if store.cluster().is_none() {
            // So are they greater than the beginning of the outbox, before which readers read nothing.
            ids.pass(store.outbox_since().await?.unwrap_or_default());
        }
        let cluster = match store.cluster() {
            Some(directory) => {
                Some(Cluster::open(directory, bus.clone(), Arc::clone(&clock)).await?)
            }
            None => None,
        };
        let opened = Self::open_in(
            cluster.clone(),
            (store, bus, clock),
            ids,
            bounds,
            (imported_at, resumable_since),
        );
        let opened = opened.await;
        if opened.is_err()
            && let Some(cluster) = cluster
        {
            // The next try has an identity of its own: the others need not write to this one.
            cluster.end().await;
        }
        opened
    }

    /// Opens the services of a server that has its part in the cluster.
    async fn open_in(
        cluster: Option<Cluster>,
        (store, bus, clock): (Arc<dyn Store>, Bus, Arc<dyn Clock>),
        ids: Arc<IdGenerator>,
        bounds: Bounds,
        (imported_at, resumable_since): (Timestamp, Timestamp),
    ) -> Result<Self, store::Error> {
        // The logs of other servers go by the cluster's time, whatever the wall clock shows.
        let clock = cluster.as_ref().map_or(clock, Cluster::clock);
        let in_flight =
            InFlightIds::new(Arc::clone(&clock), ids, cluster, bounds.backlog_writes_max);
        let restrictions = Restrictions::open(&store, Arc::clone(&clock), &bounds).await?;
        let components = Components::new(
            store,
            bus,
            clock,
            in_flight,
            restrictions,
            &bounds,
            imported_at,
        );
        let services = Services::new(components, bounds, imported_at, resumable_since);
        services.erasure.resume().await?;
        Ok(Self(Arc::new(services)))
    }
}

impl Services {
    fn new(
        components: Components,
        bounds: Bounds,
        imported_at: Timestamp,
        resumable_since: Timestamp,
    ) -> Self {
        let presence = Arc::new(PresenceService::new(&components, &bounds));
        let writes = Arc::new(WriteService::new(&components, &bounds));
        let lives = Arc::new(LiveService::new(&components, &writes, &bounds));
        let streams = StreamService::new(
            &components,
            (Arc::clone(&presence), Arc::clone(&lives)),
            &bounds,
            resumable_since,
        );
        let remote_notices = components.in_flight.cluster().map(|cluster| {
            let notices =
                RemoteNotices::new(&components, Arc::clone(&presence), Arc::clone(&lives));
            let handler: Arc<dyn NoticeHandler> = Arc::clone(&notices) as Arc<_>;
            cluster.start(Arc::downgrade(&handler));
            notices
        });
        let inbox = Arc::new(InboxService::new(&components, &bounds));
        let notifications = NotificationService::new(&components, &presence, &inbox);
        let notifications = Arc::new(notifications);
        let outbox = OutboxService::new(
            &components,
            Arc::clone(&notifications),
            &bounds,
            imported_at,
            resumable_since,
        );
        let erasure = Arc::new(ErasureService::new(&components, &writes));
        Self {
            lives,
            access: Arc::clone(&components.access),
            restrictions: Arc::clone(&components.restrictions),
            history: Arc::clone(&components.history),
            participants: Arc::clone(&components.participants),
            listing: ListingService::new(&components.store),
            writes,
            inbox,
            blocks: Arc::new(BlockService::new(&components)),
            reports: Arc::new(ReportService::new(&components, &bounds)),
            _erasure_stop: erasure.stop_on_drop(),
            _indexer: components.index.start(),
            erasure,
            search: SearchService::new(&components, &bounds),
            index: IndexUpkeep::of(&components.store, &components.index),
            presence,
            typing: TypingService::new(&components, &bounds.rates),
            streams: Arc::new(streams),
            outbox,
            notifications,
            removals: RemovalService::new(&components, &bounds),
            read_shares: ReadShares::new(bounds.user_reads_max),
            bounds,
            components,
            _remote_notices: remote_notices,
        }
    }

    /// Adds the metrics of the chat and its bus to those of the process.
    pub fn register(&self, metrics: &Metrics) {
        self.components.bus.register(metrics);
        self.restrictions.register(metrics);
        self.writes.register(metrics);
        self.typing.register(metrics);
        self.search.register(metrics);
        self.reports.register(metrics);
        self.streams.register(metrics);
        self.removals.register(metrics);
        self.lives.register(metrics);
        self.components.index.register(metrics);
        if let Some(cluster) = self.components.in_flight.cluster() {
            cluster.register(metrics);
        }
        let waiting = |part: fn((usize, usize)) -> usize| {
            let writes = Arc::clone(&self.writes);
            move || part(writes.waiting()) as f64
        };
        metrics.read(
            "wideroom_queues",
            "Conversations with writes in progress.",
            waiting(|(conversations, _)| conversations),
        );
        metrics.read(
            "wideroom_queue_jobs",
            "Writes waiting in the queues of conversations.",
            waiting(|(_, writes)| writes),
        );
        let in_flight = self.components.in_flight.clone();
        metrics.read(
            "wideroom_ids_ahead_seconds",
            "Lead of the newest id over the clock, which was set back or was ahead before. Messages expire later by it.",
            move || in_flight.lead_over_clock().as_secs_f64(),
        );
        let limiter = Arc::clone(&self.components.replay_limiter);
        metrics.read(
            "wideroom_replays",
            "Running reads of history for resumed subscriptions.",
            move || limiter.in_use() as f64,
        );
    }

    /// Number of topics with at least one subscriber.
    pub fn topic_count(&self) -> usize {
        self.components.bus.topic_count()
    }

    /// Runs work whose reads of the store count towards the bound of this user.
    pub async fn reading_for<T>(&self, user: &UserId, work: impl Future<Output = T>) -> T {
        self.read_shares.reading_for(user, work).await
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.components.store
    }

    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Logs when the ids begin to lead the clock, and when that ends. Runs until it is dropped.
    pub async fn watch_lead(&self) {
        self.components.in_flight.watch_lead().await;
    }

    /// Whether events of other servers arrive. `Err` says in one sentence why not.
    pub fn health(&self) -> Result<(), String> {
        match self.components.in_flight.cluster() {
            Some(cluster) => cluster.health(),
            None => Ok(()),
        }
    }

    /// Waits for the outcome of every accepted write, and persists the last-seen times. The caller
    /// must accept no new requests. On a cluster, the other servers notify this one no more.
    pub async fn finish(&self) {
        self.erasure.finish().await;
        self.components.tasks.finish().await;
        self.presence.finish().await;
        if let Some(cluster) = self.components.in_flight.cluster() {
            cluster.end().await;
        }
    }
}
