//! What other servers wrote, told to those who listen here.
//!
//! Only where several servers share a store. Each of them leaves wakes there: which conversations and inboxes were written to. This looks
//! for them every second while somebody listens, reads what is new there since a while before the last look, and tells it on the bus as if
//! it had happened here. It never compares newest places only: an id may become visible later than a greater one. What was told already is
//! known by its identity.

use std::collections::{HashSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::message_updates::before_by;
use super::{Chat, Inner};
use crate::model::{
    Change, ChangeKind, Conversation, ConversationId, Cut, Event, InboxChange, Message, Notice, OrderKey, PageRequest, TimeUuid, Timestamp,
    Topic, UserId,
};
use crate::store::{self, Wake, WakePlace};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Places looked at side by side.
const LOOKS_AT_ONCE: usize = 32;
/// Messages, and changes, read at a time.
const PAGE: usize = 100;
/// Identities of what was told: more than is told within the time that a look reads back.
const TOLD_MAX: usize = 1 << 17;
/// A wake is written beside what it tells of, and may be seen before it: until then it is followed again.
const WAKE_LEADS_MICROS: i64 = 3_000_000;
/// Wakes are forgotten after a minute. Whoever could not look for so long does not know what was missed.
const BLIND_MICROS: i64 = 45_000_000;

/// Identities, the oldest of which are forgotten.
#[derive(Default)]
pub(super) struct Recent {
    order: VecDeque<TimeUuid>,
    ids: HashSet<TimeUuid>,
}

impl Recent {
    /// Whether it is new.
    fn insert(&mut self, id: TimeUuid) -> bool {
        if !self.ids.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > TOLD_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

/// What was told in this process, by this server's own writes too.
#[derive(Default)]
pub(super) struct Told(Mutex<Recent>);

impl Told {
    pub(super) fn insert(&self, id: TimeUuid) -> bool {
        self.0.lock().expect("no panic while holding what was told").insert(id)
    }
}

struct Lookout {
    chat: Weak<Inner>,
    /// Wakes that were followed.
    followed: Recent,
    /// The last look that read everything.
    looked_at: Timestamp,
    is_blind: bool,
}

impl Chat {
    /// Looks for what other servers write, as long as this chat is there.
    pub(super) fn look_out(&self) {
        let looked_at = self.0.clock.now();
        let mut lookout = Lookout { chat: Arc::downgrade(&self.0), followed: Recent::default(), looked_at, is_blind: false };
        tokio::spawn(async move {
            let mut next = tokio::time::interval(LOOK_EVERY);
            next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                next.tick().await;
                let Some(inner) = lookout.chat.upgrade() else { return };
                lookout.look(&Chat(inner)).await;
            }
        });
    }
}

impl Lookout {
    async fn look(&mut self, chat: &Chat) {
        let now = chat.0.clock.now();
        if chat.0.bus.topic_count() == 0 {
            // Nobody would hear it, and whoever begins to listen reads the store.
            self.looked(chat, now);
            return;
        }
        match self.follow(chat, now).await {
            Ok(()) => self.looked(chat, now),
            Err(error) if !self.is_blind => {
                self.is_blind = true;
                tracing::warn!(%error, "what other servers write cannot be read; it is read when the store is back");
            }
            Err(_) => {}
        }
    }

    fn looked(&mut self, chat: &Chat, at: Timestamp) {
        if self.looked_at.plus_micros(BLIND_MICROS) < at && chat.0.bus.topic_count() > 0 {
            chat.0.bus.lose();
        }
        (self.looked_at, self.is_blind) = (at, false);
        chat.0.horizon.seen_up_to(at);
    }

    /// Follows the wakes since the last look.
    async fn follow(&mut self, chat: &Chat, now: Timestamp) -> store::Result<()> {
        let wakes = chat.0.store.wakes(self.looked_at).await?;
        let new: Vec<&Wake> = wakes.iter().filter(|wake| !self.followed.ids.contains(&wake.id)).collect();
        let mut places: Vec<&WakePlace> = new.iter().map(|wake| &wake.place).collect();
        let mut seen = HashSet::new();
        places.retain(|place| seen.insert(*place));
        let from = before_by(OrderKey::first_at(self.looked_at), chat.0.store.overlap_micros());
        let look = Look { chat, from, has_inboxes: chat.0.bus.has_inbox_listeners() };
        stream::iter(places).map(Ok).try_for_each_concurrent(LOOKS_AT_ONCE, |place| look.at(place)).await?;
        let settled = now.plus_micros(-WAKE_LEADS_MICROS);
        for wake in new.into_iter().filter(|wake| wake.id.moment() < settled) {
            self.followed.insert(wake.id);
        }
        Ok(())
    }
}

/// One look at all places that were woken.
struct Look<'a> {
    chat: &'a Chat,
    /// Where the reading begins.
    from: OrderKey,
    has_inboxes: bool,
}

impl Look<'_> {
    async fn at(&self, place: &WakePlace) -> store::Result<()> {
        match place {
            WakePlace::Conversation(conversation) => self.at_conversation(*conversation).await,
            WakePlace::Inbox(user) => self.at_inbox(user).await,
            WakePlace::Marker(conversation, user) => {
                self.chat.hear_marker(*conversation, user);
                Ok(())
            }
        }
    }

    async fn at_conversation(&self, conversation: ConversationId) -> store::Result<()> {
        let is_heard = self.chat.0.bus.has_listeners(&Topic::Conversation(conversation));
        let inboxes = self.inboxes_heard(conversation).await?;
        if !is_heard && inboxes.is_empty() {
            return Ok(());
        }
        let mut events: Vec<(TimeUuid, Event)> = Vec::new();
        let cut = Cut { start: Bound::Excluded(self.from), end: Bound::Unbounded };
        let mut request = PageRequest::last(PAGE);
        loop {
            let page = self.chat.0.store.history(conversation, &cut, &request).await?;
            let newest = page.items.first().map(|message| message.id.order_key());
            events.extend(page.items.into_iter().map(|message| (message.id, Event::MessageAdded(message))));
            match newest.filter(|_| page.has_previous) {
                Some(newest) => request = PageRequest::last(PAGE).before(newest),
                None => break,
            }
        }
        let mut place = self.from;
        loop {
            let changes = self.chat.0.store.changes(conversation, place, PAGE).await?;
            let is_last = changes.len() < PAGE;
            place = changes.last().map_or(place, |change| change.id.order_key());
            events.extend(self.changed_here(conversation, changes).await?);
            if is_last {
                break;
            }
        }
        events.sort_unstable_by_key(|(id, _)| *id);
        for (id, event) in events {
            self.chat.hear(conversation, id, event, &inboxes);
        }
        Ok(())
    }

    /// Those whose inbox somebody listens to. Who is in a large conversation listens to it.
    async fn inboxes_heard(&self, conversation: ConversationId) -> store::Result<Vec<UserId>> {
        if !self.has_inboxes {
            return Ok(Vec::new());
        }
        let page = self.chat.0.store.participants(conversation, &PageRequest::first(Conversation::FAN_OUT_MAX)).await?;
        let users = page.items.into_iter().map(|participant| participant.user);
        Ok(users.filter(|user| self.chat.0.bus.has_listeners(&Topic::Inbox(user.clone()))).collect())
    }

    /// Changes as events, each with what it is about as it is now.
    async fn changed_here(&self, conversation: ConversationId, changes: Vec<Change>) -> store::Result<Vec<(TimeUuid, Event)>> {
        let keys: Vec<_> = changes.iter().map(|change| (conversation, change.message)).collect();
        let messages = self.chat.0.store.messages(&keys).await?;
        let event = |(change, message): (Change, Option<Arc<Message>>)| {
            let event = match change.kind {
                ChangeKind::MessageLate => return message.map(|message| (message.id, Event::MessageAdded(message))),
                kind @ (ChangeKind::MessageEdited | ChangeKind::MessageDeleted | ChangeKind::ReactionsChanged) => {
                    Event::MessageChanged(kind, message?)
                }
                ChangeKind::ParticipantAdded
                | ChangeKind::ParticipantRemoved
                | ChangeKind::RoleChanged
                | ChangeKind::ConversationRenamed => Event::Changed(conversation, change.clone()),
            };
            Some((change.id, event))
        };
        Ok(changes.into_iter().zip(messages).filter_map(event).collect())
    }

    async fn at_inbox(&self, user: &UserId) -> store::Result<()> {
        let topic = Topic::Inbox(user.clone());
        if !self.chat.0.bus.has_listeners(&topic) {
            return Ok(());
        }
        let settled = self.chat.0.horizon.settled();
        let changes = self.chat.0.store.inbox_changes(user, self.from, self.chat.0.bounds.inbox_replay_max).await?;
        for changed in changes.into_iter().flatten() {
            if self.chat.0.told.insert(changed.newest_change) {
                let event = Event::Inbox(InboxChange { conversation: changed.conversation });
                self.chat.0.bus.publish(&topic, Arc::new(Notice { id: changed.newest_change, settled, event }));
            }
        }
        Ok(())
    }
}

