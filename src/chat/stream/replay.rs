//! Replays: pages of missed events that streams of a conversation read from the store, shared by
//! streams that resume at the same time.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::StreamService;
use super::conversation_event::{ConversationEvent, is_visible_in};
use super::registration::StreamRegistration;
use super::update_key::ReadIdentity;
use crate::bus::{Sequence, TopicSubscription};
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::error::Result;
use crate::chat::replay_limiter::ReplayPermit;
use crate::chat::single_flight::{ReadKey, SingleFlight};
use crate::model::{
    Change, ChangeKind, Conversation, ConversationId, Cut, Message, OrderKey, PageRequest,
    TimeUuid, Topic, UserId, Viewer,
};

/// Messages, and changes, per read.
const PAGE: usize = 100;
/// Time during which streams share a read.
const LIFETIME: Duration = Duration::from_secs(5);

/// Request for everything after a position. A stream may reuse another stream's read if that read
/// started after its own bus subscription; otherwise an event could be lost between the two. A read
/// from an earlier position does as well, as far as it reaches.
#[derive(Clone, Copy)]
struct ReplayKey {
    conversation: ConversationId,
    from: OrderKey,
    /// Bound of messages, and of changes to them. Other changes have none.
    floor: OrderKey,
    /// Sequence of the bus at the subscription of the stream.
    subscribed_at: Sequence,
    /// Sequence of the bus at the request.
    requested_at: Sequence,
    /// When the registration of the stream was acknowledged. `None` on a store of one server.
    registered_at: Option<Instant>,
    began_at: Instant,
}

impl ReplayKey {
    fn is_alike(&self, started: &Self) -> bool {
        started.conversation == self.conversation
            && started.from <= self.from
            && started.floor <= self.floor
            && started.requested_at >= self.subscribed_at
    }

    /// Whether the stream was registered after the read began.
    fn is_newer_than(&self, started: &Self) -> bool {
        self.registered_at
            .is_some_and(|registered_at| started.began_at < registered_at)
    }
}

/// Result of a replay read.
trait ReplayResult {
    /// Whether the result reaches beyond a position.
    fn reaches_beyond(&self, _: OrderKey) -> bool {
        true
    }
}

impl<T: ReplayResult> ReadKey<T> for ReplayKey {
    fn may_share(&self, started: &Self) -> bool {
        self.is_alike(started) && !self.is_newer_than(started)
    }

    fn awaits(&self, started: &Self) -> bool {
        self.is_newer_than(started) && self.is_alike(started)
    }

    fn is_covered_by(&self, result: &T) -> bool {
        result.reaches_beyond(self.from)
    }

    fn rank(&self) -> OrderKey {
        self.from
    }
}

/// Reads of each kind.
pub(crate) struct Replays {
    messages: SingleFlight<ReplayKey, MessageReplay>,
    late: SingleFlight<ReplayKey, LateReplay>,
    events: SingleFlight<ReplayKey, EventReplay>,
    markers: SingleFlight<ReplayKey, MarkerReplay>,
    positions: SingleFlight<ReplayKey, OrderKey>,
}

impl Replays {
    pub(crate) fn new() -> Self {
        Self {
            messages: SingleFlight::new(LIFETIME),
            late: SingleFlight::new(LIFETIME),
            events: SingleFlight::new(LIFETIME),
            markers: SingleFlight::new(LIFETIME),
            positions: SingleFlight::new(LIFETIME),
        }
    }
}

/// Next messages of a conversation.
pub(crate) struct MessageReplay {
    pub(crate) identity: ReadIdentity,
    /// The oldest first.
    pub(crate) messages: Vec<Arc<Message>>,
    pub(crate) has_more: bool,
}

impl ReplayResult for MessageReplay {
    fn reaches_beyond(&self, position: OrderKey) -> bool {
        !self.has_more
            || self
                .messages
                .last()
                .is_some_and(|last| last.id.order_key() > position)
    }
}

