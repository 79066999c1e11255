//! Publisher: the only component that publishes to the bus, to the subscribers of this server.
//! Events of the batches of a conversation are delivered to other servers by
//! `write::outgoing`; changes of inboxes, markers and typing from here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::bus::{Bus, NoticeEnvelope};
use crate::chat::in_flight_ids::{IdLease, InFlightIds};
use crate::chat::live_feed::LiveFeeds;
use crate::clock::Clock;
use crate::cluster::{CursorScope, DeduplicationWindow, Recipients, RemoteNotice};
use crate::model::{
    BlockNotice, Conversation, ConversationId, Event, InboxChange, LiveKey, LiveStep, Notice,
    OrderKey, TimeUuid, Topic, UserId,
};
use crate::store::Audience;

/// Deduplication window: longer than a notice of another server is repeated.
pub(crate) const PUBLISHED_FOR: Duration = Duration::from_secs(15 * 60);

pub(crate) struct Publisher {
    bus: Bus,
    clock: Arc<dyn Clock>,
    in_flight: InFlightIds,
    /// Ids of events that this process has published: its own, and those that other servers have
    /// notified it of, which may come twice. `None` on a store of one server.
    published: Option<Mutex<DeduplicationWindow<TimeUuid>>>,
    live_feeds: Arc<LiveFeeds>,
}

/// Origin of an event that is published.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// This server allocated the event's id.
    Own(&'a IdLease),
    /// A notice of another server, by the oldest of its events.
    Remote { oldest: Option<OrderKey> },
}

impl Publisher {
    pub(crate) fn new(
        bus: Bus,
        clock: Arc<dyn Clock>,
        in_flight: InFlightIds,
        live_feeds: Arc<LiveFeeds>,
    ) -> Self {
        let published = in_flight
            .is_shared()
            .then(|| Mutex::new(DeduplicationWindow::new(PUBLISHED_FOR)));
        Self {
            bus,
            clock,
            in_flight,
            published,
            live_feeds,
        }
    }

    /// Records the id of an event of this server, so that it is not published again.
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

    fn low_watermark(&self, origin: Origin<'_>) -> OrderKey {
        match origin {
            Origin::Own(lease) => lease.low_watermark(),
            Origin::Remote { .. } => self.in_flight.low_watermark(),
        }
    }

    /// Publishes an event of a conversation on its topic.
    pub(crate) fn publish_event(
        &self,
        conversation: ConversationId,
        id: TimeUuid,
        event: Event,
        origin: Origin<'_>,
    ) {
        self.record(id);
        if let Event::MessageAdded(message) = &event {
            self.publish_live(self.live_feeds.end(message));
        }
        let topic = Topic::Conversation(conversation);
        if !self.bus.has_subscribers(&topic) {
            return;
        }
        let max = |scope| self.in_flight.position_max(scope, origin.oldest());
        let settled = self.low_watermark(origin).min(max(CursorScope::Everything));
        let notice = Notice {
            position_max: max(CursorScope::Conversation(conversation)),
            ..Notice::new(id, settled, event)
        };
        self.bus.publish(&topic, notice);
    }

    /// Publishes the change of a conversation to the inboxes of its participants. A large
    /// conversation publishes on its own topic only.
    pub(crate) fn publish_to_audience(
        &self,
        conversation: ConversationId,
        id: TimeUuid,
        audience: &Audience,
        origin: Origin<'_>,
    ) {
        if let Some(users) = &audience.users {
            self.publish_to_inboxes(users.iter(), conversation, id, origin);
        }
    }

