//! Updates of one reader of the outbox: its events with their messages, and its position.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::scan::OutboxScan;
use super::{OutboxFilter, OutboxService};
use crate::chat::error::Result;
use crate::chat::in_flight_ids::InFlightIds;
use crate::model::{ConversationId, Message, MessageId, OrderKey, OutboxEvent, OutboxRow};
use crate::store::Store;

/// A quiet stream repeats its position at this interval, so that a client that reconnects much
/// later has a recent cursor.
const POSITION_INTERVAL: Duration = Duration::from_secs(45 * 60);
/// Shortest pause between two passes of a reader that has read everything: events that follow one
/// another closely are read together.
const PASS_EVERY: Duration = Duration::from_millis(10);
const SHARED_PASS_EVERY: Duration = Duration::from_millis(250);
/// Longest pause of a reader of a shared store, which hears nothing of other servers.
const SHARED_PASS_MAX: Duration = Duration::from_secs(5);

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
    pub event: OutboxEvent,
    /// `None` for an event that is of no message.
    pub message: Option<Arc<Message>>,
}

pub struct OutboxUpdates {
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
    scan: OutboxScan,
    filter: OutboxFilter,
    /// All events up to here were delivered.
    position: OrderKey,
    /// Rows whose events are not loaded yet.
    rows: VecDeque<OutboxRow>,
    pending: VecDeque<OutboxUpdate>,
    released: watch::Receiver<()>,
    /// Pause before the next pass of a shared store.
    pause: Duration,
    quiet_since: Instant,
}

impl OutboxUpdates {
    pub(super) fn new(
        service: &OutboxService,
        scan: OutboxScan,
        filter: OutboxFilter,
        position: OrderKey,
        released: watch::Receiver<()>,
    ) -> Self {
        Self {
            store: Arc::clone(&service.store),
            in_flight: service.in_flight.clone(),
            scan,
            filter,
            position,
            rows: VecDeque::new(),
            pending: VecDeque::from([OutboxUpdate {
                position,
                event: None,
            }]),
            released,
            pause: SHARED_PASS_EVERY,
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
            // Seen before the limit: ids that are released after it wake the reader.
            self.released.borrow_and_update();
            let limit = self.in_flight.outbox_limit();
            let rows = self.scan.read(limit).await?;
            if !rows.is_empty() {
                self.pause = SHARED_PASS_EVERY;
                self.rows.extend(rows);
                continue;
            }
            let Some(completed_to) = self.scan.completed_to() else {
                continue;
            };
            self.position = self.position.max(completed_to);
            if self.quiet_since.elapsed() >= POSITION_INTERVAL {
                self.pending.push_back(OutboxUpdate {
                    position: self.position,
                    event: None,
                });
                continue;
            }
            self.wait().await;
        }
    }

    /// Waits until there may be more to read.
    async fn wait(&mut self) {
        if self.in_flight.is_shared() {
            sleep(SHARED_PASS_EVERY).await;
            let more = self.pause.saturating_sub(SHARED_PASS_EVERY);
            self.pause = (self.pause * 2).min(SHARED_PASS_MAX);
            if let Ok(Ok(())) = timeout(more, self.released.changed()).await {
                self.pause = SHARED_PASS_EVERY;
            }
        } else {
            sleep(PASS_EVERY).await;
            let _ = timeout(POSITION_INTERVAL, self.released.changed()).await;
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
            let mut selected: VecDeque<_> = events
                .into_iter()
                .filter(|event| self.filter.has(event.kind))
                .filter_map(|event| {
                    let has_message = event.kind.has_message();
                    let key = (conversation, event.message);
                    let message = messages.get(&key).filter(|_| has_message).cloned();
                    // A message that is not there any more has no event.
                    let is_whole = message.is_some() == has_message;
                    is_whole.then_some(LoadedEvent {
                        conversation,
                        event,
                        message,
                    })
                })
                .collect();
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
            .filter(|(_, event)| event.kind.has_message() && self.filter.has(event.kind))
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