/// Next messages that became visible so late that a stream may have passed their ids.
pub(crate) struct LateReplay {
    pub(crate) identity: ReadIdentity,
    pub(crate) messages: Vec<Arc<Message>>,
    /// Position of the next page. `None` at the end.
    pub(crate) next: Option<OrderKey>,
}

impl ReplayResult for LateReplay {
    fn reaches_beyond(&self, position: OrderKey) -> bool {
        self.next.is_none_or(|next| next > position)
    }
}

/// Next messages and changes, merged.
pub(crate) struct EventReplay {
    pub(crate) identity: ReadIdentity,
    pub(crate) events: Vec<(TimeUuid, ConversationEvent)>,
    /// Changes whose effect may not be visible yet.
    pub(crate) partial: Vec<TimeUuid>,
    /// Position up to which both are complete. `None` at the end.
    pub(crate) end: Option<OrderKey>,
}

impl ReplayResult for EventReplay {
    fn reaches_beyond(&self, position: OrderKey) -> bool {
        self.end.is_none_or(|end| end > position)
    }
}

/// Participants with a marker.
pub(crate) struct MarkerReplay {
    pub(crate) identity: ReadIdentity,
    pub(crate) users: Vec<UserId>,
}

impl ReplayResult for MarkerReplay {}

/// Position of a conversation's event stream.
impl ReplayResult for OrderKey {}

/// Source of one stream of a conversation: the bus, and the store for events that the stream has missed.
pub(super) struct ConversationSource {
    pub(super) streams: Arc<StreamService>,
    pub(super) conversation: ConversationId,
    pub(super) subscription: TopicSubscription,
    registration: StreamRegistration,
    pub(super) guard: MembershipGuard,
}

impl ConversationSource {
    pub(super) async fn open(
        streams: &Arc<StreamService>,
        caller: &Viewer,
        conversation: ConversationId,
    ) -> Result<Self> {
        let subscription = streams.bus.subscribe(Topic::Conversation(conversation));
        let (registration, guard) = streams.begin_in(caller, conversation).await?;
        Ok(Self {
            streams: Arc::clone(streams),
            conversation,
            subscription,
            registration,
            guard,
        })
    }

    /// Registers at a conversation that has become large.
    pub(super) async fn recheck_size(&mut self) -> Result<()> {
        self.guard.recheck_size().await?;
        let in_flight = &self.streams.in_flight;
        self.registration
            .listen_if_large(in_flight, &self.guard)
            .await
    }

    fn key(&self, from: OrderKey) -> ReplayKey {
        ReplayKey {
            conversation: self.conversation,
            from,
            floor: OrderKey::MIN,
            subscribed_at: self.subscription.since(),
            requested_at: self.streams.bus.sequence(),
            registered_at: self.registration.acknowledged(),
            began_at: Instant::now(),
        }
    }

    /// A replay reads much, so the limiter admits a few of a viewer at a time.
    async fn permit(&self) -> Result<ReplayPermit> {
        let limiter = &self.streams.replay_limiter;
        limiter.acquire(self.guard.viewer()).await
    }

    /// Messages after a position.
    pub(crate) async fn messages(&self, from: OrderKey) -> Result<Arc<MessageReplay>> {
        let read = async |key: ReplayKey| {
            let _permit = self.permit().await?;
            let cut = Cut {
                start: Bound::Excluded(key.from),
                end: Bound::Unbounded,
            };
            // The list is the newest first, so the oldest missed messages are its last page.
            let (store, request) = (&self.streams.store, PageRequest::last(PAGE));
            let page = store.history(self.conversation, &cut, &request).await?;
            Ok(MessageReplay {
                identity: ReadIdentity::default(),
                messages: page.items.into_iter().rev().collect(),
                has_more: page.has_previous,
            })
        };
        let replays = &self.streams.replays;
        replays.messages.read(self.key(from), read).await
    }

