//! Updates of one reader of the outbox: its events with their messages, and its position.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::feed::{FeedStep, RowFeed};
use super::loader::{EventLoader, LoadedEvent};
use super::notification::NotificationService;
use super::{OutboxFilter, OutboxItem, OutboxService};
use crate::chat::error::{Error, Result};
use crate::model::{ConversationId, Message, MessageId, OrderKey, OutboxRow};

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

/// Update that is loaded, or a notification that is loaded when its turn comes, piece by piece.
enum PendingUpdate {
    Loaded(OutboxUpdate),
    Notification {
        conversation: ConversationId,
        item: OutboxItem,
        /// Position while further pieces follow.
        before: OrderKey,
        /// Position after the last piece.
        after: OrderKey,
    },
}

impl PendingUpdate {
    fn of_position(position: OrderKey) -> Self {
        let event = None;
        Self::Loaded(OutboxUpdate { position, event })
    }
}

/// Rows with the messages of their events.
struct LoadedRows {
    rows: Vec<OutboxRow>,
    messages: HashMap<(ConversationId, MessageId), Arc<Message>>,
}

pub struct OutboxUpdates {
    loader: Arc<EventLoader>,
    feed: RowFeed,
    filter: OutboxFilter,
    /// All events up to here were delivered.
    position: OrderKey,
    /// Rows whose events are not loaded yet.
    rows: VecDeque<OutboxRow>,
    /// The rows before these, which load while others are delivered.
    loading: Option<AbortOnDropHandle<Result<LoadedRows>>>,
    pending: VecDeque<PendingUpdate>,
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
            loader: Arc::new(service.loader()),
            feed,
            filter,
            position,
            rows: VecDeque::new(),
            loading: None,
            pending: VecDeque::from([PendingUpdate::of_position(position)]),
            quiet_since: Instant::now(),
        }
    }

    pub async fn next(&mut self) -> Result<OutboxUpdate> {
        loop {
            if let Some(pending) = self.pending.pop_front() {
                if let Some(update) = self.delivered(pending).await? {
                    self.quiet_since = Instant::now();
                    return Ok(update);
                }
                continue;
            }
            if !self.rows.is_empty() || self.loading.is_some() {
                let loaded = self.load().await?;
                self.queue(loaded);
                continue;
            }
            match self.feed.read().await? {
                FeedStep::Rows(rows) => self.rows.extend(rows),
                FeedStep::Complete(position) => {
                    self.position = self.position.max(position);
                    if self.quiet_since.elapsed() >= POSITION_INTERVAL {
                        let repeated = PendingUpdate::of_position(self.position);
                        self.pending.push_back(repeated);
                    } else {
                        self.feed.wait(POSITION_INTERVAL).await;
                    }
                }
            }
        }
    }

    /// The update, or the next piece of a notification. `None` for a piece that notifies nobody.
    async fn delivered(&mut self, pending: PendingUpdate) -> Result<Option<OutboxUpdate>> {
        let (conversation, item, before, after) = match pending {
            PendingUpdate::Loaded(update) => return Ok(Some(update)),
            PendingUpdate::Notification {
                conversation,
                item,
                before,
                after,
            } => (conversation, item, before, after),
        };
        let loaded = self.loader.load(conversation, &item).await?;
        let position = if loaded.next.is_some() { before } else { after };
        if let Some(item) = loaded.next {
            self.pending.push_front(PendingUpdate::Notification {
                conversation,
                item,
                before,
                after,
            });
        }
        let event = loaded.event.map(Some);
        Ok(event.map(|event| OutboxUpdate { position, event }))
    }

    /// Loads the next rows. Those after them begin to load.
    async fn load(&mut self) -> Result<LoadedRows> {
        let loading = match self.loading.take() {
            Some(loading) => loading,
            None => self.begin_load(),
        };
        let loaded = loading.await.map_err(|_| Error::Busy)??;
        if !self.rows.is_empty() {
            self.loading = Some(self.begin_load());
        }
        Ok(loaded)
    }

    fn begin_load(&mut self) -> AbortOnDropHandle<Result<LoadedRows>> {
        let mut rows = Vec::new();
        let mut count = 0;
        while count < EVENTS_MAX
            && let Some(row) = self.rows.pop_front()
        {
            count += row.events.len();
            rows.push(row);
        }
        let keys = self.message_keys(&rows);
        let loader = Arc::clone(&self.loader);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let messages = match keys.is_empty() {
                true => HashMap::new(),
                false => {
                    let messages = loader.messages(&keys).await?;
                    let found = keys.into_iter().zip(messages);
                    found
                        .filter_map(|(key, message)| Some((key, message?)))
                        .collect()
                }
            };
            Ok(LoadedRows { rows, messages })
        }))
    }

    /// Queues the events of rows that the filter selects. The position passes a row with its last event: a reader that
    /// resumes within a row receives the whole row again.
    fn queue(&mut self, LoadedRows { rows, messages }: LoadedRows) {
        for OutboxRow {
            id,
            conversation,
            events,
        } in rows
        {
            let types = &self.filter.types;
            let items = events.into_iter().flat_map(|event| types.items(event));
            // A message that is not there any more has no event.
            let items: VecDeque<_> = items
                .filter_map(|item| {
                    let has_message = item.event.kind.has_message();
                    let message = messages.get(&(conversation, item.event.message));
                    let message = message.filter(|_| has_message).cloned();
                    (message.is_some() == has_message).then_some((item, message))
                })
                .collect();
            let after = self.position.max(id.order_key());
            let count = items.len();
            for (number, (item, message)) in items.into_iter().enumerate() {
                let before = self.position;
                if number + 1 == count {
                    self.position = after;
                }
                let position = self.position;
                self.pending.push_back(if item.piece.is_some() {
                    PendingUpdate::Notification {
                        conversation,
                        item,
                        before,
                        after: position,
                    }
                } else {
                    PendingUpdate::Loaded(OutboxUpdate {
                        position,
                        event: Some(LoadedEvent {
                            conversation,
                            item,
                            message,
                            recipients: None,
                        }),
                    })
                });
            }
            self.position = after;
        }
    }

    /// The messages of the selected events.
    fn message_keys(&self, rows: &[OutboxRow]) -> Vec<(ConversationId, MessageId)> {
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
        keys
    }
}
