//! The cluster's directory and mailboxes as tables: servers and their beats, sessions, listeners,
//! notices.
//!
//! No LOGGED batch writes them: each row stands for itself, and an acknowledgement of a single
//! write at a quorum is all that the delivery protocol needs.

pub(crate) mod mailbox;
pub(crate) mod server;
pub(crate) mod session;

use std::sync::Arc;

use super::driver::executor::Executor;

/// The tables of the directory and the mailboxes.
pub(crate) struct ClusterTables {
    executor: Arc<Executor>,
}

impl ClusterTables {
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    /// How often a node was found to have a wrong clock.
    pub(crate) fn clock_faults(&self) -> usize {
        self.executor.clock_faults()
    }
}
