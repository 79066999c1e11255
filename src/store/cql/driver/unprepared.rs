//! Unprepared reads: rows of the schema and of the records of `wideroom migrate`, before any
//! statement is prepared.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;

use super::open_error::ClusterOpenError;
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

/// All rows of a statement.
pub(super) async fn read<R>(
    session: &Session,
    statement: impl Into<Statement>,
    values: impl SerializeRow,
) -> Result<Vec<R>, ClusterOpenError>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let answer = session.query_unpaged(statement, values).await;
    rows(answer.map_err(|error| failed(Box::new(error)))?)
}

/// The rows of an answer.
pub(super) fn rows<R>(answer: QueryResult) -> Result<Vec<R>, ClusterOpenError>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let rows = answer
        .into_rows_result()
        .map_err(|error| failed(Box::new(error)))?;
    let rows = rows.rows::<R>().map_err(|error| failed(Box::new(error)))?;
    rows.collect::<Result<_, _>>()
        .map_err(|error| failed(Box::new(error)))
}

/// The error of a migration, or of a check at start, that the cluster does not let go on.
pub(super) fn failed(source: Cause) -> ClusterOpenError {
    ClusterOpenError::Migrate { source }
}
