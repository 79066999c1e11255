//! The stream of changed inbox entries of a user, over all conversations.
//!
//! It delivers states, not events: waiting changes of one entry are coalesced, and a state may
//! repeat after a resume. Its position never passes an undelivered change (see `in_flight_ids`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select_all;
use tokio::time::Instant;

use super::StreamService;
use super::large_entries::{LargeChange, LargeEntries, LoadedEntry};
use super::quiet_alarm::QuietAlarm;
use super::registration::StreamRegistration;
use crate::bus::{Received, TopicSubscription};
use crate::chat::error::{Error, Result};
use crate::model::{BlockNotice, ConversationId, Event, Message, OrderKey, Topic, UserId};

/// Position of the stream with the changed entry there. Without a conversation, only the position
/// has advanced.
#[derive(Debug, Clone)]
pub struct InboxUpdate {
    pub position: OrderKey,
    pub conversation: Option<ConversationId>,
    /// A user whom the viewer has blocked or unblocked.
    pub block_of: Option<UserId>,
    /// The entry, where it is known without a read of the store.
    pub entry: Option<Box<LoadedEntry>>,
    /// False while the stream replays.
    pub is_live: bool,
    /// The change was persisted before this moment.
    pub received_at: Instant,
}

impl InboxUpdate {
    fn of_position(position: OrderKey) -> Self {
        Self {
            position,
            conversation: None,
            block_of: None,
            entry: None,
            is_live: true,
            received_at: Instant::now(),
        }
    }

    fn of_conversation(position: OrderKey, conversation: ConversationId) -> Self {
        Self {
            position,
            conversation: Some(conversation),
            ..Self::of_position(position)
        }
    }

    fn of_block(position: OrderKey, user: UserId) -> Self {
        Self {
            block_of: Some(user),
            ..Self::of_position(position)
        }
    }
}

pub struct InboxUpdates {
    streams: Arc<StreamService>,
    viewer: UserId,
    /// The viewer's inbox first, then each of their large conversations.
    subscriptions: Vec<TopicSubscription>,
    registration: StreamRegistration,
    large: LargeEntries,
    /// Cursor of the stream: all changes up to here were delivered.
    position: OrderKey,
    pending: VecDeque<InboxUpdate>,
    /// False until the end of a replay that is to be announced.
    is_live: bool,
    quiet: QuietAlarm,
}

/// Changes that were received together.
struct ReceivedChanges {
    position: OrderKey,
    /// The latest change last.
    conversations: Vec<ConversationId>,
    /// Conversations with a notice for the inbox itself, and not only for the topic of a large
    /// conversation.
    addressed: HashSet<ConversationId>,
    /// Changes on the topics of large conversations.
    large: HashMap<ConversationId, LargeChange>,
    /// Messages of large conversations with new reactions.
    reacted: Vec<Arc<Message>>,
    /// Users whom the viewer has blocked or unblocked, with their direct conversations.
    blocks: Vec<BlockNotice>,
    has_gap: bool,
}

impl ReceivedChanges {
    fn add(&mut self, received: Received) {
        let Received::Notice(notice) = received else {
            self.has_gap = true;
            return;
        };
        self.position = self.position.max(notice.settled);
        if let Event::BlockChanged(block) = &notice.event {
            self.blocks.push(block.clone());
        }
        let Some(conversation) = notice.event.conversation() else {
            return;
        };
        match &notice.event {
            // An entry shows neither the markers of other users nor reactions and pins.
            Event::MarkerMoved(..) => return,
            Event::MessageChanged(kind, message) if !kind.shows_in_inboxes() => {
                self.reacted.push(Arc::clone(message));
                return;
            }
            Event::Inbox(_) => {
                self.addressed.insert(conversation);
            }
            Event::MessageAdded(message) => {
                let change = self.large.entry(conversation).or_default();
                change.messages.push(Arc::clone(message));
            }
            Event::MessageChanged(_, message) => {
                let change = self.large.entry(conversation).or_default();
                change.revised.push(Arc::clone(message));
            }
            Event::Changed(..)
            | Event::BlockChanged(_)
            | Event::Typing(..)
            | Event::LiveStepped(_)
            | Event::Presence(_) => {}
        }
        self.conversations.retain(|other| *other != conversation);
        self.conversations.push(conversation);
    }
}

