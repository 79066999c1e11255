//! Errors of the API: a code of a closed list and a sentence. No other module maps failures to
//! client errors.

use async_graphql::{ErrorExtensions as _, ServerError};
use futures_util::FutureExt as _;
use strum::IntoStaticStr;

use crate::chat;
use crate::store;

/// Error codes of the contract: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
pub enum Code {
    Unauthenticated,
    Forbidden,
    NotFound,
    BadUserInput,
    Conflict,
    RateLimited,
    CursorExpired,
    Unavailable,
    Internal,
    PersistedQueryNotSupported,
}

impl Code {
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Extension of RATE_LIMITED: milliseconds until a retry may succeed.
pub const RETRY_AFTER_MS: &str = "retryAfterMs";

/// Retry hint where a table is full until an operator acts.
const FULL_RETRY_AFTER_MS: u64 = 60_000;

/// Extension of FORBIDDEN: why the hook before a send rejected the message.
const REASON: &str = "reason";

/// Extension of a failed mutation: whether its change may have been stored.
const OUTCOME: &str = "outcome";
const NOT_DONE: &str = "NOT_DONE";
const UNKNOWN: &str = "UNKNOWN";

/// Error of a resolver.
///
/// It implements no `Display`. `async_graphql::Error` converts from anything that implements it, so
/// that `?` on an error of the store would send its text to the client. With this type it does not
/// compile.
#[derive(Clone)]
pub(super) struct Error(async_graphql::Error);

pub(super) type Result<T, E = Error> = std::result::Result<T, E>;

/// Value of a nullable field. Its error nulls only the field itself, while an error of
/// `Result<Option<T>>` would null the object around it.
pub(super) type Nullable<T> = Option<Result<T>>;

pub(super) fn nullable<T>(
    answer: impl Future<Output = Result<Option<T>>>,
) -> impl Future<Output = Nullable<T>> {
    // A combinator: the future of an `async fn` would reserve room for the answer's future twice.
    answer.map(Result::transpose)
}

impl Error {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self(
            async_graphql::Error::new(message)
                .extend_with(|_, extensions| extensions.set("code", code.as_str())),
        )
    }

    pub(super) fn unauthenticated() -> Self {
        Self::new(
            Code::Unauthenticated,
            "a token is needed: send it as `Authorization: Bearer …`",
        )
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("{what} was not found"))
    }

    /// Bug or corrupt row. The cause is in the log only.
    pub(super) fn internal() -> Self {
        Self::new(Code::Internal, "something is wrong here; it is logged")
    }

    pub(super) fn bad_input(path: &[&str], message: impl Into<String>) -> Self {
        let path: Vec<_> = path
            .iter()
            .map(|part| async_graphql::Value::from(*part))
            .collect();
        Self::new(Code::BadUserInput, message).with("inputPath", async_graphql::Value::List(path))
    }

    /// The text of the answer exceeded a bound in bytes.
    pub(super) fn answer_too_large() -> Self {
        Self::new(
            Code::BadUserInput,
            "the answer is too large: ask for less at once, as smaller pages",
        )
    }

    /// Marks the outcome as unknown: the change is stored, but its payload could not be read.
    pub(super) fn once_done(self) -> Self {
        self.with(OUTCOME, UNKNOWN)
    }

    fn with(self, name: &str, value: impl Into<async_graphql::Value>) -> Self {
        Self(
            self.0
                .extend_with(|_, extensions| extensions.set(name, value)),
        )
    }
}

