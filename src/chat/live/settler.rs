//! Settler: sends what silent writers left, by the due queue of live messages.
//!
//! On a cluster one server at a time holds a shard of the queue. A lost lease means that a live message is settled twice, and its key
//! makes one message of it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::iter;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::LiveService;
use super::settlement::{CLOSED_FOR, LiveOutcome};
use crate::chat::due_shards::{DueQueue, HeldShard, ShardHolder};
use crate::chat::error::{Error, Result};
use crate::metrics::{self, IntCounter, Metrics};
use crate::model::LiveKey;
use crate::store::FormVersion;
use crate::store::live::{
    DueLiveQuery, LIVE_TEXT_LIFETIME_MICROS, LiveListing, MINUTE_MICROS, minute_of,
};

/// Interval of passes.
const PASS_EVERY: Duration = Duration::from_secs(5);
/// Time after which a pass reads no more; the next one continues.
const PASS_MAX: Duration = Duration::from_secs(10);
/// The due queue by minutes, and its leases. Entries whose text has expired are of no use.
const QUEUE: DueQueue = DueQueue {
    reader: "wideroom:live",
    slot: Duration::from_micros(MINUTE_MICROS.unsigned_abs()),
    late_slots: 2,
    kept_slots: (LIVE_TEXT_LIFETIME_MICROS / MINUTE_MICROS) as u32,
    new_slots: 60,
    lease_for: Duration::from_secs(40),
    lease_margin: Duration::from_secs(5),
    renew_after: Duration::from_secs(15),
}
.checked(PASS_EVERY, PASS_MAX);
/// Entries of one read of a shard. They wait together for the ends of their lists of writers.
const ENTRIES_MAX: usize = 256;
/// Live messages of one shard at once.
const AT_ONCE: usize = 8;

/// Counters of the settler.
pub(super) struct SettlerMeter {
    interrupted: IntCounter,
    discarded: IntCounter,
    failures: IntCounter,
}

impl SettlerMeter {
    pub(super) fn new() -> Self {
        Self {
            interrupted: metrics::counter(
                "wideroom_live_interrupted_total",
                "Live messages of silent writers that the server sent.",
            ),
            discarded: metrics::counter(
                "wideroom_live_discarded_total",
                "Live messages of silent writers without a text, or whose writer may not send, that the server discarded.",
            ),
            failures: metrics::counter(
                "wideroom_live_settle_failures_total",
                "Live messages of silent writers that the server failed to send, and tries again.",
            ),
        }
    }

    pub(super) fn register(&self, metrics: &Metrics) {
        metrics.add(self.interrupted.clone());
        metrics.add(self.discarded.clone());
        metrics.add(self.failures.clone());
    }

    fn count(&self, settled: LiveOutcome) {
        match settled {
            LiveOutcome::Sent => self.interrupted.inc(),
            LiveOutcome::Discarded => self.discarded.inc(),
            LiveOutcome::Ended => {}
        }
    }
}

/// Works through the due queue. A server has one.
pub struct LiveSettler {
    lives: Arc<LiveService>,
    shards: ShardHolder,
    work: HashMap<u8, ShardWork>,
}

/// Progress in one shard.
#[derive(Default)]
struct ShardWork {
    /// Entries that are done, of the minutes that are read again.
    done: BTreeSet<(u32, LiveKey)>,
    /// The last minute that was done whole. Nothing becomes due before the next one.
    complete: Option<u32>,
}

impl LiveService {
    /// A settler of this server. It holds no shard yet.
    pub fn settler(self: &Arc<Self>) -> LiveSettler {
        LiveSettler {
            lives: Arc::clone(self),
            shards: ShardHolder::new(QUEUE, Arc::clone(&self.store), self.in_flight.clone()),
            work: HashMap::new(),
        }
    }
}

