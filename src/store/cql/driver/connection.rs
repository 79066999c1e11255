//! Connection to a cluster: the driver's session, every statement, prepared, and the watch over the nodes.

use std::sync::Arc;

use scylla::client::session::Session;

use super::address::Address;
use super::connect::{KEEPALIVE_MAX, connect, profiles};
use super::migrate;
use super::nodes::clocks::SELECT_CLOCK;
use super::nodes::table::NodeTable;
use super::nodes::watch::{NodeWatch, PROBE_NODE};
use super::open_error::ClusterOpenError;
use super::statement::{ExecutionProfiles, PreparedStatements, Statement};

/// Connection that stores of one keyspace may share. Its background task runs on the runtime that opened it.
pub struct Connection {
    pub(crate) address: Address,
    pub(super) session: Arc<Session>,
    pub(super) profiles: ExecutionProfiles,
    pub(super) prepared: PreparedStatements,
    pub(super) nodes: Arc<NodeTable>,
    _watch: NodeWatch,
}

impl Connection {
    /// Connects to a cluster whose keyspace was migrated.
    pub(crate) async fn open(
        address: Address,
        statements: &[&[&'static Statement]],
    ) -> Result<Self, ClusterOpenError> {
        let session = connect(&address, KEEPALIVE_MAX).await?;
        migrate::check(&session, &address).await?;
        let (profiles, nodes) = profiles(&address);
        let prepared = PreparedStatements::prepare(&session, &profiles, statements).await;
        let prepared = prepared.map_err(|error| ClusterOpenError::Prepare {
            source: Box::new(error),
        })?;
        let session = Arc::new(session);
        let watch = NodeWatch::start(
            Arc::clone(&session),
            [&PROBE_NODE, &SELECT_CLOCK].map(|one| prepared.get(one).clone()),
            Arc::clone(&nodes),
            profiles.data_centre.clone(),
        );
        Ok(Self {
            address,
            _watch: watch.await,
            session,
            profiles,
            prepared,
            nodes,
        })
    }
}
