//! Backpressure by token bucket: work that waits for its tokens instead of being refused.
//!
//! The waiters of one key form a FIFO queue, and only the first has a timer. It sleeps until its tokens have refilled, then
//! takes them, even if requests that do not wait took some meanwhile. Neither side therefore starves the other, and the
//! debt of a bucket is at most one price. A dropped waiter leaves the queue.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::{Buckets, TooFast};
use crate::metrics::{self, IntCounter, Metrics};

/// Token buckets on which work can also wait.
pub struct Pacing {
    buckets: Buckets,
    /// One queue for each key that has waiters.
    queues: Mutex<HashMap<u64, Arc<Semaphore>>>,
    waits: IntCounter,
}

impl Pacing {
    pub fn new(name: &str, buckets: Buckets) -> Arc<Self> {
        let waits = metrics::counter_of(
            "wideroom_rate_waits_total",
            "Executions of subscription events that waited for tokens, by rate.",
            ("rate", name),
        );
        Arc::new(Self {
            buckets,
            queues: Mutex::default(),
            waits,
        })
    }

    /// Publishes the counts of refusals and of waits.
    pub fn register(&self, metrics: &Metrics) {
        self.buckets.register(metrics);
        metrics.add(self.waits.clone());
    }

    pub fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// Pace of a stream of this key: each execution costs these tokens. The opening of the stream paid for the first one.
    pub fn pace(self: &Arc<Self>, key: &(impl Hash + ?Sized), tokens: u32) -> Pace {
        let paid_by = PaidBy {
            pacing: Arc::clone(self),
            key: self.buckets.key(key),
            tokens,
        };
        Pace {
            paid_by: Some(paid_by),
            is_prepaid: true,
        }
    }
}

/// Pace of one stream.
#[derive(Clone)]
pub struct Pace {
    paid_by: Option<PaidBy>,
    is_prepaid: bool,
}

#[derive(Clone)]
struct PaidBy {
    pacing: Arc<Pacing>,
    key: u64,
    tokens: u32,
}

/// Whether an execution had to wait for its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "access that was checked before a wait is checked again after it"]
pub enum Paid {
    AtOnce,
    AfterWait,
}

impl Pace {
    /// Pace of a stream without a price.
    pub const fn free() -> Self {
        Self {
            paid_by: None,
            is_prepaid: true,
        }
    }

    /// Pays for one execution if the tokens are available.
    pub fn try_pay(&mut self) -> bool {
        let Some(by) = &self.paid_by else { return true };
        std::mem::take(&mut self.is_prepaid)
            || by
                .pacing
                .buckets
                .try_debit(by.key, by.tokens, Instant::now())
                .is_ok()
    }

    /// Pays for one execution, and waits for the tokens if necessary.
    pub async fn pay(&mut self) -> Paid {
        if self.try_pay() {
            return Paid::AtOnce;
        }
        let Some(by) = &self.paid_by else {
            return Paid::AtOnce;
        };
        // Boxed: otherwise every stream would reserve space for this rare wait.
        Box::pin(by.wait()).await;
        Paid::AfterWait
    }
}

impl PaidBy {
    async fn wait(&self) {
        self.pacing.waits.inc();
        let waiter = PaceWaiter::of(self);
        let _first = waiter
            .queue
            .acquire()
            .await
            .expect("no queue is ever closed");
        let buckets = &self.pacing.buckets;
        if let Err(TooFast { retry_after }) =
            buckets.try_debit(self.key, self.tokens, Instant::now())
        {
            sleep(retry_after).await;
            buckets.owe(self.key, self.tokens, Instant::now());
        }
    }
}

/// PaceWaiter in the queue of a key. The last waiter removes the queue.
struct PaceWaiter<'a> {
    by: &'a PaidBy,
    queue: Arc<Semaphore>,
}