impl Chat {
    /// Tells an event of another server, unless it was told here.
    fn hear(&self, conversation: ConversationId, id: TimeUuid, event: Event, inboxes: &[UserId]) {
        if !self.0.told.insert(id) {
            return;
        }
        self.0.ids.observe(id);
        let settled = self.0.horizon.settled();
        if let Event::MessageChanged(ChangeKind::ReactionsChanged, _) = &event {
            // No entry shows reactions.
            self.0.bus.publish(&Topic::Conversation(conversation), Arc::new(Notice { id, settled, event }));
            return;
        }
        let mut gone = None;
        if let Event::Changed(_, change) = &event
            && change.kind == ChangeKind::ParticipantRemoved
        {
            self.departed();
            gone = Some(change.user.clone());
        }
        self.0.bus.publish(&Topic::Conversation(conversation), Arc::new(Notice { id, settled, event }));
        self.tell_inboxes(inboxes.iter().chain(&gone), conversation, id, settled);
    }

    fn hear_marker(&self, conversation: ConversationId, user: &UserId) {
        let topic = Topic::Conversation(conversation);
        if self.0.bus.has_listeners(&topic) {
            let settled = self.0.horizon.settled();
            // It has no place in the order, so that any one will do.
            let id = TimeUuid::new(self.0.clock.now(), [0; 8]);
            self.0.bus.publish(&topic, Arc::new(Notice { id, settled, event: Event::MarkerMoved(conversation, user.clone()) }));
        }
    }
}
