//! The stream of changed inbox entries of a user, over all conversations.
//!
//! It delivers states, not events: waiting changes of one entry are coalesced, and a state may
//! repeat after a resume. Its position never passes an undelivered change (see `in_flight_ids`).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select_all;
use tokio::time::Instant;

use super::registration::StreamRegistration;
use super::{POSITION_INTERVAL, StreamService};
use crate::bus::{Received, TopicSubscription};
use crate::chat::error::{Error, Result};
use crate::model::{ChangeKind, ConversationId, Event, OrderKey, Topic, UserId};

/// Position of the stream with the changed entry there. Without a conversation, only the position
/// has advanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxUpdate {
    pub position: OrderKey,
    pub conversation: Option<ConversationId>,
}

pub struct InboxUpdates {
    streams: Arc<StreamService>,
    viewer: UserId,
    /// The viewer's inbox first, then each of their large conversations.
    subscriptions: Vec<TopicSubscription>,
    registration: StreamRegistration,
    /// Cursor of the stream: all changes up to here were delivered.
    position: OrderKey,
    pending: VecDeque<InboxUpdate>,
    quiet_since: Instant,
}

/// Changes that were received together.
struct ReceivedChanges {
    position: OrderKey,
    /// The latest change last.
    conversations: Vec<ConversationId>,
    /// Conversations with a notice for the inbox itself, and not only for the topic of a large
    /// conversation.
    addressed: HashSet<ConversationId>,
    has_gap: bool,
}

impl ReceivedChanges {
    fn add(&mut self, received: Received) {
        let Received::Notice(notice) = received else {
            self.has_gap = true;
            return;
        };
        self.position = self.position.max(notice.settled);
        // An entry shows neither the markers of other users nor reactions.
        if let Event::MarkerMoved(..) | Event::MessageChanged(ChangeKind::ReactionsChanged, _) =
            notice.event
        {
            return;
        }
        let Some(conversation) = notice.event.conversation() else {
            return;
        };
        if let Event::Inbox(_) = notice.event {
            self.addressed.insert(conversation);
        }
        self.conversations.retain(|other| *other != conversation);
        self.conversations.push(conversation);
    }
}

impl StreamService {
    /// The viewer's entries as they change. With `after`, first those that changed since that
    /// cursor, ordered by their newest change.
    pub async fn inbox(
        self: &Arc<Self>,
        viewer: &UserId,
        after: Option<OrderKey>,
    ) -> Result<InboxUpdates> {
        let mut subscriptions = vec![self.bus.subscribe(Topic::Inbox(viewer.clone()))];
        let mut registration = StreamRegistration::begin(&self.in_flight, viewer).await?;
        let large = self.store.large_conversations(viewer).await?;
        for conversation in &large {
            subscriptions.push(self.bus.subscribe(Topic::Conversation(*conversation)));
        }
        registration.listen(&self.in_flight, &large).await?;
        let position = after.unwrap_or_else(|| self.inbox_position(viewer));
        let mut updates = InboxUpdates {
            streams: Arc::clone(self),
            viewer: viewer.clone(),
            subscriptions,
            registration,
            position,
            pending: VecDeque::from([InboxUpdate {
                position,
                conversation: None,
            }]),
            quiet_since: Instant::now(),
        };
        if let Some(after) = after {
            self.check_cursor_age(after)?;
            updates.read_changes().await?;
        }
        Ok(updates)
    }
}

