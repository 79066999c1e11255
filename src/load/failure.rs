//! Errors of the load generator: failures of single operations, counted by code, and errors that end a run.

use std::io;

use serde::Deserialize;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// Failure of one operation.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// The server refused, with an error code of the API or a WebSocket close code.
    #[error("{sentence}")]
    Refused { code: String, sentence: String },
    #[error("the connection was lost: {0}")]
    Disconnected(String),
    #[error("the server did not answer in time")]
    Timeout,
    /// A Wideroom server of this version never sends such an answer.
    #[error("the answer is not that of a Wideroom server: {0}")]
    Unexpected(String),
}

impl Failure {
    /// Code under which reports count this failure.
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Connect(_) => "CONNECT",
            Self::Refused { code, .. } => code,
            Self::Disconnected(_) => "DISCONNECTED",
            Self::Timeout => "TIMEOUT",
            Self::Unexpected(_) => "UNEXPECTED_ANSWER",
        }
    }

    pub(super) fn unexpected_message() -> Self {
        Self::Unexpected("the server sent a message that no sender of this run has sent".to_owned())
    }

    /// Failure that an HTTP answer without success describes.
    pub(super) fn from_answer(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<AnswerErrors>(body)
            .ok()
            .and_then(|answer| answer.errors.into_iter().next())
        {
            Some(error) => error.into(),
            None => Self::Unexpected(format!("HTTP status {status} without a GraphQL error")),
        }
    }

    /// Failure that the `error` message of a subscription describes.
    pub(super) fn from_subscription_error(text: &str) -> Self {
        match serde_json::from_str::<SubscriptionErrors>(text)
            .ok()
            .and_then(|message| message.payload.into_iter().next())
        {
            Some(error) => error.into(),
            None => Self::Unexpected("the server ended a subscription without an error".to_owned()),
        }
    }

    pub(super) fn from_close(frame: Option<CloseFrame>) -> Self {
        match frame {
            Some(frame) => Self::Refused {
                code: format!("CLOSED_{}", u16::from(frame.code)),
                sentence: frame.reason.to_string(),
            },
            None => Self::Disconnected("the server closed it without a code".to_owned()),
        }
    }
}

#[derive(Deserialize)]
struct AnswerErrors {
    errors: Vec<GraphqlError>,
}

#[derive(Deserialize)]
struct SubscriptionErrors {
    payload: Vec<GraphqlError>,
}

#[derive(Deserialize)]
struct GraphqlError {
    message: String,
    extensions: ErrorExtensions,
}

#[derive(Deserialize)]
struct ErrorExtensions {
    code: String,
}

impl From<GraphqlError> for Failure {
    fn from(error: GraphqlError) -> Self {
        // Reports embed the sentence in longer ones.
        Self::Refused {
            code: error.extensions.code,
            sentence: error.message.trim_end_matches('.').to_owned(),
        }
    }
}

/// Advice for the operator, for codes with a known remedy.
pub(super) fn advice(code: &str) -> Option<&'static str> {
    match code {
        "UNAUTHENTICATED" | "CLOSED_4403" => Some(
            "name the server's data folder with --data, or its token secret with --token-secret-file",
        ),
        "RATE_LIMITED" | "CLOSED_4291" | "CLOSED_4429" => {
            Some("start the server with --rates off to measure such a load")
        }
        "CLOSED_4290" => Some(
            "this machine reads too slowly for this load: lower the load, or run the bench on another machine",
        ),
        _ => None,
    }
}

/// Error that ends a run, or the verdict on a report with failures. It prints as one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--url: {0}")]
    Url(String),
    #[error("cannot connect to {url}: {source}; check that the server is running")]
    Unreachable { url: String, source: io::Error },
    #[error("{url}: {code}: {sentence}{advice}")]
    Refused {
        url: String,
        code: String,
        sentence: String,
        advice: String,
    },
    #[error("{failed} of {all} operations failed: {codes}{advice}")]
    Failed {
        failed: u64,
        all: u64,
        codes: String,
        advice: String,
    },
    /// The server broke a guarantee, such as lost or repeated messages.
    #[error("{0}")]
    Incorrect(String),
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    #[error(
        "this load needs {wanted} open files and the limit is {most}: raise the limit with `ulimit -n {wanted}`, or lower the load"
    )]
    FileLimit { wanted: u64, most: u64 },
    #[error("--pid: {0}")]
    Pid(String),
    #[error("interrupted before the first measurement")]
    Interrupted,
    /// Interrupted after the first measurement.
    #[error("interrupted; the report above holds the measurements until then")]
    Partial,
}

impl Error {
    pub(super) fn refused(url: &str, failure: Failure) -> Self {
        let url = url.to_owned();
        match failure {
            Failure::Connect(source) => Self::Unreachable { url, source },
            failure @ (Failure::Refused { .. }
            | Failure::Disconnected(_)
            | Failure::Timeout
            | Failure::Unexpected(_)) => {
                let advice = advice(failure.code())
                    .map(|advice| format!("; {advice}"))
                    .unwrap_or_default();
                Self::Refused {
                    url,
                    code: failure.code().to_owned(),
                    sentence: failure.to_string(),
                    advice,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_counted_by_its_code() {
        let body = br#"{"errors":[{"message":"Too fast.","extensions":{"code":"RATE_LIMITED","retryAfterMs":9}}],"data":null}"#;
        let failure = Failure::from_answer(429, body);
        assert_eq!(
            (failure.code(), failure.to_string().as_str()),
            ("RATE_LIMITED", "Too fast")
        );
        let text = r#"{"type":"error","id":"1","payload":[{"message":"Who?","extensions":{"code":"UNAUTHENTICATED"}}]}"#;
        assert_eq!(
            Failure::from_subscription_error(text).code(),
            "UNAUTHENTICATED"
        );
    }

    #[test]
    fn an_answer_of_another_server_is_unexpected() {
        let failure = Failure::from_answer(404, b"<html>");
        assert_eq!(
            failure.to_string(),
            "the answer is not that of a Wideroom server: HTTP status 404 without a GraphQL error"
        );
    }
}
