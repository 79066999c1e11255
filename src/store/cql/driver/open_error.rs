//! Errors of opening a store on a cluster, each with what the operator can do.

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, MetadataError,
    NewSessionError,
};

use crate::store::Cause;

/// The reason why a store on a cluster cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ClusterOpenError {
    #[error("{address} does not answer: {source}")]
    Connect {
        address: String,
        #[source]
        source: Cause,
    },
    #[error(
        "{address} refuses this server: {source}; check the user and the password in the address, and the certificates"
    )]
    Refused {
        address: String,
        #[source]
        source: Cause,
    },
    #[error("the root certificates cannot be read: {source}")]
    Roots {
        #[source]
        source: Cause,
    },
    #[error("the cluster did not create the tables: {source}")]
    Migrate {
        #[source]
        source: Cause,
    },
    #[error(
        "the cluster has more than one data centre ({names}): name the one of this deployment in the address, as in ?dc=NAME"
    )]
    DataCentre { names: String },
    #[error("the cluster has no data centre {named}: it has {names}; correct ?dc= in the address")]
    UnknownDataCentre { named: String, names: String },
    #[error(
        "the address names the data centre {named}, and the servers of this keyspace use {recorded}: correct ?dc= in the address; after a failover, stop all servers and run `wideroom migrate --data-centre {named}`"
    )]
    OtherDataCentre { named: String, recorded: String },
    #[error(
        "the keyspace {keyspace} has no replicas in the data centre {data_centre}: add them with ALTER KEYSPACE and repair it first"
    )]
    NoReplicas {
        keyspace: String,
        data_centre: String,
    },
    #[error("{replication} replicas need as many nodes, and {data_centre} has {nodes}: add nodes")]
    Replication {
        replication: usize,
        nodes: usize,
        data_centre: String,
    },
    #[error(
        "{address} lacks tables of this version: run `wideroom migrate --store {address}` first"
    )]
    NotMigrated { address: String },
    #[error(
        "{address} was migrated by a newer wideroom: a server must know version {oldest}, and this one knows {version}: upgrade this server"
    )]
    Newer {
        address: String,
        version: i32,
        oldest: i32,
    },
    #[error(
        "a server of version 0.1 wrote to {address} within the last minute, and does not notify later versions: stop all servers of version 0.1, wait a minute, and run `wideroom migrate` again"
    )]
    EarlyServers { address: String },
    #[error(
        "{count} servers of version {version} still serve, and this is version {newest}: upgrade or stop them, wait a minute, and run `wideroom migrate --finish` again"
    )]
    OlderServers {
        count: usize,
        version: i32,
        newest: i32,
    },
    #[error(
        "{count} servers beat whose version is unknown, as their rows are missing: wait a minute, in which they register again, and run `wideroom migrate --finish` again"
    )]
    UnknownServers { count: usize },
    #[error(
        "the tables of version {version} are not those of this wideroom: name another keyspace if this one belongs to another program"
    )]
    OtherSchema { version: i32 },
    #[error("a statement could not be prepared: {source}")]
    Prepare {
        #[source]
        source: Cause,
    },
}

impl ClusterOpenError {
    /// Error of a session that was not opened. Wrong credentials and certificates stay wrong; a cluster that is
    /// unreachable, unresolved or starting comes back.
    pub(super) fn of_session(address: String, error: NewSessionError) -> Self {
        let is_final = matches!(
            &error,
            NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
                ConnectionPoolError::Broken { last_connection_error },
            )) if is_refusal(last_connection_error)
        );
        let source = Box::new(error);
        if is_final {
            Self::Refused { address, source }
        } else {
            Self::Connect { address, source }
        }
    }

    /// Whether the cause may end without the operator of this server: the cluster is away, or has no quorum.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. } | Self::Migrate { .. } | Self::Prepare { .. }
        )
    }
}

/// Whether a node refused the credentials, or either side the other's certificate.
fn is_refusal(error: &ConnectionError) -> bool {
    if let ConnectionError::IoError(error) = error {
        return error
            .get_ref()
            .is_some_and(|cause| cause.is::<rustls::Error>());
    }
    matches!(
        error,
        ConnectionError::ConnectionSetupRequestError(setup) if matches!(
            setup.error,
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, _)
                | ConnectionSetupRequestErrorKind::MissingAuthentication
        )
    )
}
