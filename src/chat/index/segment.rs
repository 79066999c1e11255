//! Segment of a search index: the terms of a run of messages, with the messages that have each.
//!
//! Block 0 is the header. The blocks after it hold the terms in their order, each with the numbers of its messages; the last
//! ones hold the ids of the messages. Numbers ascend with age: 0 is the oldest message.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::content::{self, SearchedContent};
use crate::analysis::{TermLookup, index_terms};
use crate::model::{Message, MessageId, OrderKey};

/// Bytes of a block of terms, about.
const BLOCK_BYTES: usize = 4_096;
/// Ids of one block.
const BLOCK_IDS: usize = 128;
/// Messages of a segment.
pub(super) const MESSAGES_MAX: usize = 8_192;
/// Bytes of the terms and numbers of a segment, about. One message always fits.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// Version of the blocks.
const VERSION: u8 = 1;

/// A block of another form: another version wrote it, or it is damaged.
#[derive(Debug, thiserror::Error)]
#[error("a block of the search index has another form")]
pub(crate) struct MalformedBlock;

type Result<T> = std::result::Result<T, MalformedBlock>;

/// Collects the messages of a segment, the oldest first.
#[derive(Default)]
pub(super) struct SegmentBuilder {
    ids: Vec<MessageId>,
    numbers: HashMap<Box<[u8]>, Vec<u16>, foldhash::fast::RandomState>,
    bytes: usize,
}

impl SegmentBuilder {
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.ids.len() >= MESSAGES_MAX
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a message. One that no search finds has no terms.
    pub(super) fn add(&mut self, message: &Message) {
        let Some(searched) = SearchedContent::of(message) else {
            return;
        };
        let number = u16::try_from(self.ids.len()).expect("a segment has few messages");
        self.ids.push(message.id);
        self.bytes += 8;
        searched
            .texts()
            .for_each(|text| index_terms(text, |term| self.put(term, number)));
        content::terms(&searched, |term| self.put(term, number));
    }

    fn put(&mut self, term: &[u8], number: u16) {
        match self.numbers.get_mut(term) {
            Some(numbers) => {
                if numbers.last() != Some(&number) {
                    numbers.push(number);
                    self.bytes += 2;
                }
            }
            None => {
                self.numbers.insert(term.into(), vec![number]);
                self.bytes += term.len() + 3;
            }
        }
    }

    /// Adds the messages of a segment, which are newer than those before. `blocks`: all but the header.
    pub(super) fn add_segment(&mut self, header: &SegmentHeader, blocks: &[Vec<u8>]) -> Result<()> {
        let terms = header.first_terms.len();
        let (terms, ids) = blocks.split_at_checked(terms).ok_or(MalformedBlock)?;
        let first = self.ids.len();
        for block in ids {
            self.ids.extend(decode_ids(block)?);
        }
        u16::try_from(self.ids.len()).map_err(|_| MalformedBlock)?;
        self.bytes += 8 * (self.ids.len() - first);
        for block in terms {
            let (mut rest, mut term, mut numbers) = (Bytes(block), Vec::new(), Vec::new());
            while !rest.0.is_empty() {
                rest.next_term(&mut term)?;
                rest.numbers(|number| numbers.push(number))?;
                for number in numbers.drain(..) {
                    let number = first + usize::from(number);
                    let is_known = number < self.ids.len();
                    let number = u16::try_from(number).ok().filter(|_| is_known);
                    self.put(&term, number.ok_or(MalformedBlock)?);
                }
            }
        }
        Ok(())
    }

    /// Each term with each of its messages.
    pub(super) fn terms(&self) -> impl Iterator<Item = (&[u8], MessageId)> {
        self.numbers.iter().flat_map(|(term, numbers)| {
            let ids = numbers.iter().map(|number| self.ids[usize::from(*number)]);
            ids.map(|id| (&**term, id))
        })
    }

    /// The blocks of the segment.
    pub(super) fn build(self) -> Vec<Vec<u8>> {
        let mut terms: Vec<_> = self.numbers.into_iter().collect();
        terms.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut blocks = vec![Vec::new()];
        let mut first_terms = Vec::new();
        let mut block = Vec::new();
        let mut last: &[u8] = &[];
        for (term, numbers) in &terms {
            if block.len() >= BLOCK_BYTES {
                blocks.push(std::mem::take(&mut block));
            }
            if block.is_empty() {
                first_terms.push(term.to_vec());
                last = &[];
            }
            let shared = last.iter().zip(term).take_while(|(a, b)| a == b).count();
            push_varint(&mut block, shared as u64);
            push_varint(&mut block, (term.len() - shared) as u64);
            block.extend_from_slice(&term[shared..]);
            push_varint(&mut block, numbers.len() as u64);
            let mut before = 0;
            for number in numbers {
                push_varint(&mut block, u64::from(number - before));
                before = *number;
            }
            last = term;
        }
        if !block.is_empty() {
            blocks.push(block);
        }
        blocks.extend(self.ids.chunks(BLOCK_IDS).map(encode_ids));
        let firsts = self.ids.chunks(BLOCK_IDS).map(|ids| ids[0].order_key());
        let header = SegmentHeader {
            messages: self.ids.len() as u32,
            first_terms,
            first_ids: firsts.collect(),
        };
        blocks[0] = postcard::to_extend(&header, vec![VERSION]).expect("plain data serialises");
        blocks
    }
}

