//! Feed of one shard for a named reader: the rows after its position, without their payloads.

use std::time::Duration;

use super::feed::{FeedStep, RowFeed};
use super::{LoadedEvent, OutboxItem, OutboxService, OutboxTypes};
use crate::chat::error::Result;
use crate::model::{ConversationId, OrderKey, OutboxRow, OutboxShard};

/// Longest wait for rows: then the position of a quiet shard advances.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Next part of a shard.
#[derive(Debug)]
pub struct FeedBatch {
    /// Rows in the order of the outbox, but for late ones. One row may come twice.
    pub rows: Vec<OutboxRow>,
    /// Position after these rows, once the shard was read to its end.
    pub completed_to: Option<OrderKey>,
}

pub struct ShardFeed(RowFeed);

impl OutboxService {
    /// The rows of a shard after the position of a reader that resumes.
    pub fn shard_feed(
        &self,
        shard: OutboxShard,
        position: OrderKey,
        types: &OutboxTypes,
    ) -> ShardFeed {
        let trail = self.trail(types);
        ShardFeed(RowFeed::new(self, &[shard], position, true, trail))
    }

    /// The event with its message in its present state, or the users to notify of it. `None` if the message does not exist any
    /// more, or if nobody is to be notified.
    pub async fn load(
        &self,
        conversation: ConversationId,
        item: &OutboxItem,
    ) -> Result<Option<LoadedEvent>> {
        let event = &item.event;
        let message = if event.kind.has_message() {
            let key = (conversation, event.message);
            let Some(message) = self.store.messages(&[key]).await?.pop().flatten() else {
                return Ok(None);
            };
            Some(message)
        } else {
            None
        };
        let recipients = match &message {
            Some(message) if item.is_notification => {
                let recipients = self.notifications.recipients(message).await?;
                if recipients.is_empty() {
                    return Ok(None);
                }
                Some(recipients)
            }
            Some(_) | None => None,
        };
        Ok(Some(LoadedEvent {
            conversation,
            item: item.clone(),
            message,
            recipients,
        }))
    }
}

impl ShardFeed {
    /// Waits for the next rows, or for a few seconds. After an error the same rows come again.
    pub async fn next(&mut self) -> Result<FeedBatch> {
        Ok(match self.0.read().await? {
            FeedStep::Rows(rows) => FeedBatch {
                rows,
                completed_to: None,
            },
            FeedStep::Complete(position) => {
                self.0.wait(WAIT_MAX).await;
                FeedBatch {
                    rows: Vec::new(),
                    completed_to: Some(position),
                }
            }
        })
    }
}
