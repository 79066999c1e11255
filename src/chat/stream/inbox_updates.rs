//! The stream of a user's inbox entries as they change, over all conversations.
//!
//! It carries states, not events: several changes of one entry that wait become one, and a state may come again after a resume. Its
//! position is only moved past what was given (see `in_flight`).

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;
use tokio::time::Instant;

use crate::bus::{Received, TopicSubscription};
use crate::chat::stream::message_updates::before_by;
use crate::chat::{Chat, Error, Result};
use crate::model::{ChangeKind, ConversationId, Event, OrderKey, Topic, UserId};

/// Changes are kept for 35 days; a cursor is good for 30.
const CURSOR_LIFETIME_MICROS: i64 = 30 * 24 * 3_600 * 1_000_000;
/// A stream that is quiet for so long tells its position again, so that a client that comes back much later has a young one.
pub(crate) const POSITION_EVERY: Duration = Duration::from_secs(45 * 60);

/// Where the stream is, and what changed there. Without a change it is only the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxUpdate {
    pub position: OrderKey,
    pub conversation: Option<ConversationId>,
}

pub struct InboxUpdates {
    chat: Chat,
    viewer: UserId,
    /// The viewer's inbox first, then each of their large conversations.
    heard: Vec<TopicSubscription>,
    /// All up to here was given.
    position: OrderKey,
    pending: VecDeque<InboxUpdate>,
    quiet_since: Instant,
}

impl Chat {
    /// The position of the viewer's inbox stream: that of what is stored, never "now".
    pub fn updates_position(&self) -> OrderKey {
        self.0.in_flight.settled()
    }

    /// Changes are forgotten after a while, and an import is none: a position from before that would have a gap.
    pub(crate) fn check_cursor_age(&self, after: OrderKey) -> Result<()> {
        let oldest = self
            .0
            .clock
            .now()
            .plus_micros(-CURSOR_LIFETIME_MICROS)
            .max(self.0.imported_at);
        if after.moment() < oldest {
            Err(Error::CursorExpired)
        } else {
            Ok(())
        }
    }

    /// The viewer's entries as they change. With `after`: first those that changed since, ascending by their newest change.
    pub async fn inbox_updates(
        &self,
        viewer: &UserId,
        after: Option<OrderKey>,
    ) -> Result<InboxUpdates> {
        let mut heard = vec![self.0.bus.subscribe(Topic::Inbox(viewer.clone()))];
        for conversation in self.0.store.large_conversations(viewer).await? {
            heard.push(self.0.bus.subscribe(Topic::Conversation(conversation)));
        }
        let position = after.unwrap_or_else(|| self.updates_position());
        let mut updates = InboxUpdates {
            chat: self.clone(),
            viewer: viewer.clone(),
            heard,
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
            let listen = select_all(
                self.heard
                    .iter_mut()
                    .map(|subscription| subscription.next().boxed()),
            );
            let heard = tokio::time::timeout_at(self.quiet_since + POSITION_EVERY, listen)
                .await
                .map(|(heard, ..)| heard);
            let taken = match heard {
                Ok(heard) => self.take(heard?).await,
                Err(_) => self.repeat_position().await,
            };
            if let Err(error) = taken {
                return Some(Err(error));
            }
        }
    }

    /// Puts all entries that changed after the position into the queue.
    async fn read_changes(&mut self) -> Result<()> {
        let _turn = self.chat.0.replay_limiter.turn(&self.viewer).await?;
        let settled = self.chat.updates_position();
        let from = before_by(self.position, self.chat.0.store.overlap_micros());
        let changes = self
            .chat
            .0
            .store
            .inbox_changes(&self.viewer, from, self.chat.0.bounds.inbox_replay_max)
            .await?;
        for changed in changes.ok_or(Error::CursorExpired)? {
            self.position = self
                .position
                .max(changed.newest_change.order_key().min(settled));
            self.pending.push_back(InboxUpdate {
                position: self.position,
                conversation: Some(changed.conversation),
            });
        }
        Ok(())
    }

    /// Takes what was heard and all that waits behind it. The position moves with the last of it: a notice says what was told before it,
    /// and with several topics that may still wait in another.
    async fn take(&mut self, first: Received) -> Result<()> {
        let mut position = self.position;
        let mut changed: Vec<ConversationId> = Vec::new();
        // Told to the inbox itself, and not only to a large conversation.
        let mut own: HashSet<ConversationId> = HashSet::new();
        let mut has_gap = false;
        let mut hear = |heard: Received| match heard {
            Received::Notice(notice) => {
                position = position.max(notice.settled);
                // How far others have read shows in no entry of the viewer's, and neither do reactions.
                if let Event::MarkerMoved(..)
                | Event::MessageChanged(ChangeKind::ReactionsChanged, _) = notice.event
                {
                    return;
                }
                let Some(conversation) = notice.event.conversation() else {
                    return;
                };
                if let Event::Inbox(_) = notice.event {
                    own.insert(conversation);
                }
                changed.retain(|other| *other != conversation);
                changed.push(conversation);
            }
            Received::Lagged => has_gap = true,
        };
        hear(first);
        for subscription in &mut self.heard {
            while let Some(heard) = subscription.try_next() {
                hear(heard);
            }
        }
        let (gone, has_new_topic) = self.follow_large_conversations(&changed).await?;
        // What goes on in a conversation after the viewer has left it is not theirs to know.
        changed.retain(|conversation| !gone.contains(conversation) || own.contains(conversation));
        if has_gap || has_new_topic {
            // What was missed is read from the store, from the last position that was given.
            return self.read_changes().await;
        }
        let count = changed.len();
        if count == 0 {
            self.position = position;
        }
        for (index, conversation) in changed.into_iter().enumerate() {
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

    /// A conversation that is told of to the inbox itself may be large: its messages are told to the conversation alone, so that is listened
    /// to. Which of these the viewer is not in any more, and whether there was a new large one.
    async fn follow_large_conversations(
        &mut self,
        changed: &[ConversationId],
    ) -> Result<(HashSet<ConversationId>, bool)> {
        let conversations = self.chat.conversations(&self.viewer, changed).await?;
        let mut gone = HashSet::new();
        let mut has_new = false;
        for (id, conversation) in changed.iter().zip(conversations) {
            let topic = Topic::Conversation(*id);
            let Some(conversation) = conversation else {
                self.heard
                    .retain(|subscription| *subscription.topic() != topic);
                gone.insert(*id);
                continue;
            };
            if conversation.is_large
                && self
                    .heard
                    .iter()
                    .all(|subscription| *subscription.topic() != topic)
            {
                self.heard.push(self.chat.0.bus.subscribe(topic));
                has_new = true;
            }
        }
        Ok((gone, has_new))
    }

    async fn repeat_position(&mut self) -> Result<()> {
        // Taken before looking: whatever was told up to here waits in a topic, or was given.
        let settled = self.chat.updates_position();
        match self.heard.iter_mut().find_map(TopicSubscription::try_next) {
            Some(heard) => self.take(heard).await,
            None => {
                self.position = self.position.max(settled);
                self.pending.push_back(InboxUpdate {
                    position: self.position,
                    conversation: None,
                });
                Ok(())
            }
        }
    }
}
