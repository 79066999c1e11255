//! Hedged requests: one that is not answered in time is also sent to a second node, and the first
//! success counts.
//!
//! Only requests that may run twice are hedged. A read changes nothing. A write has its own keys,
//! values and timestamps, so the second execution writes the same cells. A claim names its own
//! value: the second execution finds the row of the first and returns it. Any other conditional
//! write is sent once.
//!
//! The error of a hedged write is the worse of two: the write was surely not done only if neither
//! attempt can have done it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout};

use super::metrics::{RequestKind, RequestMetrics};
use crate::store::cql::driver::nodes::table::{Attempt, NodeTable};
use crate::store::{Error, Result};

/// Hedges that may be sent at once, without earlier requests.
const HEDGES_SAVED_MAX: i64 = 100;
/// Requests that earn one hedge: a cluster that is slow as a whole is not asked twice for
/// everything.
const REQUESTS_PER_HEDGE: i64 = 4;

pub(crate) struct Hedging {
    nodes: Arc<NodeTable>,
    /// The deadline of one attempt, from which the delays follow.
    attempt_max: Duration,
    read_latency: Quantile,
    budget: HedgeBudget,
    metrics: Arc<RequestMetrics>,
}

impl Hedging {
    pub(crate) fn new(
        nodes: Arc<NodeTable>,
        attempt_max: Duration,
        metrics: Arc<RequestMetrics>,
    ) -> Self {
        Self {
            nodes,
            attempt_max,
            read_latency: Quantile::default(),
            budget: HedgeBudget::default(),
            metrics,
        }
    }

    /// Time after which a node that has answered nothing is silent.
    pub(crate) fn silence(attempt_max: Duration) -> Duration {
        attempt_max / 10
    }

    /// How long a request waits for its first attempt alone. `None`: to its end.
    fn delay(&self, kind: RequestKind) -> Option<Duration> {
        let attempt_max = self.attempt_max;
        match kind {
            // About the latency that one read of a hundred exceeds.
            RequestKind::Read => {
                let (least, most) = (attempt_max / 40, attempt_max / 10);
                Some(self.read_latency.value().clamp(least, most))
            }
            // A silent node is known sooner.
            RequestKind::Write | RequestKind::Batch => Some(attempt_max / 8),
            RequestKind::SecondBatch => Some(attempt_max / 20),
            RequestKind::Claim => Some(attempt_max / 4),
            RequestKind::Conditional => None,
        }
    }

    /// Whether a hedge costs nothing of the budget: a batch that waits for the log of a silent node
    /// loads nobody meanwhile, and without a hedge it waits for its coordinator's time-out. Requests
    /// into a range without a quorum may have spent the budget.
    fn is_free(&self, kind: RequestKind) -> bool {
        matches!(kind, RequestKind::Batch | RequestKind::SecondBatch)
            && self.nodes.is_partly_silent()
    }

    /// Runs a request by its first attempt, and after a delay by both. The attempts are boxed:
    /// their state is large, and few requests need a second one.
    pub(crate) async fn run<'a, T>(
        &self,
        kind: RequestKind,
        attempt: &Attempt,
        first: BoxFuture<'a, Result<T>>,
        second: impl FnOnce() -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let outcome = self.race(kind, attempt, first, second).await;
        let took = began.elapsed();
        if kind == RequestKind::Read {
            self.read_latency.observe(took);
        }
        self.metrics.observe(kind, took, outcome.is_ok());
        outcome
    }

    /// The same, without an observation of its latency: a part of a request.
    pub(crate) async fn race<'a, T>(
        &self,
        kind: RequestKind,
        attempt: &Attempt,
        mut first: BoxFuture<'a, Result<T>>,
        second: impl FnOnce() -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        self.budget.earn();
        let Some(delay) = self.delay(kind) else {
            return first.await;
        };
        if let Ok(outcome) = timeout(delay, &mut first).await {
            return outcome;
        }
        if !self.nodes.has_other(attempt) || !(self.is_free(kind) || self.budget.spend()) {
            return first.await;
        }
        self.metrics.count_hedge(kind);
        let mut second = second();
        tokio::select! {
            outcome = &mut first => match outcome {
                Ok(answer) => Ok(answer),
                Err(error) => second.await.map_err(|other| worse(error, other)),
            },
            outcome = &mut second => match outcome {
                Ok(answer) => {
                    self.metrics.count_won_hedge(kind);
                    Ok(answer)
                }
                Err(error) => first.await.map_err(|other| worse(error, other)),
            },
        }
    }
}

