//! `wideroom migrate`: creates the keyspace and its tables, and checks at start that they are those of this version.
//!
//! Migrations are idempotent, also if two run concurrently: every statement can be repeated, tables have fixed ids, and a lightweight
//! transaction records each version.

use std::collections::HashMap;

use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::cluster::metadata::Strategy;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::statement::{Consistency, Statement};
use uuid::Uuid;

use super::address::Address;
use super::connect::connect;
use super::data_centre;
use super::next_version::migrations;
use super::open_error::ClusterOpenError;
use super::schema::{
    AddedColumns, Migration, OLDEST_SERVER_MIN, OLDEST_SERVER_SINCE, SCHEMA_MIGRATIONS,
    in_keyspace, is_speculative, speculation_of, with_options,
};
use super::scylladb;
use super::unprepared::{self, STATEMENT_MAX, execute, patient};
use super::value::owned_rows;
use crate::clock::Clock;

/// The default replication factor: the number of nodes, at most this.
const REPLICATION_DEFAULT_MAX: usize = 3;
/// Version 0.1 writes a row of `wakes` with each of its writes: into one of so many shards, and a
/// slot of this length.
const WAKE_SHARDS: u8 = 16;
const WAKE_SLOT_MICROS: i64 = 10_000_000;
const WAKE_LIFETIME_MICROS: i64 = 60_000_000;

/// The result of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    pub data_centre: String,
    /// The replication factor of the keyspace, also of one that existed before.
    pub replication: usize,
    /// The versions that this run applied.
    pub applied: Vec<i32>,
    pub version: i32,
}

/// Applies all missing migrations.
pub async fn migrate(
    address: &Address,
    replication: Option<usize>,
    clock: &dyn Clock,
) -> Result<Migrated, ClusterOpenError> {
    let session = connect(address, STATEMENT_MAX).await?;
    let (data_centre, nodes) = data_centre::of_address(&session, address)?;
    let replication = replication.unwrap_or(nodes.clamp(1, REPLICATION_DEFAULT_MAX));
    if replication > nodes {
        return Err(ClusterOpenError::Replication {
            replication,
            nodes,
            data_centre,
        });
    }
    let keyspace = &address.keyspace;
    let more = scylladb::keyspace_properties(&session).await;
    let made = format!(
        "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" WITH replication = {{'class': 'NetworkTopologyStrategy', '{data_centre}': {replication}}}{more}"
    );
    execute(&session, &made, ()).await?;
    execute(&session, &in_keyspace(SCHEMA_MIGRATIONS, keyspace), ()).await?;
    match data_centre::recorded(&session, keyspace).await? {
        None => data_centre::record(&session, keyspace, &data_centre).await?,
        Some(recorded) if recorded == data_centre => {}
        Some(recorded) => {
            return Err(ClusterOpenError::OtherDataCentre {
                named: data_centre,
                recorded,
            });
        }
    }
    refuse_early_servers(&session, address, clock).await?;
    // No older server has served a keyspace without a migration: it may hold every form from the start.
    let is_new = match migrations().next() {
        Some(first) => !is_applied(&session, keyspace, first).await?,
        None => true,
    };
    let mut applied = Vec::new();
    for migration in migrations() {
        if is_applied(&session, keyspace, migration).await? {
            continue;
        }
        for statement in migration.statements {
            let statement = in_keyspace(&with_options(statement), keyspace);
            execute(&session, &statement, ()).await?;
        }
        for added in migration.columns {
            add_columns(&session, keyspace, added).await?;
        }
        let speculative = migration.speculative_tables();
        if !speculative.is_empty() {
            set_speculation(&session, keyspace, &speculative).await?;
        }
        record(&session, keyspace, migration, is_new, clock).await?;
        applied.push(migration.version);
    }
    refuse_newer(&session, address).await?;
    Ok(Migrated {
        data_centre,
        replication,
        applied,
        version: newest(),
    })
}

/// An error if a keyspace of version 0.1 is still written to. Servers of that version know of no
/// others, so the later ones would not be notified of their writes.
async fn refuse_early_servers(
    session: &Session,
    address: &Address,
    clock: &dyn Clock,
) -> Result<(), ClusterOpenError> {
    let keyspace = &address.keyspace;
    let mut steps = migrations();
    let (Some(first), Some(second)) = (steps.next(), steps.next()) else {
        return Ok(());
    };
    let is_early = is_applied(session, keyspace, first).await?
        && !is_applied(session, keyspace, second).await?;
    if !is_early {
        return Ok(());
    }
    let shards: Vec<_> = (0..WAKE_SHARDS).map(|shard| shard.to_string()).collect();
    let read = format!(
        "SELECT slot FROM \"{keyspace}\".wakes WHERE shard IN ({}) AND slot = ? LIMIT 1",
        shards.join(", ")
    );
    let now = clock.now().micros();
    let first = (now - WAKE_LIFETIME_MICROS) / WAKE_SLOT_MICROS;
    for slot in first..=now / WAKE_SLOT_MICROS + 1 {
        let found = unprepared::read::<(i64,)>(session, patient(&read), (slot,)).await?;
        if !found.is_empty() {
            return Err(ClusterOpenError::EarlyServers {
                address: address.to_string(),
            });
        }
    }
    Ok(())
}