impl<'a> PaceWaiter<'a> {
    fn of(by: &'a PaidBy) -> Self {
        let queue = Arc::clone(
            by.pacing
                .queues
                .lock()
                .entry(by.key)
                .or_insert_with(|| Arc::new(Semaphore::new(1))),
        );
        Self { by, queue }
    }
}

impl Drop for PaceWaiter<'_> {
    fn drop(&mut self) {
        let mut queues = self.by.pacing.queues.lock();
        // The map holds one reference and this waiter the other. No waiter can enter while the map is locked.
        if Arc::strong_count(&self.queue) == 2 {
            queues.remove(&self.by.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Rate;
    use super::*;

    /// One token refills in 5 ms.
    fn pacing() -> Arc<Pacing> {
        Pacing::new("test", Buckets::new("test", Rate::per_second(200, 10)))
    }

    /// Pace of alice, whose bucket is empty, after the prepaid execution.
    fn empty(tokens: u32) -> (Arc<Pacing>, Pace) {
        let pacing = pacing();
        pacing.buckets.take("alice", 10, Instant::now()).unwrap();
        let mut pace = pacing.pace("alice", tokens);
        assert!(pace.try_pay(), "the first one was paid for");
        (pacing, pace)
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_pay_in_turn_at_the_rate_and_leave_no_queue() {
        let (pacing, pace) = empty(2);
        let start = Instant::now();
        let waiters: Vec<_> = (0..50)
            .map(|_| {
                let mut pace = pace.clone();
                tokio::spawn(async move {
                    assert_eq!(pace.pay().await, Paid::AfterWait);
                    Instant::now()
                })
            })
            .collect();
        let mut last = start;
        for waiter in waiters {
            let at = waiter.await.unwrap();
            assert!(at >= last, "in the order in which they came");
            last = at;
        }
        assert!(
            last - start >= Duration::from_millis(2 * 5 * 49),
            "{:?}",
            last - start
        );
        assert!(pacing.queues.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_waiter_delays_no_other() {
        let pacing = Pacing::new(
            "test",
            Buckets::new(
                "test",
                Rate {
                    count: 1,
                    per: Duration::from_millis(100),
                    burst: 10,
                },
            ),
        );
        pacing.buckets.take("alice", 10, Instant::now()).unwrap();
        let pace = |tokens| {
            let mut pace = pacing.pace("alice", tokens);
            assert!(pace.try_pay());
            pace
        };
        let (mut dear, mut cheap) = (pace(10), pace(1));
        let first = tokio::spawn(async move { dear.pay().await });
        tokio::task::yield_now().await;
        let second = tokio::spawn(async move { cheap.pay().await });
        tokio::task::yield_now().await;
        let start = Instant::now();
        first.abort();
        assert_eq!(second.await.unwrap(), Paid::AfterWait);
        assert!(
            start.elapsed() < Duration::from_millis(900),
            "it waits for its own token: {:?}",
            start.elapsed()
        );
        assert!(pacing.queues.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_and_a_waiter_share_the_rate() {
        let (pacing, mut pace) = empty(5);
        let end = Instant::now() + Duration::from_millis(500);
        let taken = Arc::clone(&pacing);
        let requests = tokio::spawn(async move {
            let mut count = 0;
            while Instant::now() < end {
                match taken.buckets.take("alice", 1, Instant::now()) {
                    Ok(()) => count += 1,
                    Err(TooFast { retry_after }) => sleep(retry_after).await,
                }
            }
            count
        });
        let mut executions = 0;
        while Instant::now() < end {
            let _ = pace.pay().await;
            executions += 1;
        }
        let requests = requests.await.unwrap();
        // Far below the rate, because the machine may be busy.
        assert!(
            executions >= 2 && requests >= 2,
            "{executions} executions, {requests} requests"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_a_price_never_waits() {
        let mut pace = Pace::free();
        for _ in 0..100 {
            assert_eq!(pace.pay().await, Paid::AtOnce);
        }
    }
}
