//! What streams of a conversation missed, as the store has it: read a piece at a time, once for all that ask at the same time.

use std::ops::Bound;
use std::sync::Arc;

use crate::bus::TopicSubscription;
use crate::chat::single_flight::{Piece, ReadKey, SingleFlight};
use crate::chat::stream::conversation_updates::{ConversationEvent, is_seen_in};
use crate::chat::stream::update_key::Source;
use crate::chat::{Chat, Result};
use crate::model::{
    Change, ChangeKind, Conversation, ConversationId, Cut, Message, OrderKey, PageRequest,
    TimeUuid, UserId,
};

/// Messages, and changes, read from the store at a time.
const PAGE: usize = 100;

/// The reads of each kind.
#[derive(Default)]
pub(crate) struct Replays {
    messages: SingleFlight<Messages>,
    late: SingleFlight<Late>,
    events: SingleFlight<Events>,
    markers: SingleFlight<Markers>,
    newest: SingleFlight<Newest>,
}

/// The next messages of a conversation.
pub(crate) struct Messages {
    pub(crate) source: Source,
    /// The oldest first.
    pub(crate) messages: Vec<Arc<Message>>,
    pub(crate) has_more: bool,
}

impl Piece for Messages {
    fn covers(&self, place: OrderKey) -> bool {
        !self.has_more
            || self
                .messages
                .last()
                .is_some_and(|last| last.id.order_key() > place)
    }
}

/// The next messages that became visible so late that a stream may have passed their ids.
pub(crate) struct Late {
    pub(crate) source: Source,
    pub(crate) messages: Vec<Arc<Message>>,
    /// Where there may be more.
    pub(crate) next: Option<OrderKey>,
}

impl Piece for Late {
    fn covers(&self, place: OrderKey) -> bool {
        self.next.is_none_or(|next| next > place)
    }
}

/// The next messages and changes, merged.
pub(crate) struct Events {
    pub(crate) source: Source,
    pub(crate) events: Vec<(TimeUuid, ConversationEvent)>,
    /// Changes that may be seen only in part yet.
    pub(crate) halves: Vec<TimeUuid>,
    /// Up to where both are known. `None`: that is all there was.
    pub(crate) end: Option<OrderKey>,
}

impl Piece for Events {
    fn covers(&self, place: OrderKey) -> bool {
        self.end.is_none_or(|end| end > place)
    }
}

/// Everybody who has read something, or was delivered something.
pub(crate) struct Markers {
    pub(crate) source: Source,
    pub(crate) users: Vec<UserId>,
}

impl Piece for Markers {
    fn covers(&self, _: OrderKey) -> bool {
        true
    }
}

/// The newest message or change.
struct Newest(OrderKey);

impl Piece for Newest {
    fn covers(&self, _: OrderKey) -> bool {
        true
    }
}

/// On whose behalf something is read, and what they hear by themselves.
pub(crate) struct Reader<'a> {
    pub(crate) chat: &'a Chat,
    pub(crate) viewer: &'a UserId,
    pub(crate) conversation: ConversationId,
    pub(crate) heard: &'a TopicSubscription,
}