/// Records a migration as applied: in a keyspace that is made new, as one that every server must know.
/// Another run may record it at the same time.
async fn record(
    session: &Session,
    keyspace: &str,
    migration: &Migration,
    is_new: bool,
    clock: &dyn Clock,
) -> Result<(), ClusterOpenError> {
    let (version, checksum) = (migration.version, migration.checksum());
    let (columns, marks) = if version < OLDEST_SERVER_SINCE {
        ("version, checksum, applied_at", "?, ?, ?")
    } else {
        ("version, checksum, applied_at, oldest_server", "?, ?, ?, ?")
    };
    let insert = format!(
        "INSERT INTO \"{keyspace}\".schema_migrations ({columns}) VALUES ({marks}) IF NOT EXISTS"
    );
    let applied_at = clock.now().micros();
    if version < OLDEST_SERVER_SINCE {
        return execute(session, &insert, (version, checksum, applied_at)).await;
    }
    let oldest_server = if is_new { version } else { OLDEST_SERVER_MIN };
    let row = (version, checksum, applied_at, oldest_server);
    execute(session, &insert, row).await
}

/// Ends an upgrade: from now on older servers are refused, and new forms may be written. An error
/// while an older server still serves.
pub async fn finish(address: &Address) -> Result<i32, ClusterOpenError> {
    let session = connect(address, STATEMENT_MAX).await?;
    check(&session, address).await?;
    let keyspace = &address.keyspace;
    refuse_older_servers(&session, keyspace).await?;
    let finished = format!(
        "UPDATE \"{keyspace}\".schema_migrations SET oldest_server = ? WHERE version = ? IF EXISTS"
    );
    execute(&session, &finished, (newest(), newest())).await?;
    Ok(newest())
}

/// An error while a server beats that is older than this version, or may be: the version of a
/// server without a row is unknown.
async fn refuse_older_servers(session: &Session, keyspace: &str) -> Result<(), ClusterOpenError> {
    let beating = format!("SELECT server_id FROM \"{keyspace}\".server_beats WHERE partition = 0");
    type Columns = (Option<i32>, Option<bool>);
    let (mut older, mut unknown) = (Vec::new(), 0);
    for (server,) in unprepared::read::<(Uuid,)>(session, patient(&beating), ()).await? {
        let read = patient(&format!(
            "SELECT version, has_ended FROM \"{keyspace}\".servers WHERE server_id = ?"
        ));
        let rows = unprepared::read::<Columns>(session, read, (server,)).await?;
        match rows.first() {
            Some((_, Some(true))) => {}
            Some((Some(version), _)) if *version < newest() => older.push(*version),
            Some((Some(_), _)) => {}
            Some((None, _)) | None => unknown += 1,
        }
    }
    if let Some(version) = older.iter().min() {
        return Err(ClusterOpenError::OlderServers {
            count: older.len(),
            version: *version,
            newest: newest(),
        });
    }
    match unknown {
        0 => Ok(()),
        count => Err(ClusterOpenError::UnknownServers { count }),
    }
}

/// Records another data centre as the one of the deployment, after a failover to it. No server may
/// run on the old one.
pub async fn record_data_centre(address: &Address) -> Result<(), ClusterOpenError> {
    let session = connect(address, STATEMENT_MAX).await?;
    let (name, _) = data_centre::of_address(&session, address)?;
    let keyspace = &address.keyspace;
    let state = session.get_cluster_state();
    let has_replicas = state.get_keyspace(keyspace).is_some_and(|keyspace| {
        matches!(
            &keyspace.strategy,
            Strategy::NetworkTopologyStrategy { datacenter_repfactors, .. }
                if datacenter_repfactors.contains_key(&name)
        )
    });
    if !has_replicas {
        return Err(ClusterOpenError::NoReplicas {
            keyspace: keyspace.clone(),
            data_centre: name,
        });
    }
    data_centre::record(&session, keyspace, &name).await
}

