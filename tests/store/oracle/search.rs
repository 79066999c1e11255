//! Rows of the search index in the naive engine.

use wideroom::store::{DirectoryChange, SearchSegmentKey, SearchStore, StoreFuture};

use super::*;

impl SearchStore for Naive {
    fn search_directories<'a>(
        &'a self,
        ids: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Vec<u8>>>> {
        Box::pin(async move {
            let kept = self.kept();
            let each = ids.iter().map(|id| kept.directories.get(id).cloned());
            Ok(each.collect())
        })
    }

    fn swap_search_directory<'a>(
        &'a self,
        conversation: ConversationId,
        seen: Option<&'a [u8]>,
        to: &'a [u8],
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut kept = self.kept();
            let present = kept.directories.get(&conversation).map(Vec::as_slice);
            let is_same = present == seen;
            if is_same {
                kept.directories.insert(conversation, to.to_vec());
            }
            Ok(is_same)
        })
    }

    fn add_search_segment<'a>(
        &'a self,
        segment: SearchSegmentKey,
        blocks: &'a [Vec<u8>],
        change: &'a DirectoryChange,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let (conversation, seen) = (segment.conversation, change.seen.as_deref());
            let swapped = self.swap_search_directory(conversation, seen, &change.to);
            let is_added = swapped.await?;
            if is_added {
                self.kept().segments.insert(segment, blocks.to_vec());
            }
            Ok(is_added)
        })
    }

    fn search_blocks<'a>(
        &'a self,
        blocks: &'a [(SearchSegmentKey, u32)],
    ) -> StoreFuture<'a, Vec<Option<Vec<u8>>>> {
        Box::pin(async move {
            let kept = self.kept();
            let block = |(segment, number): &(SearchSegmentKey, u32)| {
                let blocks = kept.segments.get(segment)?;
                blocks.get(*number as usize).cloned()
            };
            Ok(blocks.iter().map(block).collect())
        })
    }

    fn delete_search_segments<'a>(
        &'a self,
        segments: &'a [SearchSegmentKey],
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            kept.segments.retain(|key, _| !segments.contains(key));
            Ok(())
        })
    }
}
