//! The stream of new messages of one conversation, resumed without a gap.
//!
//! It listens first and reads the store then, so that nothing falls between; what is heard and was read already is dropped by its identity.
//! A reader that falls behind loses its place on the bus and not a message: it reads the store from the last message it was given.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use super::access::Watch;
use super::given::Given;
use super::{Chat, Result};
use crate::bus::{Heard, Subscription};
use crate::model::{ChangeKind, ConversationId, Cut, Event, Message, OrderKey, PageRequest, Topic, UserId};

/// Messages read from the store at a time.
const REPLAY_PAGE: usize = 100;

pub struct MessageUpdates {
    chat: Chat,
    conversation: ConversationId,
    watch: Watch,
    heard: Subscription,
    /// The greatest id that was given, or the place where the stream began.
    last: OrderKey,
    given: Given,
    replay: Option<VecDeque<Arc<Message>>>,
    /// Where the log is to be read for messages that became visible long after their ids. `None` where it was.
    late_from: Option<OrderKey>,
}

impl Chat {
    /// New messages of a conversation. With `after`: first every later one, oldest first, then live ones.
    pub async fn message_updates(&self, viewer: &UserId, conversation: ConversationId, after: Option<OrderKey>) -> Result<MessageUpdates> {
        let heard = self.0.bus.subscribe(Topic::Conversation(conversation));
        let watch = Watch::begin(self, viewer, conversation).await?;
        let (last, replay) = match after {
            Some(after) => (before_by(after, self.0.store.overlap_micros()), Some(VecDeque::new())),
            None => (self.events_position(conversation).await?, None),
        };
        let late_from = replay.as_ref().filter(|_| self.is_shared()).map(|_| last);
        Ok(MessageUpdates { chat: self.clone(), conversation, watch, heard, last, given: Given::default(), replay, late_from })
    }
}

/// A place that lies some time earlier.
pub(super) fn before_by(place: OrderKey, micros: i64) -> OrderKey {
    if micros == 0 { place } else { OrderKey::first_at(place.moment().plus_micros(-micros)) }
}

impl MessageUpdates {
    /// The next message. `None` when the viewer is not in the conversation any more.
    pub async fn next(&mut self) -> Option<Result<Arc<Message>>> {
        let message = match self.read_or_hear().await? {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        match self.watch.may_still_see().await {
            Ok(true) => Some(Ok(message)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    async fn read_or_hear(&mut self) -> Option<Result<Arc<Message>>> {
        loop {
            while let Some(message) = self.replay.as_mut().and_then(VecDeque::pop_front) {
                if let Some(message) = self.give(message) {
                    return Some(Ok(message));
                }
            }
            if self.replay.is_some() {
                match self.read_on().await {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(error)),
                }
            }
            match self.heard.next().await? {
                Heard::Notice(notice) => {
                    if let Event::MessageAdded(message) = &notice.event {
                        if let Some(message) = self.give(Arc::clone(message)) {
                            return Some(Ok(message));
                        }
                    } else if self.is_own_departure(&notice.event) {
                        match self.watch.may_still_see().await {
                            Ok(true) => {}
                            Ok(false) => return None,
                            Err(error) => return Some(Err(error)),
                        }
                    }
                }
                Heard::Gap => {
                    self.last = before_by(self.last, self.chat.0.store.overlap_micros());
                    self.replay = Some(VecDeque::new());
                    self.late_from = self.chat.is_shared().then_some(self.last);
                }
            }
        }
    }

    fn is_own_departure(&self, event: &Event) -> bool {
        matches!(event, Event::Changed(_, change) if change.kind == ChangeKind::ParticipantRemoved && change.user == *self.watch.viewer())
    }

    /// Reads the next page of what was missed; the stream is live when there is no more.
    async fn read_on(&mut self) -> Result<()> {
        let _turn = self.chat.0.replays.turn(self.watch.viewer()).await?;
        let cut = Cut { start: Bound::Excluded(self.last), end: Bound::Unbounded };
        // The list shows the newest first, so the oldest that are missing are its last.
        let page = self.chat.0.store.history(self.conversation, &cut, &PageRequest::last(REPLAY_PAGE)).await?;
        self.replay = match self.late_from {
            _ if !page.items.is_empty() => Some(page.items.into_iter().rev().collect()),
            Some(from) => Some(self.read_late(from).await?),
            None => None,
        };
        Ok(())
    }

    /// The next messages that became visible so late that a stream may have passed their ids.
    async fn read_late(&mut self, from: OrderKey) -> Result<VecDeque<Arc<Message>>> {
        let changes = self.chat.0.store.changes(self.conversation, from, REPLAY_PAGE).await?;
        self.late_from = changes.get(REPLAY_PAGE - 1).map(|change| change.id.order_key());
        let late = changes.iter().filter(|change| change.kind == ChangeKind::MessageLate);
        let keys: Vec<_> = late.map(|change| (self.conversation, change.message)).collect();
        Ok(self.chat.0.store.messages(&keys).await?.into_iter().flatten().collect())
    }

    fn give(&mut self, message: Arc<Message>) -> Option<Arc<Message>> {
        self.last = self.last.max(message.id.order_key());
        self.given.insert(message.id).then_some(message)
    }
}
