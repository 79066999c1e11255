//! Outbox: every event of every conversation, for services. Each event is delivered at least once,
//! and in order within its conversation.
//!
//! The store holds one row for each write with events. A reader scans the rows of its shards up to
//! the low watermark, and loads the events when it delivers them. On a store of one server nothing
//! below the watermark becomes visible any more. On a shared store a row may become visible up to
//! four seconds late, so a reader scans the overlap window again, and drops rows by identity.

mod feed;
mod lease;
mod loader;
pub(crate) mod notification;
mod scan;
mod shard_feed;
mod tail;
mod updates;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use self::feed::RowFeed;
pub use self::lease::{ReaderName, SavedPosition, ShardLease};
use self::loader::EventLoader;
pub use self::loader::{LoadedEvent, LoadedItem};
use self::notification::{NOTIFICATION, NotificationPiece, NotificationService};
pub use self::shard_feed::{FeedBatch, ShardFeed};
use self::tail::OutboxTail;
pub use self::updates::{OutboxUpdate, OutboxUpdates};
use crate::chat::access::Access;
use crate::chat::access::restrictions::require;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::{CURSOR_AHEAD_MAX_MICROS, InFlightIds};
use crate::model::{
    ConversationId, OrderKey, OutboxEvent, OutboxEventKind, OutboxShard, ServiceRight, Timestamp,
    Viewer,
};
use crate::store::{OUTBOX_SWITCH_AGE_MAX, Store};

/// Interval in which a server of a shared store follows the switch of the outbox.
const SWITCH_EVERY: Duration = Duration::from_secs(5);
/// Time from the switch to the first event that readers may rely on, where servers run: each has
/// read the switch by then, or counts it as on.
pub const OUTBOX_BEGINS_AFTER_MICROS: i64 = 15_000_000;
const _: () = assert!(
    SWITCH_EVERY.as_secs() < OUTBOX_SWITCH_AGE_MAX.as_secs()
        && OUTBOX_SWITCH_AGE_MAX.as_micros() < OUTBOX_BEGINS_AFTER_MICROS as u128
);
/// Greatest number of readers that share the conversations.
const READERS_MAX: i32 = 16;

/// Types of events that a reader asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboxTypes {
    /// `None`: all kinds.
    pub kinds: Option<BTreeSet<OutboxEventKind>>,
    /// Notifications have to be asked for by name: a reader that takes them trails.
    pub has_notifications: bool,
}

impl OutboxTypes {
    pub fn has(&self, kind: OutboxEventKind) -> bool {
        self.kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&kind))
    }

    /// The notification alone, or the event, or both, in this order of delivery: the event first.
    pub fn items(&self, event: OutboxEvent) -> impl Iterator<Item = OutboxItem> + use<> {
        let notification = (self.has_notifications && NotificationService::follows(&event))
            .then(|| OutboxItem::notification(event.clone()));
        let own = self.has(event.kind).then(|| OutboxItem::event(event));
        own.into_iter().chain(notification)
    }

    /// The names of these types. `Err` holds the first that is none.
    pub fn parse(names: &[String]) -> Result<Self, String> {
        let mut types = Self {
            kinds: Some(BTreeSet::new()),
            has_notifications: false,
        };
        for name in names {
            if name == NOTIFICATION {
                types.has_notifications = true;
            } else {
                let kind = name.parse().map_err(|_| name.clone())?;
                types.kinds.get_or_insert_default().insert(kind);
            }
        }
        Ok(types)
    }

    /// `None`: all but notifications.
    pub fn names(&self) -> Option<Vec<&'static str>> {
        let kinds = self.kinds.as_ref()?.iter().map(|kind| kind.into_str());
        let notification = self.has_notifications.then_some(NOTIFICATION);
        Some(kinds.chain(notification).collect())
    }
}

/// Event, or a piece of the notification that follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxItem {
    pub event: OutboxEvent,
    /// `None`: the event itself.
    pub piece: Option<NotificationPiece>,
}

