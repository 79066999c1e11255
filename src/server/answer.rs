//! What goes out: our own answer, with a code in every error, and no `data` where nothing was executed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_graphql::parser::types::OperationType;
use async_graphql::{ErrorExtensionValues, Pos, Response, ServerError, Value};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};

use super::chunks::ChunkedText;
pub(super) use crate::graphql::Code;
use crate::graphql::{
    AnswerBudget, Exceeded, HeldBytes, RETRY_AFTER_MS, RequestError, RequestErrorKind,
    SharedPayload, is_request_error,
};

/// When to come back where all places are taken.
const ROOM_AFTER: Duration = Duration::from_secs(5);

/// A refused document is told so many of its errors.
const REFUSAL_ERRORS_MAX: usize = 20;

/// Why nothing is executed: what HTTP says of it, and a sentence for whoever asked.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) code: Code,
    pub(super) sentence: String,
    positions: Vec<Pos>,
    /// When it may be tried again.
    retry_after: Option<Duration>,
    /// What HTTP wants to be said beside it.
    pub(super) header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: Code, sentence: impl Into<String>) -> Self {
        Self {
            status,
            code,
            sentence: sentence.into(),
            positions: Vec::new(),
            retry_after: None,
            header: None,
        }
    }

    /// Nothing was executed, for a while.
    pub(super) fn too_fast(sentence: impl Into<String>, retry_after: Duration) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, sentence);
        // In whole seconds, and not too early.
        let seconds = HeaderValue::from(retry_after.as_secs().saturating_add(1));
        Self {
            retry_after: Some(retry_after),
            header: Some(Box::new((header::RETRY_AFTER, seconds))),
            ..problem
        }
    }

    /// Something must end before there is room again, and nobody knows when.
    pub(super) fn too_many(sentence: impl Into<String>) -> Self {
        Self::too_fast(sentence, ROOM_AFTER)
    }

    pub(super) fn with_header(self, name: HeaderName, value: &'static str) -> Self {
        Self {
            header: Some(Box::new((name, HeaderValue::from_static(value)))),
            ..self
        }
    }
}

impl From<RequestError> for Problem {
    fn from(refused: RequestError) -> Self {
        let status = match refused.kind {
            RequestErrorKind::Syntax | RequestErrorKind::Variables => StatusCode::BAD_REQUEST,
            RequestErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self {
            positions: refused.positions,
            ..Self::new(status, Code::BadUserInput, refused.message)
        }
    }
}

/// One answer, as it is serialised. Errors come first, so that who reads a stream of bytes meets them first.
#[derive(Debug, serde::Serialize)]
pub(super) struct Answer {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<ServerError>,
    /// Absent where nothing was executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extensions: BTreeMap<String, Value>,
    /// What HTTP says of it, to those who read our own media type.
    #[serde(skip)]
    pub(super) status: StatusCode,
}

/// One event of a subscription, as it is told.
pub(super) enum Delivery {
    /// Its JSON. The bytes count in the account of their user until they were written.
    Event(EventText, Option<HeldBytes>),
    /// The last word of a subscription that cannot go on.
    Refused(Answer),
}

pub(super) enum EventText {
    Own(String),
    /// Without errors, and the same bytes as others get.
    Shared(SharedPayload),
}

impl EventText {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Own(text) => text,
            Self::Shared(payload) => payload.get(),
        }
    }
}

/// The answer to one query or mutation, whose text is still to be made.
pub(super) struct ExecutionResult {
    pub(super) answer: Answer,
    pub(super) operation: OperationType,
    pub(super) budget: Arc<AnswerBudget>,
    /// What of the budget belongs to answers before this one.
    pub(super) spent_before: usize,
}

impl ExecutionResult {
    /// Writes the text. Where it goes over a bound the error that says so is written in its place. What is left of the answer has no data.
    pub(super) fn write(self, chunks: &mut ChunkedText) -> Answer {
        let Self {
            mut answer,
            operation,
            budget,
            spent_before,
        } = self;
        let mark = chunks.mark();
        let written = match budget.exceeded() {
            Some(exceeded) => Err(exceeded),
            None => answer
                .write(chunks)
                .and_then(|()| budget.settle(chunks.bytes())),
        };
        let Err(exceeded) = written else {
            answer.data = answer.data.map(|_| Value::Null);
            return answer;
        };
        answer = Answer::exceeded(exceeded, &budget);
        if operation == OperationType::Mutation {
            // It was done: only its answer is left out.
            answer = answer.with_extension("outcome", "UNKNOWN");
        }
        budget.rewind(spent_before);
        chunks.rewind(&mark);
        chunks.push_framing(&answer.json());
        answer
    }
}

