//! What a client is told of a failure: one code of a closed list, and a sentence. The only place that decides it.

use async_graphql::{ErrorExtensions as _, ServerError};

use crate::chat;
use crate::store;

/// The closed list of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        match self {
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Forbidden => "FORBIDDEN",
            Self::NotFound => "NOT_FOUND",
            Self::BadUserInput => "BAD_USER_INPUT",
            Self::Conflict => "CONFLICT",
            Self::RateLimited => "RATE_LIMITED",
            Self::CursorExpired => "CURSOR_EXPIRED",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
            Self::PersistedQueryNotSupported => "PERSISTED_QUERY_NOT_SUPPORTED",
        }
    }
}

/// Beside RATE_LIMITED: when it may be tried again.
pub const RETRY_AFTER_MS: &str = "retryAfterMs";

/// Beside the code of a mutation that is not known to be done.
const OUTCOME: &str = "outcome";
const NOT_DONE: &str = "NOT_DONE";
const UNKNOWN: &str = "UNKNOWN";

/// The only error that a resolver returns.
///
/// It has no `Display` on purpose: `async_graphql::Error` takes anything that prints, and so `?` on an error of the store would hand its
/// text to the client. Here it does not compile.
#[derive(Clone)]
pub(super) struct Error(async_graphql::Error);

pub(super) type Result<T, E = Error> = std::result::Result<T, E>;

/// What a nullable field answers: with an error beside it, only the field itself is null. (An error of `Result<Option<T>>` would null
/// what the field is in.)
pub(super) type Nullable<T> = Option<Result<T>>;

pub(super) async fn nullable<T>(answer: impl Future<Output = Result<Option<T>>>) -> Nullable<T> {
    answer.await.transpose()
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

    /// What is wrong went to the log.
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

    /// The text of the answer went over a bound in bytes.
    pub(super) fn answer_too_large() -> Self {
        Self::new(
            Code::BadUserInput,
            "the answer is too large: ask for less at once, as smaller pages",
        )
    }

    /// The same, where what was asked for was done and only its answer cannot be read.
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
            chat::Error::BadInput { path, message } => Self::bad_input(path, message),
            chat::Error::Conflict => Self::new(Code::Conflict, sentence),
            chat::Error::CursorExpired => Self::new(Code::CursorExpired, sentence),
            chat::Error::Busy => Self::new(Code::Unavailable, sentence).with(OUTCOME, NOT_DONE),
            chat::Error::TooFast { retry_after } => {
                // A whole millisecond more, so that who comes back then is not too early.
                let wait = u64::try_from(retry_after.as_millis())
                    .unwrap_or(u64::MAX)
                    .saturating_add(1);
                Self::new(Code::RateLimited, sentence)
                    .with(RETRY_AFTER_MS, wait)
                    .with(OUTCOME, NOT_DONE)
            }
            chat::Error::OutcomeUnknown => {
                Self::new(Code::Unavailable, sentence).with(OUTCOME, UNKNOWN)
            }
            chat::Error::Store(cause) => from_store(&cause),
        }
    }
}

/// The cause goes to the log, once; the client gets no word of it.
fn from_store(failure: &chat::StoreFailure) -> Error {
    let (cause, is_news) = (&failure.cause, failure.is_news());
    match cause {
        store::Error::Unavailable(_) => {
            if is_news {
                tracing::warn!(error = %cause, "the store was unavailable; an operation was not executed");
            }
            Error::new(
                Code::Unavailable,
                "the store is not available, try again later",
            )
            .with(OUTCOME, NOT_DONE)
        }
        store::Error::OutcomeUnknown(_) => {
            if is_news {
                tracing::warn!(error = %cause, "the store did not confirm a write; the outcome of an operation is unknown");
            }
            chat::Error::OutcomeUnknown.into()
        }
        store::Error::Corrupt { .. } => {
            if is_news {
                tracing::error!(error = %cause, "an operation read a corrupt row; run `wideroom verify`");
            }
            Error::internal()
        }
    }
}

/// What failed below a mutation's own field failed after the mutation was done, so that none of it may say that nothing was.
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