/// Adds the columns that a table lacks. Another migration may add them at the same time.
async fn add_columns(
    session: &Session,
    keyspace: &str,
    added: &AddedColumns,
) -> Result<(), ClusterOpenError> {
    let present = async || present_columns(session, keyspace, added.table).await;
    // The system tables name a column before the node knows it. A second addition is refused only once the first is complete.
    let lacking = added.statement(&present().await?);
    let Some(statement) = lacking.or_else(|| added.statement(&[])) else {
        return Ok(());
    };
    let Err(error) = execute(session, &in_keyspace(&statement, keyspace), ()).await else {
        return Ok(());
    };
    if added.statement(&present().await?).is_some() {
        return Err(error);
    }
    let agreed = session.await_schema_agreement().await;
    agreed.map(drop).map_err(unprepared::failed)
}

/// Alters the tables that were created without the option.
async fn set_speculation(
    session: &Session,
    keyspace: &str,
    tables: &[&str],
) -> Result<(), ClusterOpenError> {
    let read =
        "SELECT table_name, speculative_retry FROM system_schema.tables WHERE keyspace_name = ?";
    let rows = unprepared::read::<(String, Option<String>)>(session, read, (keyspace,)).await?;
    let present: HashMap<_, _> = rows.into_iter().collect();
    for table in tables {
        let option = present.get(*table).and_then(Option::as_deref);
        if option.is_some_and(is_speculative) {
            continue;
        }
        execute(session, &in_keyspace(&speculation_of(table), keyspace), ()).await?;
    }
    Ok(())
}

async fn present_columns(
    session: &Session,
    keyspace: &str,
    table: &str,
) -> Result<Vec<String>, ClusterOpenError> {
    let read =
        "SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
    let rows = unprepared::read::<(String,)>(session, read, (keyspace, table)).await?;
    Ok(rows.into_iter().map(|(name,)| name).collect())
}

/// Checks that the keyspace has the schema of this version. The error says what the operator can do.
pub(crate) async fn check(session: &Session, address: &Address) -> Result<(), ClusterOpenError> {
    let missing = || ClusterOpenError::NotMigrated {
        address: address.to_string(),
    };
    data_centre::check(session, address).await?;
    let all = migrations().map(|migration| is_applied(session, &address.keyspace, migration));
    for is_applied in join_all(all).await {
        if !is_applied? {
            return Err(missing());
        }
    }
    refuse_newer(session, address).await
}

/// An error if a later version has excluded this one: it may work beside those that allow it.
async fn refuse_newer(session: &Session, address: &Address) -> Result<(), ClusterOpenError> {
    let mut version = newest() + 1;
    while let Some(oldest_server) = oldest_server(session, &address.keyspace, version).await? {
        if oldest_server > newest() {
            return Err(ClusterOpenError::Newer {
                address: address.to_string(),
                version: newest(),
                oldest: oldest_server,
            });
        }
        version += 1;
    }
    Ok(())
}

/// The oldest server that a migration lets serve. `None` for one that is not applied.
async fn oldest_server(
    session: &Session,
    keyspace: &str,
    version: i32,
) -> Result<Option<i32>, ClusterOpenError> {
    let read =
        format!("SELECT oldest_server FROM \"{keyspace}\".schema_migrations WHERE version = ?");
    let rows = unprepared::read::<(Option<i32>,)>(session, read, (version,)).await?;
    // Without a record, no older server may serve.
    Ok(rows.first().map(|(oldest,)| oldest.unwrap_or(version)))
}

/// Number of migrations that this version knows, by which a server names itself to the others.
pub(crate) fn newest() -> i32 {
    migrations().last().map_or(0, |migration| migration.version)
}

async fn is_applied(
    session: &Session,
    keyspace: &str,
    migration: &Migration,
) -> Result<bool, ClusterOpenError> {
    let mut read = Statement::new(format!(
        "SELECT checksum FROM \"{keyspace}\".schema_migrations WHERE version = ?"
    ));
    read.set_consistency(Consistency::LocalQuorum);
    let answer = match session.query_unpaged(read, (migration.version,)).await {
        Ok(answer) => answer,
        // The table does not exist yet.
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Invalid,
            _,
        ))) => return Ok(false),
        Err(ExecutionError::PrepareError(_)) => return Ok(false),
        Err(error) => return Err(unprepared::failed(error)),
    };
    let rows = owned_rows::<(Option<String>,)>(answer).map_err(unprepared::failed)?;
    match rows.into_iter().next() {
        None => Ok(false),
        Some((checksum,)) if checksum.as_deref() == Some(migration.checksum().as_str()) => Ok(true),
        Some(_) => Err(ClusterOpenError::OtherSchema {
            version: migration.version,
        }),
    }
}
