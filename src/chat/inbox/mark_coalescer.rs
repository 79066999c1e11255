//! Mark coalescer: the marks of one user in one large conversation become at most one write per two
//! seconds (debouncing).
//!
//! Clients in a busy channel mark each message as they show it. The first mark is written at once.
//! Those that follow within the window join one pending write.
//!
//! Invariant: a caller is answered after the write that holds its mark. So an acknowledged mark is
//! always stored, and an answer shows what is stored.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::chat::error::{Error, Result};

/// Time from the start of one write to that of the next one.
const WINDOW: Duration = Duration::from_secs(2);
/// Entries from which those whose window has ended are removed.
const PRUNE_MIN: usize = 1_024;

/// Mark that can be written together with others of the same key.
pub(super) trait MergeableMark: Clone {
    fn merge(&mut self, other: Self);
}

pub(super) struct MarkCoalescer<K, M>(Mutex<Windows<K, M>>);

struct Windows<K, M> {
    by_key: HashMap<K, Window<M>>,
    prune_at: usize,
}

/// Time after a write, and the write that waits for its end.
struct Window<M> {
    ends_at: Instant,
    pending: Option<PendingMark<M>>,
}

struct PendingMark<M> {
    mark: M,
    /// Callers besides the one that writes.
    waiting: Vec<oneshot::Sender<Result<M>>>,
}

/// Part of a caller in the next write of its key.
enum Turn<M> {
    Writes { at: Instant },
    Waits(oneshot::Receiver<Result<M>>),
}

impl<K: Clone + Eq + Hash, M: MergeableMark> MarkCoalescer<K, M> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Windows {
            by_key: HashMap::new(),
            prune_at: PRUNE_MIN,
        }))
    }

    /// Writes a mark, alone or with others, and returns the whole mark that was written. Call it in a
    /// task that runs to its end: others may wait for it.
    pub(super) async fn write<F>(&self, key: K, mark: M, write: impl FnOnce(M) -> F) -> Result<M>
    where
        F: Future<Output = Result<()>>,
    {
        let at = match self.join(&key, mark) {
            Turn::Writes { at } => at,
            Turn::Waits(outcome) => return outcome.await.unwrap_or(Err(Error::OutcomeUnknown)),
        };
        sleep_until(at).await;
        let Some(PendingMark { mark, waiting }) = self.take(&key) else {
            return Err(Error::OutcomeUnknown);
        };
        let written = write(mark.clone()).await.map(|()| mark);
        for waiting in waiting {
            let _ = waiting.send(written.clone());
        }
        written
    }

    fn join(&self, key: &K, mark: M) -> Turn<M> {
        let mut windows = self.0.lock();
        windows.prune();
        let now = Instant::now();
        let window = windows.by_key.entry(key.clone()).or_insert(Window {
            ends_at: now,
            pending: None,
        });
        match &mut window.pending {
            Some(pending) => {
                let (sender, receiver) = oneshot::channel();
                pending.mark.merge(mark);
                pending.waiting.push(sender);
                Turn::Waits(receiver)
            }
            None => {
                window.pending = Some(PendingMark {
                    mark,
                    waiting: Vec::new(),
                });
                let at = window.ends_at.max(now);
                Turn::Writes { at }
            }
        }
    }

    /// Takes the pending mark, and begins the next window.
    fn take(&self, key: &K) -> Option<PendingMark<M>> {
        let mut windows = self.0.lock();
        let window = windows.by_key.get_mut(key)?;
        window.ends_at = Instant::now() + WINDOW;
        window.pending.take()
    }
}

impl<K: Eq + Hash, M> Windows<K, M> {
    fn prune(&mut self) {
        if self.by_key.len() < self.prune_at {
            return;
        }
        let now = Instant::now();
        self.by_key
            .retain(|_, window| window.pending.is_some() || window.ends_at > now);
        self.prune_at = PRUNE_MIN.max(2 * self.by_key.len());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    impl MergeableMark for u32 {
        fn merge(&mut self, other: Self) {
            *self = (*self).max(other);
        }
    }

    #[derive(Default)]
    struct Writes(Mutex<Vec<(Duration, u32)>>);

    async fn mark(
        marks: &MarkCoalescer<u8, u32>,
        (began, writes): (Instant, &Writes),
        (key, value): (u8, u32),
        outcome: Result<()>,
    ) -> Result<u32> {
        let write = async |mark| {
            writes.0.lock().push((began.elapsed(), mark));
            outcome
        };
        marks.write(key, value, write).await
    }

    #[tokio::test(start_paused = true)]
    async fn marks_within_the_window_share_one_write_and_its_outcome() {
        let (marks, writes, began) = (MarkCoalescer::new(), Writes::default(), Instant::now());
        let mark = |key, value| mark(&marks, (began, &writes), (key, value), Ok(()));
        assert_eq!(mark(1, 5).await.unwrap(), 5);
        assert_eq!(
            began.elapsed(),
            Duration::ZERO,
            "the first one does not wait"
        );
        let all = tokio::join!(mark(1, 7), mark(1, 9), mark(1, 8), mark(2, 1));
        let all = [all.0, all.1, all.2, all.3].map(Result::unwrap);
        assert_eq!(all, [9, 9, 9, 1], "each answer is what was written");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(mark(1, 10).await.unwrap(), 10);
        let seconds = |(at, mark): &(Duration, u32)| (at.as_secs(), *mark);
        let written: Vec<_> = writes.0.lock().iter().map(seconds).collect();
        assert_eq!(written, [(0, 5), (0, 1), (2, 9), (5, 10)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_mark_is_not_acknowledged_unless_it_was_written() {
        let (marks, writes, began) = (MarkCoalescer::new(), Writes::default(), Instant::now());
        let context = (began, &writes);
        mark(&marks, context, (1, 5), Ok(())).await.unwrap();
        let outcomes = tokio::join!(
            mark(&marks, context, (1, 6), Err(Error::OutcomeUnknown)),
            mark(&marks, context, (1, 7), Ok(())),
        );
        assert!(
            matches!(
                outcomes,
                (Err(Error::OutcomeUnknown), Err(Error::OutcomeUnknown))
            ),
            "{outcomes:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_panics_leaves_its_joiners_without_an_acknowledgement() {
        let marks = Arc::new(MarkCoalescer::new());
        marks.write(1, 1_u32, async |_| Ok(())).await.unwrap();
        let panics = {
            let marks = Arc::clone(&marks);
            tokio::spawn(async move { marks.write(1, 2, async |_| panic!("a defect")).await })
        };
        tokio::task::yield_now().await;
        let joined = marks.write(1, 3, async |_| Ok(())).await;
        assert!(panics.await.is_err() && joined.is_err());
        assert_eq!(marks.write(1, 4, async |_| Ok(())).await.unwrap(), 4);
    }
}
