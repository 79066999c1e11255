//! `wideroom migrate`: creates the keyspace and its tables, and checks at start that they are those of this version.
//!
//! Migrations are idempotent, also if two run concurrently: every statement can be repeated, tables have fixed ids, and a lightweight
//! transaction records each version.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::statement::{Consistency, Statement};

use super::address::Address;
use super::connect::connect;
use super::open_error::ClusterOpenError;
use super::schema::{AddedColumns, MIGRATIONS, Migration, SCHEMA_MIGRATIONS, in_keyspace};
use crate::clock::Clock;

/// The default replication factor: the number of nodes, at most this.
const REPLICATION_DEFAULT_MAX: usize = 3;
/// The deadline of a schema change: it waits for all nodes to agree, and a busy node may answer nothing else meanwhile.
const STATEMENT_MAX: Duration = Duration::from_secs(60);

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
    let failed = |error: ExecutionError| ClusterOpenError::Migrate {
        source: Box::new(error),
    };
    let (data_centre, nodes) = data_centre(&session, address)?;
    let replication = replication.unwrap_or(nodes.clamp(1, REPLICATION_DEFAULT_MAX));
    if replication > nodes {
        return Err(ClusterOpenError::Replication {
            replication,
            nodes,
            data_centre,
        });
    }
    let keyspace = &address.keyspace;
    let made = format!(
        "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" WITH replication = {{'class': 'NetworkTopologyStrategy', '{data_centre}': {replication}}}"
    );
    session
        .query_unpaged(patient(&made), ())
        .await
        .map_err(failed)?;
    session
        .query_unpaged(patient(&in_keyspace(SCHEMA_MIGRATIONS, keyspace)), ())
        .await
        .map_err(failed)?;
    let mut applied = Vec::new();
    for migration in MIGRATIONS {
        if is_applied(&session, keyspace, migration).await? {
            continue;
        }
        for statement in migration.statements {
            session
                .query_unpaged(patient(&in_keyspace(statement, keyspace)), ())
                .await
                .map_err(failed)?;
        }
        for added in migration.columns {
            add_columns(&session, keyspace, added).await?;
        }
        let record = format!(
            "INSERT INTO \"{keyspace}\".schema_migrations (version, checksum, applied_at) VALUES (?, ?, ?) IF NOT EXISTS"
        );
        let row = (
            migration.version,
            migration.checksum(),
            clock.now().micros(),
        );
        session
            .query_unpaged(patient(&record), row)
            .await
            .map_err(failed)?;
        applied.push(migration.version);
    }
    Ok(Migrated {
        data_centre,
        replication,
        applied,
        version: newest(),
    })
}

/// Adds the columns that a table lacks. Another migration may add them at the same time.
async fn add_columns(
    session: &Session,
    keyspace: &str,
    added: &AddedColumns,
) -> Result<(), ClusterOpenError> {
    let lacking = async || {
        let present = present_columns(session, keyspace, added.table).await?;
        Ok::<_, ClusterOpenError>(added.statement(&present))
    };
    let Some(statement) = lacking().await? else {
        return Ok(());
    };
    let statement = patient(&in_keyspace(&statement, keyspace));
    match session.query_unpaged(statement, ()).await {
        Ok(_) => Ok(()),
        Err(_) if lacking().await?.is_none() => Ok(()),
        Err(error) => Err(ClusterOpenError::Migrate {
            source: Box::new(error),
        }),
    }
}

async fn present_columns(
    session: &Session,
    keyspace: &str,
    table: &str,
) -> Result<Vec<String>, ClusterOpenError> {
    let broken = |source: crate::store::Cause| ClusterOpenError::Migrate { source };
    let read =
        "SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
    let rows = session
        .query_unpaged(read, (keyspace, table))
        .await
        .map_err(|error| broken(Box::new(error)))?
        .into_rows_result()
        .map_err(|error| broken(Box::new(error)))?;
    let names = rows
        .rows::<(String,)>()
        .map_err(|error| broken(Box::new(error)))?;
    names
        .map(|row| row.map(|(name,)| name))
        .collect::<Result<_, _>>()
        .map_err(|error| broken(Box::new(error)))
}

/// Checks that the keyspace has the schema of this version. The error says what the operator can do.
pub(crate) async fn check(session: &Session, address: &Address) -> Result<(), ClusterOpenError> {
    let missing = || ClusterOpenError::NotMigrated {
        address: address.to_string(),
    };
    for migration in MIGRATIONS {
        if !is_applied(session, &address.keyspace, migration).await? {
            return Err(missing());
        }
    }
    let newer = format!(
        "SELECT version FROM \"{}\".schema_migrations WHERE version = ?",
        address.keyspace
    );
    let rows = session
        .query_unpaged(newer, (newest() + 1,))
        .await
        .map_err(|error| ClusterOpenError::Migrate {
            source: Box::new(error),
        })?;
    let is_newer = rows
        .into_rows_result()
        .is_ok_and(|rows| rows.rows_num() > 0);
    if is_newer {
        Err(ClusterOpenError::Newer {
            address: address.to_string(),
            version: newest(),
        })
    } else {
        Ok(())
    }
}

fn newest() -> i32 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
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
        Err(error) => {
            return Err(ClusterOpenError::Migrate {
                source: Box::new(error),
            });
        }
    };
    let broken = |source: crate::store::Cause| ClusterOpenError::Migrate { source };
    let rows = answer
        .into_rows_result()
        .map_err(|error| broken(Box::new(error)))?;
    let row = rows
        .maybe_first_row::<(Option<String>,)>()
        .map_err(|error| broken(Box::new(error)))?;
    match row {
        None => Ok(false),
        Some((checksum,)) if checksum.as_deref() == Some(migration.checksum().as_str()) => Ok(true),
        Some(_) => Err(ClusterOpenError::OtherSchema {
            version: migration.version,
        }),
    }
}

/// The data centre of the keyspace, and its number of nodes.
fn data_centre(session: &Session, address: &Address) -> Result<(String, usize), ClusterOpenError> {
    let state = session.get_cluster_state();
    let centres: Vec<&str> = state
        .get_nodes_info()
        .iter()
        .filter_map(|node| node.datacenter.as_deref())
        .collect();
    let name = match &address.data_centre {
        Some(name) => name.clone(),
        None => {
            let mut names = centres.clone();
            names.sort_unstable();
            names.dedup();
            match names.as_slice() {
                [only] => (*only).to_owned(),
                names => {
                    return Err(ClusterOpenError::DataCentre {
                        names: names.join(", "),
                    });
                }
            }
        }
    };
    let nodes = centres.iter().filter(|centre| **centre == name).count();
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if nodes == 0 || !is_plain {
        let mut names = centres;
        names.sort_unstable();
        names.dedup();
        return Err(ClusterOpenError::DataCentre {
            names: names.join(", "),
        });
    }
    Ok((name, nodes))
}

fn patient(text: &str) -> Statement {
    let mut statement = Statement::new(text);
    statement.set_request_timeout(Some(STATEMENT_MAX));
    statement.set_is_idempotent(true);
    statement
}