/// The error of a request whose attempts have both failed.
fn worse(one: Error, other: Error) -> Error {
    match (&one, &other) {
        (Error::OutcomeUnknown(_), _) => one,
        (_, Error::OutcomeUnknown(_)) => other,
        (Error::Unavailable(_) | Error::Corrupt { .. }, _) => one,
    }
}

/// Running estimate of the latency that one request of a hundred exceeds. A slower request raises
/// it by 99 steps, a faster one lowers it by one, so it rests where one of a hundred is slower.
#[derive(Debug, Default)]
struct Quantile(AtomicU64);

impl Quantile {
    const STEPS: u64 = 1_024;
    const MICROS_MIN: u64 = 1_000;

    fn observe(&self, latency: Duration) {
        let estimate = self.0.load(Ordering::Relaxed).max(Self::MICROS_MIN);
        let step = (estimate / Self::STEPS).max(1);
        let is_slower = latency.as_micros() > u128::from(estimate);
        let next = if is_slower {
            estimate.saturating_add(99 * step)
        } else {
            estimate - step
        };
        // A lost update of a concurrent request does not matter.
        self.0.store(next, Ordering::Relaxed);
    }

    fn value(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Token bucket of hedges: each request earns a part of one.
#[derive(Debug)]
struct HedgeBudget(AtomicI64);

impl Default for HedgeBudget {
    fn default() -> Self {
        Self(AtomicI64::new(HEDGES_SAVED_MAX * REQUESTS_PER_HEDGE))
    }
}

impl HedgeBudget {
    fn earn(&self) {
        if self.0.load(Ordering::Relaxed) < HEDGES_SAVED_MAX * REQUESTS_PER_HEDGE {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn spend(&self) -> bool {
        let spent =
            |tokens: i64| (tokens >= REQUESTS_PER_HEDGE).then(|| tokens - REQUESTS_PER_HEDGE);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::*;

    const ATTEMPT_MAX: Duration = Duration::from_secs(2);

    struct Bench {
        nodes: Arc<NodeTable>,
        hedging: Hedging,
    }

    impl Bench {
        fn of(nodes: u128) -> Self {
            let ids: Vec<_> = (1..=nodes).map(Uuid::from_u128).collect();
            let table = Arc::new(NodeTable::of(Hedging::silence(ATTEMPT_MAX), &ids));
            let metrics = Arc::new(RequestMetrics::default());
            Self {
                hedging: Hedging::new(Arc::clone(&table), ATTEMPT_MAX, metrics),
                nodes: table,
            }
        }

        /// An attempt that waits for the first node.
        async fn waiting(&self) -> Arc<Attempt> {
            let attempt = Attempt::first();
            let ask = async { self.nodes.note_asked(Uuid::from_u128(1)) };
            attempt.run(ask).await;
            attempt
        }
    }

    fn after<T: Send + 'static>(
        delay: Duration,
        outcome: Result<T>,
    ) -> BoxFuture<'static, Result<T>> {
        let outcome = async move {
            tokio::time::sleep(delay).await;
            outcome
        };
        outcome.boxed()
    }

    fn unavailable<T>() -> Result<T> {
        Err(Error::Unavailable("not done".into()))
    }

    fn unknown<T>() -> Result<T> {
        Err(Error::OutcomeUnknown("who knows".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_a_silent_node_is_answered_by_another() {
        let bench = Bench::of(3);
        for kind in [RequestKind::Read, RequestKind::Write, RequestKind::Claim] {
            let began = Instant::now();
            let attempt = bench.waiting().await;
            let second = after(Duration::from_millis(5), Ok("second"));
            let answer = bench
                .hedging
                .run(kind, &attempt, pending().boxed(), || second)
                .await;
            assert_eq!(answer.unwrap(), "second");
            assert!(
                began.elapsed() <= ATTEMPT_MAX / 4 + Duration::from_millis(6),
                "{kind:?}"
            );
        }
        // One that is answered in time is sent once.
        let attempt = bench.waiting().await;
        let first = after(Duration::from_millis(40), Ok("first"));
        let second = || panic!("it was sent twice");
        let answer = bench
            .hedging
            .run(RequestKind::Read, &attempt, first, second);
        assert_eq!(answer.await.unwrap(), "first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_conditional_write_is_sent_once() {
        let bench = Bench::of(3);
        let attempt = bench.waiting().await;
        let first = after(ATTEMPT_MAX, unknown::<()>());
        let second = || panic!("it was sent twice");
        let outcome = bench
            .hedging
            .run(RequestKind::Conditional, &attempt, first, second);
        assert!(matches!(outcome.await, Err(Error::OutcomeUnknown(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_was_not_done_only_if_neither_attempt_can_have_done_it() {
        let bench = Bench::of(3);
        let (early, late) = (Duration::from_millis(300), Duration::from_millis(500));
        for (first, second, is_unknown) in [
            (
                after(early, unavailable()),
                after(late, unavailable()),
                false,
            ),
            (after(early, unknown()), after(late, unavailable()), true),
            (after(early, unavailable()), after(late, unknown()), true),
            (
                after(late * 4, unknown()),
                after(early, unavailable()),
                true,
            ),
        ] {
            let attempt = bench.waiting().await;
            let outcome: Result<()> = bench
                .hedging
                .run(RequestKind::Write, &attempt, first, || second)
                .await;
            let error = outcome.unwrap_err();
            assert_eq!(
                matches!(error, Error::OutcomeUnknown(_)),
                is_unknown,
                "{error}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_node_is_asked_once() {
        let bench = Bench::of(1);
        let attempt = bench.waiting().await;
        let first = after(ATTEMPT_MAX / 2, Ok("first"));
        let second = || panic!("there is no other node");
        let answer = bench
            .hedging
            .run(RequestKind::Read, &attempt, first, second);
        assert_eq!(answer.await.unwrap(), "first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_waits_for_a_silent_node_needs_no_budget() {
        let bench = Bench::of(3);
        while bench.hedging.budget.spend() {}
        let hedged = async |kind| {
            let attempt = bench.waiting().await;
            let first = after(ATTEMPT_MAX, Ok("first"));
            let second = after(Duration::ZERO, Ok("second"));
            let answer = bench.hedging.run(kind, &attempt, first, || second);
            answer.await.unwrap()
        };
        // The first node is silent by the time of the hedge.
        assert_eq!(hedged(RequestKind::Batch).await, "second");
        assert_eq!(hedged(RequestKind::Read).await, "first");
        bench.nodes.note_answer(Uuid::from_u128(1));
        let attempt = Attempt::first();
        let first = after(ATTEMPT_MAX, Ok("first"));
        let answer = bench
            .hedging
            .run(RequestKind::Batch, &attempt, first, || unreachable!());
        assert_eq!(
            answer.await.unwrap(),
            "first",
            "the cluster is slow as a whole"
        );
    }

    #[test]
    fn a_slow_cluster_is_not_asked_twice_for_everything() {
        let budget = HedgeBudget::default();
        let mut hedges = 0;
        for _ in 0..10_000 {
            budget.earn();
            hedges += i64::from(budget.spend());
        }
        assert!(hedges <= HEDGES_SAVED_MAX + 10_000 / REQUESTS_PER_HEDGE);
        assert!(hedges >= 10_000 / REQUESTS_PER_HEDGE);
    }

    #[test]
    fn the_estimate_rests_where_one_of_a_hundred_is_slower() {
        let latency = Quantile::default();
        for number in 0..100_000_u64 {
            // From 1 to 100 ms, evenly.
            latency.observe(Duration::from_micros(1_000 + (number * 7_919) % 99_000));
        }
        let estimate = latency.value().as_millis();
        assert!((90..=115).contains(&estimate), "{estimate} ms");
    }
}
