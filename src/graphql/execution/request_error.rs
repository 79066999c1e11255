//! Request errors: an operation is refused before its execution starts.

use async_graphql::{Pos, Response, Value};

use super::guard::GuardError;

/// Reason of a refusal, as a sentence for the author of the document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub kind: RequestErrorKind,
    pub message: String,
    pub positions: Vec<Pos>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestErrorKind {
    /// The document cannot be parsed.
    Syntax,
    /// The document exceeds a limit or does not fit the schema.
    Invalid,
    /// The document is valid, but its variables are not.
    Variables,
}

impl RequestError {
    pub(super) fn variables(message: String) -> Self {
        Self {
            kind: RequestErrorKind::Variables,
            message,
            positions: Vec::new(),
        }
    }

    pub(super) fn invalid(message: String) -> Self {
        Self {
            kind: RequestErrorKind::Invalid,
            message,
            positions: Vec::new(),
        }
    }

    pub(super) fn invalid_at(message: String, position: Pos) -> Self {
        Self {
            positions: vec![position],
            ..Self::invalid(message)
        }
    }

    pub(super) fn syntax(problem: String, position: Pos) -> Self {
        Self {
            kind: RequestErrorKind::Syntax,
            message: format!("The document cannot be parsed: {problem}."),
            positions: vec![position],
        }
    }
}

impl From<GuardError> for RequestError {
    fn from(error: GuardError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Whether nothing was executed. Execution errors have a path; request errors have none.
pub fn is_request_error(response: &Response) -> bool {
    response.data == Value::Null
        && !response.errors.is_empty()
        && response.errors.iter().all(|error| error.path.is_empty())
}
