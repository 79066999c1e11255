//! Errors of the chat, in terms of the API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rate::TooFast;
use crate::store;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The object does not exist, or the viewer may not see it. The two are indistinguishable.
    #[error("{0} was not found")]
    NotFound(&'static str),
    /// The viewer may see the object, and may not change it in this way.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The hook before a send rejected the message, perhaps with a reason for the sender.
    #[error("the message was rejected")]
    Rejected { reason: Option<Arc<str>> },
    /// The hook before a send did not decide. The operation was not done.
    #[error("the message could not be checked, try again")]
    NotChecked,
    /// An invalid input; a retry fails again. The path names the input: `["input", "body"]`.
    #[error("{message}")]
    BadInput {
        path: &'static [&'static str],
        message: String,
    },
    /// The idempotency key was used with another input.
    #[error("this idempotencyKey was used with another input")]
    Conflict,
    /// The live message has ended, or another writer has taken it over, or another text was written there.
    #[error("{0}")]
    LiveConflict(&'static str),
    /// The viewer has the most of what there may be. The operation was not done.
    #[error("{0}")]
    TooMany(&'static str),
    /// The stream cannot resume from this cursor. The client reads the list again, and subscribes
    /// from its new cursor.
    #[error("this cursor is too old: read the list again, and subscribe from its new cursor")]
    CursorExpired,
    /// The deployment has no outbox.
    #[error("the outbox is off: an operator switches it on with `wideroom outbox on`")]
    OutboxOff,
    /// A server of the version before may still serve, which could not read what this writes. The
    /// operation was not done.
    #[error(
        "the operation waits for the end of an upgrade: once all servers are upgraded, an operator runs `wideroom migrate --finish`"
    )]
    UpgradeNotFinished,
    /// The conversation's queue is full, or the write missed its deadline there. The write was not
    /// done.
    #[error("the conversation is busy, try again")]
    Busy,
    /// The viewer exceeds a rate or a bound. The operation was not done.
    #[error("too fast: try again in a while")]
    TooFast { retry_after: Duration },
    /// A table of the server is full. The operation was not done.
    #[error("{0}")]
    Full(&'static str),
    /// The write has no known outcome within its deadline. A repetition finds it out; a send needs
    /// the same idempotency key.
    #[error("the outcome is unknown: try again, with the same idempotencyKey if there is one")]
    OutcomeUnknown,
    /// A failure of the store. Its text is for the log only. Shared, because one failed batch fails
    /// many sends.
    #[error("the store failed: {}", .0.cause)]
    Store(Arc<StoreFailure>),
}

/// A failed operation of the store.
#[derive(Debug)]
pub struct StoreFailure {
    pub cause: store::Error,
    is_reported: AtomicBool,
}

impl StoreFailure {
    /// Returns true to the first caller only. A failure is logged once, also if it fails many
    /// fields of a response.
    pub fn report_once(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(Arc::new(StoreFailure {
            cause: error,
            is_reported: AtomicBool::new(false),
        }))
    }
}

impl From<TooFast> for Error {
    fn from(TooFast { retry_after }: TooFast) -> Self {
        Self::TooFast { retry_after }
    }
}

impl Error {
    /// Error of a step of a retry whose first attempt may have persisted its change: it never says
    /// that nothing was done.
    pub(crate) fn of_retry(self) -> Self {
        let Self::Store(failure) = &self else {
            return if matches!(self, Self::Busy) {
                Self::OutcomeUnknown
            } else {
                self
            };
        };
        if !matches!(failure.cause, store::Error::Unavailable(_)) {
            return self;
        }
        if failure.report_once() {
            tracing::warn!(error = %failure.cause, "the store was unavailable to a retry; the outcome of its first attempt is unknown");
        }
        Self::OutcomeUnknown
    }

    pub(crate) fn bad_input(path: &'static [&'static str], message: impl ToString) -> Self {
        Self::BadInput {
            path,
            message: message.to_string(),
        }
    }
}
