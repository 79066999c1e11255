//! Runs of former participants: ranges of usernames without a present participant, which pages skip.
//!
//! The rows of former participants stay in the partition. A page that met many of them in a row remembers where they lie, for the roster that
//! it read with them: every change of a membership changes the roster, in the same mutation. A page that skips a run also reads the roster, and
//! begins again if it is another one.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{ConversationId, Direction, PageRequest, UserId};

/// Usernames from `from` (included) to `before` (excluded).
#[derive(Clone)]
pub(in crate::store) struct NameRange {
    pub(in crate::store) from: String,
    pub(in crate::store) before: String,
}

impl NameRange {
    /// All usernames: none is empty, and none is longer than this bound.
    pub(in crate::store) fn all() -> Self {
        Self::with_prefix("")
    }

    /// The usernames that begin with a prefix.
    pub(in crate::store) fn with_prefix(prefix: &str) -> Self {
        let mut before = prefix.to_owned();
        before.push_str(&"\u{10ffff}".repeat(UserId::BYTES_MAX / 4 + 1));
        Self {
            from: prefix.to_owned(),
            before,
        }
    }

    /// The part in which a page lies.
    pub(in crate::store) fn of_page(mut self, request: &PageRequest<UserId>) -> Self {
        if let Some(after) = &request.after {
            self.from = self.from.max(successor(after.as_str()));
        }
        if let Some(before) = &request.before {
            self.before = self.before.min(before.as_str().to_owned());
        }
        self
    }

    /// The part on the other side of the cursor at which a page begins, and the direction away from it. `None` without a cursor.
    pub(in crate::store) fn behind_page(
        self,
        request: &PageRequest<UserId>,
    ) -> Option<(Self, Direction)> {
        let cursor = request.begins_at()?.as_str();
        Some(match request.direction {
            Direction::Forward => {
                let before = self.before.min(successor(cursor));
                (Self { before, ..self }, Direction::Backward)
            }
            Direction::Backward => {
                let from = self.from.max(cursor.to_owned());
                (Self { from, ..self }, Direction::Forward)
            }
        })
    }
}

/// The smallest text after a username: it has one more byte, and is no username itself.
pub(in crate::store) fn successor(name: &str) -> String {
    format!("{name}\0")
}

/// Rows from which a run is worth remembering.
const RUN_ROWS_MIN: usize = 20;
/// Runs of one conversation. A page beyond them reads the rows.
const RUNS_MAX: usize = 256;
const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");

/// Cache of the runs of conversations, each for one roster.
pub(in crate::store) struct FormerRuns(Mutex<LruCache<ConversationId, Arc<CachedRuns>>>);

/// The known runs of one conversation.
#[derive(Clone)]
pub(in crate::store) struct CachedRuns {
    roster: Vec<u8>,
    /// The first username of each run, and the bound behind its last one.
    runs: BTreeMap<String, String>,
}

impl FormerRuns {
    pub(in crate::store) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CONVERSATIONS_MAX)))
    }

    pub(in crate::store) fn of(&self, conversation: ConversationId) -> Option<Arc<CachedRuns>> {
        self.0.lock().get(&conversation).cloned()
    }

    pub(in crate::store) fn forget(&self, conversation: ConversationId) {
        self.0.lock().pop(&conversation);
    }

    /// Adds the runs that a page met. Those of another roster are forgotten.
    pub(in crate::store) fn add(&self, conversation: ConversationId, met: MetRuns) {
        let Some(roster) = met.roster.filter(|_| met.is_consistent) else {
            return;
        };
        if met.runs.is_empty() {
            return;
        }
        let mut all = self.0.lock();
        let known = all
            .get(&conversation)
            .filter(|known| known.roster == roster);
        let mut runs = known.map(|known| known.runs.clone()).unwrap_or_default();
        for (from, before) in met.runs {
            if runs.len() < RUNS_MAX {
                runs.insert(from, before);
            }
        }
        all.put(conversation, Arc::new(CachedRuns { roster, runs }));
    }
}

impl CachedRuns {
    pub(in crate::store) fn is_of(&self, roster: Option<&[u8]>) -> bool {
        roster == Some(self.roster.as_slice())
    }

    /// The first and the last username of the run that a username lies in.
    pub(in crate::store) fn run_of(&self, name: &str) -> Option<(&str, &str)> {
        let (first, before) = self.runs.range(..=name.to_owned()).next_back()?;
        let last = before.strip_suffix('\0')?;
        (name <= last).then_some((first, last))
    }