impl InboxUpdates {
    pub async fn next(&mut self) -> Option<Result<InboxUpdate>> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                self.quiet_since = Instant::now();
                return Some(Ok(update));
            }
            let receive = select_all(
                self.subscriptions
                    .iter_mut()
                    .map(|subscription| subscription.next().boxed()),
            );
            let received = tokio::time::timeout_at(self.quiet_since + POSITION_INTERVAL, receive)
                .await
                .map(|(received, ..)| received);
            let accepted = match received {
                Ok(received) => self.accept(received?).await,
                Err(_) => self.repeat_position().await,
            };
            if let Err(error) = accepted {
                return Some(Err(error));
            }
        }
    }

    /// Queues all entries that changed after the position.
    async fn read_changes(&mut self) -> Result<()> {
        let streams = &self.streams;
        let _permit = streams.replay_limiter.acquire(&self.viewer).await?;
        let low_watermark = streams.inbox_position(&self.viewer);
        let from = streams.read_position(self.position);
        let changes = streams
            .store
            .inbox_changes(&self.viewer, from, streams.inbox_replay_max)
            .await?;
        for changed in changes.ok_or(Error::CursorExpired)? {
            self.position = self
                .position
                .max(changed.newest_change.order_key().min(low_watermark));
            self.pending.push_back(InboxUpdate {
                position: self.position,
                conversation: Some(changed.conversation),
            });
        }
        Ok(())
    }

    /// Accepts a notice and all that wait behind it. The position advances with the last of their
    /// updates: the watermark of one notice also covers changes that may still wait on another
    /// topic.
    async fn accept(&mut self, first: Received) -> Result<()> {
        let mut received = ReceivedChanges {
            position: self.position,
            conversations: Vec::new(),
            addressed: HashSet::new(),
            has_gap: false,
        };
        received.add(first);
        for subscription in &mut self.subscriptions {
            while let Some(next) = subscription.try_next() {
                received.add(next);
            }
        }
        let ReceivedChanges {
            position,
            mut conversations,
            addressed,
            has_gap,
        } = received;
        let (left, has_new_topic) = self.follow_large_conversations(&conversations).await?;
        // A viewer who has left a conversation must not learn of its later events.
        conversations.retain(|id| !left.contains(id) || addressed.contains(id));
        if has_gap || has_new_topic {
            // Missed changes are read from the store, from the cursor on.
            return self.read_changes().await;
        }
        let count = conversations.len();
        if count == 0 {
            self.position = position;
        }
        for (index, conversation) in conversations.into_iter().enumerate() {
            if index + 1 == count {
                self.position = position;
            }
            self.pending.push_back(InboxUpdate {
                position: self.position,
                conversation: Some(conversation),
            });
        }
        Ok(())
    }

    /// Subscribes to the topics of new large conversations, whose messages are not published to
    /// inboxes, and unsubscribes from those that the viewer has left. Returns the conversations
    /// that the viewer has left, and whether any subscription is new.
    async fn follow_large_conversations(
        &mut self,
        changed: &[ConversationId],
    ) -> Result<(HashSet<ConversationId>, bool)> {
        let access = &self.streams.access;
        let conversations = access.conversations(&self.viewer, changed).await?;
        let mut left = HashSet::new();
        let mut has_new = false;
        for (id, conversation) in changed.iter().zip(conversations) {
            let topic = Topic::Conversation(*id);
            let Some(conversation) = conversation else {
                self.subscriptions
                    .retain(|subscription| *subscription.topic() != topic);
                self.registration.leave(*id);
                left.insert(*id);
                continue;
            };
            if conversation.is_large
                && self
                    .subscriptions
                    .iter()
                    .all(|subscription| *subscription.topic() != topic)
            {
                self.subscriptions.push(self.streams.bus.subscribe(topic));
                let in_flight = &self.streams.in_flight;
                self.registration.listen(in_flight, &[*id]).await?;
                has_new = true;
            }
        }
        Ok((left, has_new))
    }

    async fn repeat_position(&mut self) -> Result<()> {
        // Read before the subscriptions: every change up to here waits there, or was delivered.
        let low_watermark = self.streams.inbox_position(&self.viewer);
        match self
            .subscriptions
            .iter_mut()
            .find_map(TopicSubscription::try_next)
        {
            Some(received) => self.accept(received).await,
            None => {
                self.position = self.position.max(low_watermark);
                self.pending.push_back(InboxUpdate {
                    position: self.position,
                    conversation: None,
                });
                Ok(())
            }
        }
    }
}
