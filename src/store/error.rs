//! Errors of a store, by what a caller can do about them. A missing row is no error but `None`.

use futures_util::future::BoxFuture;

pub type Cause = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T, E = Error> = std::result::Result<T, E>;
/// Answer of a store's method, which is called as `dyn Store`.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T>>;

/// Failure of an operation of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was persisted: the queue or the disk is full, or the cluster is unreachable. The
    /// caller may retry.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Cause),
    /// The write may have been persisted, or may yet be. A read, or the same write again, shows it.
    #[error("the outcome of a write is not known: {0}")]
    OutcomeUnknown(#[source] Cause),
    /// The store cannot decode a row: a fault of the disk, or a bug.
    #[error("a row of {table} cannot be read: {cause}")]
    Corrupt {
        table: &'static str,
        #[source]
        cause: Cause,
    },
}

impl Error {
    /// Error of a step that follows a persisted write: it never says that nothing was persisted.
    pub(crate) fn after_write(self) -> Self {
        match self {
            Self::Unavailable(cause) => Self::OutcomeUnknown(cause),
            error @ (Self::OutcomeUnknown(_) | Self::Corrupt { .. }) => error,
        }
    }
}
