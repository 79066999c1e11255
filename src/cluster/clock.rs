//! Cluster clock: the time by which this server allocates ids, limits cursors and addresses
//! mailboxes. It is the server's own wall clock, corrected by the clocks of the cluster's nodes.
//!
//! Each poll reads `now()` of the node that answers. The skew is the median over the newest samples
//! of three nodes, so that one node with a wrong clock decides nothing. Half of a sample's round
//! trip is its uncertainty: a wall clock within it counts as right and is taken as it is.
//!
//! Between two samples the time advances with the monotonic clock. So a step of the wall clock moves
//! no id, no cursor and no mailbox row; it makes the time unknown until the next sample, because the
//! monotonic clock, too, stands still while a machine is suspended.
//!
//! Invariant: a server whose wall clock is off by more than [`SKEW_MAX`], or whose time is unknown,
//! allocates no ids ([`ClusterClock::check`]) and is not ready. No other server is affected.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::clock::{Clock, micros};
use crate::model::Timestamp;
use crate::store::cluster::{NodeTime, SKEW_MAX};

/// A change of the wall clock against the monotonic one that no sample has seen yet.
const STEP_MAX: Duration = Duration::from_millis(300);
/// Nodes whose newest samples count.
const NODES: usize = 3;
/// A sample that took longer counts only where no better one of its node is at hand.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(200);
const BETTER_FOR: Duration = Duration::from_secs(10);
/// A sample that is older counts only while there is no other.
const SAMPLE_FOR: Duration = Duration::from_secs(60);
/// Samples in a row after which a single node is believed that this server's clock is wrong.
const CONFIRMED_BY: u32 = 3;

pub struct ClusterClock {
    own: Arc<dyn Clock>,
    /// Zero of the monotonic times.
    started: Instant,
    state: Mutex<ClockState>,
    sample_wanted: Notify,
}

#[derive(Default)]
struct ClockState {
    /// The newest sample of each node, the newest last.
    samples: Vec<ClockSample>,
    agreed: Option<Agreed>,
    /// Whether the operator was told that the clock is unfit.
    is_reported: bool,
}

struct ClockSample {
    node: Uuid,
    /// Time of the node less the monotonic time.
    lead: i64,
    /// Half of the round trip.
    slack: i64,
    taken: Instant,
    /// Samples in a row of this node alone.
    in_a_row: u32,
}

/// Result of the newest samples.
#[derive(Clone, Copy)]
struct Agreed {
    /// Lead of the wall clock over the nodes' time.
    skew: i64,
    /// Wall clock less the monotonic time, when the skew was computed.
    wall_lead: i64,
}

/// Reason for which this server allocates no ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockFault {
    /// No node has answered yet, or the wall clock was set since, or the machine was suspended.
    Unknown,
    /// The wall clock is off by so many microseconds.
    Skewed(i64),
}

impl std::fmt::Display for ClockFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "the clock of this server was set or stood still, and was not compared with the cluster's since",
            ),
            Self::Skewed(micros) => {
                let direction = if *micros > 0 { "ahead of" } else { "behind" };
                let seconds = micros.abs() as f64 / 1e6;
                write!(
                    f,
                    "the clock of this server is {seconds:.1} s {direction} the cluster's"
                )
            }
        }
    }
}

impl ClusterClock {
    pub fn new(own: Arc<dyn Clock>) -> Self {
        Self {
            own,
            started: Instant::now(),
            state: Mutex::default(),
            sample_wanted: Notify::new(),
        }
    }

    fn monotonic(&self, at: Instant) -> i64 {
        micros(at.saturating_duration_since(self.started))
    }

    fn wall_lead(&self) -> i64 {
        self.own.now().micros() - self.monotonic(Instant::now())
    }

    /// Takes the time of a node, which was asked for at `began`.
    pub fn take(&self, began: Instant, time: NodeTime) {
        let taken = Instant::now();
        let slack = micros(taken - began) / 2;
        let mut state = self.state.lock();
        let lead = time.now.micros() - self.monotonic(began) - slack;
        state.add(ClockSample {
            node: time.node,
            lead,
            slack,
            taken,
            in_a_row: 1,
        });
        state.agree(self.wall_lead());
        let fault = self.fault(&state);
        match fault {
            Some(fault) if !state.is_reported => {
                state.is_reported = true;
                tracing::error!(reason = %fault, "the server is not ready and refuses writes: synchronise its clock, for example with NTP");
            }
            None if std::mem::take(&mut state.is_reported) => {
                tracing::info!("the clock agrees with the cluster's again");
            }
            Some(_) | None => {}
        }
    }

    /// Whether [`Clock::now`] is the cluster's time, whatever the wall clock shows.
    pub fn is_known(&self) -> bool {
        self.is_known_in(&self.state.lock())
    }

