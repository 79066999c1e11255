//! Node table: which nodes of the cluster answer, as the requests of this server show.
//!
//! A circuit breaker per node. A node is silent once a request has waited for it for a while and it
//! has answered nothing since, or while it has no connection: it hangs, it is paused, it is down,
//! or its network is cut. Requests then go to other nodes, and a probe asks the silent one until it
//! answers (`watch`).
//!
//! Each request has an [`Attempt`] in its task: it names the nodes that were asked, and the node
//! that another attempt of the same request already waits for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use uuid::Uuid;

/// Requests of this server in flight at one node: half of all that a server sends. A node that is
/// slow, but answers, leaves the other half to the others.
const NODE_REQUESTS_MAX: usize = 512;
/// A silent node is slow at first. It counts as gone after so many times the silence: nodes that are
/// cold and loaded stand still for less.
const GONE_AFTER: u32 = 5;

tokio::task_local! {
    static ATTEMPT: Arc<Attempt>;
}

/// All nodes that this server may send requests to.
#[derive(Debug)]
pub(crate) struct NodeTable {
    nodes: RwLock<HashMap<Uuid, Arc<NodeState>>>,
    /// A node that has left a request without an answer for so long is silent.
    silence: Duration,
    opened: Instant,
    /// How often a node was found to have a wrong clock.
    clock_faults: AtomicUsize,
    /// Data centres of the cluster, if there are several and the address names none.
    unnamed: Mutex<Option<String>>,
}

#[derive(Debug)]
struct NodeState {
    id: Uuid,
    is_connected: AtomicBool,
    /// Requests in flight.
    requests: AtomicUsize,
    /// Whether its clock was compared since it is here, or is here again.
    is_compared: AtomicBool,
    /// Whether its clock disagrees with most others (`clocks`).
    has_wrong_clock: AtomicBool,
    /// Microseconds from the opening of the table to the first request after the node's last
    /// answer, at least 1. 0: nothing was asked since.
    asked_at: AtomicU64,
}

/// One attempt of a request: the nodes that the driver has sent it to.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    /// Node that another attempt waits for.
    avoided: Option<Uuid>,
    asked: Mutex<Vec<Arc<NodeState>>>,
}

impl Attempt {
    pub(crate) fn first() -> Arc<Self> {
        Arc::default()
    }

    /// A second attempt, which goes to another node than the first if there is one.
    pub(crate) fn beside(first: &Self) -> Arc<Self> {
        Arc::new(Self {
            avoided: first.node(),
            asked: Mutex::default(),
        })
    }

    /// Sends a request as this attempt.
    pub(crate) async fn run<T>(self: &Arc<Self>, request: impl Future<Output = T>) -> T {
        ATTEMPT.scope(Arc::clone(self), request).await
    }

    /// The node that was asked last.
    fn node(&self) -> Option<Uuid> {
        self.asked.lock().last().map(|node| node.id)
    }

