//! Components that several services share. Each service clones the ones that it needs.

use std::sync::Arc;

use crate::bus::Bus;
use crate::chat::access::Access;
use crate::chat::access::relationship::Relationships;
use crate::chat::access::restrictions::Restrictions;
use crate::chat::bounds::Bounds;
use crate::chat::history::HistoryService;
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::index::SearchIndex;
use crate::chat::live_feed::LiveFeeds;
use crate::chat::live_feed::sent_lives::SentLives;
use crate::chat::participants::ParticipantService;
use crate::chat::publisher::Publisher;
use crate::chat::replay_limiter::ReplayLimiter;
use crate::chat::write_tasks::WriteTasks;
use crate::clock::Clock;
use crate::model::Timestamp;
use crate::store::Store;

pub(crate) struct Components {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) in_flight: InFlightIds,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) sent_lives: Arc<SentLives>,
    pub(crate) live_feeds: Arc<LiveFeeds>,
    pub(crate) access: Arc<Access>,
    pub(crate) restrictions: Arc<Restrictions>,
    pub(crate) relationships: Arc<Relationships>,
    /// Relationships that show presence: with or without consent, by the bounds.
    pub(crate) presence_relationships: Arc<Relationships>,
    pub(crate) history: Arc<HistoryService>,
    pub(crate) participants: Arc<ParticipantService>,
    pub(crate) replay_limiter: Arc<ReplayLimiter>,
    pub(crate) tasks: Arc<WriteTasks>,
    pub(crate) index: Arc<SearchIndex>,
}

impl Components {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        bus: Bus,
        clock: Arc<dyn Clock>,
        in_flight: InFlightIds,
        restrictions: Restrictions,
        bounds: &Bounds,
        imported_at: Timestamp,
    ) -> Self {
        let sent_lives = Arc::<SentLives>::default();
        let live_feeds = Arc::new(LiveFeeds::new(
            Arc::clone(&clock),
            bus.clone(),
            Arc::clone(&sent_lives),
            in_flight.is_shared(),
        ));
        let publisher = Publisher::new(
            bus.clone(),
            Arc::clone(&clock),
            in_flight.clone(),
            Arc::clone(&live_feeds),
        );
        let publisher = Arc::new(publisher);
        let access = Arc::new(Access::new(
            Arc::clone(&store),
            bus.clone(),
            in_flight.clone(),
            Arc::clone(&publisher),
            bounds.retention_seconds(),
        ));
        restrictions.tell_blocks(access.blocks());
        let relationships = |needs_consent| {
            let (store, access) = (Arc::clone(&store), Arc::clone(&access));
            Arc::new(Relationships::new(store, access, needs_consent))
        };
        let presence_relationships = relationships(bounds.needs_presence_consent);
        let relationships = relationships(true);
        let history = HistoryService::new(Arc::clone(&store), in_flight.clone());
        let participants = ParticipantService::new(Arc::clone(&store), Arc::clone(&access));
        let replay_limiter = ReplayLimiter::new(
            bounds.user_replays_max,
            bounds.replays_max,
            bounds.replay_wait,
        );
        let index = SearchIndex::new(Arc::clone(&store), in_flight.clone(), imported_at, bounds);
        Self {
            index: Arc::new(index),
            store,
            bus,
            clock,
            in_flight,
            publisher,
            sent_lives,
            live_feeds,
            access,
            restrictions: Arc::new(restrictions),
            relationships,
            presence_relationships,
            history: Arc::new(history),
            participants: Arc::new(participants),
            replay_limiter: Arc::new(replay_limiter),
            tasks: Arc::new(WriteTasks::new(bounds.outcome_wait)),
        }
    }
}
