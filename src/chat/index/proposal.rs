//! Proposals: the messages of segments that have all terms of a search.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::SearchIndex;
use super::directory::Segment;
use super::segment::{self, MalformedBlock, SegmentHeader};
use crate::analysis::TermLookup;
use crate::chat::error::Result;
use crate::model::{ConversationId, MessageId, OrderKey};
use crate::store::{self, SearchSegmentKey};

/// Terms of a search: a message has one of each group at least.
#[derive(Debug, Clone, Default)]
pub(crate) struct TermGroups(pub(crate) Vec<Vec<TermLookup>>);

impl TermGroups {
    /// Lookups in one segment. One without terms is looked up too.
    pub(crate) fn lookups(&self) -> usize {
        self.0.iter().map(Vec::len).sum::<usize>().max(1)
    }
}

/// `Err` if a segment lacks a block, or is damaged.
type Proposed<T> = std::result::Result<T, MalformedBlock>;
type Blocks = HashMap<(Uuid, u32), Vec<u8>>;
/// Header of a segment, and all its other blocks.
pub(super) type WholeSegment = (Arc<SegmentHeader>, Vec<Vec<u8>>);

impl SearchIndex {
    /// The messages that these segments propose between two positions, both inclusive: those of each segment, the newest
    /// first. `None` if one of the segments is gone: the directory is to be read again.
    pub(crate) async fn propose(
        &self,
        conversation: ConversationId,
        segments: &[Segment],
        groups: &TermGroups,
        (oldest, newest): (OrderKey, OrderKey),
    ) -> Result<Option<Vec<Vec<MessageId>>>> {
        let Some(headers) = self.headers(conversation, segments).await? else {
            return Ok(None);
        };
        let wanted = headers.iter().flat_map(|(id, header)| {
            let lookups = groups.0.iter().flatten();
            let blocks = lookups.flat_map(|lookup| header.term_blocks(lookup));
            blocks.map(|block| (*id, block))
        });
        let Some(terms) = self.blocks(conversation, wanted.collect()).await? else {
            return Ok(None);
        };
        let numbers: Proposed<Vec<_>> = headers
            .iter()
            .map(|(id, header)| {
                let between = header.between(oldest, newest);
                let mut numbers = numbers(*id, header, groups, &terms)?;
                numbers.retain(|number| between.contains(number));
                Ok(numbers)
            })
            .collect();
        let Ok(numbers) = numbers else {
            self.report_damage(conversation);
            return Ok(None);
        };
        let found = headers.iter().zip(&numbers);
        let wanted = found.flat_map(|((id, header), numbers)| {
            let blocks = numbers.iter().map(|number| header.id_block(*number).0);
            blocks.map(|block| (*id, block))
        });
        let Some(ids) = self.blocks(conversation, wanted.collect()).await? else {
            return Ok(None);
        };
        let each = headers.iter().zip(&numbers).map(|((id, header), numbers)| {
            let mut found = ids_of(*id, header, numbers, &ids)?;
            found.retain(|id| (oldest..=newest).contains(&id.order_key()));
            Ok(found)
        });
        let found: Proposed<Vec<_>> = each.collect();
        if found.is_err() {
            self.report_damage(conversation);
        }
        Ok(found.ok())
    }

    async fn headers(
        &self,
        conversation: ConversationId,
        segments: &[Segment],
    ) -> Result<Option<Vec<(Uuid, Arc<SegmentHeader>)>>> {
        let mut headers: Vec<_> = segments
            .iter()
            .map(|one| self.headers.get(&one.id))
            .collect();
        let unknown = segments
            .iter()
            .zip(&headers)
            .filter(|(_, known)| known.is_none());
        let wanted: BTreeSet<_> = unknown.map(|(segment, _)| (segment.id, 0)).collect();
        let Some(read) = self.blocks(conversation, wanted).await? else {
            return Ok(None);
        };
        for (segment, known) in segments.iter().zip(&mut headers) {
            if known.is_none() {
                let header = read
                    .get(&(segment.id, 0))
                    .map(|bytes| SegmentHeader::decode(bytes));
                let Some(Ok(header)) = header else {
                    self.report_damage(conversation);
                    return Ok(None);
                };
                let (header, bytes) = (Arc::new(header.clone()), header.weight());
                self.headers.put(segment.id, Arc::clone(&header), bytes);
                *known = Some(header);
            }
        }
        let headers = segments.iter().map(|one| one.id).zip(headers);
        Ok(headers.map(|(id, header)| Some((id, header?))).collect())
    }