    /// Counts a node once, however often the driver asks it.
    fn note(&self, node: &Arc<NodeState>) {
        let mut asked = self.asked.lock();
        if !asked.iter().any(|other| Arc::ptr_eq(other, node)) {
            node.requests.fetch_add(1, Ordering::Relaxed);
            asked.push(Arc::clone(node));
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        for node in self.asked.get_mut() {
            node.requests.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl NodeTable {
    pub(crate) fn new(silence: Duration) -> Self {
        Self {
            nodes: RwLock::default(),
            silence,
            opened: Instant::now(),
            clock_faults: AtomicUsize::new(0),
            unnamed: Mutex::default(),
        }
    }

    /// Takes over the nodes of the cluster, each with whether the driver has a connection to it.
    pub(crate) fn refresh(&self, present: impl Iterator<Item = (Uuid, bool)>) {
        let mut nodes = self.nodes.write();
        let mut known = std::mem::take(&mut *nodes);
        for (id, is_connected) in present {
            let node = known
                .remove(&id)
                .unwrap_or_else(|| Arc::new(NodeState::new(id)));
            let was_connected = node.is_connected.swap(is_connected, Ordering::Relaxed);
            if !was_connected {
                node.is_compared.store(false, Ordering::Relaxed);
            }
            nodes.insert(id, node);
        }
    }

    /// Notes the data centres of a cluster of which the address names none.
    pub(crate) fn note_data_centres(&self, names: &BTreeSet<&str>) {
        let names = names.iter().copied().collect::<Vec<_>>().join(", ");
        let is_unclear = names.contains(", ");
        let mut unnamed = self.unnamed.lock();
        if is_unclear && unnamed.is_none() {
            tracing::error!(%names, "the cluster has more than one data centre and the address names none: restart the server with ?dc=NAME");
        }
        *unnamed = is_unclear.then_some(names);
    }

    /// `Err` says in one sentence what is wrong.
    pub(crate) fn health(&self) -> Result<(), String> {
        match &*self.unnamed.lock() {
            Some(names) => Err(format!(
                "the cluster has more than one data centre ({names}) and the address names none"
            )),
            None => Ok(()),
        }
    }

    /// Notes that a request goes to a node.
    pub(crate) fn note_asked(&self, id: Uuid) {
        let Some(node) = self.get(id) else { return };
        let now = self.micros().max(1);
        // An earlier request that waits for its answer stays the first.
        let _ = node
            .asked_at
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let _ = ATTEMPT.try_with(|attempt| attempt.note(&node));
    }

    /// Notes that a node has answered, with a result or an error.
    pub(crate) fn note_answer(&self, id: Uuid) {
        if let Some(node) = self.get(id) {
            node.asked_at.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a request of this task should go to a node. An unknown node is new.
    pub(crate) fn is_usable(&self, id: Uuid) -> bool {
        let is_avoided = ATTEMPT
            .try_with(|attempt| attempt.avoided == Some(id))
            .unwrap_or(false);
        !is_avoided && self.get(id).is_none_or(|node| self.takes_requests(&node))
    }

    /// Whether a second attempt would find another node that answers.
    pub(crate) fn has_other(&self, first: &Attempt) -> bool {
        let waits_for = first.node();
        self.nodes
            .read()
            .values()
            .any(|node| Some(node.id) != waits_for && self.takes_requests(node))
    }

    fn takes_requests(&self, node: &NodeState) -> bool {
        !self.is_silent(node)
            && node.is_compared.load(Ordering::Relaxed)
            && !node.has_wrong_clock.load(Ordering::Relaxed)
            && node.requests.load(Ordering::Relaxed) < NODE_REQUESTS_MAX
    }

    /// Whether the node that an attempt waits for is silent, or unknown.
    pub(crate) fn is_silent_for(&self, attempt: &Attempt) -> bool {
        let node = attempt.node().and_then(|id| self.get(id));
        node.is_none_or(|node| self.is_silent(&node))
    }

    /// Nodes that do not answer.
    pub(crate) fn silent(&self) -> Vec<Uuid> {
        let nodes = self.nodes.read();
        let silent = nodes.values().filter(|node| self.is_silent(node));
        silent.map(|node| node.id).collect()
    }

    pub(crate) fn all(&self) -> Vec<Uuid> {
        self.nodes.read().keys().copied().collect()
    }

    /// Takes over a comparison: the nodes that answered, and those of them whose clock is wrong.
    /// `None` where that cannot be said.
    pub(crate) fn note_clocks(&self, answered: &[Uuid], wrong: Option<&[Uuid]>) {
        for node in answered.iter().filter_map(|id| self.get(*id)) {
            node.is_compared.store(true, Ordering::Relaxed);
            let Some(wrong) = wrong else { continue };
            let is_wrong = wrong.contains(&node.id);
            let was_wrong = node.has_wrong_clock.swap(is_wrong, Ordering::Relaxed);
            if is_wrong && !was_wrong {
                self.clock_faults.fetch_add(1, Ordering::Relaxed);
                tracing::error!(node = %node.id, "the clock of a node disagrees with the others: the server sends its requests to them; synchronise that node's clock, for example with NTP");
            } else if was_wrong && !is_wrong {
                tracing::info!(node = %node.id, "the clock of a node agrees with the others again");
            }
        }
    }

    /// How often a node was found to have a wrong clock. Rows that expire may be lost, which it has
    /// written until this server and the others found it.
    pub(crate) fn clock_faults(&self) -> usize {
        self.clock_faults.load(Ordering::Relaxed)
    }

    /// Whether a node is connected whose clock was not compared yet.
    pub(crate) fn has_uncompared(&self) -> bool {
        let nodes = self.nodes.read();
        nodes.values().any(|node| {
            node.is_connected.load(Ordering::Relaxed) && !node.is_compared.load(Ordering::Relaxed)
        })
    }

    /// Nodes whose clock is wrong.
    pub(crate) fn wrong_clocks(&self) -> usize {
        let nodes = self.nodes.read();
        let is_wrong = |node: &&Arc<NodeState>| node.has_wrong_clock.load(Ordering::Relaxed);
        nodes.values().filter(is_wrong).count()
    }

    /// Nodes to probe: the silent ones, and those that will be unless they answer soon.
    pub(crate) fn suspected(&self) -> Vec<Uuid> {
        let nodes = self.nodes.read();
        let is_suspected = |node: &&Arc<NodeState>| {
            node.is_waited_for(self.micros(), self.silence / 2) || self.is_silent(node)
        };
        let suspected = nodes.values().filter(is_suspected);
        suspected.map(|node| node.id).collect()
    }

    /// Whether a quorum of some replicas is there, however slow. Those of another data centre do not count.
    pub(crate) fn has_quorum(&self, replicas: impl Iterator<Item = Uuid>) -> bool {
        let nodes = self.nodes.read();
        let (mut all, mut present) = (0, 0);
        for node in replicas.filter_map(|id| nodes.get(&id)) {
            all += 1;
            present += usize::from(!self.is_gone(node));
        }
        all == 0 || present > all / 2
    }

    /// Whether some nodes are silent while others answer. If none answers, this server may itself
    /// have stood still.
    pub(crate) fn is_partly_silent(&self) -> bool {
        let nodes = self.nodes.read();
        let silent = nodes.values().filter(|node| self.is_silent(node)).count();
        silent > 0 && silent < nodes.len()
    }

    pub(crate) fn requests(&self) -> usize {
        let nodes = self.nodes.read();
        let each = nodes.values();
        each.map(|node| node.requests.load(Ordering::Relaxed)).sum()
    }

    fn get(&self, id: Uuid) -> Option<Arc<NodeState>> {
        self.nodes.read().get(&id).cloned()
    }

    fn is_silent(&self, node: &NodeState) -> bool {
        node.is_waited_for(self.micros(), self.silence)
            || !node.is_connected.load(Ordering::Relaxed)
    }

    /// Whether a node has been silent for so long that it is hardly only slow, or is not connected.
    fn is_gone(&self, node: &NodeState) -> bool {
        node.is_waited_for(self.micros(), self.silence * GONE_AFTER)
            || !node.is_connected.load(Ordering::Relaxed)
    }

    fn micros(&self) -> u64 {
        micros_of(self.opened.elapsed())
    }
}

impl NodeState {
    fn new(id: Uuid) -> Self {
        Self {
            id,
            is_connected: AtomicBool::new(true),
            requests: AtomicUsize::new(0),
            is_compared: AtomicBool::new(false),
            has_wrong_clock: AtomicBool::new(false),
            asked_at: AtomicU64::new(0),
        }
    }

    /// Whether a request has waited for the node for longer than this, and the node has answered
    /// nothing since.
    fn is_waited_for(&self, now: u64, longer_than: Duration) -> bool {
        let asked_at = self.asked_at.load(Ordering::Relaxed);
        asked_at > 0 && now.saturating_sub(asked_at) > micros_of(longer_than)
    }
}

fn micros_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl NodeTable {
    /// A table of connected nodes whose clocks agree.
    pub(crate) fn of(silence: Duration, nodes: &[Uuid]) -> Self {
        let table = Self::new(silence);
        table.refresh(nodes.iter().map(|id| (*id, true)));
        table.note_clocks(nodes, Some(&[]));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_millis(250);

    fn three() -> (NodeTable, [Uuid; 3]) {
        let ids = [1, 2, 3].map(Uuid::from_u128);
        (NodeTable::of(SILENCE, &ids), ids)
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_without_an_answer_is_silent_until_it_answers() {
        let (table, [one, two, three]) = three();
        table.note_asked(one);
        table.note_asked(two);
        table.note_answer(two);
        tokio::time::advance(SILENCE).await;
        assert!(table.is_usable(one), "an answer may take that long");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!table.is_usable(one) && table.is_usable(two) && table.is_usable(three));
        assert_eq!(table.silent(), [one]);
        // A later request does not make it young again.
        table.note_asked(one);
        assert!(!table.is_usable(one));
        // Its place in the ring does not matter.
        table.refresh([one, two].into_iter().map(|id| (id, true)));
        assert!(table.is_partly_silent());
        table.note_answer(one);
        assert!(table.is_usable(one) && !table.is_partly_silent());
    }

    #[tokio::test]
    async fn a_node_without_a_connection_is_silent() {
        let (table, [one, two, three]) = three();
        table.refresh([(one, true), (two, false), (three, true)].into_iter());
        assert_eq!(table.silent(), [two]);
        assert!(!table.is_usable(two) && table.is_partly_silent());
        table.refresh([one, two, three].into_iter().map(|id| (id, true)));
        assert!(!table.is_partly_silent());
        assert!(table.has_uncompared() && !table.is_usable(two));
        table.note_clocks(&[one, two, three], Some(&[]));
        assert!(table.is_usable(two) && !table.has_uncompared());
    }

    #[tokio::test]
    async fn a_wrong_clock_is_a_fault_once_however_often_it_is_found() {
        let (table, [one, two, three]) = three();
        let all = [one, two, three];
        table.note_clocks(&all, Some(&[three]));
        assert!(!table.is_usable(three) && table.is_usable(one));
        assert_eq!((table.clock_faults(), table.wrong_clocks()), (1, 1));
        table.note_clocks(&all, Some(&[three]));
        assert_eq!(table.clock_faults(), 1);
        table.note_clocks(&all, Some(&[]));
        assert!(table.is_usable(three));
        table.note_clocks(&all, Some(&[two]));
        assert_eq!((table.clock_faults(), table.wrong_clocks()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_answers_a_probe_in_time_is_never_silent() {
        let (table, [one, ..]) = three();
        table.note_asked(one);
        assert!(table.suspected().is_empty());
        tokio::time::advance(SILENCE / 2 + Duration::from_millis(1)).await;
        assert_eq!(table.suspected(), [one]);
        assert!(table.is_usable(one));
        // The probe is answered; the first request still waits for a replica behind the node.
        table.note_answer(one);
        tokio::time::advance(SILENCE).await;
        assert!(table.is_usable(one) && table.suspected().is_empty());
    }

    #[tokio::test]
    async fn a_range_has_a_quorum_while_most_of_its_replicas_answer() {
        let (table, [one, two, three]) = three();
        table.refresh([(one, true), (two, false), (three, true)].into_iter());
        let has_quorum = |replicas: &[Uuid]| table.has_quorum(replicas.iter().copied());
        assert!(has_quorum(&[one, two, three]));
        assert!(!has_quorum(&[two]) && has_quorum(&[one]));
        assert!(!has_quorum(&[one, two]), "of two, both are a quorum");
        let elsewhere = Uuid::from_u128(9);
        assert!(!has_quorum(&[two, elsewhere]) && has_quorum(&[elsewhere]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stood_still_blames_no_node() {
        let (table, ids) = three();
        ids.iter().for_each(|id| table.note_asked(*id));
        tokio::time::advance(SILENCE * 2).await;
        assert_eq!(table.silent().len(), 3);
        assert!(!table.is_partly_silent());
    }

    #[tokio::test]
    async fn a_second_attempt_avoids_the_node_of_the_first() {
        let (table, [one, two, _]) = three();
        let first = Attempt::first();
        first
            .run(async {
                table.note_asked(one);
                table.note_asked(one);
            })
            .await;
        assert_eq!(
            table.requests(),
            1,
            "a node that is asked twice counts once"
        );
        assert!(table.has_other(&first));
        let second = Attempt::beside(&first);
        second
            .run(async { assert!(!table.is_usable(one) && table.is_usable(two)) })
            .await;
        assert!(table.is_usable(one), "other requests may use it");
        drop(first);
        assert_eq!(table.requests(), 0);
        table.refresh(std::iter::once((one, true)));
        let only = Attempt::first();
        only.run(async { table.note_asked(one) }).await;
        assert!(!table.has_other(&only), "there is no second node");
    }

    #[tokio::test]
    async fn a_second_data_centre_that_nobody_chose_makes_the_server_unready() {
        let (table, _) = three();
        table.note_data_centres(&BTreeSet::from(["north"]));
        assert_eq!(table.health(), Ok(()));
        table.note_data_centres(&BTreeSet::from(["north", "south"]));
        assert!(table.health().unwrap_err().contains("north, south"));
        table.note_data_centres(&BTreeSet::from(["north"]));
        assert_eq!(table.health(), Ok(()));
    }

    #[tokio::test]
    async fn a_full_node_takes_no_more_requests() {
        let (table, [one, two, _]) = three();
        let mut attempts = Vec::new();
        for _ in 0..NODE_REQUESTS_MAX {
            assert!(table.is_usable(one));
            let attempt = Attempt::first();
            attempt.run(async { table.note_asked(one) }).await;
            attempts.push(attempt);
        }
        assert!(!table.is_usable(one) && table.is_usable(two));
        attempts.pop();
        assert!(table.is_usable(one));
    }
}