    /// Moves the near end of a range past the runs that it lies in. Returns whether it moved.
    pub(in crate::store) fn skip(&self, range: &mut NameRange, direction: Direction) -> bool {
        let mut has_moved = false;
        loop {
            let run = match direction {
                Direction::Forward => self.runs.range(..=range.from.clone()),
                Direction::Backward => self.runs.range(..range.before.clone()),
            }
            .next_back();
            match (run, direction) {
                (Some((_, before)), Direction::Forward) if *before > range.from => {
                    range.from.clone_from(before);
                }
                (Some((from, before)), Direction::Backward) if *before >= range.before => {
                    range.before.clone_from(from);
                }
                (Some(_) | None, _) => return has_moved,
            }
            has_moved = true;
        }
    }
}

/// The runs that one page meets.
#[derive(Default)]
pub(in crate::store) struct MetRuns {
    roster: Option<Vec<u8>>,
    /// Whether all rows had one roster.
    is_consistent: bool,
    /// The run that the last row belongs to: its first and last username in the order of reading, and its rows.
    open: Option<(String, String, usize)>,
    runs: Vec<(String, String)>,
}

impl MetRuns {
    pub(in crate::store) fn new() -> Self {
        Self {
            is_consistent: true,
            ..Self::default()
        }
    }

    /// Notes the next row. A present participant ends a run.
    pub(in crate::store) fn note(&mut self, name: &str, is_present: bool, roster: Option<&[u8]>) {
        match (&self.roster, roster) {
            (Some(known), Some(roster)) if known == roster => {}
            (None, Some(roster)) => self.roster = Some(roster.to_vec()),
            (_, _) => self.is_consistent = false,
        }
        if is_present {
            self.close();
            return;
        }
        match &mut self.open {
            Some((_, last, rows)) => {
                name.clone_into(last);
                *rows += 1;
            }
            None => self.open = Some((name.to_owned(), name.to_owned(), 1)),
        }
    }

    /// Ends the run of the last row: the next row is not beside it.
    pub(in crate::store) fn close(&mut self) {
        if let Some((first, last, rows)) = self.open.take()
            && rows >= RUN_ROWS_MIN
        {
            let (from, to) = if first <= last {
                (first, last)
            } else {
                (last, first)
            };
            self.runs.push((from, successor(&to)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, before: &str) -> NameRange {
        NameRange {
            from: from.to_owned(),
            before: before.to_owned(),
        }
    }

    /// The runs after rows in this order: 30 former ones, a present one, and 5 former ones.
    fn met(names: impl Iterator<Item = usize>) -> MetRuns {
        let mut met = MetRuns::new();
        for number in names {
            met.note(&format!("u{number:03}"), number == 30, Some(b"r"));
        }
        met.close();
        met
    }

    #[test]
    fn a_long_run_is_skipped_in_both_directions_and_a_short_one_is_read() {
        for met in [met(0..36), met((0..36).rev())] {
            assert_eq!(met.runs, [("u000".to_owned(), "u029\0".to_owned())]);
            let cache = FormerRuns::new();
            let conversation = ConversationId(uuid::Uuid::nil());
            cache.add(conversation, met);
            let known = cache.of(conversation).unwrap();
            assert!(known.is_of(Some(b"r")) && !known.is_of(Some(b"s")) && !known.is_of(None));
            let skipped = |from: &str, before: &str, direction| {
                let mut range = range(from, before);
                known.skip(&mut range, direction);
                (range.from, range.before)
            };
            assert_eq!(known.run_of("u029"), Some(("u000", "u029")));
            assert_eq!((known.run_of("u030"), known.run_of("a")), (None, None));
            let is = |from: &str, before: &str| (from.to_owned(), before.to_owned());
            let forward = |from| skipped(from, "z", Direction::Forward);
            assert_eq!(forward("u000"), is("u029\0", "z"));
            assert_eq!(forward("u010\0"), is("u029\0", "z"));
            assert_eq!(
                forward("a"),
                is("a", "z"),
                "names before the run were not read"
            );
            assert_eq!(forward("u030"), is("u030", "z"));
            let backward = |before| skipped("", before, Direction::Backward);
            assert_eq!(backward("u029\0"), is("", "u000"));
            assert_eq!(backward("u010"), is("", "u000"));
            assert_eq!(
                backward("u030"),
                is("", "u030"),
                "a present one may be before it"
            );
            assert_eq!(backward("u000"), is("", "u000"));
        }
    }

    #[test]
    fn runs_that_were_met_under_two_rosters_are_forgotten() {
        let mut met = met(0..30);
        met.note("u031", false, Some(b"s"));
        met.close();
        let cache = FormerRuns::new();
        let conversation = ConversationId(uuid::Uuid::nil());
        cache.add(conversation, met);
        assert!(cache.of(conversation).is_none());
    }
}
