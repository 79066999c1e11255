//! Store on Apache Cassandra or ScyllaDB: the contract of the embedded store, on a cluster that many servers share.
//!
//! Eight folders; each uses only the ones after it:
//! `admin → send → inbox → participant → message → cluster → outbox → driver`.
//!
//! - `admin`: import, export and verification of the whole store.
//! - `send`: live writes, each acknowledged once the other servers can find it.
//! - `inbox`: entries, the index of them by activity, and what changed.
//! - `participant`: memberships, the roster of a conversation, and profiles.
//! - `message`: history in its buckets, counts, and heads of conversations.
//! - `cluster`: the directory of servers, sessions and listeners, and the mailboxes.
//! - `outbox`: rows that name the events of each batch, for services.
//! - `driver`: CQL and tables: connection, statements, values, schema and migrations.
//!
//! Portable CQL only: no ALLOW FILTERING, index, view, counter or function; explicit columns; the test `statements_test` checks every statement.

mod admin;
mod agent;
mod cluster;
mod cluster_store;
mod driver;
mod erasure;
mod inbox;
mod live;
mod message;
mod open;
mod outbox;
mod participant;
mod removal;
mod search;
mod send;
#[cfg(test)]
mod statements_test;
mod store;
mod store_admin;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use self::admin::Admin;
use self::cluster_store::ClusterDirectory;
use self::driver::executor::Executor;
use self::inbox::Inboxes;
use self::message::Messages;
use self::outbox::Outbox;
use self::participant::Participants;
use self::participant::ban::BanTable;
use self::participant::block::BlockTable;
use self::participant::job::JobTable;
use self::participant::profile::Profiles;
use self::participant::report::ReportTable;
use self::participant::restriction::RestrictionTable;
use self::send::Sends;
use crate::metrics::Metrics;
use crate::model::Timestamp;

pub use self::driver::ClusterOpenError;
pub use self::driver::address::{Address, AddressError};
pub use self::driver::connection::Connection;
pub use self::driver::migrate::{Migrated, finish, migrate, record_data_centre};
#[cfg(debug_assertions)]
pub use self::driver::next_version::pretend_next_version;

/// The store on a cluster.
pub struct Cql {
    connection: Arc<Connection>,
    executor: Arc<Executor>,
    messages: Arc<Messages>,
    participants: Arc<Participants>,
    profiles: Profiles,
    restrictions: RestrictionTable,
    blocks: BlockTable,
    bans: BanTable,
    reports: ReportTable,
    jobs: JobTable,
    inboxes: Arc<Inboxes>,
    sends: Arc<Sends>,
    outbox: Arc<Outbox>,
    admin: Admin,
    cluster: Arc<ClusterDirectory>,
    /// Time of the last import, once it was read.
    imported_at: Mutex<Option<Option<Timestamp>>>,
}

impl Cql {
    pub fn register(&self, metrics: &Metrics) {
        self.executor.register(metrics);
    }

    /// Statements sent since the store was opened, by which tests and benchmarks measure the cost of an operation. Periodic ones are not among them.
    pub fn statements_sent(&self) -> u64 {
        self.executor.statements_sent()
    }

    /// Rows that reads have returned since the store was opened, by which tests measure what a list reads.
    pub fn rows_read(&self) -> u64 {
        self.executor.rows_read()
    }

    /// Periodic statements sent since the store was opened: those that a server repeats by itself, whether anyone asks it or not.
    pub fn periodic_statements_sent(&self) -> u64 {
        self.executor.periodic_statements_sent()
    }
}

impl fmt::Display for Cql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.address.fmt(f)
    }
}
