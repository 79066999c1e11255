//! Feed of one shard for a named reader: the rows after its position, without their payloads.

use std::time::Duration;

use super::feed::{FeedStep, RowFeed};
use super::{LoadedItem, OutboxItem, OutboxService, OutboxTypes};
use crate::chat::error::Result;
use crate::model::{ConversationId, OrderKey, OutboxRow, OutboxShard};
use crate::store::{OutboxPage, OutboxRead};

/// Longest wait for rows: then the position of a quiet shard advances.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Rows of a page that is read again.
const PAGE_ROWS: usize = 512;

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

    /// The next page of a shard after a position, up to `end`, which a reader has passed.
    pub async fn shard_page(
        &self,
        shard: OutboxShard,
        after: OrderKey,
        end: OrderKey,
    ) -> Result<OutboxPage> {
        let reads = [OutboxRead { shard, after }];
        let pages = self.tail.read(&reads, end, PAGE_ROWS, false).await?;
        Ok(pages.into_iter().next().unwrap_or(OutboxPage {
            rows: Vec::new(),
            read_to: end,
        }))
    }

    /// The event with its message in its present state, or the users to notify of it.
    pub async fn load(
        &self,
        conversation: ConversationId,
        item: &OutboxItem,
    ) -> Result<LoadedItem> {
        self.loader().load(conversation, item).await
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
