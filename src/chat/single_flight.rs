//! Single-flight reads: equal reads at the same time are coalesced into one, whose result all
//! callers share.
//!
//! When a crowd of clients reconnects, its streams want the same pages of the same conversations.
//! Each kind of read defines by its [`ReadKey`] which results a request may share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::chat::error::{Error, Result};
use crate::model::OrderKey;

/// Recent reads of one kind. A read beyond that evicts the oldest.
const READS_MAX: usize = 256;
/// Time that a caller waits for the read of another caller, whose task may not be scheduled.
const OTHERS_WAIT: Duration = Duration::from_secs(1);

/// Key of a read with a result of type `T`.
pub(crate) trait ReadKey<T>: Clone {
    /// Whether this request may share the result of a read that was started with the other key.
    fn may_share(&self, started: &Self) -> bool;

    /// Whether this request, which may not share a running read with the other key, waits for its
    /// end: the requests that come meanwhile then share the next read.
    fn awaits(&self, _started: &Self) -> bool {
        false
    }

    /// Whether the result of such a read reaches as far as this request needs.
    fn is_covered_by(&self, _result: &T) -> bool {
        true
    }

    /// Rank among several reads that may be shared. The greatest is preferred, then the newest.
    fn rank(&self) -> OrderKey {
        OrderKey::MIN
    }
}

/// Reads of one kind, the oldest first.
pub(crate) struct SingleFlight<K, T> {
    reads: Mutex<VecDeque<Arc<Read<K, T>>>>,
    /// Time from the start of a read during which its result is shared.
    lifetime: Duration,
}

struct Read<K, T> {
    key: K,
    started_at: Instant,
    outcome: OnceCell<Result<Arc<T>>>,
}

impl<K: ReadKey<T>, T> SingleFlight<K, T> {
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self {
            reads: Mutex::default(),
            lifetime,
        }
    }

    /// Shares the result of a read in flight or a recent one, or else reads. A read runs as long as
    /// any of its callers waits for it. When the read of another caller stalls, this caller reads
    /// for itself.
    pub(crate) async fn read<F>(&self, key: K, read: impl Fn(K) -> F) -> Result<Arc<T>>
    where
        F: Future<Output = Result<T>>,
    {
        match self.read_unless_stalled(key.clone(), &read).await {
            Some(outcome) => outcome,
            None => {
                let own = start(&mut self.reads.lock(), key, self.lifetime);
                own.outcome(&read).await
            }
        }
    }

    /// The same. `None` when the read of another caller stalls.
    pub(crate) async fn read_unless_stalled<F>(
        &self,
        key: K,
        read: impl Fn(K) -> F,
    ) -> Option<Result<Arc<T>>>
    where
        F: Future<Output = Result<T>>,
    {
        if let Some(running) = self.find_awaited(&key) {
            let _ = timeout(OTHERS_WAIT, running.outcome(&read)).await;
        }
        loop {
            let (shared, is_own) = self.find_or_start(&key);
            if is_own {
                return Some(shared.outcome(&read).await);
            }
            match timeout(OTHERS_WAIT, shared.outcome(&read)).await {
                // The result ends too early, or its reader was refused a permit: one of the waiting
                // callers reads again.
                Ok(Ok(result)) if !key.is_covered_by(&result) => {}
                Ok(Err(Error::TooFast { .. })) => {}
                Ok(outcome) => return Some(outcome),
                Err(_) => return None,
            }
        }
    }

    fn find_awaited(&self, key: &K) -> Option<Arc<Read<K, T>>> {
        let reads = self.reads.lock();
        let mut running = reads
            .iter()
            .rev()
            .filter(|read| read.outcome.get().is_none());
        running
            .find(|read| key.awaits(&read.key) && read.started_at.elapsed() < self.lifetime)
            .cloned()
    }

    fn find_or_start(&self, key: &K) -> (Arc<Read<K, T>>, bool) {
        let mut reads = self.reads.lock();
        let shared = reads
            .iter()
            .filter(|read| read.is_shareable(key, self.lifetime))
            .max_by_key(|read| read.key.rank())
            .cloned();
        match shared {
            Some(shared) => (shared, false),
            None => (start(&mut reads, key.clone(), self.lifetime), true),
        }
    }
}