    /// The header and all other blocks of segments. `None` if one cannot be read.
    pub(super) async fn whole_segments(
        &self,
        conversation: ConversationId,
        segments: &[Segment],
    ) -> Result<Option<Vec<WholeSegment>>> {
        let Some(headers) = self.headers(conversation, segments).await? else {
            return Ok(None);
        };
        let all = headers.iter().flat_map(|(id, header)| {
            let numbers = 1..header.blocks();
            numbers.map(|number| (*id, number))
        });
        let Some(mut read) = self.blocks(conversation, all.collect()).await? else {
            return Ok(None);
        };
        let whole = headers.into_iter().map(|(id, header)| {
            let numbers = 1..header.blocks();
            let blocks = numbers.filter_map(|number| read.remove(&(id, number)));
            let blocks = blocks.collect();
            (header, blocks)
        });
        Ok(Some(whole.collect()))
    }

    /// Reads blocks. `None` if one is gone.
    async fn blocks(
        &self,
        conversation: ConversationId,
        wanted: BTreeSet<(Uuid, u32)>,
    ) -> Result<Option<Blocks>> {
        if wanted.is_empty() {
            return Ok(Some(Blocks::new()));
        }
        let key = |&(segment, number): &(Uuid, u32)| {
            let key = SearchSegmentKey {
                conversation,
                segment,
            };
            (key, number)
        };
        let keys: Vec<_> = wanted.iter().map(key).collect();
        let read = self.store.search_blocks(&keys).await;
        let read = match read {
            Ok(read) => read,
            Err(store::Error::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let blocks = wanted.into_iter().zip(read);
        Ok(blocks.map(|(key, block)| Some((key, block?))).collect())
    }
}

/// The messages of a segment that have a term of each group, the newest first.
fn numbers(
    segment: Uuid,
    header: &SegmentHeader,
    groups: &TermGroups,
    blocks: &Blocks,
) -> Proposed<Vec<u32>> {
    let mut common: Option<Vec<u16>> = None;
    for group in &groups.0 {
        let mut found = Vec::new();
        for lookup in group {
            for number in header.term_blocks(lookup) {
                let block = blocks.get(&(segment, number)).ok_or(MalformedBlock)?;
                segment::find_term(block, lookup, &mut found)?;
            }
        }
        found.sort_unstable();
        found.dedup();
        if let Some(before) = &common {
            found.retain(|number| before.binary_search(number).is_ok());
        }
        if found.is_empty() {
            return Ok(Vec::new());
        }
        common = Some(found);
    }
    Ok(match common {
        Some(common) => common.into_iter().rev().map(u32::from).collect(),
        None => header.messages().rev().collect(),
    })
}

fn ids_of(
    segment: Uuid,
    header: &SegmentHeader,
    numbers: &[u32],
    blocks: &Blocks,
) -> Proposed<Vec<MessageId>> {
    let mut found = Vec::with_capacity(numbers.len());
    let mut decoded: Option<(u32, Vec<MessageId>)> = None;
    for number in numbers {
        let (block, place) = header.id_block(*number);
        let ids = match decoded.take() {
            Some((known, ids)) if known == block => ids,
            Some(_) | None => {
                let bytes = blocks.get(&(segment, block)).ok_or(MalformedBlock)?;
                segment::decode_ids(bytes)?
            }
        };
        found.push(*ids.get(place).ok_or(MalformedBlock)?);
        decoded = Some((block, ids));
    }
    Ok(found)
}
