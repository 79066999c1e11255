//! Range limiter: a bulkhead around ranges of the ring that seem to have no quorum.
//!
//! Until the cluster itself takes a node for dead, a request into its ranges waits for the
//! coordinator's time-out of 2 s, with a request thread of the coordinator and a permit of this
//! server. At some hundred requests a second these would take all of both, and every other range
//! would stand still. So only a few of them are in flight at once; the others are refused at once,
//! and were surely not done.
//!
//! A node without an answer may be slow, and not gone. So the bound adapts (additive increase,
//! multiplicative decrease): a request that succeeds proves that its range has a quorum, and lets
//! one more in; one that fails halves the bound. The few that always pass also find out when a
//! range is back, and keep one going that only other coordinators reach.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use tokio::time::Instant;

use super::metrics::RequestMetrics;
use super::permits::IN_FLIGHT_MAX;
use crate::store::Result;
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::nodes::table::NodeTable;
use crate::store::cql::driver::value::Values;

/// Requests that are in flight at any time into ranges that seem to have no quorum. Each may hold
/// threads of two coordinators, which have 128 by default.
const BOUND_MIN: usize = 32;
/// Time without such a request after which the bound is the first one again: another silence tells nothing of this one.
const FORGET_AFTER: Duration = Duration::from_secs(60);

pub(crate) struct RangeLimiter {
    session: Arc<Session>,
    nodes: Arc<NodeTable>,
    bulkhead: Bulkhead,
}

impl RangeLimiter {
    pub(crate) fn new(session: Arc<Session>, nodes: Arc<NodeTable>) -> Self {
        Self {
            session,
            nodes,
            bulkhead: Bulkhead::default(),
        }
    }

    /// Admits a request, within the bound where a statement of it goes into such a range. Costs
    /// nothing while every node answers.
    pub(crate) fn admit<'a>(
        &self,
        mut request: impl Iterator<Item = (&'a PreparedStatement, &'a Values)>,
        metrics: &RequestMetrics,
    ) -> Result<RangePermit<'_>> {
        if !self.nodes.is_partly_silent() || request.all(|(one, values)| self.is_met(one, values)) {
            return Ok(RangePermit(None));
        }
        let permit = self.bulkhead.enter().ok_or_else(|| {
            metrics.refused_permits.inc();
            unavailable("too many requests wait for ranges whose nodes do not answer")
        })?;
        Ok(RangePermit(Some(permit)))
    }

    /// Whether the replicas of a statement that are not gone are a quorum. A statement of several
    /// partitions has no token, and passes.
    fn is_met(&self, statement: &PreparedStatement, values: &Values) -> bool {
        let Some(table) = statement.get_table_spec() else {
            return true;
        };
        let Ok(Some(token)) = statement.calculate_token(values) else {
            return true;
        };
        let state = self.session.get_cluster_state();
        let replicas = state.get_token_endpoints(table.ks_name(), table.table_name(), token);
        self.nodes
            .has_quorum(replicas.iter().map(|(node, _)| node.host_id))
    }
}

/// Permit for one request. `None`: its ranges have a quorum.
pub(crate) struct RangePermit<'a>(Option<BulkheadPermit<'a>>);

impl RangePermit<'_> {
    /// Returns the permit with the outcome of its request, from which the limiter learns.
    pub(crate) fn settle<T>(self, outcome: Result<T>) -> Result<T> {
        if let Some(permit) = self.0 {
            permit.settle(outcome.is_ok());
        }
        outcome
    }
}

/// Adaptive bound of the requests in flight.
struct Bulkhead(Mutex<Requests>);

struct Requests {
    in_flight: usize,
    bound: usize,
    /// Time of the last request.
    last: Option<Instant>,
}

impl Default for Bulkhead {
    fn default() -> Self {
        Self(Mutex::new(Requests {
            in_flight: 0,
            bound: BOUND_MIN,
            last: None,
        }))
    }
}

impl Bulkhead {
    /// A permit for one request. `None`: too many are in flight.
    fn enter(&self) -> Option<BulkheadPermit<'_>> {
        let (mut requests, now) = (self.0.lock(), Instant::now());
        let last = requests.last.replace(now);
        if last.is_some_and(|last| now - last > FORGET_AFTER) {
            requests.bound = BOUND_MIN;
        }
        (requests.in_flight < requests.bound).then(|| {
            requests.in_flight += 1;
            BulkheadPermit(self)
        })
    }
}

/// Permit for one request, returned on drop.
struct BulkheadPermit<'a>(&'a Bulkhead);

impl BulkheadPermit<'_> {
    /// Adapts the bound to the outcome of the request. One that is cancelled has none.
    fn settle(self, is_success: bool) {
        let mut requests = self.0.0.lock();
        requests.bound = if is_success {
            (requests.bound + 1).min(IN_FLIGHT_MAX)
        } else {
            (requests.bound / 2).max(BOUND_MIN)
        };
    }
}

