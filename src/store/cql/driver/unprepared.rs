//! Unprepared reads: rows of the schema and of the records of `wideroom migrate`, before any
//! statement is prepared.

use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;

use super::open_error::ClusterOpenError;
use crate::store::Cause;

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
