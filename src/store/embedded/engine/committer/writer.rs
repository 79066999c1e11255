//! Thread of the committer: it gathers requests into groups, commits each group, and answers its callers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use tokio::sync::oneshot;

use super::{
    COMMIT, CommitError, CommitOutcome, CommitProgress, Condition, Engine, Op, Request, Rows,
    unavailable,
};
use crate::store::embedded::engine::key::{self, Key};
use crate::store::embedded::engine::record::{self, CommitRecord};
use crate::store::embedded::engine::transient;
use crate::store::{Error, Result};

/// Writes in one group. A single write always fits.
const GROUP_MAX: usize = 512;
const GROUP_BYTES_MAX: usize = 1 << 20;

pub(super) struct Writer<E> {
    pub(super) engine: E,
    pub(super) requests: Receiver<Request>,
    pub(super) progress: Arc<CommitProgress>,
    pub(super) last: CommitRecord,
}

impl<E: Engine> Writer<E> {
    /// Runs until the queue is closed.
    pub(super) fn run(&mut self) -> Result<(), Arc<str>> {
        while let Ok(first) = self.requests.recv() {
            let group = self.gather(first);
            if let Some(failure) = self.progress.failure() {
                let fault = CommitError::from(failure);
                group
                    .into_iter()
                    .for_each(|request| answer(request.done, Err(unavailable(fault.clone()))));
            } else {
                self.write(group);
            }
        }
        if let Some(failure) = self.progress.failure() {
            return Err(failure.why);
        }
        self.engine
            .sync()
            .map_err(|error| self.progress.fail(&error.to_string(), false).why)
    }

    fn gather(&self, first: Request) -> Vec<Request> {
        let mut bytes = first.bytes;
        let mut group = vec![first];
        while group.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
            let Ok(next) = self.requests.try_recv() else {
                break;
            };
            bytes += next.bytes;
            group.push(next);
        }
        self.progress
            .queued_bytes
            .fetch_sub(bytes, Ordering::AcqRel);
        self.progress
            .queued_writes
            .fetch_sub(group.len(), Ordering::Relaxed);
        self.progress.meter.bytes.observe(bytes as f64);
        group
    }

    fn write(&mut self, group: Vec<Request>) {
        *self.progress.began.lock() = Some(Instant::now());
        let mut rows = Rows::new();
        let mut kept = Vec::with_capacity(group.len());
        let mut refused = Vec::new();
        let mut commit = CommitRecord {
            number: self.last.number + 1,
            ..self.last
        };
        for Request { write, done, .. } in group {
            match self.take_in(&mut rows, &write.conditions, write.ops) {
                Ok(CommitOutcome::Done) => {
                    commit.newest_id = commit.newest_id.max(write.newest_id);
                    kept.push((write.applied, done));
                }
                // Answer refusals after the commit: the conflicting row may be in this group.
                Ok(CommitOutcome::Refused) => refused.push(done),
                Err(error) => answer(done, Err(error)),
            }
        }
        let committed = if kept.is_empty() {
            Ok(())
        } else {
            self.commit(rows, commit, kept)
        };
        for done in refused {
            answer(
                done,
                committed
                    .clone()
                    .map(|()| CommitOutcome::Refused)
                    .map_err(unavailable),
            );
        }
        *self.progress.began.lock() = None;
    }

    fn commit(
        &mut self,
        mut rows: Rows,
        commit: CommitRecord,
        kept: Vec<Kept>,
    ) -> Result<(), CommitError> {
        rows.insert(key::meta(COMMIT), Some(record::encode(&commit)));
        self.progress.meter.writes.observe(kept.len() as f64);
        let began = Instant::now();
        let committed = self.engine.commit(rows);
        self.progress
            .meter
            .seconds
            .observe(began.elapsed().as_secs_f64());
        if let Err(error) = committed {
            let is_not_done = transient::is_not_done(&error);
            let failure = self
                .progress
                .fail(&error.to_string(), transient::is_transient(&error));
            let why = &failure.why;
            if failure.is_transient {
                tracing::error!(error = %why, "a commit failed because disk space or file descriptors ran out: the store refuses writes until it can reopen its engine. Free some");
            } else {
                tracing::error!(error = %why, "a commit failed: the store refuses writes until it is reopened. Check the disk and restart the server");
            }
            let fault = CommitError::from(failure);
            for (_, done) in kept {
                let fault = Box::new(fault.clone());
                answer(
                    done,
                    Err(if is_not_done {
                        Error::Unavailable(fault)
                    } else {
                        Error::OutcomeUnknown(fault)
                    }),
                );
            }
            return Err(fault);
        }
        self.acknowledge(commit, kept);
        Ok(())
    }

    fn acknowledge(&mut self, commit: CommitRecord, kept: Vec<Kept>) {
        self.last = commit;
        self.progress
            .acknowledged
            .store(commit.number, Ordering::SeqCst);
        self.engine.note(commit.number);
        *self.progress.newest_id.lock() = commit.newest_id;
        for (applied, done) in kept {
            if let Some(applied) = applied {
                applied();
            }
            answer(done, Ok(CommitOutcome::Done));
        }
    }

    /// Adds a write to the group, completely or not at all.
    fn take_in(
        &self,
        rows: &mut Rows,
        conditions: &[Condition],
        ops: Vec<Op>,
    ) -> Result<CommitOutcome> {
        for condition in conditions {
            let holds = match condition {
                Condition::Absent(key) => self.newest(rows, key, |value| value.is_none())?,
                Condition::Is(key, expected) => {
                    self.newest(rows, key, |value| value == Some(expected))?
                }
            };
            if !holds {
                return Ok(CommitOutcome::Refused);
            }
        }
        let mut own = Vec::with_capacity(ops.len());
        for op in ops {
            match op {
                Op::Put(key, value) => own.push((key, Some(value))),
                Op::Delete(key) => own.push((key, None)),
                Op::Max(key, value) => {
                    if self.newest(rows, &key, |there| {
                        there.is_none_or(|there| there < value.as_slice())
                    })? {
                        own.push((key, Some(value)));
                    }
                }
            }
        }
        rows.extend(own);
        Ok(CommitOutcome::Done)
    }

    /// Evaluates a function on the value that the next commit will see.
    fn newest<T>(&self, rows: &Rows, key: &Key, ask: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        Ok(match rows.get(key) {
            Some(value) => ask(value.as_deref()),
            None => ask(self.engine.get(key)?.as_deref()),
        })
    }
}

type Kept = (
    Option<Box<dyn FnOnce() + Send>>,
    oneshot::Sender<Result<CommitOutcome>>,
);

fn answer(done: oneshot::Sender<Result<CommitOutcome>>, outcome: Result<CommitOutcome>) {
    // The caller may be gone; the write stays.
    let _ = done.send(outcome);
}
