//! Backlog: the writes that this server has accepted and not settled, of all conversations together.
//!
//! Load shedding. Each conversation's queue is bounded, but while the store answers with time-outs
//! there are many such queues, and each holds writes whose outcome is unknown. Beyond the bounds of
//! the backlog a write is refused before anything of it is written. On a cluster, a write keeps its
//! place until the other servers were notified of it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::chat::error::{Error, Result};

pub(crate) struct Backlog {
    size: Mutex<BacklogSize>,
    max: BacklogSize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BacklogSize {
    pub(crate) writes: usize,
    pub(crate) bytes: usize,
}

/// One write of the backlog, until it is settled.
pub(crate) struct BacklogPermit {
    backlog: Arc<Backlog>,
    bytes: usize,
}

/// Channel for the outcome of a command. The reply settles the write.
pub(crate) struct PendingReply<T> {
    outcome: oneshot::Sender<Result<T>>,
    _permit: BacklogPermit,
}

impl Backlog {
    pub(crate) fn new(max: BacklogSize) -> Arc<Self> {
        Arc::new(Self {
            size: Mutex::default(),
            max,
        })
    }

    /// Adds a write, or refuses it. A single write may exceed the bytes.
    pub(crate) fn admit(self: &Arc<Self>, bytes: usize) -> Result<BacklogPermit> {
        let mut size = self.size.lock();
        let is_full = size.writes >= self.max.writes || size.bytes + bytes > self.max.bytes;
        if is_full && size.writes > 0 {
            return Err(Error::Busy);
        }
        size.writes += 1;
        size.bytes += bytes;
        Ok(BacklogPermit {
            backlog: Arc::clone(self),
            bytes,
        })
    }

    pub(crate) fn size(&self) -> BacklogSize {
        *self.size.lock()
    }
}

impl<T> PendingReply<T> {
    pub(crate) fn new(outcome: oneshot::Sender<Result<T>>, permit: BacklogPermit) -> Self {
        Self {
            outcome,
            _permit: permit,
        }
    }

    /// Replies and settles the write. A reply to a client that has disconnected is dropped.
    pub(crate) fn send(self, outcome: Result<T>) {
        drop(self.outcome.send(outcome));
    }
}

impl Drop for BacklogPermit {
    fn drop(&mut self) {
        let mut size = self.backlog.size.lock();
        size.writes -= 1;
        size.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_backlog_refuses_until_a_write_is_settled() {
        let backlog = Backlog::new(BacklogSize {
            writes: 2,
            bytes: 100,
        });
        let first = backlog.admit(60).unwrap();
        assert!(matches!(backlog.admit(41), Err(Error::Busy)), "by bytes");
        let second = backlog.admit(40).unwrap();
        assert!(matches!(backlog.admit(0), Err(Error::Busy)), "by number");
        drop(first);
        assert_eq!(
            backlog.size(),
            BacklogSize {
                writes: 1,
                bytes: 40
            }
        );
        drop(second);
        assert!(backlog.admit(101).is_ok(), "one write always fits");
        assert_eq!(backlog.size(), BacklogSize::default());
    }
}
