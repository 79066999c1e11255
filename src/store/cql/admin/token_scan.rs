//! Token scan: reads a whole table in pieces, in the order of its tokens. Only exports and verification use it.
//!
//! Several rows may share a token, so a piece begins at the token of the last row of the previous piece and skips the rows up to that one.

use super::Admin;
use crate::store::Result;
use crate::store::cql::driver::statement::Statement;
use crate::store::cql::driver::value::{IntoValue as _, OwnedRow, Values, row_limit, values};

/// The smallest token.
const FIRST: i64 = i64::MIN;

impl Admin {
    /// The rows after the one with a partition key, fewer than `limit` only at the end of the table. The first statement begins at a token,
    /// the second at the token of a key.
    pub(super) async fn rows_after<R: OwnedRow>(
        &self,
        (first, from): (&'static Statement, &'static Statement),
        after: Option<Values>,
        limit: usize,
        is_after: impl Fn(&R) -> bool,
    ) -> Result<Vec<R>> {
        let Some(after) = after else {
            return self
                .executor
                .read(first, values![FIRST, row_limit(limit)])
                .await;
        };
        let mut overread = limit + 1;
        loop {
            let mut values = after.clone();
            values.push(row_limit(overread).into_value());
            let mut rows: Vec<R> = self.executor.read(from, values).await?;
            let is_all = rows.len() < overread;
            if let Some(index) = rows.iter().position(&is_after) {
                rows.drain(..=index);
            }
            if is_all || rows.len() >= limit {
                rows.truncate(limit);
                return Ok(rows);
            }
            // The read was too short for all rows of that token.
            overread *= 2;
        }
    }
}