    /// Late messages that were logged after a position.
    pub(crate) async fn late(&self, from: OrderKey) -> Result<Arc<LateReplay>> {
        let read = async |key: ReplayKey| {
            let _permit = self.permit().await?;
            let store = &self.streams.store;
            let changes = store.changes(self.conversation, key.from, PAGE).await?;
            let next = changes.get(PAGE - 1).map(|change| change.id.order_key());
            let late = changes
                .iter()
                .filter(|change| change.kind == ChangeKind::MessageLate);
            let keys: Vec<_> = late
                .map(|change| (self.conversation, change.message))
                .collect();
            let messages = store.messages(&keys).await?.into_iter().flatten().collect();
            Ok(LateReplay {
                identity: ReadIdentity::default(),
                messages,
                next,
            })
        };
        let replays = &self.streams.replays;
        replays.late.read(self.key(from), read).await
    }

    /// Messages and changes after a position, up to where both are complete: without messages at or
    /// below a floor.
    pub(crate) async fn events(&self, from: OrderKey, floor: OrderKey) -> Result<Arc<EventReplay>> {
        let read = async |key: ReplayKey| {
            let _permit = self.permit().await?;
            self.read_events(key.from, key.floor).await
        };
        let key = ReplayKey {
            floor,
            ..self.key(from)
        };
        self.streams.replays.events.read(key, read).await
    }

    async fn read_events(&self, from: OrderKey, floor: OrderKey) -> Result<EventReplay> {
        let store = &self.streams.store;
        // Later events arrive on the bus. The two reads below happen at two moments, and without
        // this ceiling a message could precede an earlier change.
        let ceiling = self
            .streams
            .history
            .events_position(self.conversation)
            .await?;
        let mut changes = store.changes(self.conversation, from, PAGE).await?;
        let changes_end = changes.get(PAGE - 1).map(|change| change.id.order_key());
        let messages_up_to = changes_end.map_or(ceiling, |end| end.min(ceiling));
        // Behind the floor may be many expired messages.
        let messages_from = from.max(floor);
        let (messages, has_more) = if messages_up_to > messages_from {
            let cut = Cut {
                start: Bound::Excluded(messages_from),
                end: Bound::Included(messages_up_to),
            };
            let request = PageRequest::last(PAGE);
            let page = store.history(self.conversation, &cut, &request).await?;
            (page.items, page.has_previous)
        } else {
            (Vec::new(), false)
        };
        let messages_end = messages
            .first()
            .filter(|_| has_more)
            .map(|message| message.id.order_key());
        let end = messages_end.or(changes_end).filter(|end| *end < ceiling);
        let is_complete = |id: TimeUuid| id.order_key() <= end.unwrap_or(ceiling);
        changes.retain(|change| {
            is_complete(change.id)
                && (!change.kind.is_of_message() || change.message.order_key() > floor)
        });
        let messages = messages
            .into_iter()
            .filter(|message| is_complete(message.id));
        let mut events: Vec<_> = messages
            .map(|message| (message.id, ConversationEvent::MessageAdded(message)))
            .collect();
        let (changed, partial) = self.change_events(changes).await?;
        events.extend(changed);
        events.sort_unstable_by_key(|(id, _)| *id);
        Ok(EventReplay {
            identity: ReadIdentity::default(),
            events,
            partial,
            end,
        })
    }

    /// Events of changes with their messages in the current state, and the changes whose effect may
    /// not be visible yet.
    async fn change_events(
        &self,
        changes: Vec<Change>,
    ) -> Result<(Vec<(TimeUuid, ConversationEvent)>, Vec<TimeUuid>)> {
        let keys: Vec<_> = changes
            .iter()
            .map(|change| (self.conversation, change.message))
            .collect();
        let messages = self.streams.store.messages(&keys).await?;
        let partial = changes
            .iter()
            .zip(&messages)
            .filter(|(change, message)| !is_visible_in(change, message.as_deref()));
        let partial = partial
            .filter(|_| self.streams.is_shared())
            .map(|(change, _)| change.id)
            .collect();
        let event = |(change, message): (Change, Option<Arc<Message>>)| {
            let event = match ConversationEvent::of_change(&change) {
                Some(event) => event,
                None if change.kind == ChangeKind::MessageLate => {
                    ConversationEvent::MessageAdded(message?)
                }
                None => ConversationEvent::MessageChanged(change.kind, message?),
            };
            Some((change.id, event))
        };
        let events = changes.into_iter().zip(messages).filter_map(event);
        Ok((events.collect(), partial))
    }

