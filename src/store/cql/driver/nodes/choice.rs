//! Choice of the node for a request: the driver's token-aware order, nodes that answer first.

use std::sync::Arc;
use std::time::Duration;

use scylla::cluster::{ClusterState, NodeRef};
use scylla::errors::RequestAttemptError;
use scylla::policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo};
use scylla::routing::Shard;

use super::table::NodeTable;

/// A load balancing policy around another one: it puts nodes that are silent, full or already asked
/// by another attempt of the request behind the others.
#[derive(Debug)]
pub(crate) struct AnsweringFirst {
    order: Arc<dyn LoadBalancingPolicy>,
    nodes: Arc<NodeTable>,
}

impl AnsweringFirst {
    pub(crate) fn new(order: Arc<dyn LoadBalancingPolicy>, nodes: Arc<NodeTable>) -> Self {
        Self { order, nodes }
    }
}

impl LoadBalancingPolicy for AnsweringFirst {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let first = self.order.pick(request, cluster)?;
        let chosen = if self.nodes.is_usable(first.0.host_id) {
            first
        } else {
            let mut others = self.order.fallback(request, cluster);
            let usable = others.find(|(node, _)| self.nodes.is_usable(node.host_id));
            usable.unwrap_or(first)
        };
        self.nodes.note_asked(chosen.0.host_id);
        Some(chosen)
    }

    fn fallback<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> FallbackPlan<'a> {
        let (usable, rest): (Vec<_>, Vec<_>) = self
            .order
            .fallback(request, cluster)
            .partition(|(node, _)| self.nodes.is_usable(node.host_id));
        // The driver passes over the node that it has picked.
        let ordered = usable.into_iter().chain(rest);
        Box::new(ordered.inspect(|(node, _)| self.nodes.note_asked(node.host_id)))
    }

    fn on_request_success(&self, request: &RoutingInfo<'_>, latency: Duration, node: NodeRef<'_>) {
        self.nodes.note_answer(node.host_id);
        self.order.on_request_success(request, latency, node);
    }

    fn on_request_failure(
        &self,
        request: &RoutingInfo<'_>,
        latency: Duration,
        node: NodeRef<'_>,
        error: &RequestAttemptError,
    ) {
        // An error of the node is an answer; a broken connection is none.
        if matches!(error, RequestAttemptError::DbError(..)) {
            self.nodes.note_answer(node.host_id);
        }
        self.order.on_request_failure(request, latency, node, error);
    }

    fn name(&self) -> String {
        "AnsweringFirst".to_owned()
    }
}
