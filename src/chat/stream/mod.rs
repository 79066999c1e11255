//! Streams: subscriptions to a conversation, its live messages, an inbox, typing and presence,
//! resumed from a cursor without a gap.
//!
//! A stream subscribes to the bus first and reads the store afterwards, so no event is lost in
//! between; duplicates are filtered by their ids. A subscriber that lags behind the bus reads the
//! store from its own position.
//!
//! On a cluster, a stream also registers with the other servers before it reads (`registration`).

pub(crate) mod conversation_event;
pub(crate) mod conversation_updates;
mod delivered_ids;
mod followed_names;
pub(crate) mod inbox_updates;
pub(crate) mod large_entries;
pub(crate) mod live_updates;
pub(crate) mod message_updates;
pub(crate) mod presence_updates;
mod quiet_alarm;
mod registration;
mod replay;
pub(crate) mod typing_updates;
pub(crate) mod update_key;

use std::sync::Arc;
use std::time::Duration;

use self::followed_names::FollowedNames;
use self::registration::StreamRegistration;
use self::replay::Replays;
use crate::bus::Bus;
use crate::chat::access::Access;
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::access::relationship::Relationships;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::history::HistoryService;
use crate::chat::in_flight_ids::{CURSOR_AHEAD_MAX_MICROS, InFlightIds, rewind};
use crate::chat::live::LiveService;
use crate::chat::presence::PresenceService;
use crate::chat::rate_limit::RateLimit;
use crate::chat::replay_limiter::ReplayLimiter;
use crate::cluster::CursorScope;
use crate::metrics::Metrics;
use crate::model::{ConversationId, OrderKey, Timestamp, UserId, Viewer};
use crate::rate::Rate;
use crate::store::{CHANGE_LIFETIME_MICROS, Store};

/// Lifetime of a cursor.
const CURSOR_LIFETIME_MICROS: i64 = 30 * 24 * 3_600 * 1_000_000;
const _: () = assert!(CURSOR_LIFETIME_MICROS < CHANGE_LIFETIME_MICROS);
/// A quiet stream repeats its position at this interval, so that a client that reconnects much
/// later has a recent cursor.
const POSITION_INTERVAL: Duration = Duration::from_secs(45 * 60);
/// Rate of checks for new relationships, of all streams of a user.
const RELATIONSHIP_CHECKS: Rate = Rate::per_second(2, 4);

pub struct StreamService {
    store: Arc<dyn Store>,
    bus: Bus,
    access: Arc<Access>,
    history: Arc<HistoryService>,
    relationships: Arc<Relationships>,
    presence: Arc<PresenceService>,
    lives: Arc<LiveService>,
    in_flight: InFlightIds,
    replay_limiter: Arc<ReplayLimiter>,
    replays: Replays,
    followed_names: FollowedNames,
    relationship_checks: RateLimit,
    inbox_replay_max: usize,
    typing_lifetime: Duration,
    /// Cap of an unread count.
    unread_cap: u32,
    /// Time of the last import or restoration. Cursors from before it have a gap.
    resumable_since: Timestamp,
}

impl StreamService {
    pub(crate) fn new(
        components: &Components,
        (presence, lives): (Arc<PresenceService>, Arc<LiveService>),
        bounds: &Bounds,
        resumable_since: Timestamp,
    ) -> Self {
        let is_on = bounds.rates.is_on;
        Self {
            store: Arc::clone(&components.store),
            bus: components.bus.clone(),
            access: Arc::clone(&components.access),
            history: Arc::clone(&components.history),
            relationships: Arc::clone(&components.presence_relationships),
            presence,
            lives,
            in_flight: components.in_flight.clone(),
            replay_limiter: Arc::clone(&components.replay_limiter),
            replays: Replays::new(),
            followed_names: FollowedNames::new(bounds.presence_names_max),
            relationship_checks: RateLimit::new("looks", RELATIONSHIP_CHECKS, is_on),
            inbox_replay_max: bounds.inbox_replay_max,
            typing_lifetime: bounds.typing_lifetime,
            unread_cap: bounds.unread_cap,
            resumable_since,
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.relationship_checks.register(metrics);
    }

    /// The position of the viewer's inbox stream: the low watermark of persisted and published
    /// events, never the wall clock.
    pub fn inbox_position(&self, viewer: &UserId) -> OrderKey {
        self.in_flight.position(CursorScope::Inbox(viewer))
    }

    /// Registers a stream of one conversation with the other servers, and begins its guard.
    async fn begin_in(
        &self,
        caller: &Viewer,
        id: ConversationId,
    ) -> Result<(StreamRegistration, MembershipGuard)> {
        let (access, in_flight) = (&self.access, &self.in_flight);
        let mut registration = if caller.user.is_agent() {
            // A stranger leaves no row at the conversation.
            MembershipGuard::begin(access, caller, id, None).await?;
            StreamRegistration::of_agent(in_flight, id).await?
        } else {
            StreamRegistration::begin(in_flight, &caller.user).await?
        };
        let registered_at = registration.acknowledged();
        let guard = MembershipGuard::begin(access, caller, id, registered_at).await?;
        registration.listen_if_large(in_flight, &guard).await?;
        Ok((registration, guard))
    }

    /// Refuses cursors that the store can no longer resume from: it retains changes for a while, an
    /// import logs none, and a restored copy lacks the newest.
    fn check_cursor_age(&self, after: OrderKey) -> Result<()> {
        let oldest = self
            .in_flight
            .now()
            .plus_micros(-CURSOR_LIFETIME_MICROS)
            .max(self.resumable_since);
        if after.moment() < oldest {
            return Err(Error::CursorExpired);
        }
        self.check_cursor_ahead(after.moment())
    }

    /// Refuses cursors that no server of a cluster has returned: ids and cursors are ahead of the
    /// clocks by less.
    fn check_cursor_ahead(&self, after: Timestamp) -> Result<()> {
        let latest = self.in_flight.now().plus_micros(CURSOR_AHEAD_MAX_MICROS);
        if self.is_shared() && after > latest {
            return Err(Error::CursorExpired);
        }
        Ok(())
    }

    /// The position from which a stream at this position reads the store. On a shared store it is
    /// earlier by the overlap.
    fn read_position(&self, position: OrderKey) -> OrderKey {
        rewind(position, self.store.overlap_micros())
    }

    fn is_shared(&self) -> bool {
        self.in_flight.is_shared()
    }
}
