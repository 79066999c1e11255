//! Interval set: the known parts of a sorted set of which only some ranges were read.

/// Members in the set. Beyond it, everything before the newest interval is evicted.
const STARTS_MAX: usize = 1_024;

/// All members from `start` (included) to `end` (excluded), ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) starts: Vec<i64>,
}

/// Intervals that do not touch each other, ascending.
#[derive(Debug, Clone, Default)]
pub(crate) struct IntervalSet(Vec<Interval>);

impl IntervalSet {
    /// Adds an interval, and merges those that it touches. A member in either stays: members are only ever added to the stored set.
    pub(crate) fn add(&mut self, new: Interval) {
        if new.start >= new.end {
            return;
        }
        let kept: usize = self.0.iter().map(|range| range.starts.len()).sum();
        if kept + new.starts.len() > STARTS_MAX {
            self.0.clear();
        }
        let mut whole = new;
        let mut apart = Vec::with_capacity(self.0.len() + 1);
        for range in self.0.drain(..) {
            if range.end < whole.start || whole.end < range.start {
                apart.push(range);
            } else {
                whole.start = whole.start.min(range.start);
                whole.end = whole.end.max(range.end);
                whole.starts.extend(range.starts);
            }
        }
        whole.starts.sort_unstable();
        whole.starts.dedup();
        apart.push(whole);
        apart.sort_unstable_by_key(|range| range.start);
        self.0 = apart;
    }

    /// The first member at or after `from`; `Err` with the start of the first unknown gap before it.
    pub(crate) fn first_from(&self, from: i64) -> Result<i64, i64> {
        let Some(range) = self
            .0
            .iter()
            .find(|range| range.start <= from && from < range.end)
        else {
            return Err(from);
        };
        let at = range.starts.partition_point(|start| *start < from);
        range.starts.get(at).copied().ok_or(range.end)
    }

    /// The last member before `from`; `Err` with the end of the last unknown gap after it, `i64::MIN` if all before is known.
    pub(crate) fn last_before(&self, from: i64) -> Result<i64, i64> {
        let Some(range) = self
            .0
            .iter()
            .find(|range| range.start < from && from <= range.end)
        else {
            return Err(from);
        };
        let at = range.starts.partition_point(|start| *start < from);
        at.checked_sub(1)
            .map(|at| range.starts[at])
            .ok_or(range.start)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn read(all: &BTreeSet<i64>, start: i64, end: i64) -> Interval {
        Interval {
            start,
            end,
            starts: all.range(start..end.max(start)).copied().collect(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_known_is_what_is_there(
            all in prop::collection::btree_set(0..60_i64, 0..30),
            pieces in prop::collection::vec((0..60_i64, 0..60_i64), 0..8),
            from in 0..61_i64,
        ) {
            let mut known = IntervalSet::default();
            for (start, end) in &pieces {
                known.add(read(&all, *start, *end));
            }
            let is_known = |position: i64| pieces.iter().any(|(start, end)| *start <= position && position < *end);
            let first_gap = (from..).find(|position| !is_known(*position)).unwrap();
            prop_assert_eq!(known.first_from(from), all.range(from..first_gap).next().copied().ok_or(first_gap));
            let last_gap = (i64::from(-1_i8)..from).rev().find(|position| !is_known(*position)).map_or(i64::MIN, |position| position + 1);
            let expected = all.range(last_gap.max(0)..from.max(last_gap.max(0))).next_back().copied().ok_or(last_gap);
            prop_assert_eq!(known.last_before(from), expected);
        }
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let mut known = IntervalSet::default();
        for piece in 0..100 {
            known.add(Interval {
                start: piece * 100,
                end: piece * 100 + 64,
                starts: (piece * 100..piece * 100 + 64).collect(),
            });
            assert!(
                known
                    .0
                    .iter()
                    .map(|range| range.starts.len())
                    .sum::<usize>()
                    <= STARTS_MAX
            );
        }
        assert_eq!(known.first_from(9_900), Ok(9_900));
    }
}
