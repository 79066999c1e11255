//! Whole tables in pieces, in the order of their tokens: for what looks at everything, and for nothing else.
//!
//! A piece begins at the token of the row that the one before ended with, as several rows may share a token: those up to that row are passed
//! over.

use scylla::deserialize::row::DeserializeRow;
use scylla::statement::prepared::PreparedStatement;

use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::value::{Cells, IntoCell as _, cells};

/// The smallest token.
const FIRST: i64 = i64::MIN;

/// The rows of a table behind the one with this partition key. Fewer than so many only at the end of the table. Of the two statements, the
/// first begins at a token, the second at that of a key.
pub(crate) async fn behind<R>(
    inner: &Inner,
    (first, from): (&PreparedStatement, &PreparedStatement),
    after: Option<Cells>,
    limit: usize,
    is_after: impl Fn(&R) -> bool,
) -> Result<Vec<R>>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let Some(after) = after else {
        return inner.cluster.read(first, cells![FIRST, row_limit(limit)]).await;
    };
    let mut overread = limit + 1;
    loop {
        let mut values = after.clone();
        values.push(row_limit(overread).into_cell());
        let mut rows: Vec<R> = inner.cluster.read(from, values).await?;
        let is_all = rows.len() < overread;
        if let Some(place) = rows.iter().position(&is_after) {
            rows.drain(..=place);
        }
        if is_all || rows.len() >= limit {
            rows.truncate(limit);
            return Ok(rows);
        }
        // Other rows of the same token stood before it.
        overread *= 2;
    }
}

pub(crate) fn row_limit(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}