    fn is_known_in(&self, state: &ClockState) -> bool {
        state
            .agreed
            .is_some_and(|agreed| (self.wall_lead() - agreed.wall_lead).abs() <= micros(STEP_MAX))
    }

    fn fault(&self, state: &ClockState) -> Option<ClockFault> {
        let agreed = state.agreed.filter(|_| self.is_known_in(state));
        match agreed {
            None => Some(ClockFault::Unknown),
            Some(Agreed { skew, .. }) if skew.abs() > micros(SKEW_MAX) => {
                Some(ClockFault::Skewed(skew))
            }
            Some(_) => None,
        }
    }

    /// `Err` where this server must allocate no ids. An unknown time asks for a sample at once.
    pub fn check(&self) -> Result<(), ClockFault> {
        let fault = self.fault(&self.state.lock());
        match fault {
            None => Ok(()),
            Some(fault) => {
                if fault == ClockFault::Unknown {
                    self.sample_wanted.notify_one();
                }
                Err(fault)
            }
        }
    }

    /// Waits until a sample is wanted before the next poll.
    pub(super) async fn sample_wanted(&self) {
        self.sample_wanted.notified().await;
    }

    /// Lead of the wall clock over the cluster's time, in seconds.
    pub(super) fn skew_seconds(&self) -> f64 {
        let agreed = self.state.lock().agreed;
        agreed.map_or(0.0, |agreed| agreed.skew as f64 / 1e6)
    }
}

impl Clock for ClusterClock {
    /// The cluster's time; before the first sample, the wall clock's.
    fn now(&self) -> Timestamp {
        let agreed = self.state.lock().agreed;
        match agreed {
            Some(Agreed { skew, wall_lead }) => {
                Timestamp::from_micros(self.monotonic(Instant::now()) + wall_lead - skew)
            }
            None => self.own.now(),
        }
    }
}

impl ClockState {
    fn add(&mut self, mut sample: ClockSample) {
        let newest = self.samples.last().map(|newest| newest.node);
        if let Some(index) = self.samples.iter().position(|one| one.node == sample.node) {
            let present = &self.samples[index];
            let is_slow = 2 * sample.slack > micros(ROUND_TRIP_MAX);
            if is_slow && present.slack < sample.slack && sample.taken - present.taken < BETTER_FOR
            {
                return;
            }
            let present = self.samples.remove(index);
            if newest == Some(sample.node) {
                sample.in_a_row = present.in_a_row.saturating_add(1);
            }
        }
        let taken = sample.taken;
        self.samples
            .retain(|other| taken - other.taken <= SAMPLE_FOR);
        self.samples.push(sample);
        let surplus = self.samples.len().saturating_sub(NODES);
        self.samples.drain(..surplus);
    }

