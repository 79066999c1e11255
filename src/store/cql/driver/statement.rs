//! Statements: each is a `static` with its CQL text, declared in the file of its subject and prepared when the store opens.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::prepared::PreparedStatement;

use super::next_version;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The driver may retry it.
    Read,
    /// A read that a server repeats by itself, whether anyone asks it or not. Otherwise like `Read`.
    Poll,
    /// A write by key, with our own values and timestamps, so that a repetition changes nothing.
    /// The driver tries it once: its error then says what became of it. Only a hedge repeats it,
    /// which combines the errors of both.
    Write,
    /// A write that a server repeats by itself. Otherwise like `Write`.
    Beat,
    /// A lightweight transaction: decided by a quorum.
    Conditional,
    /// A lightweight transaction that sets a row to the caller's own value if nobody else has. A
    /// second execution returns the row of the first, by which the caller recognises its own.
    Claim,
}

/// The CQL text of one statement, without its keyspace. Its address is its identity: the executor finds the prepared statement by it.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) text: &'static str,
}

impl Statement {
    fn identity(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Execution profiles of the kinds of statement, and the keyspace that all statements use.
pub(crate) struct ExecutionProfiles {
    pub(crate) keyspace: String,
    pub(crate) read: ExecutionProfileHandle,
    pub(crate) write: ExecutionProfileHandle,
    pub(crate) conditional: ExecutionProfileHandle,
    pub(crate) data_centre: Option<String>,
    /// The deadline of one attempt.
    pub(crate) attempt_max: Duration,
}

/// The number of statements that a server prepares concurrently at its start. Sequentially it would take some hundreds of round trips.
const PREPARED_AT_ONCE: usize = 16;

/// All prepared statements, by the identity of their text.
pub(crate) struct PreparedStatements(HashMap<usize, PreparedStatement>);

impl PreparedStatements {
    pub(crate) async fn prepare(
        session: &Session,
        profiles: &ExecutionProfiles,
        all: &[&[&'static Statement]],
    ) -> Result<Self, PrepareError> {
        let all = || all.iter().copied().flatten().copied();
        let each: Vec<_> = all().map(|one| prepare(session, profiles, one)).collect();
        let prepared: Vec<_> = stream::iter(each)
            .buffered(PREPARED_AT_ONCE)
            .try_collect()
            .await?;
        Ok(Self(all().map(Statement::identity).zip(prepared).collect()))
    }

    pub(crate) fn get(&self, statement: &'static Statement) -> &PreparedStatement {
        self.0
            .get(&statement.identity())
            .expect("every file with statements is listed where the store opens")
    }
}

async fn prepare(
    session: &Session,
    profiles: &ExecutionProfiles,
    Statement { kind, text, .. }: &Statement,
) -> Result<PreparedStatement, PrepareError> {
    let mut statement = session
        .prepare(in_keyspace(&next_version::text(text), &profiles.keyspace))
        .await?;
    let profile = match kind {
        Kind::Read | Kind::Poll => &profiles.read,
        Kind::Write | Kind::Beat => &profiles.write,
        Kind::Conditional | Kind::Claim => &profiles.conditional,
    };
    statement.set_execution_profile_handle(Some(profile.clone()));
    statement.set_is_idempotent(!matches!(kind, Kind::Conditional | Kind::Claim));
    // Statements always list their columns, and a change of the schema is a new version of the server.
    statement.set_use_cached_result_metadata(matches!(kind, Kind::Read | Kind::Poll));
    Ok(statement)
}

/// Puts the keyspace before the table, which follows the first of these words.
fn in_keyspace(text: &str, keyspace: &str) -> String {
    let word = ["INSERT INTO ", "UPDATE ", " FROM "]
        .into_iter()
        .find(|word| text.contains(word))
        .unwrap_or_default();
    if text.contains(" FROM system.") {
        return text.to_owned();
    }
    text.replacen(word, &format!("{word}\"{keyspace}\"."), 1)
}

/// Declares the statements of a file, and `STATEMENTS`, by which the store prepares them. The compiler reports a file whose list is unused.
macro_rules! statements {
    ($($name:ident: $kind:ident $text:expr;)+) => {
        $(pub(crate) static $name: $crate::store::cql::driver::statement::Statement = $crate::store::cql::driver::statement::Statement {
            name: stringify!($name),
            kind: $crate::store::cql::driver::statement::Kind::$kind,
            text: $text,
        };)+

        pub(crate) const STATEMENTS: &[&$crate::store::cql::driver::statement::Statement] = &[$(&$name),+];
    };
}
pub(crate) use statements;

#[cfg(test)]
mod tests {
    use super::in_keyspace;

    #[test]
    fn a_statement_names_its_keyspace() {
        for (text, expected) in [
            (
                "INSERT INTO t (a) VALUES (?)",
                "INSERT INTO \"k\".t (a) VALUES (?)",
            ),
            (
                "UPDATE t USING TIMESTAMP ? SET a = ?",
                "UPDATE \"k\".t USING TIMESTAMP ? SET a = ?",
            ),
            (
                "DELETE a FROM t WHERE b = ?",
                "DELETE a FROM \"k\".t WHERE b = ?",
            ),
            (
                "SELECT a FROM t WHERE b = ?",
                "SELECT a FROM \"k\".t WHERE b = ?",
            ),
        ] {
            assert_eq!(in_keyspace(text, "k"), expected);
        }
    }
}
