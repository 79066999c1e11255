//! State of the cluster's batch log: whether it waits for a node that does not answer.
//!
//! The coordinator of a LOGGED batch first writes it to the logs of two other nodes, and waits for
//! both. While one of them hangs, and until the cluster takes it for dead, every such batch waits
//! for the coordinator's own time-out of 2 s, and holds one of its request threads: a coordinator
//! with 128 of them stands still at 64 batches a second. In a ring of three the two other nodes are
//! always the same.
//!
//! A circuit breaker: while the log is stuck, batches pass over it, and one a second tries it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::cql::driver::nodes::table::NodeTable;

const TRY_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct BatchLog {
    nodes: Arc<NodeTable>,
    /// When the log is tried next. `None`: it is not stuck.
    next_try: Mutex<Option<Instant>>,
}

impl BatchLog {
    pub(crate) fn new(nodes: Arc<NodeTable>) -> Self {
        Self {
            nodes,
            next_try: Mutex::new(None),
        }
    }

    /// Notes that a batch waits for the log, and not for its coordinator.
    pub(crate) fn note_stuck(&self) {
        self.next_try
            .lock()
            .get_or_insert_with(|| Instant::now() + TRY_EVERY);
    }

    /// Notes that a logged batch was acknowledged.
    pub(crate) fn note_answer(&self) {
        *self.next_try.lock() = None;
    }

    /// Whether the next batch is written by the log. The log waits for nobody once every node
    /// answers.
    pub(crate) fn admits_batch(&self) -> bool {
        let mut next_try = self.next_try.lock();
        let Some(at) = *next_try else {
            return true;
        };
        if !self.nodes.is_partly_silent() {
            *next_try = None;
            return true;
        }
        let now = Instant::now();
        let is_tried = now >= at;
        if is_tried {
            *next_try = Some(now + TRY_EVERY);
        }
        is_tried
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const SILENCE: Duration = Duration::from_millis(250);

    #[tokio::test(start_paused = true)]
    async fn a_stuck_log_is_tried_once_a_second_until_it_answers() {
        let [one, two] = [1, 2].map(Uuid::from_u128);
        let nodes = Arc::new(NodeTable::of(SILENCE, &[one, two]));
        let log = BatchLog::new(Arc::clone(&nodes));
        assert!(log.admits_batch());
        nodes.note_asked(one);
        tokio::time::advance(SILENCE * 2).await;
        assert!(
            log.admits_batch(),
            "a silent node may not be one of the log"
        );

        log.note_stuck();
        assert!(!log.admits_batch());
        tokio::time::advance(TRY_EVERY).await;
        assert!(log.admits_batch());
        log.note_stuck();
        assert!(!log.admits_batch(), "one of many tries it");
        tokio::time::advance(TRY_EVERY).await;
        assert!(log.admits_batch());
        log.note_answer();
        assert!(log.admits_batch() && log.admits_batch());

        log.note_stuck();
        assert!(!log.admits_batch());
        nodes.note_answer(one);
        assert!(log.admits_batch(), "every node answers again");
    }
}
