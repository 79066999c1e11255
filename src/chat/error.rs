//! Why a request of a user was not done, in the user's terms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rate::TooFast;
use crate::store;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There is no such thing, or the viewer may not see it: the two are never told apart.
    #[error("{0} was not found")]
    NotFound(&'static str),
    /// The viewer sees it, and may not do that.
    #[error("{0}")]
    Forbidden(&'static str),
    /// An input that no retry will make right. The path names it: `["input", "body"]`.
    #[error("{message}")]
    BadInput {
        path: &'static [&'static str],
        message: String,
    },
    /// The idempotency key stands for another input.
    #[error("this idempotencyKey was used with another input")]
    Conflict,
    /// The stream cannot go on from there: read again, and subscribe from the position of now.
    #[error("this cursor is too old: read the list again, and subscribe from its new cursor")]
    CursorExpired,
    /// Too much is under way; nothing of it was done.
    #[error("the conversation is busy, try again")]
    Busy,
    /// The viewer does this too often, or too much of it at once; nothing was done.
    #[error("too fast: try again in a while")]
    TooFast { retry_after: Duration },
    /// The outcome of the write is not known within its deadline. The same again settles it; a send wants the same idempotency key.
    #[error(
        "it is not known whether this was done: try again, with the same idempotencyKey where there is one"
    )]
    OutcomeUnknown,
    /// The store's words, for the log alone. Shared, because one failed batch fails many.
    #[error("the store failed: {}", .0.cause)]
    Store(Arc<StoreFailure>),
}

/// Something that the store did not do, and whether it was told of.
#[derive(Debug)]
pub struct StoreFailure {
    pub cause: store::Error,
    is_told: AtomicBool,
}

impl StoreFailure {
    /// Whether this is the first time that somebody asks: a failure is logged once, however many fields of an answer it leaves empty.
    pub fn is_news(&self) -> bool {
        !self.is_told.swap(true, Ordering::Relaxed)
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(Arc::new(StoreFailure {
            cause: error,
            is_told: AtomicBool::new(false),
        }))
    }
}

impl From<TooFast> for Error {
    fn from(TooFast { retry_after }: TooFast) -> Self {
        Self::TooFast { retry_after }
    }
}

impl Error {
    pub(crate) fn bad_input(path: &'static [&'static str], message: impl ToString) -> Self {
        Self::BadInput {
            path,
            message: message.to_string(),
        }
    }
}
