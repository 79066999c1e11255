//! Mapping of the driver's errors: whether a write was surely not done, or has an unknown outcome.

use scylla::errors::{DbError, ExecutionError, RequestAttemptError, WriteType};

use crate::store::{Cause, Error};

/// The error of a row that this version cannot decode.
pub(crate) fn corrupt(table: &'static str, cause: impl Into<Cause>) -> Error {
    Error::Corrupt {
        table,
        cause: cause.into(),
    }
}

pub(crate) fn unavailable(cause: impl Into<Cause>) -> Error {
    Error::Unavailable(cause.into())
}

/// The error of a read, which changes nothing.
pub(crate) fn of_read(error: ExecutionError) -> Error {
    unavailable(error)
}

/// The error of a write. The driver tries a write once (see `connect`), so it is the error of the only attempt.
pub(crate) fn of_write(error: ExecutionError) -> Error {
    if was_surely_not_done(&error) {
        Error::Unavailable(Box::new(error))
    } else {
        Error::OutcomeUnknown(Box::new(error))
    }
}

/// The error of a lightweight transaction. Unavailable may arrive after the decision, when the coordinator commits it, and other servers may
/// complete it: the outcome is unknown.
pub(crate) fn of_decision(error: ExecutionError) -> Error {
    if matches!(
        error,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Unavailable { .. },
            _
        ))
    ) {
        return Error::OutcomeUnknown(Box::new(error));
    }
    of_write(error)
}

/// Whether at least one node, though fewer than required, has logged a batch. The cluster will then replay it.
pub(crate) fn is_logged_once(error: &ExecutionError) -> bool {
    let ExecutionError::LastAttemptError(RequestAttemptError::DbError(
        DbError::WriteTimeout {
            received,
            write_type,
            ..
        },
        _,
    )) = error
    else {
        return false;
    };
    *received > 0 && *write_type == WriteType::BatchLog
}

/// Whether no node can have applied the write: it was never sent, or the coordinator refused it first. An overloaded coordinator or replica
/// may report that after other replicas, or the batch log, have the write.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the driver's enums grow; what is not known is not surely undone"
)]
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
