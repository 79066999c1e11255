//! Statements: prepared once, each with the profile that its kind wants.

use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::prepared::PreparedStatement;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// May be tried again by the driver.
    Read,
    /// By key, with values and timestamps of ours: the same again changes nothing. Tried once, so that its error tells what became of it.
    Write,
    /// A lightweight transaction: decided by a quorum.
    Conditional,
}

/// The profiles by which statements are executed, and the keyspace that they are about.
pub(crate) struct Profiles {
    pub(crate) keyspace: String,
    pub(crate) read: ExecutionProfileHandle,
    pub(crate) write: ExecutionProfileHandle,
    pub(crate) conditional: ExecutionProfileHandle,
}

pub(crate) async fn prepare(session: &Session, profiles: &Profiles, kind: Kind, text: &str) -> Result<PreparedStatement, PrepareError> {
    let mut statement = session.prepare(in_keyspace(text, &profiles.keyspace)).await?;
    let profile = match kind {
        Kind::Read => &profiles.read,
        Kind::Write => &profiles.write,
        Kind::Conditional => &profiles.conditional,
    };
    statement.set_execution_profile_handle(Some(profile.clone()));
    statement.set_is_idempotent(kind != Kind::Conditional);
    // Columns are always listed, and a change of the schema is a new version of the server.
    statement.set_use_cached_result_metadata(kind == Kind::Read);
    Ok(statement)
}

/// Names the keyspace before the table, which stands behind the first of these words.
fn in_keyspace(text: &str, keyspace: &str) -> String {
    let word = ["INSERT INTO ", "UPDATE ", " FROM "].into_iter().find(|word| text.contains(word)).unwrap_or_default();
    if text.contains(" FROM system.") {
        return text.to_owned();
    }
    text.replacen(word, &format!("{word}\"{keyspace}\"."), 1)
}

/// A group of statements: a struct with a field for each, and their texts for the test that reads them all.
macro_rules! statements {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ident $text:expr;)+ }) => {
        $(#[$meta])*
        pub(crate) struct $name { $(pub(crate) $field: ::scylla::statement::prepared::PreparedStatement,)+ }

        impl $name {
            #[cfg(test)]
            pub(crate) const ALL: &[(&str, &str)] = &[$((stringify!($field), $text),)+];

            pub(crate) async fn prepare(
                session: &::scylla::client::session::Session,
                profiles: &$crate::store::cql::driver::statement::Profiles,
            ) -> Result<Self, ::scylla::errors::PrepareError> {
                use $crate::store::cql::driver::statement::{Kind, prepare};
                Ok(Self { $($field: prepare(session, profiles, Kind::$kind, $text).await?,)+ })
            }
        }
    };
}
pub(crate) use statements;

#[cfg(test)]
mod tests {
    use super::in_keyspace;

    #[test]
    fn a_statement_names_its_keyspace() {
        for (text, expected) in [
            ("INSERT INTO t (a) VALUES (?)", "INSERT INTO \"k\".t (a) VALUES (?)"),
            ("UPDATE t USING TIMESTAMP ? SET a = ?", "UPDATE \"k\".t USING TIMESTAMP ? SET a = ?"),
            ("DELETE a FROM t WHERE b = ?", "DELETE a FROM \"k\".t WHERE b = ?"),
            ("SELECT a FROM t WHERE b = ?", "SELECT a FROM \"k\".t WHERE b = ?"),
        ] {
            assert_eq!(in_keyspace(text, "k"), expected);
        }
    }
}