impl Answer {
    pub(super) fn with_extension(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        for error in &mut self.errors {
            extensions(error).set(name, value.clone());
        }
        self
    }

    pub(super) fn internal() -> Self {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::Internal,
            "Something went wrong here; it is logged.",
        )
        .into()
    }

    /// Of an answer that is too large, or that is too much for its user now. It has no data.
    fn exceeded(exceeded: Exceeded, budget: &AnswerBudget) -> Self {
        let bytes_max = budget.bound(exceeded);
        let problem = match exceeded {
            Exceeded::Answer => {
                let sentence = format!(
                    "The answer has more than {bytes_max} bytes: ask for less at once, as smaller pages."
                );
                Problem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    Code::BadUserInput,
                    sentence,
                )
            }
            Exceeded::User => {
                let sentence = format!(
                    "The answers of one user that are under way have more than {bytes_max} bytes: read those first."
                );
                Problem::too_many(sentence)
            }
        };
        problem.into()
    }

    /// Stands for an event that is too large. Its stream goes on, and who resumes behind it does so with the cursor.
    pub(super) fn event_exceeded(budget: &AnswerBudget) -> Self {
        let sentence = format!(
            "This event was left out, as its answer has more than {} bytes: select less of each event, as smaller pages. The subscription goes on; \
             resume behind this event with `extensions.cursor`.",
            budget.bytes_max()
        );
        let answer = Self::from(Problem::new(StatusCode::OK, Code::BadUserInput, sentence));
        let answer = Self {
            data: Some(Value::Null),
            ..answer
        };
        match budget.event_cursor() {
            Some(cursor) => answer.with_extension("cursor", cursor),
            None => answer,
        }
    }

    /// Writes its JSON, within the bound of the chunks.
    pub(super) fn write(&self, chunks: &mut ChunkedText) -> Result<(), Exceeded> {
        serde_json::to_writer(chunks, self).map_err(|_| Exceeded::Answer)
    }

    /// True where nothing was executed.
    pub(super) fn is_refusal(&self) -> bool {
        self.data.is_none()
    }

    /// The code of the first error, or `OK`: what the log says of it.
    pub(super) fn code(&self) -> &str {
        let code = self
            .errors
            .first()
            .and_then(|error| error.extensions.as_ref())
            .and_then(|extensions| extensions.get("code"));
        match (code, self.errors.is_empty()) {
            (Some(Value::String(code)), _) => code,
            (_, true) => "OK",
            _ => Code::BadUserInput.as_str(),
        }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("an answer is a tree of text and numbers")
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        let is_refusal = is_request_error(&response);
        let Response {
            data,
            extensions: outer,
            mut errors,
            ..
        } = response;
        for error in &mut errors {
            // Only the library leaves the code out, of errors in documents and variables.
            let extensions = extensions(error);
            if extensions.get("code").is_none() {
                extensions.set("code", Code::BadUserInput.as_str());
            }
        }
        if is_refusal {
            // One document may be wrong in a thousand places.
            errors.truncate(REFUSAL_ERRORS_MAX);
        }
        let (data, status) = if is_refusal {
            (None, StatusCode::UNPROCESSABLE_ENTITY)
        } else {
            (Some(data), StatusCode::OK)
        };
        Self {
            errors,
            data,
            extensions: outer,
            status,
        }
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        let mut error = ServerError::new(problem.sentence, None);
        error.locations = problem.positions;
        extensions(&mut error).set("code", problem.code.as_str());
        if let Some(retry_after) = problem.retry_after {
            let wait = u64::try_from(retry_after.as_millis())
                .unwrap_or(u64::MAX)
                .saturating_add(1);
            extensions(&mut error).set(RETRY_AFTER_MS, wait);
        }
        Self {
            errors: vec![error],
            data: None,
            extensions: BTreeMap::new(),
            status: problem.status,
        }
    }
}

fn extensions(error: &mut ServerError) -> &mut ErrorExtensionValues {
    error
        .extensions
        .get_or_insert_with(ErrorExtensionValues::default)
}
