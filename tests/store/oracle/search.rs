//! Rows of the search index in the naive engine.

use wideroom::store::{DirectoryChange, SearchSegmentKey, SearchStore};

use super::*;

#[async_trait]
impl SearchStore for Naive {
    async fn search_directories(&self, ids: &[ConversationId]) -> Result<Vec<Option<Vec<u8>>>> {
        let kept = self.kept();
        let each = ids.iter().map(|id| kept.directories.get(id).cloned());
        Ok(each.collect())
    }

    async fn swap_search_directory(
        &self,
        conversation: ConversationId,
        seen: Option<&[u8]>,
        to: &[u8],
    ) -> Result<bool> {
        let mut kept = self.kept();
        let present = kept.directories.get(&conversation).map(Vec::as_slice);
        let is_same = present == seen;
        if is_same {
            kept.directories.insert(conversation, to.to_vec());
        }
        Ok(is_same)
    }

    async fn add_search_segment(
        &self,
        segment: SearchSegmentKey,
        blocks: &[Vec<u8>],
        change: &DirectoryChange,
    ) -> Result<bool> {
        let (conversation, seen) = (segment.conversation, change.seen.as_deref());
        let swapped = self.swap_search_directory(conversation, seen, &change.to);
        let is_added = swapped.await?;
        if is_added {
            self.kept().segments.insert(segment, blocks.to_vec());
        }
        Ok(is_added)
    }

    async fn search_blocks(
        &self,
        blocks: &[(SearchSegmentKey, u32)],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let kept = self.kept();
        let block = |(segment, number): &(SearchSegmentKey, u32)| {
            let blocks = kept.segments.get(segment)?;
            blocks.get(*number as usize).cloned()
        };
        Ok(blocks.iter().map(block).collect())
    }

    async fn delete_search_segments(&self, segments: &[SearchSegmentKey]) -> Result<()> {
        let mut kept = self.kept();
        kept.segments.retain(|key, _| !segments.contains(key));
        Ok(())
    }
}
