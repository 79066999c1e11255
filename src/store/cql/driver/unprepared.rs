//! Unprepared reads: rows of the schema and of the records of `wideroom migrate`, before any
//! statement is prepared.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;

use super::open_error::ClusterOpenError;
use super::value::{OwnedRow, owned_rows};
use crate::store::Cause;

/// The deadline of a schema change: it waits for all nodes to agree, and a busy node may answer nothing else meanwhile.
pub(super) const STATEMENT_MAX: Duration = Duration::from_secs(60);

/// A statement that waits for a schema change.
pub(super) fn patient(text: &str) -> Statement {
    let mut statement = Statement::new(text);
    statement.set_request_timeout(Some(STATEMENT_MAX));
    statement.set_is_idempotent(true);
    statement
}

/// Runs a statement that has no rows.
pub(super) async fn execute(
    session: &Session,
    statement: &str,
    values: impl SerializeRow,
) -> Result<(), ClusterOpenError> {
    let answer = session.query_unpaged(patient(statement), values).await;
    answer.map(drop).map_err(failed)
}

/// All rows of a statement.
pub(super) async fn read<R: OwnedRow>(
    session: &Session,
    statement: impl Into<Statement>,
    values: impl SerializeRow,
) -> Result<Vec<R>, ClusterOpenError> {
    let answer = session.query_unpaged(statement, values).await;
    owned_rows(answer.map_err(failed)?).map_err(failed)
}

/// The error of a migration, or of a check at start, that the cluster does not let go on.
pub(super) fn failed(source: impl Into<Cause>) -> ClusterOpenError {
    ClusterOpenError::Migrate {
        source: source.into(),
    }
}