impl LiveSettler {
    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut passes = interval(PASS_EVERY);
        passes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            passes.tick().await;
            if let Err(error) = self.pass().await {
                tracing::warn!(%error, "the server failed to send the text that silent writers of live messages left; it tries again");
            }
        }
    }

    /// Settles everything that is due in the shards that this server holds or can acquire, as far as the time of one pass goes.
    pub async fn pass(&mut self) -> Result<()> {
        let (lives, began) = (Arc::clone(&self.lives), Instant::now());
        let forms = lives.access.forms();
        if !forms.is_open(FormVersion::LIVE_MESSAGES).await? {
            return Ok(());
        }
        let now = lives.in_flight.now();
        self.shards.acquire(now).await?;
        let held = self.shards.held_mut();
        let numbers: Vec<_> = held.iter().map(|shard| shard.shard.number()).collect();
        let taken = numbers.iter().map(|number| self.work.remove(number));
        let mut work: Vec<_> = taken.map(Option::unwrap_or_default).collect();
        let each = held
            .iter_mut()
            .zip(&mut work)
            .map(|(shard, work)| lives.work_through(shard, work, minute_of(now), began));
        let worked: Result<Vec<()>> = join_all(each).await.into_iter().collect();
        self.work = numbers.into_iter().zip(work).collect();
        self.shards.renew().await?;
        worked.map(drop)
    }
}

impl LiveService {
    /// Handles the entries of a shard until the present minute.
    async fn work_through(
        &self,
        shard: &mut HeldShard,
        work: &mut ShardWork,
        up_to: u32,
        began: Instant,
    ) -> Result<()> {
        if work.complete == Some(up_to) {
            return Ok(());
        }
        let (mut after, mut failed) = (None, None);
        loop {
            let query = DueLiveQuery {
                shard: shard.shard,
                from: shard.from,
                up_to,
                after,
                limit: ENTRIES_MAX,
            };
            let entries = self.store.due_lives(&query).await?;
            let is_last = entries.len() < ENTRIES_MAX;
            after = entries.last().map(|due| (due.minute, due.live));
            let new = entries
                .into_iter()
                .filter(|due| !work.done.contains(&(due.minute, due.live)));
            let settled = self.settle_all(new.collect(), &mut work.done).await;
            failed = failed.or(settled.err());
            let done_up_to = match after {
                Some((minute, _)) if !is_last => minute,
                Some(_) | None => up_to,
            };
            if failed.is_none() {
                shard.advance(done_up_to);
                work.complete = is_last.then_some(up_to);
            }
            if is_last || began.elapsed() > PASS_MAX || !shard.is_valid() {
                work.done.retain(|(minute, _)| *minute >= shard.from);
                return failed.map_or(Ok(()), Err);
            }
        }
    }

    /// Settles live messages whose writers have fallen silent. One of them does not hold up the others: it is listed again for the next
    /// minute, or stays in the queue.
    async fn settle_all(
        &self,
        entries: Vec<LiveListing>,
        done: &mut BTreeSet<(u32, LiveKey)>,
    ) -> Result<()> {
        let closing = iter(entries).map(async |due| {
            let closed = self.close(&due).await;
            (due, closed)
        });
        let closed: Vec<_> = closing.buffer_unordered(AT_ONCE).collect().await;
        if closed.iter().any(|(_, closed)| matches!(closed, Ok(true))) {
            sleep(CLOSED_FOR).await;
        }
        let settling = iter(closed).map(async |(due, closed)| {
            let settled = match closed {
                Ok(true) => self.settle(due.live).await,
                Ok(false) => Ok(LiveOutcome::Ended),
                Err(error) => Err(error),
            };
            let settled = self.put_off_after(&due, settled).await;
            (due, settled)
        });
        let settled: Vec<_> = settling.buffer_unordered(AT_ONCE).collect().await;
        let mut failed = None;
        for (due, settled) in settled {
            match settled {
                Ok(()) => {
                    done.insert((due.minute, due.live));
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn put_off_after(&self, due: &LiveListing, settled: Result<LiveOutcome>) -> Result<()> {
        let error = match settled {
            Ok(settled) => {
                self.settler.count(settled);
                return Ok(());
            }
            Err(error) => error,
        };
        self.settler.failures.inc();
        let is_listed = self.put_off(due).await.is_ok();
        if is_listed {
            tracing::debug!(%error, "the server failed to settle a live message, and tries again in a minute");
            Ok(())
        } else {
            Err::<(), Error>(error)
        }
    }
}
