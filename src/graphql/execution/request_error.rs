//! Request errors: an operation is refused before its execution starts.

use async_graphql::{Name, Pos, Response, Value};

use super::guard::GuardError;

/// Reason of a refusal, as a sentence for the author of the document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub kind: RequestErrorKind,
    pub message: String,
    pub positions: Vec<Pos>,
    /// Name of the operation that the request chose, if the document could be parsed.
    pub operation: Option<Name>,
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
    fn new(kind: RequestErrorKind, message: String) -> Self {
        Self {
            kind,
            message,
            positions: Vec::new(),
            operation: None,
        }
    }

    pub(super) fn variables(message: String) -> Self {
        Self::new(RequestErrorKind::Variables, message)
    }

    pub(super) fn invalid(message: String) -> Self {
        Self::new(RequestErrorKind::Invalid, message)
    }

    pub(super) fn invalid_at(message: String, position: Pos) -> Self {
        Self {
            positions: vec![position],
            ..Self::invalid(message)
        }
    }

    pub(super) fn syntax(problem: String, position: Pos) -> Self {
        let message = format!("The document cannot be parsed: {problem}.");
        Self {
            positions: vec![position],
            ..Self::new(RequestErrorKind::Syntax, message)
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