/// Positions of the terms and ids of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentHeader {
    /// Messages that a search may find.
    messages: u32,
    /// First term of each block of terms.
    first_terms: Vec<Vec<u8>>,
    /// First id of each block of ids.
    first_ids: Vec<OrderKey>,
}

impl SegmentHeader {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|_| MalformedBlock),
            Some(_) | None => Err(MalformedBlock),
        }
    }

    /// Bytes in memory, about.
    pub(super) fn weight(&self) -> usize {
        let terms = self.first_terms.iter().map(|term| term.len() + 24);
        terms.sum::<usize>() + self.first_ids.len() * 16 + 64
    }

    /// The number of all blocks.
    pub(super) fn blocks(&self) -> u32 {
        (1 + self.first_terms.len() + self.first_ids.len()) as u32
    }

    pub(super) fn messages(&self) -> Range<u32> {
        0..self.messages
    }

    /// The blocks that may hold a term.
    pub(super) fn term_blocks(&self, lookup: &TermLookup) -> Range<u32> {
        let term = &lookup.term;
        let first = self.first_terms.partition_point(|first| first <= term);
        let first = first.saturating_sub(1);
        let is_in = |first: &Vec<u8>| first <= term || lookup.is_prefix && first.starts_with(term);
        let end = self.first_terms.partition_point(is_in);
        first as u32 + 1..end as u32 + 1
    }

    /// The block of the id of a message, and its place there.
    pub(super) fn id_block(&self, number: u32) -> (u32, usize) {
        let block = number as usize / BLOCK_IDS;
        let blocks = 1 + self.first_terms.len() + block;
        (blocks as u32, number as usize % BLOCK_IDS)
    }

    /// The messages whose blocks hold ids between these positions, both inclusive.
    pub(super) fn between(&self, oldest: OrderKey, newest: OrderKey) -> Range<u32> {
        let first = self.first_ids.partition_point(|first| *first <= oldest);
        let end = self.first_ids.partition_point(|first| *first <= newest);
        let first = (first.saturating_sub(1) * BLOCK_IDS) as u32;
        let end = ((end * BLOCK_IDS) as u32).min(self.messages);
        first..end.max(first)
    }
}

/// Adds the numbers of a term's messages, as far as this block holds them.
pub(super) fn find_term(block: &[u8], lookup: &TermLookup, found: &mut Vec<u16>) -> Result<()> {
    let mut rest = Bytes(block);
    let mut term = Vec::new();
    while !rest.0.is_empty() {
        rest.next_term(&mut term)?;
        let is_found = term == lookup.term || lookup.is_prefix && term.starts_with(&lookup.term);
        rest.numbers(|number| {
            if is_found {
                found.push(number);
            }
        })?;
        if !is_found && term > lookup.term {
            break;
        }
    }
    Ok(())
}

/// Times as differences, and the other bytes where they are not those of the id before.
fn encode_ids(ids: &[MessageId]) -> Vec<u8> {
    let mut block = Vec::with_capacity(ids.len() * 6);
    let (mut time, mut rest) = (0, [0; 8]);
    for id in ids {
        let (next_time, next_rest) = halves(id.order_key());
        let is_other = next_rest != rest;
        push_varint(&mut block, (next_time - time) << 1 | u64::from(is_other));
        if is_other {
            block.extend_from_slice(&next_rest);
        }
        (time, rest) = (next_time, next_rest);
    }
    block
}

pub(super) fn decode_ids(block: &[u8]) -> Result<Vec<MessageId>> {
    let mut bytes = Bytes(block);
    let (mut time, mut rest) = (0_u64, [0; 8]);
    let mut ids = Vec::with_capacity(BLOCK_IDS);
    while !bytes.0.is_empty() {
        let step = bytes.varint()?;
        time = time.checked_add(step >> 1).ok_or(MalformedBlock)?;
        if step & 1 == 1 {
            rest = bytes.take(8)?.try_into().map_err(|_| MalformedBlock)?;
        }
        let mut key = [0; 16];
        key[..8].copy_from_slice(&time.to_be_bytes());
        key[8..].copy_from_slice(&rest);
        ids.push(MessageId::from_order_key(OrderKey(key)).ok_or(MalformedBlock)?);
    }
    Ok(ids)
}

fn halves(key: OrderKey) -> (u64, [u8; 8]) {
    let (time, rest) = key.0.split_at(8);
    let time = time.try_into().expect("the first eight bytes");
    let rest = rest.try_into().expect("the other eight bytes");
    (u64::from_be_bytes(time), rest)
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The rest of a block.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MalformedBlock)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a term in the place of the one before it.
    fn next_term(&mut self, term: &mut Vec<u8>) -> Result<()> {
        let (shared, own) = (self.varint()? as usize, self.varint()? as usize);
        if shared > term.len() {
            return Err(MalformedBlock);
        }
        term.truncate(shared);
        term.extend_from_slice(self.take(own)?);
        Ok(())
    }

    fn numbers(&mut self, mut add: impl FnMut(u16)) -> Result<()> {
        let mut number = 0_u64;
        for _ in 0..self.varint()? {
            number = number.checked_add(self.varint()?).ok_or(MalformedBlock)?;
            add(u16::try_from(number).map_err(|_| MalformedBlock)?);
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(MalformedBlock)
    }
}

#[cfg(test)]
#[path = "segment_test.rs"]
mod tests;