impl Drop for BulkheadPermit<'_> {
    fn drop(&mut self) {
        self.0.0.lock().in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::time::sleep;
    use uuid::Uuid;

    use super::*;

    const SILENCE: Duration = Duration::from_millis(250);
    const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(2);
    /// Statements of a loaded server.
    const PER_SECOND: u32 = 400;

    /// A ring of three, with three replicas of each row, of which the first node was killed.
    struct Simulation {
        nodes: Arc<NodeTable>,
        bulkhead: Arc<Bulkhead>,
        /// The second node answers, however late.
        is_alive: Arc<AtomicBool>,
        refused: Arc<AtomicUsize>,
    }

    impl Simulation {
        fn start() -> Self {
            let ids = [1, 2, 3].map(Uuid::from_u128);
            let nodes = Arc::new(NodeTable::of(SILENCE, &ids));
            nodes.refresh(ids.iter().map(|id| (*id, *id != ids[0])));
            Self {
                nodes,
                bulkhead: Arc::default(),
                is_alive: Arc::new(AtomicBool::new(true)),
                refused: Arc::default(),
            }
        }

        /// Sends requests at a steady rate, each of which needs the second node, and which it answers
        /// so late. Returns how many were sent and refused.
        async fn load(&self, time: Duration, latency: Duration) -> (usize, usize) {
            let [_, slow, other] = [1, 2, 3].map(Uuid::from_u128);
            self.refused.store(0, Ordering::Relaxed);
            let (end, mut sent) = (Instant::now() + time, 0);
            while Instant::now() < end {
                sleep(Duration::from_secs(1) / PER_SECOND).await;
                sent += 1;
                self.nodes.note_asked(slow);
                self.nodes.note_answer(other);
                let replicas = [1, 2, 3].map(Uuid::from_u128);
                let permit = if self.nodes.has_quorum(replicas.into_iter()) {
                    None
                } else if let Some(permit) = self.bulkhead.enter() {
                    std::mem::forget(permit);
                    Some(Arc::clone(&self.bulkhead))
                } else {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let (nodes, is_alive) = (Arc::clone(&self.nodes), Arc::clone(&self.is_alive));
                tokio::spawn(async move {
                    let is_success = is_alive.load(Ordering::Relaxed);
                    sleep(if is_success {
                        latency
                    } else {
                        COORDINATOR_TIMEOUT
                    })
                    .await;
                    if is_success {
                        nodes.note_answer(slow);
                    }
                    if let Some(bulkhead) = permit {
                        BulkheadPermit(&bulkhead).settle(is_success);
                    }
                });
            }
            (sent, self.refused.load(Ordering::Relaxed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_node_beside_one_that_is_gone_costs_no_requests() {
        for latency in [100, 400, 900].map(Duration::from_millis) {
            let ring = Simulation::start();
            let (sent, refused) = ring.load(Duration::from_secs(20), latency).await;
            assert!(
                sent > 1_000 && refused == 0,
                "{latency:?}: {refused} of {sent}"
            );
        }
        // It stands still for longer each time, as in a collection. Its answers prove that it is not gone.
        let ring = Simulation::start();
        let latency = Duration::from_millis(1_800);
        ring.load(Duration::from_secs(5), latency).await;
        let (sent, refused) = ring.load(Duration::from_secs(20), latency).await;
        assert_eq!(refused, 0, "of {sent}");
    }

    #[tokio::test(start_paused = true)]
    async fn ranges_without_a_quorum_take_few_requests_and_all_once_they_are_back() {
        let ring = Simulation::start();
        ring.load(Duration::from_secs(5), Duration::from_millis(5))
            .await;
        ring.is_alive.store(false, Ordering::Relaxed);
        // Those that were sent before the node was taken for gone end.
        ring.load(2 * COORDINATOR_TIMEOUT, Duration::ZERO).await;
        let (sent, refused) = ring.load(Duration::from_secs(20), Duration::ZERO).await;
        let passed = sent - refused;
        let rounds = 20 / COORDINATOR_TIMEOUT.as_secs() as usize + 1;
        assert!(passed <= rounds * BOUND_MIN, "{passed} of {sent}");
        ring.is_alive.store(true, Ordering::Relaxed);
        ring.load(COORDINATOR_TIMEOUT, Duration::from_millis(5))
            .await;
        let (_, refused) = ring
            .load(Duration::from_secs(10), Duration::from_millis(5))
            .await;
        assert_eq!(refused, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_silence_begins_with_the_first_bound() {
        let bulkhead = Bulkhead::default();
        let bound = || bulkhead.0.lock().bound;
        for _ in 0..100 {
            bulkhead.enter().unwrap().settle(true);
            sleep(FORGET_AFTER).await;
        }
        assert_eq!(bound(), BOUND_MIN + 100);
        sleep(Duration::from_millis(1)).await;
        drop(bulkhead.enter());
        assert_eq!(bound(), BOUND_MIN);
    }

    #[test]
    fn a_failure_halves_what_successes_have_opened() {
        let bulkhead = Bulkhead::default();
        let bound = || bulkhead.0.lock().bound;
        for _ in 0..2 * IN_FLIGHT_MAX {
            bulkhead.enter().unwrap().settle(true);
        }
        assert_eq!(bound(), IN_FLIGHT_MAX);
        drop(bulkhead.enter());
        assert_eq!(bound(), IN_FLIGHT_MAX, "a cancelled request says nothing");
        for _ in 0..10 {
            bulkhead.enter().unwrap().settle(false);
        }
        assert_eq!(bound(), BOUND_MIN);
        let held: Vec<_> = (0..BOUND_MIN).map(|_| bulkhead.enter().unwrap()).collect();
        assert!(bulkhead.enter().is_none());
        drop(held);
        assert!(bulkhead.enter().is_some());
    }
}
