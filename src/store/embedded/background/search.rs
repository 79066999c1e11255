//! Rows of the search index in the embedded store.

use crate::model::{ConversationId, Direction};
use crate::store::embedded::Embedded;
use crate::store::embedded::engine::committer::{CommitOutcome, Op, Write};
use crate::store::embedded::engine::key;
use crate::store::embedded::read_context::ReadContext;
use crate::store::{
    DirectoryChange, Result, SearchSegmentKey, SearchStore, StoreFuture, search_operations,
};

impl SearchStore for Embedded {
    search_operations! { reads {
        search_directories: directories,
        search_blocks: blocks,
    } }

    fn swap_search_directory<'a>(
        &'a self,
        conversation: ConversationId,
        seen: Option<&'a [u8]>,
        to: &'a [u8],
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let write = swap(conversation, seen, to);
            Ok(self.write(write).await? == CommitOutcome::Done)
        })
    }

    fn add_search_segment<'a>(
        &'a self,
        segment: SearchSegmentKey,
        blocks: &'a [Vec<u8>],
        change: &'a DirectoryChange,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut write = swap(segment.conversation, change.seen.as_deref(), &change.to);
            let blocks = (0..).zip(blocks);
            let puts = blocks
                .map(|(number, block)| Op::Put(key::search_block(segment, number), block.clone()));
            write.ops.extend(puts);
            Ok(self.write(write).await? == CommitOutcome::Done)
        })
    }

    fn delete_search_segments<'a>(
        &'a self,
        segments: &'a [SearchSegmentKey],
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let segments = segments.to_vec();
            let numbers: Vec<Op> = self
                .read(move |context| {
                    let view = context.view();
                    let rows = segments.iter().flat_map(|segment| {
                        view.scan(key::search_segment(*segment), Direction::Forward)
                    });
                    let keys = rows.map(|row| {
                        let bytes = row?.0.to_vec();
                        let table = key::Table::Search;
                        Ok(Op::Delete(key::Key { table, bytes }))
                    });
                    keys.collect()
                })
                .await?;
            if numbers.is_empty() {
                return Ok(());
            }
            // It frees space, so it runs on a full disk, too.
            self.inner.committer.commit_ops(numbers, None).await?;
            self.inner.search_compaction.note_deleted();
            Ok(())
        })
    }
}

fn directories(
    context: &ReadContext,
    conversations: &[ConversationId],
) -> Result<Vec<Option<Vec<u8>>>> {
    let keys = conversations.iter().map(|id| key::search_directory(*id));
    values(context, keys)
}

fn blocks(
    context: &ReadContext,
    blocks: &[(SearchSegmentKey, u32)],
) -> Result<Vec<Option<Vec<u8>>>> {
    let keys = blocks
        .iter()
        .map(|(segment, number)| key::search_block(*segment, *number));
    values(context, keys)
}

fn values(
    context: &ReadContext,
    keys: impl Iterator<Item = key::Key>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let view = context.view();
    keys.map(|key| Ok(view.get(&key)?.map(|bytes| bytes.to_vec())))
        .collect()
}

fn swap(conversation: ConversationId, seen: Option<&[u8]>, to: &[u8]) -> Write {
    let (key, seen) = (
        key::search_directory(conversation),
        seen.map(<[u8]>::to_vec),
    );
    Write::swap(key, seen, to.to_vec())
}