impl StreamService {
    /// The viewer's entries as they change. With `after`, first those that changed since that
    /// cursor, ordered by their newest change. An agent has no entries: its stream delivers positions alone.
    pub async fn inbox(
        self: &Arc<Self>,
        viewer: &UserId,
        after: Option<OrderKey>,
    ) -> Result<InboxUpdates> {
        let mut subscriptions = vec![self.bus.subscribe(Topic::Inbox(viewer.clone()))];
        let mut registration = match viewer.is_agent() {
            // Nothing is ever published there.
            true => StreamRegistration::default(),
            false => StreamRegistration::begin(&self.in_flight, viewer).await?,
        };
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
            large: LargeEntries::default(),
            position,
            pending: VecDeque::from([InboxUpdate::of_position(position)]),
            is_live: true,
            quiet: QuietAlarm::new(),
        };
        if let Some(after) = after {
            self.check_cursor_age(after)?;
            updates.read_changes().await?;
        }
        Ok(updates)
    }
}

impl InboxUpdates {
    /// Announces the end of the replay by one more position. Until then no update is live.
    #[must_use]
    pub fn announcing_live(mut self) -> Self {
        self.is_live = false;
        self
    }

    pub async fn next(&mut self) -> Result<Option<InboxUpdate>> {
        loop {
            if let Some(mut update) = self.pending.pop_front() {
                self.quiet.record_delivery();
                update.is_live = self.is_live;
                return Ok(Some(update));
            }
            if !std::mem::replace(&mut self.is_live, true) {
                return Ok(Some(InboxUpdate::of_position(self.position)));
            }
            let receive = select_all(
                self.subscriptions
                    .iter_mut()
                    .map(|subscription| subscription.next().boxed()),
            );
            let received = tokio::select! {
                biased;
                (received, ..) = receive => Some(received),
                () = self.quiet.wait() => None,
            };
            // Boxed: every quiet stream would reserve the size of the future.
            match received {
                Some(Some(received)) => Box::pin(self.accept(received)).await?,
                Some(None) => return Ok(None),
                None => Box::pin(self.repeat_position()).await?,
            }
        }
    }