    /// Computes the skew of the wall clock.
    fn agree(&mut self, wall_lead: i64) {
        // Within the uncertainty of the sample, the wall clock is right.
        let skew = |sample: &ClockSample| {
            let raw = wall_lead - sample.lead;
            raw.signum() * (raw.abs() - sample.slack).max(0)
        };
        let mut skews: Vec<_> = self.samples.iter().map(skew).collect();
        // Two nodes: the one that agrees with this server counts. Two clocks outvote the third.
        if skews.len() == 2 {
            skews.sort_unstable_by_key(|skew| skew.abs());
            skews.truncate(1);
        }
        skews.sort_unstable();
        let Some(skew) = skews.get(skews.len() / 2).copied() else {
            return;
        };
        let is_confirmed = skew.abs() <= micros(SKEW_MAX)
            || self.samples.len() > 1
            || self
                .samples
                .last()
                .is_some_and(|only| only.in_a_row >= CONFIRMED_BY);
        if is_confirmed {
            self.agreed = Some(Agreed { skew, wall_lead });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    const BASE: i64 = 1_700_000_000_000_000;
    const SECOND: i64 = 1_000_000;

    /// A server and three nodes in virtual time. All clocks go on with it; each may be off.
    struct ClockScene {
        start: Instant,
        wall: Arc<ManualClock>,
        wall_skew: i64,
        nodes: [(Uuid, i64); 3],
        clock: ClusterClock,
    }

    impl ClockScene {
        fn new(wall_skew: i64) -> Self {
            let wall = Arc::new(ManualClock::at(Timestamp::from_micros(BASE + wall_skew)));
            Self {
                start: Instant::now(),
                wall_skew,
                nodes: std::array::from_fn(|number| (Uuid::from_u128(number as u128), 0)),
                clock: ClusterClock::new(Arc::clone(&wall) as Arc<dyn Clock>),
                wall,
            }
        }

        fn true_time(&self) -> i64 {
            BASE + micros(self.start.elapsed())
        }

        async fn pass(&self, span: Duration) {
            tokio::time::advance(span).await;
            self.set_wall();
        }

        fn set_wall(&self) {
            let now = self.true_time() + self.wall_skew;
            self.wall.set(Timestamp::from_micros(now));
        }

        fn step(&mut self, by: i64) {
            self.wall_skew += by;
            self.set_wall();
        }

        /// A sample of a node that takes so long, both ways alike.
        async fn sample_in(&self, node: usize, round_trip: Duration) {
            let began = Instant::now();
            self.pass(round_trip / 2).await;
            let (node, skew) = self.nodes[node];
            let now = Timestamp::from_micros(self.true_time() + skew);
            self.pass(round_trip / 2).await;
            self.clock.take(began, NodeTime { node, now });
        }

        async fn sample(&self, node: usize) {
            self.sample_in(node, Duration::from_millis(2)).await;
        }

        /// Error of the cluster clock.
        fn error(&self) -> i64 {
            self.clock.now().micros() - self.true_time()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_off_by_less_than_two_seconds_is_corrected() {
        for skew in [-1_900_000, 1_900_000, 700_000] {
            let scene = ClockScene::new(skew);
            assert_eq!(scene.clock.check(), Err(ClockFault::Unknown));
            scene.sample(0).await;
            assert_eq!(scene.clock.check(), Ok(()));
            assert!(scene.error().abs() <= 1_000, "{}", scene.error());
            scene.pass(Duration::from_secs(30)).await;
            assert!(scene.error().abs() <= 1_000, "it goes on");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn within_the_uncertainty_of_a_sample_the_wall_clock_is_right() {
        let scene = ClockScene::new(40_000);
        scene.sample_in(0, Duration::from_millis(100)).await;
        assert_eq!(scene.error(), 40_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_does_not_displace_a_better_one() {
        let mut scene = ClockScene::new(500_000);
        scene.sample(0).await;
        scene.nodes[0].1 = 9_000_000;
        scene.sample_in(0, Duration::from_millis(900)).await;
        assert!(scene.error().abs() <= 1_000, "{}", scene.error());
        scene.pass(BETTER_FOR).await;
        scene.nodes[0].1 = 0;
        scene.sample_in(0, Duration::from_millis(900)).await;
        assert!(scene.error().abs() <= 450_000, "{}", scene.error());
    }

    #[tokio::test(start_paused = true)]
    async fn one_node_of_three_with_a_wrong_clock_decides_nothing() {
        for wrong in [60 * SECOND, -3_600 * SECOND] {
            let mut scene = ClockScene::new(0);
            scene.nodes[1].1 = wrong;
            // Asked first, and alone: unknown rather than wrong.
            scene.sample(1).await;
            assert_eq!(scene.clock.check(), Err(ClockFault::Unknown));
            for node in [0, 1, 2, 1, 0, 1, 2] {
                scene.sample(node).await;
                assert_eq!(scene.clock.check(), Ok(()), "{node}");
                assert_eq!(scene.error(), 0);
                scene.pass(Duration::from_secs(1)).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_far_off_is_fenced_and_knows_the_time() {
        for skew in [60 * SECOND, -3_600 * SECOND] {
            let scene = ClockScene::new(skew);
            for node in [0, 1, 2] {
                scene.sample(node).await;
            }
            let Err(ClockFault::Skewed(found)) = scene.clock.check() else {
                panic!("it is fenced");
            };
            assert!((found - skew).abs() <= 1_000, "{found}");
            assert!(scene.clock.is_known() && scene.error().abs() <= 1_000);
        }
        // A single node is believed after some samples.
        let scene = ClockScene::new(60 * SECOND);
        scene.sample(0).await;
        assert_eq!(scene.clock.check(), Err(ClockFault::Unknown));
        scene.sample(0).await;
        scene.sample(0).await;
        assert!(matches!(scene.clock.check(), Err(ClockFault::Skewed(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_wall_clock_stops_ids_until_a_sample_and_moves_no_time() {
        let mut scene = ClockScene::new(0);
        for node in [0, 1, 2] {
            scene.sample(node).await;
        }
        for step in [60 * SECOND, 3_600 * SECOND, -3_660 * SECOND, 500_000] {
            scene.step(step);
            assert_eq!(scene.clock.check(), Err(ClockFault::Unknown), "{step}");
            assert!(scene.error().abs() <= 1_000, "{}", scene.error());
            scene.sample(0).await;
            let is_near = scene.wall_skew.abs() <= micros(SKEW_MAX);
            assert_eq!(scene.clock.check().is_ok(), is_near, "{step}");
            assert!(scene.error().abs() <= 1_000, "{}", scene.error());
        }
        scene.step(-500_000);
        scene.sample(2).await;
        assert_eq!(scene.clock.check(), Ok(()));
    }

    #[test]
    fn a_fault_is_told_in_a_sentence() {
        assert_eq!(
            ClockFault::Skewed(-3_100_000).to_string(),
            "the clock of this server is 3.1 s behind the cluster's"
        );
    }
}
