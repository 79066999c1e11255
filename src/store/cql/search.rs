//! Rows of the search index on a cluster.
//!
//! A directory changes by lightweight transactions alone. A segment has an id of its own, so its blocks are written once,
//! and its deletion is later than any of them.

use std::collections::{BTreeMap, HashMap};

use scylla::value::Row;
use uuid::Uuid;

use super::Cql;
use crate::model::ConversationId;
use crate::store::cql::driver::executor::{PARTITIONS_MAX, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, values};
use crate::store::{DirectoryChange, SearchSegmentKey, SearchStore, StoreFuture};

/// Write timestamps of blocks, and of their deletion.
const WRITTEN: i64 = 1;
const DELETED: i64 = 2;
/// Blocks of one read.
const BLOCKS_MAX: usize = 32;

statements! {
    SELECT_DIRECTORIES: Read "SELECT conversation_id, state FROM search_directories WHERE conversation_id IN ?";
    ADD_DIRECTORY: Conditional "INSERT INTO search_directories (conversation_id, state) VALUES (?, ?) IF NOT EXISTS";
    SWAP_DIRECTORY: Conditional "UPDATE search_directories SET state = ? WHERE conversation_id = ? IF state = ?";
    INSERT_BLOCK: Write "INSERT INTO search_blocks_by_segment (conversation_id, segment_id, block, content) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    SELECT_BLOCKS: Read "SELECT block, content FROM search_blocks_by_segment WHERE conversation_id = ? AND segment_id = ? AND block IN ?";
    DELETE_SEGMENT: Write "DELETE FROM search_blocks_by_segment USING TIMESTAMP ? WHERE conversation_id = ? AND segment_id = ?";
}

fn cql_number(block: u32) -> i32 {
    i32::try_from(block).unwrap_or(i32::MAX)
}

impl SearchStore for Cql {
    fn search_directories<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Vec<u8>>>> {
        Box::pin(async move {
            let pieces = conversations.chunks(PARTITIONS_MAX).map(async |ids| {
                let values = values![list(ids.iter().copied())];
                let rows: Vec<(Uuid, Option<Vec<u8>>)> =
                    self.executor.read(&SELECT_DIRECTORIES, values).await?;
                Ok(rows)
            });
            let rows = concurrently(pieces).await?;
            let mut found: HashMap<Uuid, Option<Vec<u8>>> = rows.into_iter().flatten().collect();
            let each = conversations.iter().map(|id| found.remove(&id.0).flatten());
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
            let to = to.to_vec();
            let refused: Option<Row> = match seen {
                None => {
                    self.executor
                        .write_if(&ADD_DIRECTORY, values![conversation, to])
                        .await?
                }
                Some(seen) => {
                    let values = values![to, conversation, seen.to_vec()];
                    self.executor.write_if(&SWAP_DIRECTORY, values).await?
                }
            };
            Ok(refused.is_none())
        })
    }

    /// Whatever ends the server in between, the directory names the segment.
    fn add_search_segment<'a>(
        &'a self,
        segment: SearchSegmentKey,
        blocks: &'a [Vec<u8>],
        change: &'a DirectoryChange,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let DirectoryChange { seen, claim, to } = change;
            let id = segment.conversation;
            let swap = |seen, to| self.swap_search_directory(id, seen, to);
            if !swap(seen.as_deref(), claim).await? {
                return Ok(false);
            }
            let writes = (0..).zip(blocks).map(|(number, block)| {
                let number = cql_number(number);
                let values = values![id, segment.segment, number, block.clone(), WRITTEN];
                self.executor.write(&INSERT_BLOCK, values)
            });
            concurrently(writes).await?;
            let is_added = swap(Some(claim), to).await?;
            if !is_added {
                self.delete_search_segments(&[segment]).await?;
            }
            Ok(is_added)
        })
    }

    fn search_blocks<'a>(
        &'a self,
        blocks: &'a [(SearchSegmentKey, u32)],
    ) -> StoreFuture<'a, Vec<Option<Vec<u8>>>> {
        Box::pin(async move {
            let mut by_segment: BTreeMap<SearchSegmentKey, Vec<i32>> = BTreeMap::new();
            for (segment, number) in blocks {
                let numbers = by_segment.entry(*segment).or_default();
                numbers.push(cql_number(*number));
            }
            let pieces = by_segment.iter().flat_map(|(segment, numbers)| {
                numbers.chunks(BLOCKS_MAX).map(move |one| (segment, one))
            });
            let pieces = pieces.map(async |(key, numbers)| {
                let numbers = list(numbers.iter().copied());
                let values = values![key.conversation, key.segment, numbers];
                let rows: Vec<(i32, Vec<u8>)> = self.executor.read(&SELECT_BLOCKS, values).await?;
                Ok(rows
                    .into_iter()
                    .map(|(number, content)| ((*key, number), content)))
            });
            let rows = concurrently(pieces).await?;
            let mut found: HashMap<_, _> = rows.into_iter().flatten().collect();
            let each = blocks
                .iter()
                .map(|(segment, number)| found.remove(&(*segment, cql_number(*number))));
            Ok(each.collect())
        })
    }

    fn delete_search_segments<'a>(
        &'a self,
        segments: &'a [SearchSegmentKey],
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let deletions = segments.iter().map(|key| {
                let values = values![DELETED, key.conversation, key.segment];
                self.executor.write(&DELETE_SEGMENT, values)
            });
            concurrently(deletions).await.map(drop)
        })
    }
}