impl From<Error> for async_graphql::Error {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl From<Error> for ServerError {
    fn from(error: Error) -> Self {
        error.0.into_server_error(async_graphql::Pos::default())
    }
}

impl From<chat::Error> for Error {
    fn from(error: chat::Error) -> Self {
        let sentence = error.to_string();
        match error {
            chat::Error::NotFound(_) => Self::new(Code::NotFound, sentence),
            chat::Error::Forbidden(_) => Self::new(Code::Forbidden, sentence),
            chat::Error::Rejected { reason } => {
                let error = Self::new(Code::Forbidden, sentence);
                match reason {
                    Some(reason) => error.with(REASON, &*reason),
                    None => error,
                }
            }
            chat::Error::NotChecked => {
                Self::new(Code::Unavailable, sentence).with(OUTCOME, NOT_DONE)
            }
            chat::Error::BadInput { path, message } => Self::bad_input(path, message),
            chat::Error::Conflict | chat::Error::LiveConflict(_) | chat::Error::TooMany(_) => {
                Self::new(Code::Conflict, sentence)
            }
            chat::Error::CursorExpired => Self::new(Code::CursorExpired, sentence),
            chat::Error::OutboxOff => Self::new(Code::Unavailable, sentence),
            chat::Error::UpgradeNotFinished => {
                Self::new(Code::Unavailable, sentence).with(OUTCOME, NOT_DONE)
            }
            chat::Error::Busy => Self::new(Code::Unavailable, sentence).with(OUTCOME, NOT_DONE),
            chat::Error::TooFast { retry_after } => {
                // Rounded up, so that a client that retries then is not too early.
                let wait = u64::try_from(retry_after.as_millis())
                    .unwrap_or(u64::MAX)
                    .saturating_add(1);
                Self::new(Code::RateLimited, sentence)
                    .with(RETRY_AFTER_MS, wait)
                    .with(OUTCOME, NOT_DONE)
            }
            chat::Error::Full(_) => Self::new(Code::RateLimited, sentence)
                .with(RETRY_AFTER_MS, FULL_RETRY_AFTER_MS)
                .with(OUTCOME, NOT_DONE),
            chat::Error::OutcomeUnknown => {
                Self::new(Code::Unavailable, sentence).with(OUTCOME, UNKNOWN)
            }
            chat::Error::Store(cause) => from_store(&cause),
        }
    }
}

/// Logs the cause once. The client receives a code and a fixed sentence.
fn from_store(failure: &chat::StoreFailure) -> Error {
    let (cause, is_first) = (&failure.cause, failure.report_once());
    match cause {
        store::Error::Unavailable(_) => {
            if is_first {
                tracing::warn!(error = %cause, "the store was unavailable; an operation was not executed");
            }
            Error::new(
                Code::Unavailable,
                "the store is not available, try again later",
            )
            .with(OUTCOME, NOT_DONE)
        }
        store::Error::OutcomeUnknown(_) => {
            if is_first {
                tracing::warn!(error = %cause, "the store did not confirm a write; the outcome of an operation is unknown");
            }
            chat::Error::OutcomeUnknown.into()
        }
        store::Error::Corrupt { .. } => {
            if is_first {
                tracing::error!(error = %cause, "an operation read a corrupt row; run `wideroom verify`");
            }
            Error::internal()
        }
    }
}

/// Marks errors below the root field of a mutation as UNKNOWN: the mutation itself was done before
/// they occurred.
pub(super) fn settle_outcomes(errors: &mut [ServerError]) {
    for error in errors.iter_mut().filter(|error| error.path.len() > 1) {
        if let Some(extensions) = error
            .extensions
            .as_mut()
            .filter(|extensions| extensions.get(OUTCOME).is_some())
        {
            extensions.set(OUTCOME, UNKNOWN);
        }
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::{PathSegment, Pos};

    use super::*;

    #[test]
    fn a_read_that_fails_after_a_mutation_does_not_say_that_nothing_was_done() {
        let busy: async_graphql::Error = Error::from(chat::Error::Busy).into();
        let outcome = |path: &[&str]| {
            let mut error = busy.clone().into_server_error(Pos::default());
            error.path = path
                .iter()
                .map(|name| PathSegment::Field((*name).to_owned()))
                .collect();
            let mut errors = [error];
            settle_outcomes(&mut errors);
            errors[0]
                .extensions
                .as_ref()
                .and_then(|extensions| extensions.get(OUTCOME))
                .cloned()
        };
        assert_eq!(outcome(&["sendMessage"]), Some(NOT_DONE.into()));
        assert_eq!(
            outcome(&["sendMessage", "messageEdge", "node", "conversation"]),
            Some(UNKNOWN.into())
        );
    }
}
