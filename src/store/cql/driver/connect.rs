//! Connection to a cluster: the settings of the driver, and the reasons for them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use scylla::client::PoolSize;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileBuilder};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::{DefaultPolicy, LoadBalancingPolicy};
use scylla::policies::retry::{DefaultRetryPolicy, FallthroughRetryPolicy};
use scylla::statement::{Consistency, SerialConsistency};

use super::address::{Address, Tls};
use super::nodes::choice::AnsweringFirst;
use super::nodes::table::NodeTable;
use super::open_error::ClusterOpenError;
use super::request::hedging::Hedging;
use super::statement::ExecutionProfiles;
use crate::store::Cause;
use crate::store::cluster::WRITE_ATTEMPT_MAX;

/// The time beyond which a write waits for the coordinator, which itself waits 2 s for replicas and then reports how many have answered.
const WRITE_LONGER: Duration = Duration::from_millis(500);
const _: () = assert!(
    Address::TIMEOUT_MAX.as_millis() + WRITE_LONGER.as_millis() <= WRITE_ATTEMPT_MAX.as_millis()
);
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Connections to each node. Cassandra has no shards, so the default of the driver would be one.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(2).expect("two are not none");
/// The keep-alive interval and its deadline, whose sum detects a dead connection. Requests leave a
/// silent node sooner (see `nodes`): the cut ends those that still wait for it. A pause of a few
/// seconds keeps the connections and the requests in flight.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
/// The interval at which a migration polls whether all nodes have a schema change. A change takes less than the driver's 200 ms.
const SCHEMA_AGREEMENT_EVERY: Duration = Duration::from_millis(50);
pub(crate) const KEEPALIVE_MAX: Duration = Duration::from_secs(3);

/// Connects without a keyspace, as every statement names its own. `silence` is how long a node may take to answer a keep-alive.
///
/// The driver routes by the replication of the address's keyspace and by the names of its tables.
/// Its default reads every column of every keyspace, at each start and after each change of a schema.
pub(crate) async fn connect(
    address: &Address,
    silence: Duration,
) -> Result<Session, ClusterOpenError> {
    let tls = match &address.tls {
        Tls::Off => None,
        tls @ (Tls::System | Tls::Roots(_)) => {
            let config = trust(tls).map_err(|source| ClusterOpenError::Roots { source })?;
            Some(Arc::new(config))
        }
    };
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.contact_points)
        .keyspaces_to_fetch([address.keyspace.as_str()])
        .fetch_full_schema_metadata(false)
        .schema_agreement_interval(SCHEMA_AGREEMENT_EVERY)
        .tls_context(tls)
        .pool_size(PoolSize::PerHost(CONNECTIONS))
        .connection_timeout(CONNECT_MAX.max(address.timeout))
        .keepalive_interval(KEEPALIVE_EVERY)
        .keepalive_timeout(silence.max(address.timeout))
        .tcp_nodelay(true)
        .default_execution_profile_handle(
            profile(address)
                .retry_policy(Arc::new(DefaultRetryPolicy::new()))
                .build()
                .into_handle(),
        );
    if let Some(credentials) = &address.credentials {
        builder = builder.user(&credentials.user, &credentials.password);
    }
    if let Some(name) = &address.data_centre {
        builder = builder.prefer_datacenter(name.clone());
    }
    builder
        .build()
        .await
        .map_err(|error| ClusterOpenError::of_session(address.to_string(), error))
}

/// The execution profiles, and the nodes that their load balancing chooses from. The driver retries reads. It tries a write once, so that the error says
/// whether the write can have been done; the queue of the conversation retries it with the same ids
/// and timestamps. It speculates nothing: hedges are the executor's own.
pub(crate) fn profiles(address: &Address) -> (ExecutionProfiles, Arc<NodeTable>) {
    let nodes = Arc::new(NodeTable::new(Hedging::silence(address.timeout)));
    let answering_first = || Arc::new(AnsweringFirst::new(node_order(address), Arc::clone(&nodes)));
    let once = || {
        profile(address)
            .load_balancing_policy(answering_first())
            .request_timeout(Some(address.timeout + WRITE_LONGER))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .build()
            .into_handle()
    };
    let again = profile(address)
        .load_balancing_policy(answering_first())
        .retry_policy(Arc::new(DefaultRetryPolicy::new()))
        .build()
        .into_handle();
    let profiles = ExecutionProfiles {
        read: again,
        write: once(),
        conditional: once(),
        keyspace: address.keyspace.clone(),
        data_centre: address.data_centre.clone(),
        attempt_max: address.timeout,
    };
    (profiles, nodes)
}

/// Replicas of the statement's token first.
fn node_order(address: &Address) -> Arc<dyn LoadBalancingPolicy> {
    let mut nodes = DefaultPolicy::builder().token_aware(true);
    if let Some(name) = &address.data_centre {
        // All servers of a deployment use one data centre. The quorum of a standby data centre lacks the writes of this one.
        nodes = nodes
            .prefer_datacenter(name.clone())
            .permit_dc_failover(false);
    }
    nodes.build()
}

fn profile(address: &Address) -> ExecutionProfileBuilder {
    ExecutionProfile::builder()
        .consistency(Consistency::LocalQuorum)
        .serial_consistency(Some(SerialConsistency::LocalSerial))
        .request_timeout(Some(address.timeout))
        .load_balancing_policy(node_order(address))
}

fn trust(tls: &Tls) -> Result<rustls::ClientConfig, Cause> {
    let mut roots = rustls::RootCertStore::empty();
    match tls {
        Tls::Off => {}
        Tls::System => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
        Tls::Roots(file) => {
            for certificate in CertificateDer::pem_file_iter(file)? {
                roots.add(certificate?)?;
            }
        }
    }
    if roots.is_empty() {
        return Err("no root certificate was found".into());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    Ok(config
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
