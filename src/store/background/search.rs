//! Rows of the search index. The chat decides what they hold: for a store they are bytes.

use async_trait::async_trait;
use uuid::Uuid;

use crate::model::ConversationId;
use crate::store::Result;

/// Segment of a conversation's index. No two segments ever have one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SearchSegmentKey {
    pub conversation: ConversationId,
    pub segment: Uuid,
}

/// The part of a store that holds the search index: a directory for each conversation, and the blocks of segments.
#[async_trait]
pub trait SearchStore: Send + Sync + 'static {
    /// The directories of these conversations. `None` where there was never one.
    async fn search_directories(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Vec<u8>>>>;

    /// Replaces a directory. A compare-and-set: false, and nothing is written, if it is not the one that was `seen`. After
    /// an error either may be true.
    async fn swap_search_directory(
        &self,
        conversation: ConversationId,
        seen: Option<&[u8]>,
        to: &[u8],
    ) -> Result<bool>;

    /// Adds the blocks of a segment, from the number 0 on. They are whole once a directory names the segment.
    async fn put_search_segment(&self, segment: SearchSegmentKey, blocks: &[Vec<u8>])
    -> Result<()>;

    /// Blocks of segments by their numbers. `None` for one that does not exist, or does no more.
    async fn search_blocks(
        &self,
        blocks: &[(SearchSegmentKey, u32)],
    ) -> Result<Vec<Option<Vec<u8>>>>;

    /// Deletes the blocks of a segment. It never comes back.
    async fn delete_search_segment(&self, segment: SearchSegmentKey) -> Result<()>;
}
