//! Feed of rows: a scan that waits for more rows once it has read all.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::OutboxService;
use super::scan::OutboxScan;
use crate::chat::error::Result;
use crate::chat::in_flight_ids::InFlightIds;
use crate::model::{OrderKey, OutboxRow, OutboxShard};

/// Shortest pause between two passes of a reader that has read everything: events that follow one
/// another closely are read together.
const PASS_EVERY: Duration = Duration::from_millis(10);
const SHARED_PASS_EVERY: Duration = Duration::from_millis(250);
/// Longest pause of a reader of a shared store, which hears of other servers' events only where
/// somebody here listens to their conversation.
const SHARED_PASS_MAX: Duration = Duration::from_secs(5);
/// Pause of a reader that trails: no signal tells it when a row is old enough.
const TRAILING_PASS_EVERY: Duration = Duration::from_millis(250);

/// Result of one read.
pub(super) enum FeedStep {
    /// The next rows. There may be more.
    Rows(Vec<OutboxRow>),
    /// All rows up to here were returned, but for late ones.
    Complete(OrderKey),
}

pub(super) struct RowFeed {
    in_flight: InFlightIds,
    scan: OutboxScan,
    released: watch::Receiver<()>,
    /// How far the reader stays behind the present.
    trail: Duration,
    /// Pause before the next pass of a shared store.
    pause: Duration,
}

impl RowFeed {
    /// The rows of these shards after a position. A reader that resumes also receives rows that
    /// became visible late before it.
    pub(super) fn new(
        service: &OutboxService,
        shards: &[OutboxShard],
        position: OrderKey,
        is_resumed: bool,
        trail: Duration,
    ) -> Self {
        let released = service.in_flight.watch_released();
        let resumed_micros = if is_resumed {
            service.store.overlap_micros()
        } else {
            0
        };
        Self {
            in_flight: service.in_flight.clone(),
            scan: OutboxScan::new(&service.tail, shards, position, resumed_micros),
            released,
            trail,
            pause: SHARED_PASS_EVERY,
        }
    }

    /// Reads once.
    pub(super) async fn read(&mut self) -> Result<FeedStep> {
        // Seen before the limit: ids that are released after it wake the reader.
        self.released.borrow_and_update();
        let limit = self.in_flight.outbox_limit(self.trail);
        let rows = self.scan.read(limit).await?;
        if !rows.is_empty() {
            self.pause = SHARED_PASS_EVERY;
            return Ok(FeedStep::Rows(rows));
        }
        Ok(match self.scan.completed_to() {
            Some(position) => FeedStep::Complete(position),
            None => FeedStep::Rows(rows),
        })
    }

    /// Waits until there may be more to read, at most about so long.
    pub(super) async fn wait(&mut self, longest: Duration) {
        if self.in_flight.is_shared() {
            sleep(SHARED_PASS_EVERY).await;
            let more = self.pause.saturating_sub(SHARED_PASS_EVERY);
            self.pause = (self.pause * 2).min(SHARED_PASS_MAX);
            if let Ok(Ok(())) = timeout(more, self.released.changed()).await {
                self.pause = SHARED_PASS_EVERY;
            }
        } else if self.trail.is_zero() {
            sleep(PASS_EVERY).await;
            let _ = timeout(longest, self.released.changed()).await;
        } else {
            sleep(TRAILING_PASS_EVERY).await;
        }
    }
}
