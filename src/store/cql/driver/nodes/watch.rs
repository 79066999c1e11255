//! Watch over the nodes: keeps the node table up to date, and probes suspected and silent nodes
//! until they answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use scylla::client::session::Session;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::prepared::PreparedStatement;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use super::clocks;
use super::table::NodeTable;
use crate::store::cql::driver::statement::statements;

/// A probe finds out within half of the silence whether a suspected node answers.
const PROBE_EVERY: Duration = Duration::from_millis(20);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(250);
const REFRESH_EVERY: Duration = Duration::from_millis(250);

statements! {
    PROBE_NODE: Read "SELECT key FROM system.local WHERE key = 'local'";
}

/// Background task, stopped on drop.
pub(crate) struct NodeWatch(AbortHandle);

impl NodeWatch {
    /// Starts the watch, after it has compared the clocks of the nodes once. `data_centre`: only nodes
    /// of this one are asked, if it is named.
    pub(crate) async fn start(
        session: Arc<Session>,
        [probe, now]: [PreparedStatement; 2],
        nodes: Arc<NodeTable>,
        data_centre: Option<String>,
    ) -> Self {
        let probes = NodeProbes {
            session,
            probe,
            now,
            nodes,
            data_centre,
            probed: Mutex::default(),
            is_comparing: AtomicBool::new(false),
        };
        probes.refresh();
        probes.compare_clocks().await;
        let probes = Arc::new(probes);
        let task = tokio::spawn(async move {
            let every = |period| {
                let mut next = tokio::time::interval_at(Instant::now() + period, period);
                next.set_missed_tick_behavior(MissedTickBehavior::Delay);
                next
            };
            let (mut probe, mut refresh) = (every(PROBE_EVERY), every(REFRESH_EVERY));
            let mut compare = every(clocks::COMPARE_EVERY);
            let mut round = 0;
            loop {
                tokio::select! {
                    _ = compare.tick() => {
                        round += 1;
                        if clocks::is_compared_in(round, probes.nodes.all().len()) {
                            probes.start_comparison();
                        }
                    }
                    _ = refresh.tick() => {
                        probes.refresh();
                        if probes.nodes.has_uncompared() {
                            probes.start_comparison();
                        }
                    }
                    _ = probe.tick() => probes.probe_suspected(),
                }
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct NodeProbes {
    session: Arc<Session>,
    probe: PreparedStatement,
    now: PreparedStatement,
    nodes: Arc<NodeTable>,
    data_centre: Option<String>,
    /// Nodes with a probe in flight.
    probed: Mutex<HashSet<Uuid>>,
    is_comparing: AtomicBool,
}

impl NodeProbes {
    fn refresh(&self) {
        let state = self.session.get_cluster_state();
        let is_ours = |name: Option<&str>| match &self.data_centre {
            Some(ours) => name == Some(ours.as_str()),
            None => true,
        };
        if self.data_centre.is_none() {
            let of_nodes = state.get_nodes_info().iter();
            let names = of_nodes.filter_map(|node| node.datacenter.as_deref());
            self.nodes.note_data_centres(&names.collect());
        }
        let nodes = state.get_nodes_info().iter();
        self.nodes.refresh(
            nodes
                .filter(|node| is_ours(node.datacenter.as_deref()))
                .map(|node| (node.host_id, node.is_connected())),
        );
    }

    async fn compare_clocks(&self) {
        clocks::compare(&self.session, &self.now, &self.nodes).await;
    }

    /// Compares the clocks of the nodes, one comparison at a time.
    fn start_comparison(self: &Arc<Self>) {
        if self.is_comparing.swap(true, Ordering::Relaxed) {
            return;
        }
        let probes = Arc::clone(self);
        tokio::spawn(async move {
            probes.compare_clocks().await;
            probes.is_comparing.store(false, Ordering::Relaxed);
        });
    }

    fn probe_suspected(self: &Arc<Self>) {
        for id in self.nodes.suspected() {
            if self.probed.lock().insert(id) {
                let probes = Arc::clone(self);
                tokio::spawn(async move {
                    if !probes.probe(id).await {
                        tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                    }
                    probes.probed.lock().remove(&id);
                });
            }
        }
    }

    /// Whether a node answers.
    async fn probe(&self, id: Uuid) -> bool {
        let mut probe = self.probe.clone();
        let target = NodeIdentifier::HostId(id);
        probe.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(target, None)));
        match self.session.execute_unpaged(&probe, ()).await {
            Ok(_) => {
                self.nodes.note_answer(id);
                true
            }
            Err(error) => {
                tracing::debug!(node = %id, %error, "a silent node does not answer a probe");
                false
            }
        }
    }
}
