//! What other servers wrote, told to those who listen here.
//!
//! Only where several servers share a store. Each of them leaves wakes there: which conversations and inboxes were written to. This looks
//! for them every second while somebody listens, reads what is new there since a while before the last look, and tells it on the bus as if
//! it had happened here. It never compares newest places only: an id may become visible later than a greater one. What was told already is
//! known by its identity.
//!
//! Where the servers also tell each other (`bus`), it looks at once where one of them says that it wrote, and by itself only every five
//! seconds; it looks as often as ever while they cannot be heard, and at once when something may have been missed.
//!
//! A batch is whole in the end, but its rows become visible one after the other, and the wake beside it before them. So a wake is followed
//! several times, and an event is told only once the conversation's head has reached it and what it changed is to be seen.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::try_join;
use futures_util::{StreamExt, TryStreamExt, stream};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::bus::Signal;
use crate::chat::recent_ids::RecentIds;
use crate::chat::stream::conversation_updates::is_seen_in;
use crate::chat::stream::message_updates::before_by;
use crate::chat::{Chat, Inner};
use crate::model::{
    Change, ChangeKind, Conversation, ConversationId, Cut, Event, InboxChange, Message, Notice,
    OrderKey, PageRequest, TimeUuid, Timestamp, Topic, UserId,
};
use crate::store::{self, Wake, WakePlace};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// While the others say where they write.
const LOOK_EVERY_HEARING: Duration = Duration::from_secs(5);
/// Places looked at side by side.
const LOOKS_AT_ONCE: usize = 32;
/// Messages, and changes, read at a time.
const PAGE: usize = 100;
/// Places of markers that were told.
const MARKERS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("it is not zero");
/// A wake is written beside what it tells of, and may be seen so long before it: a turn and an attempt. Until then it is followed again.
/// By this server's own clock: the one in the wake is another's.
const WAKE_LEADS: Duration = Duration::from_millis(3_900);
/// Wakes are forgotten after a minute.
const WAKE_LIFETIME: Duration = Duration::from_secs(60);
/// Whoever could not look for so long does not know what was missed.
const BLIND_MICROS: i64 = 45_000_000;

/// A wake that is followed again.
#[derive(Clone, Copy)]
struct Recheck {
    first: Instant,
    next: Instant,
}

type Markers = LruCache<(ConversationId, UserId), (OrderKey, OrderKey)>;

struct RemoteChanges {
    chat: Weak<Inner>,
    /// Wakes that need not be followed again.
    followed: RecentIds<TimeUuid>,
    leading: HashMap<TimeUuid, Recheck>,
    /// What was logged for whom, and told. Several users have the same change in their logs.
    logged: Mutex<RecentIds<(UserId, TimeUuid)>>,
    /// How far those have come whose markers were told.
    markers: Mutex<Markers>,
    /// The last look that read everything.
    looked_at: Timestamp,
    is_blind: bool,
}

impl Chat {
    /// Looks for what other servers write, as long as this chat is there.
    pub(crate) fn poll_remote_changes(&self) {
        let mut remote_changes = RemoteChanges {
            chat: Arc::downgrade(&self.0),
            followed: RecentIds::default(),
            leading: HashMap::new(),
            logged: Mutex::default(),
            markers: Mutex::new(LruCache::new(MARKERS_MAX)),
            looked_at: self.0.clock.now(),
            is_blind: false,
        };
        tokio::spawn(async move {
            let mut looked = Instant::now();
            loop {
                let Some(bus) = remote_changes.chat.upgrade().map(|inner| inner.bus.clone()) else {
                    return;
                };
                let every = if bus.is_connected_to_peers() {
                    LOOK_EVERY_HEARING
                } else {
                    LOOK_EVERY
                };
                // Also where the others never pause.
                let is_due = looked.elapsed() >= every;
                let heard = if is_due {
                    None
                } else {
                    timeout_at(looked + every, bus.receive_signals())
                        .await
                        .ok()
                        .flatten()
                };
                let Some(inner) = remote_changes.chat.upgrade() else {
                    return;
                };
                match heard {
                    Some(signals) => remote_changes.on_signal(&Chat(inner), signals).await,
                    None => {
                        remote_changes.look(&Chat(inner)).await;
                        looked = Instant::now();
                    }
                }
            }
        });
    }
}

impl RemoteChanges {
    async fn look(&mut self, chat: &Chat) {
        let now = chat.0.clock.now();
        if chat.0.bus.topic_count() == 0 {
            // Nobody would hear it, and whoever begins to listen reads the store.
            self.looked(chat, now);
            return;
        }
        match self.follow(chat).await {
            Ok(()) => self.looked(chat, now),
            Err(error) if !self.is_blind => {
                self.is_blind = true;
                tracing::warn!(%error, "the poller cannot read the writes of other servers; it retries until the store answers");
            }
            Err(_) => {}
        }
    }

