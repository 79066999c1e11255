//! Committer (group commit): one thread collects waiting writes into one atomic batch, syncs it, and acknowledges them.
//!
//! It needs no timer: the next group collects while the current one is synced. The committer evaluates conditions
//! and maximum registers against the store and the pending group, so that no other lock exists.
//! After a failed commit it refuses every write until the engine is opened again: the content of the disk
//! is unknown until then. The store does that itself after a transient fault.

mod writer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use fjall::Slice;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::writer::Writer;
use super::key::Key;
use super::record::CommitRecord;
use crate::model::TimeUuid;
use crate::store::embedded::meter::CommitMeter;
use crate::store::{Cause, Error, Result};

/// Waiting writes.
const QUEUE_MAX: usize = 4_096;
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Duration after which a commit counts as stuck.
const COMMIT_MAX: Duration = Duration::from_secs(10);
/// A commit that takes so long does not end.
const HUNG_AFTER: Duration = Duration::from_secs(600);
const CLOSE_MAX: Duration = Duration::from_secs(60);
const DROP_MAX: Duration = Duration::from_secs(2);

/// Operation on one key. A write names each key at most once.
pub(crate) enum Op {
    Put(Key, Vec<u8>),
    Delete(Key),
    /// Maximum register: the greater bytes win.
    Max(Key, Vec<u8>),
}

/// Precondition of a write (compare-and-set).
pub(crate) enum Condition {
    Absent(Key),
    Is(Key, Vec<u8>),
}

/// Atomic write: operations with their preconditions.
#[derive(Default)]
pub(crate) struct Write {
    pub(crate) ops: Vec<Op>,
    pub(crate) conditions: Vec<Condition>,
    /// Greatest id among its rows.
    pub(crate) newest_id: Option<TimeUuid>,
    /// Hook that updates caches between commit and acknowledgement, in commit order.
    pub(crate) applied: Option<Box<dyn FnOnce() + Send>>,
}

impl Write {
    pub(crate) fn bytes(&self) -> usize {
        let of = |key: &Key, value: &[u8]| key.bytes.len() + value.len() + 32;
        let ops = self.ops.iter().map(|op| match op {
            Op::Put(key, value) | Op::Max(key, value) => of(key, value),
            Op::Delete(key) => of(key, &[]),
        });
        ops.sum::<usize>() + 64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    Done,
    /// A precondition failed.
    Refused,
}

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("too many writes are waiting")]
    Full,
    #[error("the store is closed")]
    Closed,
    #[error("an earlier write failed, and the store must be opened again: {0}")]
    Poisoned(Arc<str>),
    #[error("the store waits for disk space or file descriptors, and then reopens its engine: {0}")]
    Short(Arc<str>),
    #[error("{0}")]
    Failed(Arc<str>),
}

/// Pending rows of a group: the last value of each key, or `None` for a deletion.
pub(crate) type Rows = HashMap<Key, Option<Vec<u8>>>;

/// Storage under the committer.
pub(crate) trait Engine: Send + 'static {
    fn get(&self, key: &Key) -> Result<Option<Slice>>;
    fn commit(&mut self, rows: Rows) -> Result<(), Cause>;
    /// Notes the number of a completed commit outside the engine.
    fn note(&mut self, number: u64);
    fn sync(&mut self) -> Result<(), Cause>;
}

/// Reason why the committer refuses writes.
#[derive(Clone)]
struct CommitFailure {
    why: Arc<str>,
    is_transient: bool,
}

impl From<CommitFailure> for CommitError {
    fn from(failure: CommitFailure) -> Self {
        if failure.is_transient {
            Self::Short(failure.why)
        } else {
            Self::Poisoned(failure.why)
        }
    }
}

struct Request {
    write: Write,
    bytes: usize,
    done: oneshot::Sender<Result<CommitOutcome>>,
}

/// State that the committer's thread shares with callers.
#[derive(Default)]
struct CommitProgress {
    queued_writes: AtomicUsize,
    queued_bytes: AtomicUsize,
    meter: CommitMeter,
    failure: Mutex<Option<CommitFailure>>,
    /// Number of the last acknowledged commit.
    acknowledged: AtomicU64,
    began: Mutex<Option<Instant>>,
    newest_id: Mutex<Option<TimeUuid>>,
}

