//! Remote changes: a poller that publishes the writes of other servers to the subscribers of this
//! one.
//!
//! It runs only on a shared store. Each server leaves wakes there: records of the conversations and
//! inboxes that it has written. While this server has subscribers, the poller reads the wakes every
//! second, reads the new events from some time before the last poll, and publishes them. It never
//! compares newest positions only, because a smaller id may become visible after a greater one.
//! Events that were published already are filtered out by their ids.
//!
//! With signals between the servers (`bus`), the poller reads signalled writes at once and polls
//! every five seconds. Without a connection it polls every second, and it polls at once when
//! signals may have been lost.
//!
//! A batch is atomic, but its rows become visible one after the other, and the wake before them. So
//! a wake is followed several times, and an event is published only once the head of its
//! conversation has reached it and its effect is visible.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join;
use futures_util::{StreamExt, TryStreamExt, stream};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::bus::{Bus, Signal};
use crate::chat::access::Access;
use crate::chat::components::Components;
use crate::chat::in_flight_ids::{InFlightIds, rewind};
use crate::chat::presence::PresenceService;
use crate::chat::publisher::Publisher;
use crate::chat::recent_ids::RecentIds;
use crate::chat::stream::conversation_event::is_visible_in;
use crate::clock::Clock;
use crate::model::{
    Change, ChangeKind, Conversation, ConversationId, Cut, Event, InboxChange, Message, OrderKey,
    PageRequest, TimeUuid, Timestamp, Topic, UserId,
};
use crate::store::{self, Store, Wake, WakePlace};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval while signals of the other servers arrive.
const POLL_INTERVAL_WITH_SIGNALS: Duration = Duration::from_secs(5);
/// Concurrent reads of places.
const CONCURRENCY: usize = 32;
/// Messages, and changes, per read.
const PAGE: usize = 100;
const MARKERS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("it is not zero");
/// More ids than become visible within the overlap that a poll reads back.
const RECENT_MAX: usize = 1 << 17;
/// Time by which a wake may become visible before its write: a turn in the queue and an attempt. It
/// is measured on this server's clock, because the id of the wake is from another one.
const WAKE_LEAD: Duration = Duration::from_millis(3_900);
/// Time after which the store forgets wakes.
const WAKE_LIFETIME: Duration = Duration::from_secs(60);
/// Without a successful poll for this long, wakes may have expired unseen.
const GAP_MICROS: i64 = 45_000_000;

/// Wake that must be followed again.
#[derive(Clone, Copy)]
struct Recheck {
    first: Instant,
    next: Instant,
}

type Markers = LruCache<(ConversationId, UserId), (OrderKey, OrderKey)>;

/// Services that the poller uses.
pub(crate) struct RemoteChangesContext {
    store: Arc<dyn Store>,
    bus: Bus,
    clock: Arc<dyn Clock>,
    access: Arc<Access>,
    in_flight: InFlightIds,
    publisher: Arc<Publisher>,
    presence: Arc<PresenceService>,
}

impl RemoteChangesContext {
    pub(crate) fn new(components: &Components, presence: Arc<PresenceService>) -> Self {
        Self {
            store: Arc::clone(&components.store),
            bus: components.bus.clone(),
            clock: Arc::clone(&components.clock),
            access: Arc::clone(&components.access),
            in_flight: components.in_flight.clone(),
            publisher: Arc::clone(&components.publisher),
            presence,
        }
    }
}

struct RemoteChanges {
    context: RemoteChangesContext,
    /// Wakes that need no further poll.
    followed: RecentIds<TimeUuid>,
    rechecks: HashMap<TimeUuid, Recheck>,
    /// Published entries of the users' inbox logs. Several users have the same change in their
    /// logs.
    logged: Mutex<RecentIds<(UserId, TimeUuid)>>,
    /// Published markers.
    markers: Mutex<Markers>,
    /// Start of the last poll that read everything.
    polled_at: Timestamp,
    has_failed: bool,
}