fn start<K, T>(
    reads: &mut VecDeque<Arc<Read<K, T>>>,
    key: K,
    lifetime: Duration,
) -> Arc<Read<K, T>> {
    while reads.len() >= READS_MAX
        || reads
            .front()
            .is_some_and(|first| first.started_at.elapsed() >= lifetime)
    {
        reads.pop_front();
    }
    let read = Arc::new(Read {
        key,
        started_at: Instant::now(),
        outcome: OnceCell::new(),
    });
    reads.push_back(Arc::clone(&read));
    read
}

impl<K: ReadKey<T>, T> Read<K, T> {
    /// Only callers that wait for a failed read share its error. Later callers read again.
    fn is_shareable(&self, key: &K, lifetime: Duration) -> bool {
        let is_open_or_covering = || {
            self.outcome.get().is_none_or(|outcome| {
                outcome
                    .as_ref()
                    .is_ok_and(|result| key.is_covered_by(result))
            })
        };
        key.may_share(&self.key) && self.started_at.elapsed() < lifetime && is_open_or_covering()
    }

    async fn outcome<F>(&self, read: &impl Fn(K) -> F) -> Result<Arc<T>>
    where
        F: Future<Output = Result<T>>,
    {
        self.outcome
            .get_or_init(|| async { read(self.key.clone()).await.map(Arc::new) })
            .await
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    /// Request for all numbers from a position on.
    #[derive(Clone)]
    struct RowsFrom(i64);

    /// Position at which the read ends. `None` for the end of the list.
    struct RowsEnd(Option<i64>);

    impl ReadKey<RowsEnd> for RowsFrom {
        fn may_share(&self, started: &Self) -> bool {
            started.0 <= self.0
        }

        fn is_covered_by(&self, result: &RowsEnd) -> bool {
            result.0.is_none_or(|end| end > self.0)
        }

        fn rank(&self) -> OrderKey {
            OrderKey::first_at(crate::model::Timestamp::from_micros(self.0))
        }
    }

    struct CountingReader {
        flight: SingleFlight<RowsFrom, RowsEnd>,
        reads: AtomicUsize,
    }

    impl CountingReader {
        fn new() -> Self {
            Self {
                flight: SingleFlight::new(Duration::from_secs(5)),
                reads: AtomicUsize::new(0),
            }
        }

        async fn read(&self, from: i64, end: Option<i64>) {
            let read = |_| async {
                self.reads.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                Ok(RowsEnd(end))
            };
            self.flight.read(RowsFrom(from), read).await.unwrap();
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_crowd_reads_once_and_later_positions_share_the_read() {
        let reader = CountingReader::new();
        join_all((0..100).map(|number| reader.read(number % 3, None))).await;
        assert_eq!(reader.reads(), 1);
        reader.read(7, None).await;
        assert_eq!(reader.reads(), 1);
    }

    /// Request that needs a read from its own moment on.
    #[derive(Clone)]
    struct NotBefore(u64);

    impl ReadKey<()> for NotBefore {
        fn may_share(&self, started: &Self) -> bool {
            started.0 >= self.0
        }

        fn awaits(&self, started: &Self) -> bool {
            started.0 < self.0
        }
    }

    #[tokio::test]
    async fn requests_that_come_while_a_read_runs_share_the_next_one() {
        let flight = SingleFlight::new(Duration::from_secs(5));
        let reads = AtomicUsize::new(0);
        let read = |_| async {
            reads.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(())
        };
        let request = |number: u64| {
            let flight = &flight;
            async move {
                for _ in 0..number.min(3) {
                    tokio::task::yield_now().await;
                }
                flight.read(NotBefore(number.min(1)), read).await.unwrap();
            }
        };
        join_all((0..50).map(request)).await;
        assert_eq!(reads.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_result_that_ends_before_the_position_is_read_again() {
        let reader = CountingReader::new();
        tokio::join!(reader.read(0, Some(5)), reader.read(6, None));
        assert_eq!(reader.reads(), 2);
        reader.read(4, Some(9)).await;
        assert_eq!(reader.reads(), 2);
    }

    #[tokio::test]
    async fn only_waiting_callers_share_an_error() {
        let reader = CountingReader::new();
        let fail = |_| async {
            tokio::task::yield_now().await;
            Err(Error::Busy)
        };
        let (first, second) = tokio::join!(
            reader.flight.read(RowsFrom(0), fail),
            reader
                .flight
                .read(RowsFrom(0), |_| async { unreachable!() }),
        );
        assert!(matches!(first, Err(Error::Busy)));
        assert!(matches!(second, Err(Error::Busy)));
        reader.read(0, None).await;
        assert_eq!(reader.reads(), 1);
    }
}