    /// Looks where others say that they wrote. What cannot be read now is read by the next look.
    async fn on_signal(&self, chat: &Chat, signals: Vec<Signal>) {
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
                    chat.tell_typing_here(&user, conversation, is_typing)
                }
                Signal::Presence(user, is_here) => chat.hear_presence(&user, is_here),
                Signal::PresenceQuery(user) => chat.say_presence(&user),
            }
        }
        let look = self.here(chat);
        let look = &look;
        let looks = stream::iter(places).for_each_concurrent(LOOKS_AT_ONCE, async |place| {
            if let Err(error) = look.follow(&place, false).await {
                tracing::debug!(%error, "the poller cannot read a write of another server yet");
            }
        });
        looks.await;
    }

    fn here<'a>(&'a self, chat: &'a Chat) -> Poll<'a> {
        let from = before_by(
            OrderKey::first_at(self.looked_at),
            chat.0.store.overlap_micros(),
        );
        Poll {
            chat,
            from,
            has_inboxes: chat.0.bus.has_inbox_subscribers(),
            markers: &self.markers,
            logged: &self.logged,
        }
    }

    fn looked(&mut self, chat: &Chat, at: Timestamp) {
        if self.looked_at.plus_micros(BLIND_MICROS) < at && chat.0.bus.topic_count() > 0 {
            chat.0.bus.invalidate_all();
        }
        (self.looked_at, self.is_blind) = (at, false);
        chat.0.in_flight.seen_up_to(at);
    }

    /// Follows the wakes since the last look.
    async fn follow(&mut self, chat: &Chat) -> store::Result<()> {
        let wakes = chat.0.store.wakes(self.looked_at).await?;
        let began = Instant::now();
        let due: Vec<&Wake> = wakes
            .iter()
            .filter(|wake| self.is_due(wake, began))
            .collect();
        // Of several wakes of one place the one that is followed for the last time counts.
        let mut places: HashMap<&WakePlace, bool> = HashMap::new();
        for wake in &due {
            *places.entry(&wake.place).or_default() |= self.is_last(wake, began);
        }
        let look = self.here(chat);
        let places = stream::iter(places).map(Ok);
        places
            .try_for_each_concurrent(LOOKS_AT_ONCE, |(place, is_last)| {
                look.follow(place, is_last)
            })
            .await?;
        for wake in due {
            self.followed(wake, began);
        }
        self.leading
            .retain(|_, leading| leading.first + WAKE_LIFETIME > began);
        Ok(())
    }

    fn is_due(&self, wake: &Wake, now: Instant) -> bool {
        !self.followed.contains(&wake.id)
            && self
                .leading
                .get(&wake.id)
                .is_none_or(|leading| leading.next <= now)
    }

    fn is_last(&self, wake: &Wake, now: Instant) -> bool {
        self.leading
            .get(&wake.id)
            .is_some_and(|leading| leading.first + WAKE_LEADS <= now)
    }

    /// After one, two and four seconds it is followed again. A look comes a little earlier or later.
    fn followed(&mut self, wake: &Wake, now: Instant) {
        if self.is_last(wake, now) {
            self.leading.remove(&wake.id);
            self.followed.insert(wake.id);
            return;
        }
        let first = self
            .leading
            .get(&wake.id)
            .map_or(now, |leading| leading.first);
        let age = 2 * (now - first).max(LOOK_EVERY / 2);
        self.leading.insert(
            wake.id,
            Recheck {
                first,
                next: first + (age - LOOK_EVERY / 10).min(WAKE_LEADS),
            },
        );
    }
}

/// One look at all places that were woken.
struct Poll<'a> {
    chat: &'a Chat,
    /// Where the reading begins.
    from: OrderKey,
    has_inboxes: bool,
    markers: &'a Mutex<Markers>,
    logged: &'a Mutex<RecentIds<(UserId, TimeUuid)>>,
}