impl OutboxItem {
    pub fn event(event: OutboxEvent) -> Self {
        Self { event, piece: None }
    }

    pub fn notification(event: OutboxEvent) -> Self {
        Self {
            event,
            piece: Some(NotificationPiece::default()),
        }
    }

    /// Identity, the same in each delivery. Visible ASCII.
    pub fn id(&self) -> String {
        let event = &self.event.id;
        match &self.piece {
            None => event.to_string(),
            Some(NotificationPiece { after: None }) => format!("{event}:notification"),
            Some(NotificationPiece { after: Some(user) }) => {
                let name = URL_SAFE_NO_PAD.encode(user.as_str());
                format!("{event}:notification:{name}")
            }
        }
    }

    /// Name of the type.
    pub fn type_name(&self) -> &'static str {
        if self.piece.is_some() {
            NOTIFICATION
        } else {
            self.event.kind.into_str()
        }
    }
}

/// Events that a reader asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxFilter {
    types: OutboxTypes,
    shards: Vec<OutboxShard>,
}

impl OutboxFilter {
    /// The events of these kinds, in the conversations of one of several readers.
    pub fn parse(types: OutboxTypes, shard: Option<i32>, shards: Option<i32>) -> Result<Self> {
        let is_empty = types.kinds.as_ref().is_some_and(BTreeSet::is_empty);
        if is_empty && !types.has_notifications {
            return Err(Error::bad_input(&["types"], "`types` must not be empty"));
        }
        let (reader, readers) = match (shard, shards) {
            (None, None) => (0, 1),
            (Some(_), None) => {
                return Err(Error::bad_input(&["shards"], "`shard` needs `shards`"));
            }
            (None, Some(_)) => {
                return Err(Error::bad_input(&["shard"], "`shards` needs `shard`"));
            }
            (Some(shard), Some(shards)) => (shard, shards),
        };
        if !(1..=READERS_MAX).contains(&readers) {
            let message = format!("`shards` must be from 1 to {READERS_MAX}");
            return Err(Error::bad_input(&["shards"], message));
        }
        if !(0..readers).contains(&reader) {
            let message = "`shard` must be at least 0 and less than `shards`";
            return Err(Error::bad_input(&["shard"], message));
        }
        let is_own = |shard: &OutboxShard| i32::from(shard.number()) % readers == reader;
        Ok(Self {
            types,
            shards: OutboxShard::all().filter(is_own).collect(),
        })
    }

    /// Whether the reader is the one of this conversation.
    pub fn has_conversation(&self, conversation: ConversationId) -> bool {
        self.shards.contains(&OutboxShard::of(conversation))
    }
}

pub struct OutboxService {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    in_flight: InFlightIds,
    notifications: Arc<NotificationService>,
    tail: Arc<OutboxTail>,
    notify_after: Duration,
    /// Microseconds for which events are kept.
    keep: i64,
    /// Time of the last import, which is no event.
    imported_at: Timestamp,
    /// Time of the last import or restoration. Cursors from before it have a gap.
    resumable_since: Timestamp,
    /// Follows the switch of a shared store.
    _follower: Option<AbortOnDropHandle<()>>,
}

