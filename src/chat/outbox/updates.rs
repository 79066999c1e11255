//! Updates of one reader of the outbox: its events with their messages, and its position.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::feed::{FeedStep, RowFeed};
use super::notification::{NotificationRecipient, NotificationService};
use super::{OutboxFilter, OutboxItem, OutboxService};
use crate::chat::error::Result;
use crate::model::{ConversationId, Message, MessageId, OrderKey, OutboxRow};
use crate::store::Store;

/// A quiet stream repeats its position at this interval, so that a client that reconnects much
/// later has a recent cursor.
const POSITION_INTERVAL: Duration = Duration::from_secs(45 * 60);

/// Events that are loaded at once, unless one row has more: the messages of a row take at most 40
/// KiB.
const EVENTS_MAX: usize = 128;

/// Position of the stream with the event there. Without an event, only the position has advanced.
#[derive(Debug, Clone)]
pub struct OutboxUpdate {
    pub position: OrderKey,
    pub event: Option<LoadedEvent>,
}

/// Event of the outbox, with its message in its present state.
#[derive(Debug, Clone)]
pub struct LoadedEvent {
    pub conversation: ConversationId,
    pub item: OutboxItem,
    /// `None` for an event that is of no message.
    pub message: Option<Arc<Message>>,
    /// Users to notify, of a notification alone.
    pub recipients: Option<Vec<NotificationRecipient>>,
}

pub struct OutboxUpdates {
    store: Arc<dyn Store>,
    notifications: Arc<NotificationService>,
    feed: RowFeed,
    filter: OutboxFilter,
    /// All events up to here were delivered.
    position: OrderKey,
    /// Rows whose events are not loaded yet.
    rows: VecDeque<OutboxRow>,
    pending: VecDeque<OutboxUpdate>,
    quiet_since: Instant,
}

impl OutboxUpdates {
    pub(super) fn new(
        service: &OutboxService,
        feed: RowFeed,
        filter: OutboxFilter,
        position: OrderKey,
    ) -> Self {
        Self {
            store: Arc::clone(&service.store),
            notifications: Arc::clone(&service.notifications),
            feed,
            filter,
            position,
            rows: VecDeque::new(),
            pending: VecDeque::from([OutboxUpdate {
                position,
                event: None,
            }]),
            quiet_since: Instant::now(),
        }
    }

    pub async fn next(&mut self) -> Result<OutboxUpdate> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                self.quiet_since = Instant::now();
                return Ok(update);
            }
            if !self.rows.is_empty() {
                self.load().await?;
                continue;
            }
            match self.feed.read().await? {
                FeedStep::Rows(rows) => self.rows.extend(rows),
                FeedStep::Complete(position) => {
                    self.position = self.position.max(position);
                    if self.quiet_since.elapsed() >= POSITION_INTERVAL {
                        self.pending.push_back(OutboxUpdate {
                            position: self.position,
                            event: None,
                        });
                    } else {
                        self.feed.wait(POSITION_INTERVAL).await;
                    }
                }
            }
        }
    }

    /// Queues the events of the next rows that the filter selects. The position passes a row with its
    /// last event: a reader that resumes within a row receives the whole row again.
    async fn load(&mut self) -> Result<()> {
        let mut rows = Vec::new();
        let mut count = 0;
        while count < EVENTS_MAX
            && let Some(row) = self.rows.pop_front()
        {
            count += row.events.len();
            rows.push(row);
        }
        let messages = self.messages(&rows).await?;
        for OutboxRow {
            id,
            conversation,
            events,
        } in rows
        {
            let types = &self.filter.types;
            let items = events.into_iter().flat_map(|event| types.items(event));
            let mut selected = VecDeque::new();
            for item in items.collect::<Vec<_>>() {
                let has_message = item.event.kind.has_message();
                let key = (conversation, item.event.message);
                let message = messages.get(&key).filter(|_| has_message).cloned();
                // A message that is not there any more has no event.
                if message.is_some() != has_message {
                    continue;
                }
                let recipients = match &message {
                    Some(message) if item.is_notification => {
                        let recipients = self.notifications.recipients(message).await?;
                        if recipients.is_empty() {
                            continue;
                        }
                        Some(recipients)
                    }
                    Some(_) | None => None,
                };
                selected.push_back(LoadedEvent {
                    conversation,
                    item,
                    message,
                    recipients,
                });
            }
            let after = self.position.max(id.order_key());
            while let Some(event) = selected.pop_front() {
                if selected.is_empty() {
                    self.position = after;
                }
                self.pending.push_back(OutboxUpdate {
                    position: self.position,
                    event: Some(event),
                });
            }
            self.position = after;
        }
        Ok(())
    }

    /// The messages of the selected events.
    async fn messages(
        &self,
        rows: &[OutboxRow],
    ) -> Result<HashMap<(ConversationId, MessageId), Arc<Message>>> {
        let mut keys: Vec<_> = rows
            .iter()
            .flat_map(|row| row.events.iter().map(|event| (row.conversation, event)))
            .filter(|(_, event)| {
                let types = &self.filter.types;
                let is_notified = types.has_notifications && NotificationService::follows(event);
                event.kind.has_message() && (types.has(event.kind) || is_notified)
            })
            .map(|(conversation, event)| (conversation, event.message))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let messages = self.store.messages(&keys).await?;
        Ok(keys
            .into_iter()
            .zip(messages)
            .filter_map(|(key, message)| Some((key, message?)))
            .collect())
    }
}
