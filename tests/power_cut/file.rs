//! Model of a file under a power cut: durable bytes, and pending changes that are lost, torn or
//! reordered by block.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::binary::Dice;

pub(super) const BLOCK: usize = 4_096;
/// A disk writes a sector completely or not at all.
pub(super) const SECTOR: usize = 512;

type Block = Arc<[u8; BLOCK]>;

/// Bytes of a file. A missing block is zeros.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    len: u64,
    blocks: BTreeMap<u64, Block>,
}

impl Content {
    fn block(&self, number: u64) -> Block {
        let zeros = || Arc::new([0; BLOCK]);
        self.blocks.get(&number).cloned().unwrap_or_else(zeros)
    }

    fn apply(&mut self, change: &FileChange) {
        match change {
            FileChange::Write { offset, data } => self.write(*offset, data),
            FileChange::SetLen(len) => self.set_len(*len),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = usize::try_from(at % BLOCK as u64).unwrap();
            let count = (BLOCK - within).min(data.len() - done);
            let mut block = self.block(at / BLOCK as u64);
            Arc::make_mut(&mut block)[within..within + count]
                .copy_from_slice(&data[done..done + count]);
            self.blocks.insert(at / BLOCK as u64, block);
            done += count;
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    fn set_len(&mut self, len: u64) {
        self.blocks.split_off(&len.div_ceil(BLOCK as u64));
        let within = usize::try_from(len % BLOCK as u64).unwrap();
        if let Some(block) = self.blocks.get_mut(&(len / BLOCK as u64)) {
            Arc::make_mut(block)[within..].fill(0);
        }
        self.len = len;
    }

    /// Reads a file, and keeps no block of zeros.
    pub(super) fn load(path: &Path) -> Self {
        let mut file = File::open(path).unwrap();
        let mut content = Self {
            len: file.metadata().unwrap().len(),
            ..Self::default()
        };
        for number in 0.. {
            let mut block = [0; BLOCK];
            let mut filled = 0;
            while filled < BLOCK {
                let count = file.read(&mut block[filled..]).unwrap();
                if count == 0 {
                    break;
                }
                filled += count;
            }
            if block != [0; BLOCK] {
                content.blocks.insert(number, Arc::new(block));
            }
            if filled < BLOCK {
                break;
            }
        }
        content
    }

    pub(super) fn write_to(&self, path: &Path) {
        let file = File::create(path).unwrap();
        file.set_len(self.len).unwrap();
        for (number, block) in &self.blocks {
            let offset = number * BLOCK as u64;
            let count = self.len.saturating_sub(offset).min(BLOCK as u64);
            file.write_all_at(&block[..usize::try_from(count).unwrap()], offset)
                .unwrap();
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let blocks = 0..self.len.div_ceil(BLOCK as u64);
        let mut bytes: Vec<u8> = blocks.flat_map(|number| *self.block(number)).collect();
        bytes.truncate(usize::try_from(self.len).unwrap());
        bytes
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        let numbers: BTreeSet<_> = self.blocks.keys().chain(other.blocks.keys()).collect();
        self.len == other.len
            && numbers
                .into_iter()
                .all(|number| self.block(*number) == other.block(*number))
    }
}

#[derive(Debug, Clone)]
enum FileChange {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
}

impl FileChange {
    /// Numbers of the blocks that it changes in a file of this content.
    fn blocks(&self, before: &Content) -> Vec<u64> {
        match self {
            Self::Write { offset, data } => {
                let end = (offset + data.len() as u64).div_ceil(BLOCK as u64);
                (offset / BLOCK as u64..end).collect()
            }
            Self::SetLen(len) => {
                let cut = before.blocks.range(len / BLOCK as u64..);
                cut.map(|(number, _)| *number).collect()
            }
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct FileState {
    pub(super) durable: Content,
    /// Content that a running program reads.
    pub(super) cached: Content,
    /// Changes on top of `durable`, the oldest first.
    pending: Vec<FileChange>,
    /// Number of changes that are durable already.
    synced: usize,
}

impl FileState {
    pub(super) fn write(&mut self, offset: u64, data: Vec<u8>) {
        self.change(FileChange::Write { offset, data });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.change(FileChange::SetLen(len));
    }

    pub(super) fn len(&self) -> u64 {
        self.cached.len
    }

    /// Number of all changes since the creation of the file.
    pub(super) fn changes(&self) -> usize {
        self.synced + self.pending.len()
    }

    fn change(&mut self, change: FileChange) {
        self.cached.apply(&change);
        self.pending.push(change);
    }

    /// Makes the first changes durable, counted from the creation of the file.
    pub(super) fn sync(&mut self, count: usize) {
        for change in self.pending.drain(..count.saturating_sub(self.synced)) {
            self.durable.apply(&change);
            self.synced += 1;
        }
    }

    pub(super) fn cut(&self, odds: Odds, dice: &mut Dice) -> Content {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let mut content = self.durable.clone();
        let mut lens = vec![content.len];
        // All versions of each block, the durable one first.
        let mut versions: BTreeMap<u64, Vec<Block>> = BTreeMap::new();
        for change in &self.pending {
            let blocks = change.blocks(&content);
            for number in &blocks {
                versions
                    .entry(*number)
                    .or_insert_with(|| vec![content.block(*number)]);
            }
            content.apply(change);
            for number in blocks {
                versions
                    .get_mut(&number)
                    .unwrap()
                    .push(content.block(number));
            }
            lens.push(content.len);
        }
        let mut survived = self.durable.clone();
        for (number, versions) in versions {
            survived.blocks.insert(number, odds.block(&versions, dice));
        }
        survived.set_len(*odds.version(&lens, dice));
        survived
    }
}

/// How likely pending changes survive a cut, in percent. The rest of the blocks are torn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Odds {
    pub(super) kept: u64,
    pub(super) lost: u64,
}

impl Odds {
    pub(super) const NOTHING_KEPT: Self = Self { kept: 0, lost: 100 };
    pub(super) const MIXED: Self = Self { kept: 40, lost: 40 };
    pub(super) const ALL: [Self; 5] = [
        Self::NOTHING_KEPT,
        Self { kept: 100, lost: 0 },
        Self::MIXED,
        Self { kept: 85, lost: 10 },
        Self { kept: 80, lost: 0 },
    ];

    pub(super) fn version<'a, T>(self, versions: &'a [T], dice: &mut Dice) -> &'a T {
        let roll = dice.roll(100);
        if roll < self.kept {
            versions.last().unwrap()
        } else if roll < self.kept + self.lost {
            &versions[0]
        } else {
            dice.pick(versions)
        }
    }

    fn block(self, versions: &[Block], dice: &mut Dice) -> Block {
        let roll = dice.roll(100);
        if roll < self.kept + self.lost {
            let kept = if roll < self.kept {
                versions.last()
            } else {
                versions.first()
            };
            return Arc::clone(kept.unwrap());
        }
        let mut torn = [0; BLOCK];
        for sector in (0..BLOCK).step_by(SECTOR) {
            let sector = sector..sector + SECTOR;
            torn[sector.clone()].copy_from_slice(&dice.pick(versions)[sector]);
        }
        Arc::new(torn)
    }
}
