//! What a client is told of a failure: one code of a closed list, and a sentence. The only place that decides it.

use async_graphql::ErrorExtensions as _;

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
        Self(async_graphql::Error::new(message).extend_with(|_, extensions| extensions.set("code", code.as_str())))
    }

    pub(super) fn unauthenticated() -> Self {
        Self::new(Code::Unauthenticated, "a token is needed: send it as `Authorization: Bearer …`")
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("{what} was not found"))
    }

    pub(super) fn bad_input(path: &[&str], message: impl Into<String>) -> Self {
        let path: Vec<_> = path.iter().map(|part| async_graphql::Value::from(*part)).collect();
        Self::new(Code::BadUserInput, message).with("inputPath", async_graphql::Value::List(path))
    }

    fn with(self, name: &str, value: impl Into<async_graphql::Value>) -> Self {
        Self(self.0.extend_with(|_, extensions| extensions.set(name, value)))
    }
}

impl From<Error> for async_graphql::Error {
    fn from(error: Error) -> Self {
        error.0
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
            chat::Error::Busy => Self::new(Code::Unavailable, sentence).with("outcome", "NOT_DONE"),
            chat::Error::OutcomeUnknown => Self::new(Code::Unavailable, sentence).with("outcome", "UNKNOWN"),
            // The cause was logged where it came up; the client gets no word of it.
            chat::Error::Store(cause) => match &*cause {
                store::Error::Unavailable(_) => {
                    Self::new(Code::Unavailable, "the store is not available, try again later").with("outcome", "NOT_DONE")
                }
                store::Error::OutcomeUnknown(_) => {
                    let sentence = "the outcome is not known: try again with the same idempotencyKey";
                    Self::new(Code::Unavailable, sentence).with("outcome", "UNKNOWN")
                }
                store::Error::Corrupt { .. } => Self::new(Code::Internal, "internal error"),
            },
        }
    }
}
