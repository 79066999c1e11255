//! What the driver's errors mean to one who asked for a read or a write.

use scylla::errors::{DbError, ExecutionError, RequestAttemptError, WriteType};

use crate::store::{Cause, Error};

/// Rows that are not as they were written.
pub(crate) fn corrupt(table: &'static str, cause: impl Into<Cause>) -> Error {
    Error::Corrupt { table, cause: cause.into() }
}

pub(crate) fn unavailable(cause: impl Into<Cause>) -> Error {
    Error::Unavailable(cause.into())
}

/// What failed after something was written: only the same again tells.
pub(crate) fn unknown(error: Error) -> Error {
    match error {
        Error::Unavailable(cause) => Error::OutcomeUnknown(cause),
        error @ (Error::OutcomeUnknown(_) | Error::Corrupt { .. }) => error,
    }
}

/// A read that failed changed nothing.
pub(crate) fn of_read(error: ExecutionError) -> Error {
    unavailable(error)
}

/// Writes are tried once (see `connect`), so the error is that of the only attempt.
pub(crate) fn of_write(error: ExecutionError) -> Error {
    if was_surely_not_done(&error) { Error::Unavailable(Box::new(error)) } else { Error::OutcomeUnknown(Box::new(error)) }
}

/// What others finish once it is decided. That too few nodes are there may be found after that, when they are told of the decision.
pub(crate) fn of_decision(error: ExecutionError) -> Error {
    if matches!(error, ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unavailable { .. }, _))) {
        return Error::OutcomeUnknown(Box::new(error));
    }
    of_write(error)
}

/// Whether a batch is in the log of one node at least, though in fewer than it should be: then it will be done.
pub(crate) fn is_logged_once(error: &ExecutionError) -> bool {
    let ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::WriteTimeout { received, write_type, .. }, _)) = error
    else {
        return false;
    };
    *received > 0 && *write_type == WriteType::BatchLog
}

/// Whether no node can have taken the write: it was never sent, or the coordinator refused it before it did anything. One that is
/// overloaded, or finds that a replica takes no more, may say so when others have the write already, or the log of batches has it.
#[expect(clippy::wildcard_enum_match_arm, reason = "the driver's enums grow; what is not known is not surely undone")]
fn was_surely_not_done(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::BadQuery(_)
        | ExecutionError::EmptyPlan
        | ExecutionError::PrepareError(_)
        | ExecutionError::ConnectionPoolError(_)
        | ExecutionError::LastAttemptError(
            RequestAttemptError::SerializationError(_)
            | RequestAttemptError::CqlRequestSerialization(_)
            | RequestAttemptError::UnableToAllocStreamId,
        ) => true,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => matches!(
            error,
            DbError::Unavailable { .. }
                | DbError::IsBootstrapping
                | DbError::SyntaxError
                | DbError::Invalid
                | DbError::Unauthorized
                | DbError::AuthenticationError
                | DbError::ConfigError
        ),
        _ => false,
    }
}