    /// Participants with a marker, in a conversation that is not large.
    pub(crate) async fn markers(&self) -> Result<Arc<MarkerReplay>> {
        let read = async |_| {
            let page = PageRequest::first(Conversation::FAN_OUT_MAX);
            let page = self
                .streams
                .store
                .participants(self.conversation, &page)
                .await?;
            // With more participants, the conversation has become large meanwhile.
            let participants = if page.has_next {
                Vec::new()
            } else {
                page.items
            };
            let users = participants
                .into_iter()
                .filter(|one| one.read_up_to.max(one.delivered_up_to) > OrderKey::MIN)
                .map(|one| one.user)
                .collect();
            Ok(MarkerReplay {
                identity: ReadIdentity::default(),
                users,
            })
        };
        let replays = &self.streams.replays;
        replays.markers.read(self.key(OrderKey::MIN), read).await
    }

    /// Current position of the conversation's event stream, for a new subscriber.
    pub(crate) async fn position(&self) -> Result<OrderKey> {
        let history = &self.streams.history;
        let read = async |_| history.events_position(self.conversation).await;
        let positions = &self.streams.replays.positions;
        Ok(*positions.read(self.key(OrderKey::MIN), read).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::Bus;

    #[test]
    fn a_stream_shares_no_read_from_before_a_publication_that_it_did_not_receive() {
        let (bus, conversation) = (Bus::default(), ConversationId::random());
        let topic = Topic::Conversation(conversation);
        let request = |subscription: &TopicSubscription| ReplayKey {
            conversation,
            from: OrderKey::MIN,
            floor: OrderKey::MIN,
            subscribed_at: subscription.since(),
            requested_at: bus.sequence(),
            registered_at: None,
            began_at: Instant::now(),
        };
        let may_share =
            |later: &ReplayKey, started: &ReplayKey| ReadKey::<OrderKey>::may_share(later, started);
        let first = bus.subscribe(topic.clone());
        let started = request(&first);
        assert!(may_share(&request(&first), &started));
        bus.invalidate(&topic);
        let second = bus.subscribe(topic.clone());
        let later = request(&second);
        assert!(!may_share(&later, &started));
        assert!(may_share(&request(&second), &later));
        drop((first, second));
        let third = bus.subscribe(topic);
        assert!(
            !may_share(&request(&third), &later),
            "without subscribers, a publication advances no sequence"
        );
    }

    #[test]
    fn a_stream_shares_no_read_from_before_its_registration() {
        let moment = Instant::now();
        let request = |registered_at: Option<u64>, began_at: u64| ReplayKey {
            conversation: ConversationId(uuid::Uuid::nil()),
            from: OrderKey::MIN,
            floor: OrderKey::MIN,
            subscribed_at: Sequence::default(),
            requested_at: Sequence::default(),
            registered_at: registered_at.map(|at| moment + Duration::from_secs(at)),
            began_at: moment + Duration::from_secs(began_at),
        };
        let may_share =
            |later: &ReplayKey, started: &ReplayKey| ReadKey::<OrderKey>::may_share(later, started);
        assert!(!may_share(&request(Some(2), 3), &request(Some(0), 1)));
        assert!(may_share(&request(Some(2), 3), &request(Some(0), 2)));
        assert!(may_share(&request(None, 3), &request(None, 1)));
    }
}