/// Starts the poller. It stops when the guard is dropped.
pub(crate) fn spawn(context: RemoteChangesContext) -> DropGuard {
    let stop = CancellationToken::new();
    let remote_changes = RemoteChanges {
        followed: RecentIds::new(RECENT_MAX),
        rechecks: HashMap::new(),
        logged: Mutex::new(RecentIds::new(RECENT_MAX)),
        markers: Mutex::new(LruCache::new(MARKERS_MAX)),
        polled_at: context.clock.now(),
        has_failed: false,
        context,
    };
    let guard = stop.clone().drop_guard();
    tokio::spawn(async move { stop.run_until_cancelled(remote_changes.run()).await });
    guard
}

impl RemoteChanges {
    async fn run(mut self) {
        let mut polled = Instant::now();
        loop {
            let interval = if self.context.bus.is_connected_to_peers() {
                POLL_INTERVAL_WITH_SIGNALS
            } else {
                POLL_INTERVAL
            };
            // A steady stream of signals must not delay the poll.
            let is_due = polled.elapsed() >= interval;
            let signals = if is_due {
                None
            } else {
                timeout_at(polled + interval, self.context.bus.receive_signals())
                    .await
                    .ok()
                    .flatten()
            };
            match signals {
                Some(signals) => self.on_signal(signals).await,
                None => {
                    self.poll().await;
                    polled = Instant::now();
                }
            }
        }
    }

    async fn poll(&mut self) {
        let now = self.context.clock.now();
        if self.context.bus.topic_count() == 0 {
            // Without subscribers nothing is published; a new subscriber reads the store.
            self.complete(now);
            return;
        }
        match self.follow().await {
            Ok(()) => self.complete(now),
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(%error, "the poller cannot read the writes of other servers; it retries until the store answers");
            }
            Err(_) => {}
        }
    }

    /// Reads the writes that other servers have signalled. A failed read is repeated by the next
    /// poll.
    async fn on_signal(&self, signals: Vec<Signal>) {
        let mut places = HashSet::new();
        for signal in signals {
            match signal {
                Signal::Written(conversation) | Signal::WrittenFor(_, conversation) => {
                    places.insert(WakePlace::Conversation(conversation));
                }
                Signal::Inbox(user) => {
                    places.insert(WakePlace::Inbox(user));
                }
                Signal::Marker(conversation, user) => {
                    places.insert(WakePlace::Marker(conversation, user));
                }
                Signal::Typing(conversation, user, is_typing) => {
                    self.context
                        .publisher
                        .deliver_typing(&user, conversation, is_typing);
                }
                Signal::Presence(user, is_online) => {
                    self.context
                        .presence
                        .table()
                        .receive_signal(&user, is_online);
                }
                Signal::PresenceQuery(user) => self.context.presence.table().answer_query(&user),
            }
        }
        let poll = &self.begin_poll();
        let polls = stream::iter(places).for_each_concurrent(CONCURRENCY, async |place| {
            if let Err(error) = poll.follow(&place, false).await {
                tracing::debug!(%error, "the poller cannot read a write of another server yet");
            }
        });
        polls.await;
    }

    fn begin_poll(&self) -> Poll<'_> {
        let overlap = self.context.store.overlap_micros();
        Poll {
            context: &self.context,
            from: rewind(OrderKey::first_at(self.polled_at), overlap),
            has_inboxes: self.context.bus.has_inbox_subscribers(),
            markers: &self.markers,
            logged: &self.logged,
        }
    }

    fn complete(&mut self, at: Timestamp) {
        let had_gap = self.polled_at.plus_micros(GAP_MICROS) < at;
        if had_gap && self.context.bus.topic_count() > 0 {
            self.context.publisher.invalidate_all();
        }
        (self.polled_at, self.has_failed) = (at, false);
        self.context.in_flight.advance_remote_watermark(at);
    }

    /// Follows the wakes since the last poll.
    async fn follow(&mut self) -> store::Result<()> {
        let wakes = self.context.store.wakes(self.polled_at).await?;
        let began = Instant::now();
        let due: Vec<&Wake> = wakes
            .iter()
            .filter(|wake| self.is_due(wake, began))
            .collect();
        // Several wakes of one place are followed once: for the last time, if any of them is.
        let mut places: HashMap<&WakePlace, bool> = HashMap::new();
        for wake in &due {
            *places.entry(&wake.place).or_default() |= self.is_last(wake, began);
        }
        let poll = self.begin_poll();
        let places = stream::iter(places).map(Ok);
        places
            .try_for_each_concurrent(CONCURRENCY, |(place, is_last)| poll.follow(place, is_last))
            .await?;
        for wake in due {
            self.followed(wake, began);
        }
        self.rechecks
            .retain(|_, recheck| recheck.first + WAKE_LIFETIME > began);
        Ok(())
    }

    fn is_due(&self, wake: &Wake, now: Instant) -> bool {
        !self.followed.contains(&wake.id)
            && self
                .rechecks
                .get(&wake.id)
                .is_none_or(|recheck| recheck.next <= now)
    }

    fn is_last(&self, wake: &Wake, now: Instant) -> bool {
        self.rechecks
            .get(&wake.id)
            .is_some_and(|recheck| recheck.first + WAKE_LEAD <= now)
    }

    /// Schedules a recheck after one, two and four seconds. The tolerance covers the jitter of the
    /// polls.
    fn followed(&mut self, wake: &Wake, now: Instant) {
        if self.is_last(wake, now) {
            self.rechecks.remove(&wake.id);
            self.followed.insert(wake.id);
            return;
        }
        let first = self
            .rechecks
            .get(&wake.id)
            .map_or(now, |recheck| recheck.first);
        let age = 2 * (now - first).max(POLL_INTERVAL / 2);
        self.rechecks.insert(
            wake.id,
            Recheck {
                first,
                next: first + (age - POLL_INTERVAL / 10).min(WAKE_LEAD),
            },
        );
    }
}

