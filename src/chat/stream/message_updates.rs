//! The stream of new messages of one conversation, resumed without a gap.
//!
//! It listens first and reads the store then, so that nothing falls between; what is heard and was read already is dropped by its identity.
//! A reader that falls behind loses its place on the bus and not a message: it reads the store from the last message it was given.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::bus::{Received, TopicSubscription};
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::stream::delivered_ids::DeliveredIds;
use crate::chat::stream::replay::Reader;
use crate::chat::stream::update_key::UpdateKey;
use crate::chat::{Chat, Result};
use crate::model::{ChangeKind, ConversationId, Event, Message, OrderKey, Topic, UserId};

/// A new message.
#[derive(Debug, Clone)]
pub struct MessageUpdate {
    pub message: Arc<Message>,
    pub key: UpdateKey,
}

pub struct MessageUpdates {
    chat: Chat,
    conversation: ConversationId,
    watch: MembershipGuard,
    heard: TopicSubscription,
    /// The greatest id that was given, or the place where the stream began.
    last: OrderKey,
    given: DeliveredIds,
    replay: Option<VecDeque<MessageUpdate>>,
    /// Whether the store may hold more than was read.
    is_behind: bool,
    /// Where the log is to be read for messages that became visible long after their ids. `None` where it was.
    late_from: Option<OrderKey>,
}

impl Chat {
    /// New messages of a conversation. With `after`: first every later one, oldest first, then live ones.
    pub async fn message_updates(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        after: Option<OrderKey>,
    ) -> Result<MessageUpdates> {
        let heard = self.0.bus.subscribe(Topic::Conversation(conversation));
        let watch = MembershipGuard::begin(self, viewer, conversation).await?;
        let last = match after {
            Some(after) => before_by(after, self.0.store.overlap_micros()),
            None => {
                Reader {
                    chat: self,
                    viewer,
                    conversation,
                    heard: &heard,
                }
                .position()
                .await?
            }
        };
        // Without `after` all is new that is heard: the position was read later.
        let given = DeliveredIds::from(after.map_or(OrderKey::MIN, |_| last), self.is_shared());
        let late_from = after.filter(|_| self.is_shared()).map(|_| last);
        let (replay, is_behind) = (None, after.is_some());
        Ok(MessageUpdates {
            chat: self.clone(),
            conversation,
            watch,
            heard,
            last,
            given,
            replay,
            is_behind,
            late_from,
        })
    }
}

/// A place that lies some time earlier.
pub(crate) fn before_by(place: OrderKey, micros: i64) -> OrderKey {
    if micros == 0 {
        place
    } else {
        OrderKey::first_at(place.moment().plus_micros(-micros))
    }
}

impl MessageUpdates {
    /// The next message. `None` when the viewer is not in the conversation any more.
    pub async fn next(&mut self) -> Option<Result<MessageUpdate>> {
        let update = match self.read_or_hear().await? {
            Ok(update) => update,
            Err(error) => return Some(Err(error)),
        };
        match self.watch.may_still_see().await {
            Ok(true) => Some(Ok(update)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    pub fn guard(&self) -> &MembershipGuard {
        &self.watch
    }

    async fn read_or_hear(&mut self) -> Option<Result<MessageUpdate>> {
        loop {
            while let Some(replay) = &mut self.replay {
                match replay.pop_front() {
                    Some(update) if self.give(&update.message) => return Some(Ok(update)),
                    Some(_) => {}
                    None => self.replay = None,
                }
            }
            if self.is_behind {
                // In a box: every stream that is live would keep room for it.
                match Box::pin(self.read_on()).await {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(error)),
                }
            }
            match self.heard.next().await? {
                Received::Notice(notice) => {
                    if let Event::MessageAdded(message) = &notice.event {
                        if self.give(message) {
                            let message = Arc::clone(message);
                            return Some(Ok(MessageUpdate {
                                message,
                                key: UpdateKey::heard(notice),
                            }));
                        }
                    } else if self.is_own_departure(&notice.event) {
                        match self.watch.may_still_see().await {
                            Ok(true) => {}
                            Ok(false) => return None,
                            Err(error) => return Some(Err(error)),
                        }
                    }
                }
                Received::Lagged => {
                    self.last = before_by(self.last, self.chat.0.store.overlap_micros());
                    self.is_behind = true;
                    self.late_from = self.chat.is_shared().then_some(self.last);
                }
            }
        }
    }

    fn is_own_departure(&self, event: &Event) -> bool {
        matches!(event, Event::Changed(_, change) if change.kind == ChangeKind::ParticipantRemoved && change.user == *self.watch.viewer())
    }

    /// Reads the next piece of what was missed; the stream is live when there is no more.
    async fn read_on(&mut self) -> Result<()> {
        let reader = Reader {
            chat: &self.chat,
            viewer: self.watch.viewer(),
            conversation: self.conversation,
            heard: &self.heard,
        };
        let piece = reader.messages(self.last).await?;
        let mut next: VecDeque<_> = updates(&piece.messages, &piece.source)
            .filter(|update| update.message.id.order_key() > self.last)
            .collect();
        if !piece.has_more {
            match self.late_from.take() {
                Some(from) => {
                    let late = reader.late(from).await?;
                    self.late_from = late.next;
                    next.extend(updates(&late.messages, &late.source));
                }
                None => self.is_behind = false,
            }
        }
        self.replay = Some(next);
        Ok(())
    }

    /// Whether it was not given yet.
    fn give(&mut self, message: &Message) -> bool {
        self.last = self.last.max(message.id.order_key());
        self.given.insert(message.id)
    }
}

fn updates(
    messages: &[Arc<Message>],
    source: &crate::chat::stream::update_key::Source,
) -> impl Iterator<Item = MessageUpdate> {
    let update = |(place, message): (usize, &Arc<Message>)| MessageUpdate {
        message: Arc::clone(message),
        key: source.at(place),
    };
    messages.iter().enumerate().map(update)
}