impl Reader<'_> {
    fn ask(&self, from: OrderKey) -> ReadKey {
        ReadKey {
            conversation: self.conversation,
            from,
            since: self.heard.since(),
            now: self.chat.0.bus.sequence(),
        }
    }

    /// The messages after a place.
    pub(crate) async fn messages(&self, from: OrderKey) -> Result<Arc<Messages>> {
        let read = async |from| {
            let _turn = self.chat.0.replay_limiter.turn(self.viewer).await?;
            let cut = Cut {
                start: Bound::Excluded(from),
                end: Bound::Unbounded,
            };
            // The list shows the newest first, so the oldest that are missing are its last.
            let page = self
                .chat
                .0
                .store
                .history(self.conversation, &cut, &PageRequest::last(PAGE))
                .await?;
            let has_more = page.has_previous;
            Ok(Messages {
                source: Source::default(),
                messages: page.items.into_iter().rev().collect(),
                has_more,
            })
        };
        self.chat
            .0
            .replays
            .messages
            .read(self.ask(from), read)
            .await
    }

    /// The late messages that were logged after a place.
    pub(crate) async fn late(&self, from: OrderKey) -> Result<Arc<Late>> {
        let read = async |from| {
            let _turn = self.chat.0.replay_limiter.turn(self.viewer).await?;
            let changes = self
                .chat
                .0
                .store
                .changes(self.conversation, from, PAGE)
                .await?;
            let next = changes.get(PAGE - 1).map(|change| change.id.order_key());
            let late = changes
                .iter()
                .filter(|change| change.kind == ChangeKind::MessageLate);
            let keys: Vec<_> = late
                .map(|change| (self.conversation, change.message))
                .collect();
            let messages = self
                .chat
                .0
                .store
                .messages(&keys)
                .await?
                .into_iter()
                .flatten()
                .collect();
            Ok(Late {
                source: Source::default(),
                messages,
                next,
            })
        };
        self.chat.0.replays.late.read(self.ask(from), read).await
    }

    /// Messages and changes after a place, up to where both are known.
    pub(crate) async fn events(&self, from: OrderKey) -> Result<Arc<Events>> {
        let read = async |from| {
            let _turn = self.chat.0.replay_limiter.turn(self.viewer).await?;
            self.read_events(from).await
        };
        self.chat.0.replays.events.read(self.ask(from), read).await
    }

    async fn read_events(&self, from: OrderKey) -> Result<Events> {
        let store = &self.chat.0.store;
        // What is stored from now on is heard. To read it too, in two reads at two moments, could put a message before an earlier change.
        let ceiling = self.chat.events_position(self.conversation).await?;
        let cut = Cut {
            start: Bound::Excluded(from),
            end: Bound::Included(ceiling),
        };
        let page = store
            .history(self.conversation, &cut, &PageRequest::last(PAGE))
            .await?;
        let mut changes = store.changes(self.conversation, from, PAGE).await?;
        let changes_end = changes.get(PAGE - 1).map(|change| change.id.order_key());
        let messages_end = page
            .items
            .first()
            .filter(|_| page.has_previous)
            .map(|message| message.id.order_key());
        let end = [changes_end, messages_end]
            .into_iter()
            .flatten()
            .min()
            .filter(|end| *end < ceiling);
        let is_known = |id: TimeUuid| id.order_key() <= end.unwrap_or(ceiling);
        changes.retain(|change| is_known(change.id));
        let messages = page
            .items
            .into_iter()
            .filter(|message| is_known(message.id));
        let mut events: Vec<_> = messages
            .map(|message| (message.id, ConversationEvent::MessageAdded(message)))
            .collect();
        let (changed, halves) = self.changed(changes).await?;
        events.extend(changed);
        events.sort_unstable_by_key(|(id, _)| *id);
        Ok(Events {
            source: Source::default(),
            events,
            halves,
            end,
        })
    }

    /// Changes with their messages as they are now, and those of them that may be seen only in part yet.
    async fn changed(
        &self,
        changes: Vec<Change>,
    ) -> Result<(Vec<(TimeUuid, ConversationEvent)>, Vec<TimeUuid>)> {
        let keys: Vec<_> = changes
            .iter()
            .map(|change| (self.conversation, change.message))
            .collect();
        let messages = self.chat.0.store.messages(&keys).await?;
        let halves = changes
            .iter()
            .zip(&messages)
            .filter(|(change, message)| !is_seen_in(change, message.as_deref()));
        let halves = halves
            .filter(|_| self.chat.is_shared())
            .map(|(change, _)| change.id)
            .collect();
        let event = |(change, message): (Change, Option<Arc<Message>>)| {
            let event = match ConversationEvent::of(&change) {
                Some(event) => event,
                None if change.kind == ChangeKind::MessageLate => {
                    ConversationEvent::MessageAdded(message?)
                }
                None => ConversationEvent::MessageChanged(change.kind, message?),
            };
            Some((change.id, event))
        };
        Ok((
            changes
                .into_iter()
                .zip(messages)
                .filter_map(event)
                .collect(),
            halves,
        ))
    }

    /// Those whose markers stand somewhere, in a conversation that is not large.
    pub(crate) async fn markers(&self) -> Result<Arc<Markers>> {
        let read = async |_| {
            let participants = self
                .chat
                .0
                .store
                .participants(
                    self.conversation,
                    &PageRequest::first(Conversation::FAN_OUT_MAX),
                )
                .await?;
            // More of them, and it has become a large one.
            let people = if participants.has_next {
                Vec::new()
            } else {
                participants.items
            };
            let stand = people
                .into_iter()
                .filter(|one| one.read_up_to.max(one.delivered_up_to) > OrderKey::MIN);
            Ok(Markers {
                source: Source::default(),
                users: stand.map(|one| one.user).collect(),
            })
        };
        self.chat
            .0
            .replays
            .markers
            .read(self.ask(OrderKey::MIN), read)
            .await
    }

    /// Where the stream of the conversation stands, for one who begins to listen.
    pub(crate) async fn position(&self) -> Result<OrderKey> {
        let read = async |_| Ok(Newest(self.chat.events_position(self.conversation).await?));
        Ok(self
            .chat
            .0
            .replays
            .newest
            .read(self.ask(OrderKey::MIN), read)
            .await?
            .0)
    }
}
