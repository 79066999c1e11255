//! Publisher: the only component that publishes to the bus. It delivers notices to the subscribers
//! of this server, and signals the other servers.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::bus::{Bus, NoticeEnvelope, Signal};
use crate::chat::in_flight_ids::IdLease;
use crate::chat::recent_ids::RecentIds;
use crate::clock::Clock;
use crate::model::{
    Conversation, ConversationId, Event, InboxChange, Notice, OrderKey, TimeUuid, Topic, UserId,
};
use crate::store::Audience;

/// More ids than this server publishes within the overlap that a poll reads back.
const PUBLISHED_MAX: usize = 1 << 17;

pub(crate) struct Publisher {
    bus: Bus,
    clock: Arc<dyn Clock>,
    /// Ids of events that this process has published. On a shared store the poller reads our own
    /// writes back; this set filters them out. `None` on a store of one server.
    published: Option<Mutex<RecentIds<TimeUuid>>>,
}

impl Publisher {
    pub(crate) fn new(bus: Bus, clock: Arc<dyn Clock>, is_shared: bool) -> Self {
        let published = is_shared.then(|| Mutex::new(RecentIds::new(PUBLISHED_MAX)));
        Self {
            bus,
            clock,
            published,
        }
    }

    /// Records the id of an event of this server, so that the poller does not publish it again.
    pub(crate) fn record(&self, id: TimeUuid) {
        self.record_new(id);
    }

    /// Records the id of an event, and returns whether it is new.
    pub(crate) fn record_new(&self, id: TimeUuid) -> bool {
        self.published
            .as_ref()
            .is_none_or(|published| published.lock().insert(id))
    }

    /// Whether this process is known to have published the event. On a store of one server every
    /// persisted event is published.
    pub(crate) fn has_published(&self, id: TimeUuid) -> bool {
        self.published
            .as_ref()
            .is_none_or(|published| published.lock().contains(&id))
    }

    /// Publishes an event of a conversation: on its topic, and as a signal to the other servers.
    pub(crate) fn publish_event(
        &self,
        conversation: ConversationId,
        id: TimeUuid,
        event: Event,
        lease: &IdLease,
    ) {
        self.record(id);
        self.bus.signal_peers(|| Signal::Written(conversation));
        let topic = Topic::Conversation(conversation);
        if self.bus.has_subscribers(&topic) {
            self.deliver(&topic, id, lease.low_watermark(), event);
        }
    }

    /// Publishes the change of a conversation to the inboxes of its participants. A large
    /// conversation publishes on its own topic only.
    pub(crate) fn publish_to_audience(
        &self,
        conversation: ConversationId,
        id: TimeUuid,
        audience: &Audience,
        lease: &IdLease,
    ) {
        if let Some(users) = &audience.users {
            let signal = |user| Signal::WrittenFor(user, conversation);
            self.signal_and_deliver(
                users.iter(),
                conversation,
                id,
                lease.low_watermark(),
                signal,
            );
        }
    }