    /// Queues all entries that changed after the position.
    async fn read_changes(&mut self) -> Result<()> {
        if self.viewer.is_agent() {
            return Ok(());
        }
        let streams = Arc::clone(&self.streams);
        let _permit = streams.replay_limiter.acquire(&self.viewer).await?;
        let low_watermark = streams.inbox_position(&self.viewer);
        let from = streams.read_position(self.position);
        let changes = streams
            .store
            .inbox_changes(&self.viewer, from, streams.inbox_replay_max)
            .await?;
        let changes = changes.ok_or(Error::CursorExpired)?;
        let lists = Arc::clone(streams.access.blocks());
        let blocks = lists.of(&self.viewer).await?;
        for block in blocks.changed_after(from) {
            let direct = lists.direct(&self.viewer, &block.blocked).await?;
            self.push_block(block.blocked, direct);
        }
        for changed in changes {
            self.position = self
                .position
                .max(changed.newest_change.order_key().min(low_watermark));
            if blocks.hides(changed.conversation)
                || !blocks.is_empty()
                    && (streams.access.hidden_groups())
                        .hides(&self.viewer, changed.conversation)
                        .await?
            {
                continue;
            }
            let update = InboxUpdate::of_conversation(self.position, changed.conversation);
            self.pending.push_back(update);
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
            large: HashMap::new(),
            reacted: Vec::new(),
            blocks: Vec::new(),
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
            large,
            reacted,
            blocks,
            has_gap,
        } = received;
        let hidden = self.streams.access.blocks().of(&self.viewer).await?;
        conversations.retain(|id| !hidden.hides(*id));
        if !hidden.is_empty() {
            let groups = self.streams.access.hidden_groups();
            for index in (0..conversations.len()).rev() {
                if groups.hides(&self.viewer, conversations[index]).await? {
                    conversations.remove(index);
                }
            }
        }
        if !blocks.is_empty() {
            // Counts that were advanced message by message are computed anew.
            self.large.clear();
        }
        let (known, unknown): (Vec<_>, Vec<_>) =
            conversations.iter().partition(|id| self.is_large(**id));
        let (mut left, has_new_topic) = self.follow_large_conversations(&unknown).await?;
        if has_gap || has_new_topic {
            // Missed changes are read from the store, from the cursor on.
            self.large.clear();
            return self.read_changes().await;
        }
        reacted
            .iter()
            .for_each(|message| self.large.on_reaction(message));
        let mut entries = self
            .update_large(known, &addressed, large, &mut left)
            .await?;
        // A viewer who has left a conversation must not learn of its later events.
        conversations.retain(|id| !left.contains(id) || addressed.contains(id));
        let count = conversations.len();
        for block in blocks {
            self.push_block(block.blocked, block.direct);
        }
        if count == 0 {
            self.position = position;
        }
        for (index, conversation) in conversations.into_iter().enumerate() {
            if index + 1 == count {
                self.position = position;
            }
            self.pending.push_back(InboxUpdate {
                entry: entries.remove(&conversation).map(Box::new),
                ..InboxUpdate::of_conversation(self.position, conversation)
            });
        }
        Ok(())
    }

    /// Queues the change of a block, and the entry that it hides or brings back.
    fn push_block(&mut self, blocked: UserId, direct: Option<ConversationId>) {
        let position = self.position;
        self.pending
            .push_back(InboxUpdate::of_block(position, blocked));
        let entry = direct.map(|direct| InboxUpdate::of_conversation(position, direct));
        self.pending.extend(entry);
    }

    /// Whether the stream follows the topic of a conversation, on a shared store.
    fn is_large(&self, id: ConversationId) -> bool {
        let topic = Topic::Conversation(id);
        let mut followed = self.subscriptions.iter().map(TopicSubscription::topic);
        self.streams.is_shared() && followed.any(|followed| *followed == topic)
    }

    /// The changed entries of large conversations. Unsubscribes from those that the viewer has left.
    async fn update_large(
        &mut self,
        known: Vec<ConversationId>,
        addressed: &HashSet<ConversationId>,
        mut changes: HashMap<ConversationId, LargeChange>,
        left: &mut HashSet<ConversationId>,
    ) -> Result<HashMap<ConversationId, LoadedEntry>> {
        let mut entries = HashMap::new();
        for id in known {
            let mut change = changes.remove(&id).unwrap_or_default();
            let is_by_viewer = |message: &Arc<Message>| message.sender == self.viewer;
            change.is_own = addressed.contains(&id) || change.messages.iter().any(is_by_viewer);
            let (streams, viewer) = (&self.streams, &self.viewer);
            match self.large.update(streams, viewer, id, change).await? {
                Some(entry) => drop(entries.insert(id, entry)),
                None => {
                    self.leave(id);
                    left.insert(id);
                }
            }
        }
        Ok(entries)
    }

    /// Unsubscribes from the topic of a conversation that the viewer has left.
    fn leave(&mut self, id: ConversationId) {
        let topic = Topic::Conversation(id);
        self.subscriptions
            .retain(|subscription| *subscription.topic() != topic);
        self.registration.leave(id);
        self.large.remove(id);
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
                self.leave(*id);
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
                self.pending
                    .push_back(InboxUpdate::of_position(self.position));
                Ok(())
            }
        }
    }
}
