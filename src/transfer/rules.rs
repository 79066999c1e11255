//! Rules of an import: what it keeps in another way because a store cannot keep it as it is.

use crate::model::Timestamp;
use crate::store::ImportRow;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ImportRules {
    /// Whether the operator allows it.
    pub(super) is_lossy: bool,
    /// Whether the file is an export of a store, where it was kept in that way before.
    pub(super) is_export: bool,
}

/// Counts of what was kept in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Losses {
    /// Messages that became several.
    pub split_messages: u64,
    /// Messages that were added for them.
    pub added_messages: u64,
    /// Reactions with the name of a custom emoji.
    pub named_emoji: u64,
}

impl Losses {
    pub(super) fn add(&mut self, other: Self) {
        self.split_messages += other.split_messages;
        self.added_messages += other.added_messages;
        self.named_emoji += other.named_emoji;
    }
}

/// The circumstances of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineContext {
    /// Counted from 1.
    pub(super) number: u64,
    pub(super) now: Timestamp,
    pub(super) rules: ImportRules,
}

/// The rows of a line.
#[derive(Debug, Default)]
pub(super) struct LineRows {
    pub(super) rows: Vec<ImportRow>,
    pub(super) losses: Losses,
}

impl From<Vec<ImportRow>> for LineRows {
    fn from(rows: Vec<ImportRow>) -> Self {
        let losses = Losses::default();
        Self { rows, losses }
    }
}