impl CommitProgress {
    /// Records the first failure.
    fn fail(&self, why: &str, is_transient: bool) -> CommitFailure {
        let mut failure = self.failure.lock();
        let failure = failure.get_or_insert_with(|| CommitFailure {
            why: why.into(),
            is_transient,
        });
        failure.clone()
    }

    fn failure(&self) -> Option<CommitFailure> {
        self.failure.lock().clone()
    }
}

fn under_way(took: Duration) -> String {
    format!("a commit has been under way for {} s", took.as_secs())
}

pub(crate) struct Committer {
    progress: Arc<CommitProgress>,
    /// `None` once closed. Dropping the sender ends the thread after the waiting writes.
    queue: Mutex<Option<SyncSender<Request>>>,
    ended: Mutex<Option<Ended>>,
}

/// Result of the thread, once it has ended.
type Ended = Receiver<Result<(), Arc<str>>>;

impl Committer {
    /// Starts the thread. `last` is the engine's last commit.
    pub(crate) fn start(engine: impl Engine, last: CommitRecord) -> std::io::Result<Self> {
        let committer = Self {
            progress: Arc::default(),
            queue: Mutex::default(),
            ended: Mutex::default(),
        };
        committer.restart(engine, last)?;
        Ok(committer)
    }

    /// Starts a thread on an engine in place of the one that was stopped, and accepts writes again.
    pub(crate) fn restart(&self, engine: impl Engine, last: CommitRecord) -> std::io::Result<()> {
        let progress = &self.progress;
        *progress.newest_id.lock() = last.newest_id;
        progress.acknowledged.store(last.number, Ordering::SeqCst);
        let (queue, requests) = sync_channel(QUEUE_MAX);
        let (end, ended) = sync_channel(1);
        let mut writer = Writer {
            engine,
            requests,
            progress: Arc::clone(progress),
            last,
        };
        std::thread::Builder::new()
            .name("wideroom-commit".to_owned())
            .spawn(move || {
                let on_panic = PoisonOnPanic(writer.progress.clone());
                let result = writer.run();
                drop(writer);
                drop(on_panic);
                // The caller may be gone.
                let _ = end.send(result);
            })?;
        *self.queue.lock() = Some(queue);
        *self.ended.lock() = Some(ended);
        *progress.failure.lock() = None;
        Ok(())
    }

    /// Ends the thread after a failure, and so drops its engine. Answers with the number of the last acknowledged commit. Blocks.
    pub(crate) fn stop(&self) -> u64 {
        if let Some(ended) = self.end() {
            // It answers what waits and ends. An error is the failure that is known.
            let _ = ended.recv();
        }
        self.progress.acknowledged.load(Ordering::SeqCst)
    }

    /// Whether the committer waits until the engine is opened again, after a transient fault.
    pub(crate) fn is_reopenable(&self) -> bool {
        let failure = self.progress.failure();
        failure.is_some_and(|failure| failure.is_transient)
    }

    /// Commits a write and waits until it is on disk, without a deadline: a dependent step must not run
    /// while the outcome is open. A caller may stop waiting; the write continues.
    pub(crate) async fn commit(&self, write: Write) -> Result<CommitOutcome> {
        match self.submit(write)?.await {
            Ok(outcome) => outcome,
            Err(_) => Err(unknown("the writer has ended".into())),
        }
    }

    /// Commits operations without a condition, the greatest id among their rows beside them.
    pub(crate) async fn commit_ops(&self, ops: Vec<Op>, newest_id: Option<TimeUuid>) -> Result<()> {
        let write = Write {
            ops,
            newest_id,
            ..Write::default()
        };
        // Without conditions nothing is refused.
        self.commit(write).await.map(drop)
    }