/// One poll of all places with wakes or signals.
struct Poll<'a> {
    context: &'a RemoteChangesContext,
    /// Position from which the store is read.
    from: OrderKey,
    has_inboxes: bool,
    markers: &'a Mutex<Markers>,
    logged: &'a Mutex<RecentIds<(UserId, TimeUuid)>>,
}

impl Poll<'_> {
    /// Publishes the new events of a place. The last attempt publishes also events whose effects
    /// are not visible yet.
    async fn follow(&self, place: &WakePlace, is_last: bool) -> store::Result<()> {
        let followed = match place {
            WakePlace::Conversation(conversation) => {
                self.at_conversation(*conversation, is_last).await
            }
            WakePlace::Inbox(user) => self.at_inbox(user, is_last).await,
            WakePlace::Marker(conversation, user) => self.at_marker(*conversation, user).await,
        };
        match followed {
            // An unreadable row must not stop the others.
            Err(error @ store::Error::Corrupt { .. }) => {
                tracing::error!(%error, "the poller skips an unreadable write of another server; run `wideroom verify`");
                Ok(())
            }
            followed => followed,
        }
    }

    async fn at_conversation(
        &self,
        conversation: ConversationId,
        is_last: bool,
    ) -> store::Result<()> {
        let has_subscribers = self
            .context
            .bus
            .has_subscribers(&Topic::Conversation(conversation));
        let mut inboxes = if has_subscribers {
            Vec::new()
        } else {
            self.subscribed_inboxes(conversation).await?
        };
        if !has_subscribers && inboxes.is_empty() {
            return Ok(());
        }
        // A new subscriber reads up to the head, so later events are published only after the head
        // has reached them.
        let head = self
            .context
            .store
            .newest_events(&[conversation])
            .await?
            .pop()
            .flatten();
        let Some(head) = head
            .map(TimeUuid::order_key)
            .filter(|head| *head > self.from)
        else {
            return Ok(());
        };
        let mut events = self.messages_of(conversation, head).await?;
        events.extend(self.changes_of(conversation, head, is_last).await?);
        events.retain(|(id, _)| !self.context.publisher.has_published(*id));
        if events.is_empty() {
            return Ok(());
        }
        if has_subscribers {
            inboxes = self.subscribed_inboxes(conversation).await?;
        }
        if !is_last && !self.show_newest(conversation, &inboxes, &events).await? {
            return Ok(());
        }
        events.sort_unstable_by_key(|(id, _)| *id);
        for (id, event) in events {
            self.publish(conversation, id, event, &inboxes);
        }
        Ok(())
    }

    async fn messages_of(
        &self,
        conversation: ConversationId,
        head: OrderKey,
    ) -> store::Result<Vec<(TimeUuid, Event)>> {
        let cut = Cut {
            start: Bound::Excluded(self.from),
            end: Bound::Included(head),
        };
        let mut events = Vec::new();
        let mut request = PageRequest::last(PAGE);
        loop {
            let page = self
                .context
                .store
                .history(conversation, &cut, &request)
                .await?;
            let newest = page.items.first().map(|message| message.id.order_key());
            events.extend(
                page.items
                    .into_iter()
                    .map(|message| (message.id, Event::MessageAdded(message))),
            );
            match newest.filter(|_| page.has_previous) {
                Some(newest) => request = PageRequest::last(PAGE).before(newest),
                None => return Ok(events),
            }
        }
    }

    async fn changes_of(
        &self,
        conversation: ConversationId,
        head: OrderKey,
        is_last: bool,
    ) -> store::Result<Vec<(TimeUuid, Event)>> {
        let mut events = Vec::new();
        let mut position = self.from;
        loop {
            let mut changes = self
                .context
                .store
                .changes(conversation, position, PAGE)
                .await?;
            let is_end = changes.len() < PAGE;
            position = changes
                .last()
                .map_or(position, |change| change.id.order_key());
            changes.retain(|change| {
                change.id.order_key() <= head && !self.context.publisher.has_published(change.id)
            });
            events.extend(self.change_events(conversation, changes, is_last).await?);
            if is_end {
                return Ok(events);
            }
        }
    }

    /// Participants with inbox subscribers. Those of a large conversation subscribe to its topic.
    async fn subscribed_inboxes(&self, conversation: ConversationId) -> store::Result<Vec<UserId>> {
        if !self.has_inboxes {
            return Ok(Vec::new());
        }
        let page = self
            .context
            .store
            .participants(conversation, &PageRequest::first(Conversation::FAN_OUT_MAX))
            .await?;
        if page.has_next {
            return Ok(Vec::new());
        }
        let users = page.items.into_iter().map(|participant| participant.user);
        Ok(users
            .filter(|user| {
                self.context
                    .bus
                    .has_subscribers(&Topic::Inbox(user.clone()))
            })
            .collect())
    }

    /// Whether these inboxes show the newest of the messages. Their subscribers read the entries
    /// from there.
    async fn show_newest(
        &self,
        conversation: ConversationId,
        inboxes: &[UserId],
        events: &[(TimeUuid, Event)],
    ) -> store::Result<bool> {
        let messages = events
            .iter()
            .filter(|(_, event)| matches!(event, Event::MessageAdded(_)));
        let Some(newest) = messages.map(|(id, _)| *id).max() else {
            return Ok(true);
        };
        for user in inboxes {
            let row = self
                .context
                .store
                .inbox_rows(user, &[conversation])
                .await?
                .pop()
                .flatten();
            if row.is_some_and(|row| row.last_message < Some(newest)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Events of changes, with their messages in the current state.
    async fn change_events(
        &self,
        conversation: ConversationId,
        changes: Vec<Change>,
        is_last: bool,
    ) -> store::Result<Vec<(TimeUuid, Event)>> {
        let keys: Vec<_> = changes
            .iter()
            .map(|change| (conversation, change.message))
            .collect();
        let messages = self.context.store.messages(&keys).await?;
        let event = |(change, message): (Change, Option<Arc<Message>>)| {
            if !is_last && !is_visible_in(&change, message.as_deref()) {
                return None;
            }
            let event = match change.kind {
                ChangeKind::MessageLate => {
                    return message.map(|message| (message.id, Event::MessageAdded(message)));
                }
                kind @ (ChangeKind::MessageEdited
                | ChangeKind::MessageDeleted
                | ChangeKind::ReactionsChanged) => Event::MessageChanged(kind, message?),
                ChangeKind::ParticipantAdded
                | ChangeKind::ParticipantRemoved
                | ChangeKind::RoleChanged
                | ChangeKind::ConversationRenamed => Event::Changed(conversation, change.clone()),
            };
            Some((change.id, event))
        };
        Ok(changes
            .into_iter()
            .zip(messages)
            .filter_map(event)
            .collect())
    }

    /// A log entry may become visible before the inbox entry, so the last attempt publishes it once
    /// more.
    async fn at_inbox(&self, user: &UserId, is_last: bool) -> store::Result<()> {
        let topic = Topic::Inbox(user.clone());
        if !self.context.bus.has_subscribers(&topic) {
            return Ok(());
        }
        let low_watermark = self.context.in_flight.low_watermark();
        let Some(log) = self.context.store.inbox_log(user, self.from).await? else {
            self.context.publisher.invalidate(&topic);
            return Ok(());
        };
        let mut changed: HashMap<ConversationId, TimeUuid> = HashMap::new();
        for (id, conversation) in log {
            let is_new = self.logged.lock().insert((user.clone(), id));
            if is_new || is_last {
                let newest = changed.entry(conversation).or_insert(id);
                *newest = id.max(*newest);
            }
        }
        for (conversation, id) in changed {
            let event = Event::Inbox(InboxChange { conversation });
            self.context
                .publisher
                .deliver(&topic, id, low_watermark, event);
        }
        Ok(())
    }

    /// Markers only advance, so each position is published once.
    async fn at_marker(&self, conversation: ConversationId, user: &UserId) -> store::Result<()> {
        let topic = Topic::Conversation(conversation);
        if !self.context.bus.has_subscribers(&topic) {
            return Ok(());
        }
        let (store, key) = (&self.context.store, (conversation, user.clone()));
        let keys = std::slice::from_ref(&key);
        let (participations, participants) = try_join(
            store.participations(user, &[conversation]),
            store.participants_by_name(keys),
        )
        .await?;
        let (Some(Some(participation)), Some(Some(participant))) =
            (participations.first(), participants.first())
        else {
            return Ok(());
        };
        if participation.conversation.is_large {
            return Ok(());
        }
        let positions = (participant.read_up_to, participant.delivered_up_to);
        let before = self.markers.lock().put(key, positions);
        if before != Some(positions) {
            // A marker has no position in the order, so any id will do.
            let id = TimeUuid::new(self.context.clock.now(), [0; 8]);
            let low_watermark = self.context.in_flight.low_watermark();
            let event = Event::MarkerMoved(conversation, user.clone());
            self.context
                .publisher
                .deliver(&topic, id, low_watermark, event);
        }
        Ok(())
    }

    /// Publishes an event of another server, unless this server has published it.
    fn publish(
        &self,
        conversation: ConversationId,
        id: TimeUuid,
        event: Event,
        inboxes: &[UserId],
    ) {
        let RemoteChangesContext {
            access,
            in_flight,
            publisher,
            ..
        } = self.context;
        if !publisher.record_new(id) {
            return;
        }
        in_flight.observe(id);
        let low_watermark = in_flight.low_watermark();
        let topic = Topic::Conversation(conversation);
        let is_reaction = matches!(
            event,
            Event::MessageChanged(ChangeKind::ReactionsChanged, _)
        );
        let mut removed = None;
        if let Event::Changed(_, change) = &event
            && change.kind == ChangeKind::ParticipantRemoved
        {
            access.leave_epoch().advance();
            removed = Some(change.user.clone());
        }
        publisher.deliver(&topic, id, low_watermark, event);
        // No inbox entry shows reactions.
        if !is_reaction {
            let users = inboxes.iter().chain(&removed);
            publisher.deliver_to_inboxes(users, conversation, id, low_watermark);
        }
    }
}