impl OutboxService {
    pub(crate) fn new(
        components: &Components,
        notifications: Arc<NotificationService>,
        bounds: &Bounds,
        imported_at: Timestamp,
        resumable_since: Timestamp,
    ) -> Self {
        let in_flight = components.in_flight.clone();
        components.store.set_outbox_keep(bounds.outbox_keep);
        let follower = in_flight
            .is_shared()
            .then(|| spawn_follower(Arc::downgrade(&components.store)));
        Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            in_flight,
            notifications,
            tail: Arc::new(OutboxTail::new(Arc::clone(&components.store))),
            notify_after: bounds.notify_after,
            keep: i64::try_from(bounds.outbox_keep.as_micros()).unwrap_or(i64::MAX),
            imported_at,
            resumable_since,
            _follower: follower,
        }
    }

    /// The events that this filter selects. With `after`, first all that are later than this cursor.
    pub async fn updates(
        &self,
        caller: &Viewer,
        after: Option<OrderKey>,
        filter: OutboxFilter,
    ) -> Result<OutboxUpdates> {
        require(caller, ServiceRight::Outbox)?;
        let since = self.store.outbox_since().await?.ok_or(Error::OutboxOff)?;
        let position = match after {
            Some(after) => {
                self.check_cursor(after, since)?;
                after
            }
            None => self.limit().max(OrderKey::first_at(since)),
        };
        let is_resumed = after.is_some();
        let trail = self.trail(&filter.types);
        let feed = RowFeed::new(self, &filter.shards, position, is_resumed, trail);
        Ok(OutboxUpdates::new(self, feed, filter, position))
    }

    /// How far a reader of these types stays behind the present.
    fn trail(&self, types: &OutboxTypes) -> Duration {
        if types.has_notifications {
            self.notify_after
        } else {
            Duration::ZERO
        }
    }

    /// Position up to which all rows are visible, but for late ones.
    fn limit(&self) -> OrderKey {
        self.in_flight.outbox_limit(Duration::ZERO)
    }

    fn loader(&self) -> EventLoader {
        EventLoader::new(&self.store, &self.notifications)
    }

    /// Refuses cursors from which the store cannot resume: rows live for some days, the outbox was off
    /// before it was switched on, an import has no events, and a restored copy lacks the newest.
    fn check_cursor(&self, after: OrderKey, since: Timestamp) -> Result<()> {
        let now = self.in_flight.now();
        let kept = now.plus_micros(-self.keep);
        let oldest = kept.max(since).max(self.resumable_since);
        // No server of a cluster has returned a later one.
        let newest = now.plus_micros(CURSOR_AHEAD_MAX_MICROS);
        let is_ahead = self.in_flight.is_shared() && after.moment() > newest;
        if after.moment() < oldest || is_ahead {
            return Err(Error::CursorExpired);
        }
        Ok(())
    }
}

/// Reads the switch again and again: the writes of this server follow it.
fn spawn_follower(store: Weak<dyn Store>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut ticks = interval(SWITCH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(store) = store.upgrade() else {
                return;
            };
            if let Err(error) = store.outbox_since().await {
                tracing::warn!(%error, "the server failed to read whether the outbox is on; it retries, and before long writes rows in any case");
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_the_shards_without_overlap() {
        for readers in 1..=READERS_MAX {
            let filters: Vec<_> = (0..readers)
                .map(|reader| {
                    OutboxFilter::parse(OutboxTypes::default(), Some(reader), Some(readers))
                        .unwrap()
                })
                .collect();
            let mut all: Vec<_> = filters.iter().flat_map(|filter| &filter.shards).collect();
            all.sort();
            assert!(all.into_iter().copied().eq(OutboxShard::all()), "{readers}");
            for number in 0..100_u128 {
                let conversation = ConversationId(uuid::Uuid::from_u128(number));
                let own = filters
                    .iter()
                    .filter(|one| one.has_conversation(conversation));
                assert_eq!(own.count(), 1);
            }
        }
    }

    #[test]
    fn a_wrong_filter_is_refused_by_name() {
        let path = |kinds: Option<BTreeSet<_>>, shard, shards| {
            let types = OutboxTypes {
                kinds,
                has_notifications: false,
            };
            match OutboxFilter::parse(types, shard, shards) {
                Err(Error::BadInput { path, .. }) => path,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(path(Some(BTreeSet::new()), None, None), ["types"]);
        assert_eq!(path(None, Some(0), None), ["shards"]);
        assert_eq!(path(None, None, Some(1)), ["shard"]);
        for shards in [0, -1, 17] {
            assert_eq!(path(None, Some(0), Some(shards)), ["shards"]);
        }
        for shard in [-1, 4, 5] {
            assert_eq!(path(None, Some(shard), Some(4)), ["shard"]);
        }
    }
}
