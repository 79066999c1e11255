//! Answers of the server: a code in every error, and no `data` if nothing was executed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_graphql::parser::types::OperationType;
use async_graphql::{ErrorExtensionValues, Pos, Response, ServerError, Value};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use serde::{Serialize, Serializer};

use super::chunks::ChunkedText;
pub(super) use crate::graphql::Code;
use crate::graphql::{
    AnswerBudget, AnswerJson, Exceeded, RETRY_AFTER_MS, RequestError, RequestErrorKind,
    SharedPayload, is_request_error,
};

/// Retry hint where the time of the next free permit is unknown.
const PERMIT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Most errors in the refusal of a document.
const REFUSAL_ERRORS_MAX: usize = 20;

/// Refusal before an execution: the HTTP status, the code, and a sentence for the client.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) code: Code,
    pub(super) sentence: String,
    positions: Vec<Pos>,
    /// Name of the refused input.
    input_path: Option<&'static str>,
    /// Time after which the client may retry.
    retry_after: Option<Duration>,
    /// HTTP header of the refusal.
    pub(super) header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: Code, sentence: impl Into<String>) -> Self {
        Self {
            status,
            code,
            sentence: sentence.into(),
            positions: Vec::new(),
            input_path: None,
            retry_after: None,
            header: None,
        }
    }

    /// Refusal of a client over its rate.
    pub(super) fn too_fast(sentence: impl Into<String>, retry_after: Duration) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, sentence);
        // Whole seconds, rounded up.
        let seconds = HeaderValue::from(retry_after.as_secs().saturating_add(1));
        Self {
            retry_after: Some(retry_after),
            header: Some(Box::new((header::RETRY_AFTER, seconds))),
            ..problem
        }
    }

    /// Refusal at a limit of concurrency: a permit must be released first, at an unknown time.
    pub(super) fn too_many(sentence: impl Into<String>) -> Self {
        Self::too_fast(sentence, PERMIT_RETRY_AFTER)
    }

    /// Names the refused input.
    pub(super) fn with_input_path(self, name: &'static str) -> Self {
        Self {
            input_path: Some(name),
            ..self
        }
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

/// One answer, as it is serialised. `errors` comes first, so that a reader of the stream meets it first.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<ServerError>,
    /// Absent if nothing was executed.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "serialize_data"
    )]
    pub(super) data: Option<Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extensions: BTreeMap<String, Value>,
    /// HTTP status for clients that accept GraphQL's media type.
    #[serde(skip)]
    pub(super) status: StatusCode,
}

fn serialize_data<S: Serializer>(data: &Option<Value>, serializer: S) -> Result<S::Ok, S::Error> {
    data.as_ref().map(AnswerJson).serialize(serializer)
}

/// One delivery of a subscription.
pub(super) enum Delivery {
    Event {
        /// JSON of the event.
        text: EventText,
        /// Whether the next event of a replay is at hand: both may leave with one write.
        has_more: bool,
    },
    /// Error that ends the subscription.
    Refused(Answer),
}

pub(super) enum EventText {
    Own(String),
    /// Payload without errors, whose bytes other subscribers share.
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

/// Result of one query or mutation, before its text is rendered.
pub(super) struct ExecutionResult {
    pub(super) answer: Answer,
    pub(super) operation: OperationType,
    pub(super) budget: Arc<AnswerBudget>,
    /// Bytes that earlier answers of a batch have spent.
    pub(super) spent_before: usize,
    /// Time that the execution waited for the store.
    pub(super) store_time: Duration,
}

impl ExecutionResult {
    /// Writes the text, or an error in its place if it exceeds a bound. The returned answer holds no data.
    pub(super) fn write(self, chunks: &mut ChunkedText) -> Answer {
        let Self {
            mut answer,
            operation,
            budget,
            spent_before,
            store_time: _,
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
            // The mutation was executed: only its answer is dropped.
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
            "An internal error occurred; the server logged it.",
        )
        .into()
    }

    /// Refusal of an answer over its own bound or over its user's quota.
    fn exceeded(exceeded: Exceeded, budget: &AnswerBudget) -> Self {
        let bytes_max = budget.bound(exceeded);
        let problem = match exceeded {
            Exceeded::Answer => {
                let sentence = format!(
                    "The answer has more than {bytes_max} bytes: request less at once, such as smaller pages."
                );
                Problem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    Code::BadUserInput,
                    sentence,
                )
            }
            Exceeded::User => {
                let sentence = format!(
                    "A user's answers in flight have more than {bytes_max} bytes: read those first."
                );
                Problem::too_many(sentence)
            }
        };
        problem.into()
    }

    /// Replaces an event over the bound. The stream continues; the cursor resumes after the event.
    pub(super) fn event_exceeded(budget: &AnswerBudget) -> Self {
        let sentence = format!(
            "The answer of this event has more than {} bytes and was dropped: select less of each event, such as smaller pages. The subscription \
             continues; resume after this event with `extensions.cursor`.",
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

    /// Writes the JSON within the bound of the text.
    pub(super) fn write(&self, chunks: &mut ChunkedText) -> Result<(), Exceeded> {
        serde_json::to_writer(chunks, self).map_err(|_| Exceeded::Answer)
    }

    /// Whether nothing was executed.
    pub(super) fn is_refusal(&self) -> bool {
        self.data.is_none()
    }

    /// Code of the first error for the log, or `OK`.
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
            // The library sets no code for errors in documents and variables.
            let extensions = extensions(error);
            if extensions.get("code").is_none() {
                extensions.set("code", Code::BadUserInput.as_str());
            }
        }
        if is_refusal {
            // One document can have thousands of errors.
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
        if let Some(name) = problem.input_path {
            extensions(&mut error).set("inputPath", Value::List(vec![Value::from(name)]));
        }
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
