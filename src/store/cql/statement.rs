//! Statements: prepared once, each with the profile that its kind wants.

use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::prepared::PreparedStatement;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// May be tried again by the driver.
    Read,
    /// By key, with values and timestamps of ours: the same again changes nothing. Tried once, so that its error tells what became of it.
    Write,
    /// A lightweight transaction: decided by a quorum.
    Conditional,
}

/// The profiles by which statements are executed.
pub(super) struct Profiles {
    pub(super) read: ExecutionProfileHandle,
    pub(super) write: ExecutionProfileHandle,
    pub(super) conditional: ExecutionProfileHandle,
}

pub(super) async fn prepare(session: &Session, profiles: &Profiles, kind: Kind, text: &str) -> Result<PreparedStatement, PrepareError> {
    let mut statement = session.prepare(text).await?;
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

/// A group of statements: a struct with a field for each, and their texts for the test that reads them all.
macro_rules! statements {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ident $text:expr;)+ }) => {
        $(#[$meta])*
        pub(super) struct $name { $(pub(super) $field: ::scylla::statement::prepared::PreparedStatement,)+ }

        impl $name {
            #[cfg(test)]
            pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($field), $text),)+];

            pub(super) async fn prepare(
                session: &::scylla::client::session::Session,
                profiles: &$crate::store::cql::statement::Profiles,
            ) -> Result<Self, ::scylla::errors::PrepareError> {
                use $crate::store::cql::statement::{Kind, prepare};
                Ok(Self { $($field: prepare(session, profiles, Kind::$kind, $text).await?,)+ })
            }
        }
    };
}
pub(super) use statements;
