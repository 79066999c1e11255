//! Range limiter: a bulkhead around ranges of the ring that seem to have no quorum.
//!
//! Until the cluster itself takes a node for dead, a request into its ranges waits for the
//! coordinator's time-out of 2 s, with a request thread of the coordinator and a permit of this
//! server. At some hundred requests a second these would take all of both, and every other range
//! would stand still. So only a few of them are in flight at once; the others are refused at once,
//! and were surely not done.
//!
//! The few that pass find out when the range is back. They also keep a range going that is reached
//! by other coordinators though not by this server: at 5 ms each, they are thousands a second.

use std::sync::Arc;

use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::metrics::RequestMetrics;
use crate::store::Result;
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::nodes::table::NodeTable;
use crate::store::cql::driver::value::Values;

/// Requests in flight into ranges that seem to have no quorum. Each may hold threads of two
/// coordinators, which have 128 by default.
const IN_FLIGHT_MAX: usize = 32;

pub(crate) struct RangeLimiter {
    session: Arc<Session>,
    nodes: Arc<NodeTable>,
    permits: Semaphore,
}

impl RangeLimiter {
    pub(crate) fn new(session: Arc<Session>, nodes: Arc<NodeTable>) -> Self {
        Self {
            session,
            nodes,
            permits: Semaphore::new(IN_FLIGHT_MAX),
        }
    }

    /// A permit, where a statement of a request goes into such a range. Costs nothing while every
    /// node answers.
    pub(crate) fn admit<'a>(
        &self,
        mut request: impl Iterator<Item = (&'a PreparedStatement, &'a Values)>,
        metrics: &RequestMetrics,
    ) -> Result<Option<SemaphorePermit<'_>>> {
        if !self.nodes.is_partly_silent() || request.all(|(one, values)| self.is_met(one, values)) {
            return Ok(None);
        }
        let permit = self.permits.try_acquire().map_err(|_| {
            metrics.refused_permits.inc();
            unavailable("too many requests wait for a range without a quorum")
        });
        permit.map(Some)
    }

    /// Whether the replicas of a statement that answer are a quorum. A statement of several
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