    fn submit(&self, write: Write) -> Result<oneshot::Receiver<Result<CommitOutcome>>> {
        if let Some(failure) = self.progress.failure() {
            return Err(unavailable(failure.into()));
        }
        let bytes = write.bytes();
        let queued = &self.progress.queued_bytes;
        // A single write always fits.
        let reserve = |before: usize| {
            (before == 0 || before + bytes <= QUEUE_BYTES_MAX).then_some(before + bytes)
        };
        if queued
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, reserve)
            .is_err()
        {
            return Err(unavailable(CommitError::Full));
        }
        let (done, answer) = oneshot::channel();
        let queue = self.queue.lock();
        self.progress.queued_writes.fetch_add(1, Ordering::Relaxed);
        let sent = match queue.as_ref() {
            None => Err(CommitError::Closed),
            Some(queue) => queue
                .try_send(Request { write, bytes, done })
                .map_err(|error| match error {
                    TrySendError::Full(_) => CommitError::Full,
                    TrySendError::Disconnected(_) => CommitError::Closed,
                }),
        };
        if let Err(fault) = sent {
            queued.fetch_sub(bytes, Ordering::AcqRel);
            self.progress.queued_writes.fetch_sub(1, Ordering::Relaxed);
            return Err(unavailable(fault));
        }
        Ok(answer)
    }

    pub(crate) fn meter(&self) -> &CommitMeter {
        &self.progress.meter
    }

    /// Number and bytes of waiting writes.
    pub(crate) fn queued(&self) -> (usize, usize) {
        (
            self.progress.queued_writes.load(Ordering::Relaxed),
            self.progress.queued_bytes.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn newest_id(&self) -> Option<TimeUuid> {
        *self.progress.newest_id.lock()
    }

    /// Age of the running commit, if it is stuck.
    pub(crate) fn stuck(&self) -> Option<Duration> {
        let began = *self.progress.began.lock();
        began
            .map(|began| began.elapsed())
            .filter(|took| *took > COMMIT_MAX)
    }

    /// Reason why the committer takes no more writes until the process is restarted: a failed commit, or one that does
    /// not end, as when the engine waits for a background thread that has ended.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = self.progress.failure();
        let lasting = failure.filter(|failure| !failure.is_transient);
        let hung = || {
            self.stuck()
                .filter(|took| *took > HUNG_AFTER)
                .map(under_way)
        };
        lasting
            .map(|failure| CommitError::from(failure).to_string())
            .or_else(hung)
    }

    pub(crate) fn health(&self) -> Result<(), String> {
        if let Some(failure) = self.progress.failure() {
            return Err(CommitError::from(failure).to_string());
        }
        if let Some(took) = self.stuck() {
            return Err(under_way(took));
        }
        if self.queue.lock().is_none() {
            return Err(CommitError::Closed.to_string());
        }
        Ok(())
    }

    /// Refuses new writes, commits the waiting ones, and syncs. Blocks.
    pub(crate) fn close(&self) -> Result<()> {
        let Some(ended) = self.end() else {
            return Ok(());
        };
        match ended.recv_timeout(CLOSE_MAX) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(unknown(why)),
            Err(RecvTimeoutError::Timeout) => Err(unknown("the last commit does not end".into())),
            Err(RecvTimeoutError::Disconnected) => Err(unknown("the writer has ended".into())),
        }
    }

    fn end(&self) -> Option<Ended> {
        drop(self.queue.lock().take());
        self.ended.lock().take()
    }
}

impl Drop for Committer {
    /// Without a close the thread still commits the waiting writes, if the disk accepts them.
    fn drop(&mut self) {
        if let Some(ended) = self.end() {
            let _ = ended.recv_timeout(DROP_MAX);
        }
    }
}

struct PoisonOnPanic(Arc<CommitProgress>);

impl Drop for PoisonOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the writer's thread panicked", false);
        }
    }
}

/// Key of the row that holds the commit number.
pub(crate) const COMMIT: &str = "commit";

fn unavailable(fault: CommitError) -> Error {
    Error::Unavailable(Box::new(fault))
}

fn unknown(why: Arc<str>) -> Error {
    Error::OutcomeUnknown(Box::new(CommitError::Failed(why)))
}

#[cfg(test)]
#[path = "committer_test.rs"]
mod tests;