impl Poll<'_> {
    /// For the last time: what still seems to be half there is told as it is.
    async fn follow(&self, place: &WakePlace, is_last: bool) -> store::Result<()> {
        let looked = match place {
            WakePlace::Conversation(conversation) => {
                self.at_conversation(*conversation, is_last).await
            }
            WakePlace::Inbox(user) => self.at_inbox(user, is_last).await,
            WakePlace::Marker(conversation, user) => self.at_marker(*conversation, user).await,
        };
        match looked {
            // One row that cannot be read does not keep all others from being told.
            Err(error @ store::Error::Corrupt { .. }) => {
                tracing::error!(%error, "the poller skips an unreadable write of another server; run `wideroom verify`");
                Ok(())
            }
            looked => looked,
        }
    }

    async fn at_conversation(
        &self,
        conversation: ConversationId,
        is_last: bool,
    ) -> store::Result<()> {
        let is_heard = self
            .chat
            .0
            .bus
            .has_subscribers(&Topic::Conversation(conversation));
        let mut inboxes = if is_heard {
            Vec::new()
        } else {
            self.inboxes_heard(conversation).await?
        };
        if !is_heard && inboxes.is_empty() {
            return Ok(());
        }
        // Who begins to listen now reads up to the head. What lies beyond is told once that has come so far.
        let head = self
            .chat
            .0
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
        events.retain(|(id, _)| !self.chat.0.published_ids.contains(*id));
        if events.is_empty() {
            return Ok(());
        }
        if is_heard {
            inboxes = self.inboxes_heard(conversation).await?;
        }
        if !is_last
            && !self
                .have_come_so_far(conversation, &inboxes, &events)
                .await?
        {
            return Ok(());
        }
        events.sort_unstable_by_key(|(id, _)| *id);
        for (id, event) in events {
            self.chat.hear(conversation, id, event, &inboxes);
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
                .chat
                .0
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
        let mut place = self.from;
        loop {
            let mut changes = self.chat.0.store.changes(conversation, place, PAGE).await?;
            let is_end = changes.len() < PAGE;
            place = changes.last().map_or(place, |change| change.id.order_key());
            changes.retain(|change| {
                change.id.order_key() <= head && !self.chat.0.published_ids.contains(change.id)
            });
            events.extend(self.changed_here(conversation, changes, is_last).await?);
            if is_end {
                return Ok(events);
            }
        }
    }

    /// Those whose inbox somebody listens to. Who is in a large conversation listens to it.
    async fn inboxes_heard(&self, conversation: ConversationId) -> store::Result<Vec<UserId>> {
        if !self.has_inboxes {
            return Ok(Vec::new());
        }
        let page = self
            .chat
            .0
            .store
            .participants(conversation, &PageRequest::first(Conversation::FAN_OUT_MAX))
            .await?;
        if page.has_next {
            return Ok(Vec::new());
        }
        let users = page.items.into_iter().map(|participant| participant.user);
        Ok(users
            .filter(|user| self.chat.0.bus.has_subscribers(&Topic::Inbox(user.clone())))
            .collect())
    }

    /// Whether these inboxes show the newest of the messages: what is told of an entry is read from there.
    async fn have_come_so_far(
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
                .chat
                .0
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

    /// Changes as events, each with what it is about as it is now.
    async fn changed_here(
        &self,
        conversation: ConversationId,
        changes: Vec<Change>,
        is_last: bool,
    ) -> store::Result<Vec<(TimeUuid, Event)>> {
        let keys: Vec<_> = changes
            .iter()
            .map(|change| (conversation, change.message))
            .collect();
        let messages = self.chat.0.store.messages(&keys).await?;
        let event = |(change, message): (Change, Option<Arc<Message>>)| {
            if !is_last && !is_seen_in(&change, message.as_deref()) {
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

    /// What was logged there may be seen before the entry shows it: it is told once more when that must be so.
    async fn at_inbox(&self, user: &UserId, is_last: bool) -> store::Result<()> {
        let topic = Topic::Inbox(user.clone());
        if !self.chat.0.bus.has_subscribers(&topic) {
            return Ok(());
        }
        let settled = self.chat.0.in_flight.settled();
        let Some(log) = self.chat.0.store.inbox_log(user, self.from).await? else {
            self.chat.0.bus.invalidate(&topic);
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
            self.chat
                .0
                .bus
                .publish(&topic, Notice::new(id, settled, event));
        }
        Ok(())
    }

    /// A marker only goes forward: where it stands is told once.
    async fn at_marker(&self, conversation: ConversationId, user: &UserId) -> store::Result<()> {
        let topic = Topic::Conversation(conversation);
        if !self.chat.0.bus.has_subscribers(&topic) {
            return Ok(());
        }
        let (chat, key) = (self.chat, (conversation, user.clone()));
        let keys = std::slice::from_ref(&key);
        let (participations, participants) = try_join(
            chat.0.store.participations(user, &[conversation]),
            chat.0.store.participants_by_name(keys),
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
        let places = (participant.read_up_to, participant.delivered_up_to);
        let before = self.markers.lock().put(key, places);
        if before != Some(places) {
            let settled = chat.0.in_flight.settled();
            // It has no place in the order, so that any one will do.
            let id = TimeUuid::new(chat.0.clock.now(), [0; 8]);
            let event = Event::MarkerMoved(conversation, user.clone());
            chat.0.bus.publish(&topic, Notice::new(id, settled, event));
        }
        Ok(())
    }
}

impl Chat {
    /// Tells an event of another server, unless it was told here.
    fn hear(&self, conversation: ConversationId, id: TimeUuid, event: Event, inboxes: &[UserId]) {
        if !self.0.published_ids.insert(id) {
            return;
        }
        self.0.ids.observe(id);
        let settled = self.0.in_flight.settled();
        if let Event::MessageChanged(ChangeKind::ReactionsChanged, _) = &event {
            // No entry shows reactions.
            self.0.bus.publish(
                &Topic::Conversation(conversation),
                Notice::new(id, settled, event),
            );
            return;
        }
        let mut gone = None;
        if let Event::Changed(_, change) = &event
            && change.kind == ChangeKind::ParticipantRemoved
        {
            self.advance_leave_epoch();
            gone = Some(change.user.clone());
        }
        self.0.bus.publish(
            &Topic::Conversation(conversation),
            Notice::new(id, settled, event),
        );
        self.tell_inboxes_here(inboxes.iter().chain(&gone), conversation, id, settled);
    }
}
