//! Threads that read: a read may wait for the disk, and no worker of the runtime waits for it.
//!
//! The runtime's own pool wakes a thread for each task, under the lock that the thread then waits for: a fifth of
//! a page from disk, and a quarter of a markRead. Here a thread that was woken takes all reads that came meanwhile,
//! and wakes another one if more than one waits.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// How long a thread stays without a read.
const IDLE_MAX: Duration = Duration::from_secs(10);

type WaitingRead = Box<dyn FnOnce() + Send>;

/// Error of a read that panicked.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Dropping it ends the threads after the reads that wait.
pub(crate) struct ReadThreads {
    pool: Arc<Pool>,
}

struct Pool {
    threads_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bounded by the permits of reads.
    waiting: VecDeque<WaitingRead>,
    /// Parked threads, the last parked one at the end.
    parked: Vec<Thread>,
    threads: usize,
    /// Threads that were started or woken and have not looked for a read yet.
    waking: usize,
    is_closed: bool,
}

/// Thread to wake or to start, outside the lock.
enum Wake {
    Nobody,
    Parked(Thread),
    New,
}

impl State {
    /// Chooses a thread for a read that waits, unless one is on its way.
    fn wake(&mut self, threads_max: usize) -> Wake {
        if self.waiting.is_empty() || self.waking > 0 {
            return Wake::Nobody;
        }
        let wake = match self.parked.pop() {
            Some(thread) => Wake::Parked(thread),
            None if self.threads < threads_max => Wake::New,
            None => return Wake::Nobody,
        };
        self.waking += 1;
        self.threads += usize::from(matches!(wake, Wake::New));
        wake
    }
}

impl ReadThreads {
    pub(crate) fn new(threads_max: usize) -> Self {
        let pool = Arc::new(Pool {
            threads_max,
            state: Mutex::default(),
        });
        Self { pool }
    }

    /// Runs a read on a thread. It runs to its end even if its caller no longer waits.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let (sender, receiver) = oneshot::channel();
        self.pool.push(Box::new(move || {
            // The panic hook has logged it. The caller learns of it, as the sender is dropped.
            if let Ok(result) = catch_unwind(AssertUnwindSafe(read)) {
                let _ = sender.send(result);
            }
        }));
        receiver.await.map_err(|_| Panicked)
    }
}

impl Drop for ReadThreads {
    fn drop(&mut self) {
        let parked = {
            let mut state = self.pool.state.lock();
            state.is_closed = true;
            state.waking += state.parked.len();
            std::mem::take(&mut state.parked)
        };
        parked.iter().for_each(Thread::unpark);
    }
}

impl Pool {
    fn push(self: &Arc<Self>, read: WaitingRead) {
        let wake = {
            let mut state = self.state.lock();
            state.waiting.push_back(read);
            state.wake(self.threads_max)
        };
        self.carry_out(wake);
    }

    fn carry_out(self: &Arc<Self>, wake: Wake) {
        match wake {
            Wake::Nobody => {}
            Wake::Parked(thread) => thread.unpark(),
            Wake::New => self.start_thread(),
        }
    }

    fn start_thread(self: &Arc<Self>) {
        let pool = Arc::clone(self);
        let started = thread::Builder::new()
            .name("wideroom-read".to_owned())
            .spawn(move || pool.read());
        if let Err(error) = started {
            let dropped = {
                let mut state = self.state.lock();
                state.threads -= 1;
                state.waking -= 1;
                // With no thread at all the reads would wait for ever. Their callers get an error.
                if state.threads == 0 {
                    std::mem::take(&mut state.waiting)
                } else {
                    VecDeque::new()
                }
            };
            tracing::warn!(%error, dropped = dropped.len(), "the store cannot start a thread that reads");
        }
    }

    /// Reads until no read has come for a while, or the pool is closed.
    fn read(self: Arc<Self>) {
        self.state.lock().waking -= 1;
        loop {
            let mut state = self.state.lock();
            if let Some(read) = state.waiting.pop_front() {
                let wake = state.wake(self.threads_max);
                drop(state);
                self.carry_out(wake);
                read();
            } else if !self.wait(state) {
                return;
            }
        }
    }

    /// Parks the thread until it is woken. Returns whether it goes on.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> bool {
        if state.is_closed {
            state.threads -= 1;
            return false;
        }
        let this = thread::current();
        let until = Instant::now() + IDLE_MAX;
        state.parked.push(this.clone());
        loop {
            drop(state);
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
            state = self.state.lock();
            let place = state.parked.iter().position(|one| one.id() == this.id());
            match place {
                None => {
                    state.waking -= 1;
                    return true;
                }
                Some(place) if Instant::now() >= until => {
                    state.parked.remove(place);
                    state.threads -= 1;
                    return false;
                }
                // Parking may end without a reason.
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn no_read_waits_behind_another_while_a_thread_is_free() {
        let threads = ReadThreads::new(8);
        for _ in 0..50 {
            let met = Arc::new(Barrier::new(8));
            let reads = (0..8).map(|_| {
                let met = Arc::clone(&met);
                threads.run(move || met.wait().is_leader())
            });
            let leaders = join_all(reads).await;
            assert_eq!(
                leaders
                    .iter()
                    .filter(|leader| matches!(leader, Ok(true)))
                    .count(),
                1
            );
        }
        assert_eq!(threads.pool.state.lock().threads, 8);
    }

    #[tokio::test]
    async fn reads_over_the_number_of_threads_wait_their_turn() {
        let threads = ReadThreads::new(2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let reads = (0..200).map(|number| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            threads.run(move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                number
            })
        });
        let done: Vec<_> = join_all(reads)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(done, (0..200).collect::<Vec<_>>());
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    }

    #[tokio::test]
    async fn a_panic_reaches_its_caller_alone() {
        let threads = ReadThreads::new(1);
        assert!(threads.run(|| panic!("a defect")).await.is_err());
        assert_eq!(threads.run(|| 3).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn threads_end_with_the_pool_after_what_waits() {
        let threads = ReadThreads::new(2);
        let (begun, has_begun) = oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (done, is_done) = oneshot::channel();
        threads.pool.push(Box::new(move || {
            begun.send(()).unwrap();
            ended.recv().unwrap();
        }));
        has_begun.await.unwrap();
        let pool = Arc::downgrade(&threads.pool);
        threads.pool.push(Box::new(move || done.send(()).unwrap()));
        drop(threads);
        end.send(()).unwrap();
        is_done.await.unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while pool.strong_count() > 0 {
            assert!(Instant::now() < until, "a thread is left");
            thread::yield_now();
        }
    }
}
