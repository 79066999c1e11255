//! Rows of the search index. The chat decides what they hold: for a store they are bytes.

use uuid::Uuid;

use crate::model::ConversationId;
use crate::store::intercepted::store_trait;

/// Segment of a conversation's index. No two segments ever have one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SearchSegmentKey {
    pub conversation: ConversationId,
    pub segment: Uuid,
}

/// Change of a directory that names a new segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryChange {
    pub seen: Option<Vec<u8>>,
    /// The directory while the blocks are written. A store that writes all at once never holds it.
    pub claim: Vec<u8>,
    pub to: Vec<u8>,
}

store_trait! {
    implement search_operations;

    /// The part of a store that holds the search index: a directory for each conversation, and the blocks of segments.
    pub trait SearchStore: Send + Sync + 'static {
        /// The directories of these conversations. `None` where there was never one.
        fn search_directories(&self, conversations: &'a [ConversationId]) -> Vec<Option<Vec<u8>>>;

        /// Replaces a directory. A compare-and-set: false, and nothing is written, if it is not the one that was `seen`. After
        /// an error either may be true.
        fn swap_search_directory(&self, conversation: ConversationId, seen: Option<&'a [u8]>, to: &'a [u8]) -> bool;

        /// Adds a segment with its blocks, from the number 0 on, and replaces the directory. False, and nothing is left, if that is
        /// not the one that was `seen`. After an error either may be true.
        fn add_search_segment(&self, segment: SearchSegmentKey, blocks: &'a [Vec<u8>], change: &'a DirectoryChange) -> bool;

        /// Blocks of segments by their numbers. `None` for one that does not exist, or does no more.
        fn search_blocks(&self, blocks: &'a [(SearchSegmentKey, u32)]) -> Vec<Option<Vec<u8>>>;

        /// Deletes the blocks of segments. They never come back.
        fn delete_search_segments(&self, segments: &'a [SearchSegmentKey]) -> ();
    }
}
