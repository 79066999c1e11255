//! Directory of a conversation's index: its segments, and the messages that changed since they were built.
//!
//! It is one value, which changes by compare-and-set. A segment that a directory names is whole, and one that is being
//! built or deleted is named too, so that whatever ends a server, no block is left that nobody would delete.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::analysis::INDEX_TERM_VERSION;
use crate::model::{ChangeId, MessageId, OrderKey, Timestamp};

/// Version of the encoding.
const VERSION: u8 = 1;
/// Levels of segments, by the messages that each has at least.
pub(crate) type Levels = [u32; 3];
/// Segments of one level that become one of the next.
const MERGED: usize = 8;

/// Versions of what an index was built from. A directory of another one is begun anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Epoch {
    pub(super) terms: u8,
    /// The last import, which may have added older messages.
    pub(super) imported_at: Timestamp,
}

impl Epoch {
    pub(crate) fn since(imported_at: Timestamp) -> Self {
        Self {
            terms: INDEX_TERM_VERSION,
            imported_at,
        }
    }
}

/// A run of consecutive messages, and the segment with their terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(super) id: Uuid,
    /// The run begins after this position.
    pub(crate) after: OrderKey,
    /// Its last position.
    pub(crate) until: OrderKey,
    /// The moment before its messages were read.
    pub(super) built: Timestamp,
    pub(super) messages: u32,
    pub(super) bytes: u32,
}

impl Segment {
    pub(crate) fn has(&self, position: OrderKey) -> bool {
        position > self.after && position <= self.until
    }

    fn level(&self, levels: &Levels) -> usize {
        levels.partition_point(|least| *least <= self.messages)
    }
}

/// A message that was edited or deleted, or came late, after the segments were built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LooseMessage {
    pub(super) message: MessageId,
    pub(super) change: ChangeId,
}

/// A segment whose blocks a server writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Building {
    pub(super) id: Uuid,
    pub(super) server: Uuid,
    pub(super) since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    pub(super) epoch: Epoch,
    /// In order, the oldest first. They are disjoint.
    pub(super) segments: Vec<Segment>,
    /// The position in the log of changes up to which `loose` knows them.
    pub(super) folded: OrderKey,
    pub(super) loose: Vec<LooseMessage>,
    /// Messages up to here were removed from the disk.
    pub(super) removed: OrderKey,
    pub(super) building: Option<Building>,
    /// Segments whose blocks are to be deleted.
    pub(super) stale: Vec<Uuid>,
}

impl Directory {
    pub(super) fn new(epoch: Epoch, folded: OrderKey) -> Self {
        Self {
            epoch,
            segments: Vec::new(),
            folded,
            loose: Vec::new(),
            removed: OrderKey::MIN,
            building: None,
            stale: Vec::new(),
        }
    }

    /// `None` for a directory of another form, which a later version wrote.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        (*version == VERSION)
            .then(|| postcard::from_bytes(rest).ok())
            .flatten()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("plain data serialises")
    }

    /// The last position that a segment has.
    pub(super) fn until(&self) -> OrderKey {
        self.segments.last().map_or(self.removed, |last| last.until)
    }

    /// Every segment that it names, those without a whole one included.
    pub(super) fn all_ids(&self) -> impl Iterator<Item = Uuid> {
        let whole = self.segments.iter().map(|segment| segment.id);
        let building = self.building.iter().map(|building| building.id);
        whole.chain(building).chain(self.stale.iter().copied())
    }

    /// Forgets the loose messages that the segments have as they are: those whose changes were visible when their
    /// segments were built.
    pub(super) fn settle(&mut self, window_micros: i64) {
        let segments = &self.segments;
        self.loose.retain(|loose| {
            let position = loose.message.order_key();
            let changed = loose.change.moment().plus_micros(window_micros);
            let segment = segments.iter().find(|segment| segment.has(position));
            segment.is_some_and(|segment| changed >= segment.built)
        });
    }

    /// The run of segments at the end that become one: eight of a level.
    pub(super) fn to_merge(&self, levels: &Levels, bytes_max: usize) -> Option<&[Segment]> {
        for level in 0..levels.len() {
            let lower = self.segments.iter().rev();
            let count = lower.take_while(|one| one.level(levels) <= level).count();
            let run = &self.segments[self.segments.len() - count..];
            let equals = run.iter().filter(|one| one.level(levels) == level).count();
            let is_whole = run.windows(2).all(|pair| pair[0].until == pair[1].after);
            let bytes: usize = run.iter().map(|one| one.bytes as usize).sum();
            let messages: u32 = run.iter().map(|one| one.messages).sum();
            let fits = bytes <= bytes_max && messages < 2 * levels[levels.len() - 1];
            if equals >= MERGED && is_whole && fits {
                return Some(run);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: Levels = [64, 512, 4_096];

    fn segment(number: u8, messages: u32) -> Segment {
        Segment {
            id: Uuid::from_u128(u128::from(number)),
            after: OrderKey([number; 16]),
            until: OrderKey([number + 1; 16]),
            built: Timestamp::ZERO,
            messages,
            bytes: 1,
        }
    }

    fn directory(messages: &[u32]) -> Directory {
        let mut directory = Directory::new(Epoch::since(Timestamp::ZERO), OrderKey::MIN);
        let segments = (0..).zip(messages);
        directory.segments = segments
            .map(|(number, count)| segment(number, *count))
            .collect();
        directory
    }

    #[test]
    fn eight_segments_of_a_level_become_one() {
        let merged = |messages: &[u32]| {
            let directory = directory(messages);
            directory.to_merge(&LEVELS, 1_000).map(<[Segment]>::len)
        };
        assert_eq!(merged(&[64; 7]), None);
        assert_eq!(merged(&[64; 8]), Some(8));
        assert_eq!(
            merged(&[4_096, 512, 64, 64, 64, 64, 64, 64, 64, 64]),
            Some(8)
        );
        assert_eq!(
            merged(&[512, 512, 512, 512, 512, 512, 512, 512, 64]),
            Some(9)
        );
        assert_eq!(merged(&[4_096; 9]), None);
        assert_eq!(directory(&[64; 8]).to_merge(&LEVELS, 7), None);
    }

    #[test]
    fn a_directory_of_another_version_is_none() {
        let directory = directory(&[64, 70]);
        let bytes = directory.encode();
        assert_eq!(Directory::decode(&bytes), Some(directory));
        assert_eq!(Directory::decode(&[VERSION + 1, 0]), None);
        assert_eq!(Directory::decode(&bytes[..9]), None);
    }
}
