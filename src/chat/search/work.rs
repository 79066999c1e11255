//! Work of a search: counted units, each worth about a microsecond of a processor.
//!
//! The price of a search is known only once it is done. So a search begins while its user owes nothing, and its work is
//! taken from the user's bucket at its end, however it ends. One user has one search at a time, so the debt is that of one page.

use std::sync::atomic::{AtomicU32, Ordering};

use super::SearchService;
use crate::chat::replay_limiter::ReplayPermit;
use crate::model::UserId;

/// Bytes that the judgement of a message folds for one unit.
pub(super) const BYTES_PER_UNIT: usize = 16;
/// Units of an inbox entry with its access, of the index of a conversation, of one term in one segment, of a message that is read,
/// and of a change.
pub(super) const ENTRY: usize = 5;
pub(super) const SNAPSHOT: usize = 5;
pub(super) const LOOKUP: usize = 8;
pub(super) const MESSAGE: usize = 3;
pub(super) const CHANGE: usize = 1;
/// Units between two points at which other tasks may run.
const TURN_UNITS: u32 = 1_000;

#[derive(Default)]
pub(super) struct SearchWork {
    units: AtomicU32,
    /// Units at the last turn.
    turned_at: AtomicU32,
}

impl SearchWork {
    pub(super) fn add(&self, units: usize) {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let add = |before: u32| Some(before.saturating_add(units));
        let _ = self
            .units
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    pub(super) fn units(&self) -> u32 {
        self.units.load(Ordering::Relaxed)
    }

    /// Lets other tasks run if this one has worked for long.
    pub(super) async fn turn(&self) {
        let units = self.units();
        if units - self.turned_at.load(Ordering::Relaxed) >= TURN_UNITS {
            self.turned_at.store(units, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }
}

/// Permit of one search. Its user owes the work when it is dropped.
pub(super) struct SearchPermit<'a> {
    pub(super) service: &'a SearchService,
    pub(super) user: &'a UserId,
    pub(super) work: SearchWork,
    pub(super) _permit: ReplayPermit,
}

impl Drop for SearchPermit<'_> {
    fn drop(&mut self) {
        self.service
            .work_rate
            .overdraw(self.user, self.work.units());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_search_lets_other_tasks_run_after_some_work() {
        let work = SearchWork::default();
        for _ in 0..3 {
            work.add(999);
            assert!(work.turn().now_or_never().is_some());
            work.add(1);
            assert!(work.turn().now_or_never().is_none(), "it yields once");
            assert!(work.turn().now_or_never().is_some());
        }
        work.add(usize::MAX);
        work.add(1);
        assert_eq!(work.units(), u32::MAX);
    }
}
