//! Outbox: every event of every conversation, for services. Each event is delivered at least once,
//! and in order within its conversation.
//!
//! The store holds one row for each write with events. A reader scans the rows of its shards up to
//! the low watermark, and loads the events when it delivers them. On a store of one server nothing
//! below the watermark becomes visible any more. On a shared store a row may become visible up to
//! four seconds late, so a reader scans the overlap window again, and drops rows by identity.

mod scan;
mod updates;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::scan::OutboxScan;
pub use self::updates::{LoadedEvent, OutboxUpdate, OutboxUpdates};
use crate::chat::access::restrictions::require_service;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::InFlightIds;
use crate::model::{ConversationId, OrderKey, OutboxEventKind, OutboxShard, Timestamp, Viewer};
use crate::store::{OUTBOX_KEPT_MICROS, Store};

/// Interval in which a server of a shared store follows the switch of the outbox.
const SWITCH_EVERY: Duration = Duration::from_secs(5);
/// Time from the switch to the first event that readers may rely on, where servers run: each has
/// read the switch by then, or counts it as on.
pub const OUTBOX_BEGINS_AFTER_MICROS: i64 = 15_000_000;
/// Greatest number of readers that share the conversations.
const READERS_MAX: i32 = 16;
/// Greatest lead of a cursor over the clock.
const CURSOR_AHEAD_MICROS: i64 = 6_000_000;

/// Events that a reader asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxFilter {
    /// `None`: all kinds.
    kinds: Option<BTreeSet<OutboxEventKind>>,
    shards: Vec<OutboxShard>,
}

impl OutboxFilter {
    /// The events of these kinds, in the conversations of one of several readers.
    pub fn parse(
        kinds: Option<Vec<OutboxEventKind>>,
        shard: Option<i32>,
        shards: Option<i32>,
    ) -> Result<Self> {
        if kinds.as_ref().is_some_and(Vec::is_empty) {
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
            kinds: kinds.map(|kinds| kinds.into_iter().collect()),
            shards: OutboxShard::all().filter(is_own).collect(),
        })
    }

    fn has(&self, kind: OutboxEventKind) -> bool {
        self.kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Whether the reader is the one of this conversation.
    pub fn has_conversation(&self, conversation: ConversationId) -> bool {
        self.shards.contains(&OutboxShard::of(conversation))
    }
}

pub struct OutboxService {
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
    /// Time of the last import, which is no event.
    imported_at: Timestamp,
    /// Follows the switch of a shared store.
    _follower: Option<DropGuard>,
}

impl OutboxService {
    pub(crate) fn new(components: &Components, imported_at: Timestamp) -> Self {
        let in_flight = components.in_flight.clone();
        let follower = in_flight
            .is_shared()
            .then(|| spawn_follower(Arc::downgrade(&components.store)));
        Self {
            store: Arc::clone(&components.store),
            in_flight,
            imported_at,
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
        require_service(caller)?;
        let since = self.store.outbox_since().await?.ok_or(Error::OutboxOff)?;
        let released = self.in_flight.watch_released();
        let position = match after {
            Some(after) => {
                self.check_cursor(after, since)?;
                after
            }
            None => self.limit().max(OrderKey::first_at(since)),
        };
        let overlap = self.store.overlap_micros();
        let scan = OutboxScan::new(
            Arc::clone(&self.store),
            &filter.shards,
            position,
            after.map_or(0, |_| overlap),
        );
        Ok(OutboxUpdates::new(self, scan, filter, position, released))
    }

    /// Position up to which all rows are visible, but for late ones.
    fn limit(&self) -> OrderKey {
        self.in_flight.outbox_limit()
    }

    /// Refuses cursors from which the store cannot resume: rows live for 7 days, the outbox was off
    /// before it was switched on, and an import has no events.
    fn check_cursor(&self, after: OrderKey, since: Timestamp) -> Result<()> {
        let now = self.in_flight.now();
        let oldest = now
            .plus_micros(-OUTBOX_KEPT_MICROS)
            .max(since)
            .max(self.imported_at);
        // No server of a cluster has returned a later one.
        let newest = now.plus_micros(CURSOR_AHEAD_MICROS);
        let is_ahead = self.in_flight.is_shared() && after.moment() > newest;
        if after.moment() < oldest || is_ahead {
            return Err(Error::CursorExpired);
        }
        Ok(())
    }
}

/// Reads the switch again and again: the writes of this server follow it.
fn spawn_follower(store: Weak<dyn Store>) -> DropGuard {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let mut ticks = interval(SWITCH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stopped.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let Some(store) = store.upgrade() else {
                return;
            };
            if let Err(error) = store.outbox_since().await {
                tracing::warn!(%error, "the server failed to read whether the outbox is on; it retries, and before long writes rows in any case");
            }
        }
    });
    stop.drop_guard()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_the_shards_without_overlap() {
        for readers in 1..=READERS_MAX {
            let filters: Vec<_> = (0..readers)
                .map(|reader| OutboxFilter::parse(None, Some(reader), Some(readers)).unwrap())
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
        let path = |kinds, shard, shards| match OutboxFilter::parse(kinds, shard, shards) {
            Err(Error::BadInput { path, .. }) => path,
            other => panic!("{other:?}"),
        };
        assert_eq!(path(Some(Vec::new()), None, None), ["types"]);
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