    /// Publishes the change of an entry to these inboxes, without a write to the conversation.
    pub(crate) fn publish_to_inboxes<'a>(
        &self,
        users: impl IntoIterator<Item = &'a UserId>,
        conversation: ConversationId,
        id: TimeUuid,
        lease: &IdLease,
    ) {
        self.signal_and_deliver(
            users,
            conversation,
            id,
            lease.low_watermark(),
            Signal::Inbox,
        );
    }

    fn signal_and_deliver<'a>(
        &self,
        users: impl IntoIterator<Item = &'a UserId>,
        conversation: ConversationId,
        id: TimeUuid,
        low_watermark: OrderKey,
        signal: impl Fn(UserId) -> Signal,
    ) {
        let users = users
            .into_iter()
            .inspect(|user| self.bus.signal_peers(|| signal((*user).clone())));
        self.deliver_to_inboxes(users, conversation, id, low_watermark);
    }

    /// Delivers the change of an entry to the subscribers of these inboxes on this server.
    pub(crate) fn deliver_to_inboxes<'a>(
        &self,
        users: impl IntoIterator<Item = &'a UserId>,
        conversation: ConversationId,
        id: TimeUuid,
        low_watermark: OrderKey,
    ) {
        self.record(id);
        let mut notice = None;
        for user in users {
            let topic = Topic::Inbox(user.clone());
            if self.bus.has_subscribers(&topic) {
                let notice = notice.get_or_insert_with(|| {
                    let event = Event::Inbox(InboxChange { conversation });
                    Arc::<NoticeEnvelope>::from(Notice::new(id, low_watermark, event))
                });
                self.bus.publish(&topic, Arc::clone(notice));
            }
        }
    }

    /// Publishes that a user's marker has advanced. In a large conversation, markers are not
    /// published.
    pub(crate) fn publish_marker(
        &self,
        user: &UserId,
        conversation: &Conversation,
        lease: &IdLease,
    ) {
        if conversation.is_large {
            return;
        }
        self.bus
            .signal_peers(|| Signal::Marker(conversation.id, user.clone()));
        let topic = Topic::Conversation(conversation.id);
        if self.bus.has_subscribers(&topic) {
            let event = Event::MarkerMoved(conversation.id, user.clone());
            self.deliver(&topic, lease.newest(), lease.low_watermark(), event);
        }
    }

    /// Publishes that a user has started or stopped typing.
    pub(crate) fn publish_typing(&self, user: &UserId, id: ConversationId, is_typing: bool) {
        self.bus
            .signal_peers(|| Signal::Typing(id, user.clone(), is_typing));
        self.deliver_typing(user, id, is_typing);
    }

    /// Delivers a typing signal to the subscribers on this server.
    pub(crate) fn deliver_typing(&self, user: &UserId, id: ConversationId, is_typing: bool) {
        let topic = Topic::Typing(id);
        if self.bus.has_subscribers(&topic) {
            self.deliver_unordered(&topic, Event::Typing(id, user.clone(), is_typing));
        }
    }

    /// Signals to the other servers whether a user is online on this one.
    pub(crate) fn signal_presence(&self, user: &UserId, is_online: impl FnOnce() -> bool) {
        self.bus
            .signal_peers(|| Signal::Presence(user.clone(), is_online()));
    }

    /// Asks the other servers whether a user is online there.
    pub(crate) fn query_presence(&self, user: &UserId) {
        self.bus
            .signal_peers(|| Signal::PresenceQuery(user.clone()));
    }

    pub(crate) fn has_presence_subscribers(&self, user: &UserId) -> bool {
        self.bus.has_subscribers(&Topic::Presence(user.clone()))
    }

    /// Delivers a change of presence to the subscribers on this server. They read the current state
    /// from the presence table.
    pub(crate) fn deliver_presence(&self, user: &UserId) {
        let topic = Topic::Presence(user.clone());
        if self.bus.has_subscribers(&topic) {
            self.deliver_unordered(&topic, Event::Presence(user.clone()));
        }
    }

    /// Delivers an event to the subscribers of a topic on this server.
    pub(crate) fn deliver(
        &self,
        topic: &Topic,
        id: TimeUuid,
        low_watermark: OrderKey,
        event: Event,
    ) {
        self.bus
            .publish(topic, Notice::new(id, low_watermark, event));
    }

    /// Delivers an event that has no position in any order, so any id will do.
    pub(crate) fn deliver_unordered(&self, topic: &Topic, event: Event) {
        let id = TimeUuid::new(self.clock.now(), [0; 8]);
        self.deliver(topic, id, OrderKey::MIN, event);
    }

    /// Makes the subscribers of one topic read the store.
    pub(crate) fn invalidate(&self, topic: &Topic) {
        self.bus.invalidate(topic);
    }

    /// Makes all subscribers read the store.
    pub(crate) fn invalidate_all(&self) {
        self.bus.invalidate_all();
    }
}
