//! The stream of new messages of one conversation.

use std::collections::VecDeque;
use std::sync::Arc;

use super::StreamService;
use super::delivered_ids::DeliveredIds;
use super::replay::ConversationSource;
use super::update_key::{ReadIdentity, UpdateKey};
use crate::bus::Received;
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::error::Result;
use crate::model::{ChangeKind, ConversationId, Event, Message, OrderKey, Viewer};

/// A new message.
#[derive(Debug, Clone)]
pub struct MessageUpdate {
    pub message: Arc<Message>,
    /// Cursor of the stream after the message: the message's own, unless an earlier message of
    /// another server may not have arrived yet.
    pub position: OrderKey,
    pub key: UpdateKey,
}

pub struct MessageUpdates {
    source: ConversationSource,
    /// Greatest delivered id, or the start of the stream.
    last: OrderKey,
    /// Cursor of the stream: all messages up to here were delivered. While messages of other
    /// servers may be missing, it is earlier than the last one.
    position: OrderKey,
    delivered: DeliveredIds,
    replay: Option<VecDeque<MessageUpdate>>,
    /// Whether the store may hold more messages than were read.
    is_behind: bool,
    /// Position in the log from which late messages must be read. `None` after that read.
    late_from: Option<OrderKey>,
    /// Whether the conversation may have become large since the stream registered.
    may_have_grown: bool,
}

impl StreamService {
    /// New messages of a conversation. With `after`, first all messages after that cursor, the
    /// oldest first, then live ones.
    pub async fn messages(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        after: Option<OrderKey>,
    ) -> Result<MessageUpdates> {
        let caller = &caller.into();
        if let Some(after) = after {
            self.check_cursor_ahead(after.moment())?;
        }
        let source = ConversationSource::open(self, caller, conversation).await?;
        let last = match after {
            Some(after) => self.read_position(after),
            None => source.position().await?,
        };
        // Without `after`, every notice is new: the subscription is older than the position.
        let start = after.map_or(OrderKey::MIN, |_| last);
        Ok(MessageUpdates {
            source,
            last,
            position: last,
            delivered: DeliveredIds::starting_at(start, self.is_shared()),
            replay: None,
            is_behind: after.is_some(),
            late_from: after.filter(|_| self.is_shared()).map(|_| last),
            may_have_grown: false,
        })
    }
}

impl MessageUpdates {
    /// The next message. `None` once the viewer no longer takes part.
    pub async fn next(&mut self) -> Result<Option<MessageUpdate>> {
        while let Some(update) = self.replay_or_receive().await? {
            if !self.source.guard.may_still_see().await? {
                break;
            }
            // Below the floor nothing exists.
            if self.source.guard.floor().shows(update.message.id) {
                return Ok(Some(update));
            }
        }
        Ok(None)
    }

    /// Whether a message of a replay is at hand.
    pub fn has_more(&self) -> bool {
        self.replay
            .as_ref()
            .is_some_and(|replay| !replay.is_empty())
    }

    pub fn guard(&self) -> &MembershipGuard {
        &self.source.guard
    }

    async fn replay_or_receive(&mut self) -> Result<Option<MessageUpdate>> {
        loop {
            while let Some(replay) = &mut self.replay {
                match replay.pop_front() {
                    Some(update) if self.accept(&update.message, update.position) => {
                        return Ok(Some(update));
                    }
                    Some(_) => {}
                    None => self.replay = None,
                }
            }
            if self.is_behind {
                // Boxed: every live stream would reserve the size of the future.
                Box::pin(self.read_next_page()).await?;
                continue;
            }
            let Some(received) = self.source.subscription.next().await else {
                return Ok(None);
            };
            match received {
                Received::Notice(notice) => {
                    if let Event::MessageAdded(message) = &notice.event {
                        let position = message.id.order_key().min(notice.position_max);
                        if self.accept(message, position) {
                            let message = Arc::clone(message);
                            return Ok(Some(MessageUpdate {
                                position,
                                message,
                                key: UpdateKey::of_notice(notice),
                            }));
                        }
                    } else if self.may_end_with(&notice.event)
                        && !self.source.guard.may_still_see().await?
                    {
                        return Ok(None);
                    }
                }
                Received::Lagged => {
                    self.last = self.source.streams.read_position(self.position);
                    self.is_behind = true;
                    self.late_from = self.source.streams.is_shared().then_some(self.last);
                    self.may_have_grown = self.source.streams.is_shared();
                }
            }
        }
    }

    /// Whether the event may be the viewer's removal, or a block that hides the conversation.
    fn may_end_with(&self, event: &Event) -> bool {
        let is_removal = matches!(event, Event::Changed(_, change) if change.kind == ChangeKind::ParticipantRemoved && change.user == *self.source.guard.viewer());
        is_removal || self.source.guard.is_own_block(event)
    }

    /// Reads the next page of missed messages. After the last page the stream is live.
    async fn read_next_page(&mut self) -> Result<()> {
        if std::mem::take(&mut self.may_have_grown) {
            self.source.recheck_size().await?;
        }
        // A replay begins at the floor: behind it may be many expired messages.
        self.last = self.last.max(self.source.guard.floor().key);
        let page = self.source.messages(self.last).await?;
        let limit = self.source.streams.in_flight.cursor_max();
        let mut next: VecDeque<_> = updates(&page.messages, &page.identity, limit)
            .filter(|update| update.message.id.order_key() > self.last)
            .collect();
        if !page.has_more {
            match self.late_from.take() {
                Some(from) => {
                    let late = self.source.late(from).await?;
                    self.late_from = late.next;
                    next.extend(updates(&late.messages, &late.identity, limit));
                }
                None => self.is_behind = false,
            }
        }
        self.replay = Some(next);
        Ok(())
    }

    /// Records a message as delivered. Returns false for a duplicate.
    fn accept(&mut self, message: &Message, position: OrderKey) -> bool {
        self.last = self.last.max(message.id.order_key());
        self.position = self.position.max(position);
        self.delivered.insert(message.id)
    }
}

fn updates(
    messages: &[Arc<Message>],
    identity: &ReadIdentity,
    limit: OrderKey,
) -> impl Iterator<Item = MessageUpdate> {
    let update = move |(index, message): (usize, &Arc<Message>)| MessageUpdate {
        position: message.id.order_key().min(limit),
        message: Arc::clone(message),
        key: identity.key(index),
    };
    messages.iter().enumerate().map(update)
}