    /// Publishes the change of an entry to the subscribers of these inboxes on this server. An agent has no inbox.
    pub(crate) fn publish_to_inboxes<'a>(
        &self,
        users: impl IntoIterator<Item = &'a UserId>,
        conversation: ConversationId,
        id: TimeUuid,
        origin: Origin<'_>,
    ) {
        self.record(id);
        let low_watermark = self.low_watermark(origin);
        // Inboxes that nothing holds back share one notice.
        let mut last: Option<Arc<NoticeEnvelope>> = None;
        for user in users.into_iter().filter(|user| !user.is_agent()) {
            let topic = Topic::Inbox(user.clone());
            if !self.bus.has_subscribers(&topic) {
                continue;
            }
            let scope = CursorScope::Inbox(user);
            let settled = low_watermark.min(self.in_flight.position_max(scope, origin.oldest()));
            let notice = match last.take().filter(|last| last.settled == settled) {
                Some(same) => same,
                None => {
                    let event = Event::Inbox(InboxChange { conversation });
                    Notice::new(id, settled, event).into()
                }
            };
            self.bus.publish(&topic, Arc::clone(&notice));
            last = Some(notice);
        }
    }

    /// Notifies the other servers of the change of an entry in these inboxes, without a write to
    /// the conversation.
    pub(crate) async fn notify_inboxes(
        &self,
        users: &[UserId],
        conversation: ConversationId,
        change: TimeUuid,
    ) {
        let Some(cluster) = self.in_flight.cluster() else {
            return;
        };
        let notice = RemoteNotice::Inbox {
            conversation,
            change,
            users: Vec::new(),
        };
        let recipients = Recipients::Users(users.into());
        cluster.deliver(&notice, &recipients).await;
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
        if let Some(cluster) = self.in_flight.cluster() {
            cluster.deliver_unawaited(RemoteNotice::Marker {
                conversation: conversation.id,
                user: user.clone(),
            });
        }
        self.deliver_marker(user, conversation.id, lease.newest());
    }

    /// Delivers that a marker has advanced to the subscribers on this server.
    pub(crate) fn deliver_marker(&self, user: &UserId, id: ConversationId, newest: TimeUuid) {
        let topic = Topic::Conversation(id);
        if self.bus.has_subscribers(&topic) {
            let event = Event::MarkerMoved(id, user.clone());
            self.bus
                .publish(&topic, Notice::new(newest, OrderKey::MIN, event));
        }
    }

    /// Publishes that a user has started or stopped typing.
    pub(crate) fn publish_typing(&self, user: &UserId, id: ConversationId, is_typing: bool) {
        if let Some(cluster) = self.in_flight.cluster() {
            cluster.send_directly(RemoteNotice::Typing {
                conversation: id,
                user: user.clone(),
                is_typing,
            });
        }
        self.deliver_typing(user, id, is_typing);
    }

    /// Delivers a typing signal to the subscribers on this server.
    pub(crate) fn deliver_typing(&self, user: &UserId, id: ConversationId, is_typing: bool) {
        let topic = Topic::Typing(id);
        if self.bus.has_subscribers(&topic) {
            self.deliver_unordered(&topic, Event::Typing(id, user.clone(), is_typing));
        }
    }

    /// Publishes a step of a live message to the subscribers on this server.
    pub(crate) fn publish_live(&self, step: impl IntoIterator<Item = Arc<LiveStep>>) {
        for step in step {
            let topic = Topic::Live(step.view.message.key.conversation);
            if self.bus.has_subscribers(&topic) {
                self.deliver_unordered(&topic, Event::LiveStepped(step));
            }
        }
    }

    /// Has the other servers with viewers of a live message read it, with one attempt.
    pub(crate) fn notify_live(&self, live: LiveKey) {
        if let Some(cluster) = self.in_flight.cluster() {
            cluster.deliver_unawaited(RemoteNotice::Live(live));
        }
    }

    /// The same over NATS only. Without it the other servers poll.
    pub(crate) fn signal_live(&self, live: LiveKey) {
        if let Some(cluster) = self.in_flight.cluster() {
            cluster.send_directly(RemoteNotice::Live(live));
        }
    }

    /// Delivers a change of presence to the subscribers on this server. They read the current
    /// state.
    pub(crate) fn deliver_presence(&self, user: &UserId) {
        let topic = Topic::Presence(user.clone());
        if self.bus.has_subscribers(&topic) {
            self.deliver_unordered(&topic, Event::Presence(user.clone()));
        }
    }

    /// Whether this server has a stream of the user's inbox, or one that follows the user's presence.
    pub(crate) fn has_streams_of(&self, user: &UserId) -> bool {
        let topics = [Topic::Inbox(user.clone()), Topic::Presence(user.clone())];
        topics.iter().any(|topic| self.bus.has_subscribers(topic))
    }

    /// Publishes the change of a block to the streams of this server that depend on it: those of the
    /// blocker, and those of both users' presence. No stream of another user shows it.
    pub(crate) fn publish_block(&self, block: BlockNotice) {
        let (blocker, blocked) = (block.blocker.clone(), block.blocked.clone());
        let of_direct = |id| [Topic::Conversation(id), Topic::Typing(id), Topic::Live(id)];
        let directs = block.direct.into_iter().flat_map(of_direct);
        let inbox = (!blocker.is_agent()).then(|| Topic::Inbox(blocker.clone()));
        for topic in inbox.into_iter().chain(directs) {
            if self.bus.has_subscribers(&topic) {
                self.deliver_unordered(&topic, Event::BlockChanged(block.clone()));
            }
        }
        self.deliver_presence(&blocker);
        self.deliver_presence(&blocked);
    }

    /// Delivers an event that has no position in any order, so any id will do.
    fn deliver_unordered(&self, topic: &Topic, event: Event) {
        self.bus.publish(
            topic,
            Notice::new(self.unordered_id(), OrderKey::MIN, event),
        );
    }

    /// Id of an event that has no position.
    pub(crate) fn unordered_id(&self) -> TimeUuid {
        TimeUuid::new(self.clock.now(), [0; 8])
    }

    /// Makes the subscribers of one topic read the store.
    pub(crate) fn invalidate(&self, topic: &Topic) {
        self.bus.invalidate(topic);
    }

    /// Topics whose subscribers can read the store.
    pub(crate) fn readable_topics(&self) -> Vec<Topic> {
        self.bus.readable_topics()
    }
}

impl Origin<'_> {
    fn oldest(self) -> Option<OrderKey> {
        match self {
            Self::Own(_) => None,
            Self::Remote { oldest } => oldest,
        }
    }
}
