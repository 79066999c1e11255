//! Why an operation failed, and why there is no report: a code for counting, a sentence for reading, and what to do about it.

use std::io;

use serde::Deserialize;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::target::Target;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// By the server, with a code of the API or of a closed socket.
    #[error("{sentence}")]
    Refused { code: String, sentence: String },
    #[error("the connection is gone: {0}")]
    Cut(String),
    #[error("no answer in time")]
    Late,
    /// What no server of this version says.
    #[error("not what a Wideroom says: {0}")]
    Foreign(String),
}

impl Failure {
    /// By which it is counted.
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Connect(_) => "CONNECT",
            Self::Refused { code, .. } => code,
            Self::Cut(_) => "CUT",
            Self::Late => "TIMEOUT",
            Self::Foreign(_) => "FOREIGN",
        }
    }

    /// A message that nobody sent, or that should not come any more.
    pub(super) fn stray() -> Self {
        Self::Foreign("a message came that should not".to_owned())
    }

    /// What is behind an answer that is none of success. The errors stand before everything else in it.
    pub(super) fn of_answer(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<Refusal>(body).ok().and_then(|refusal| refusal.errors.into_iter().next()) {
            Some(error) => error.into(),
            None => Self::Foreign(format!("it answers {status}")),
        }
    }

    /// What is behind the `error` of a subscription.
    pub(super) fn of_subscription(text: &str) -> Self {
        match serde_json::from_str::<Ended>(text).ok().and_then(|ended| ended.payload.into_iter().next()) {
            Some(error) => error.into(),
            None => Self::Foreign("it ends a subscription without a word".to_owned()),
        }
    }

    pub(super) fn of_close(frame: Option<CloseFrame>) -> Self {
        match frame {
            Some(frame) => Self::Refused { code: format!("CLOSED_{}", u16::from(frame.code)), sentence: frame.reason.to_string() },
            None => Self::Cut("it was closed without a word".to_owned()),
        }
    }
}

#[derive(Deserialize)]
struct Refusal {
    errors: Vec<Refused>,
}

#[derive(Deserialize)]
struct Ended {
    payload: Vec<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    message: String,
    extensions: Extensions,
}

#[derive(Deserialize)]
struct Extensions {
    code: String,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        // It stands inside of other sentences here.
        Self::Refused { code: refused.extensions.code, sentence: refused.message.trim_end_matches('.').to_owned() }
    }
}

/// What can be done about failures of this code, where that is known.
pub(super) fn advice(code: &str) -> Option<&'static str> {
    match code {
        "UNAUTHENTICATED" | "CLOSED_4403" => {
            Some("say where the server's data folder is with --data, or its secret with --token-secret-file")
        }
        "RATE_LIMITED" | "CLOSED_4291" | "CLOSED_4429" => Some("start the server with --rates off for a load like this"),
        "CLOSED_4290" => Some("this machine reads too slowly for so much: ask for less, or measure from another one"),
        _ => None,
    }
}

/// Why there is no report, or one with something wrong in it: one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--url: {0}")]
    Url(String),
    #[error("cannot connect to {url}: {source}: is it running?")]
    Away { url: String, source: io::Error },
    #[error("{url}: {code}: {sentence}{advice}")]
    Refused { url: String, code: String, sentence: String, advice: String },
    #[error("{failed} of {all} failed: {codes}{advice}")]
    Failed { failed: u64, all: u64, codes: String, advice: String },
    /// What must never be.
    #[error("{0}")]
    Broken(String),
    /// What was asked for does not fit together.
    #[error("{0}")]
    Unfit(String),
    #[error("this takes {wanted} open files, and this process may have {most}: raise that with `ulimit -n {wanted}`, or ask for less")]
    Files { wanted: u64, most: u64 },
    #[error("--pid: {0}")]
    Pid(String),
    #[error("interrupted before there was anything to report")]
    Interrupted,
    /// In the middle.
    #[error("interrupted; what was measured until then is above")]
    Cut,
}

impl Error {
    pub(super) fn refused(target: &Target, failure: Failure) -> Self {
        let url = target.url().to_owned();
        match failure {
            Failure::Connect(source) => Self::Away { url, source },
            failure @ (Failure::Refused { .. } | Failure::Cut(_) | Failure::Late | Failure::Foreign(_)) => {
                let advice = advice(failure.code()).map(|advice| format!("; {advice}")).unwrap_or_default();
                Self::Refused { url, code: failure.code().to_owned(), sentence: failure.to_string(), advice }
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
        let failure = Failure::of_answer(429, body);
        assert_eq!((failure.code(), failure.to_string().as_str()), ("RATE_LIMITED", "Too fast"));
        let text = r#"{"type":"error","id":"1","payload":[{"message":"Who?","extensions":{"code":"UNAUTHENTICATED"}}]}"#;
        assert_eq!(Failure::of_subscription(text).code(), "UNAUTHENTICATED");
    }

    #[test]
    fn another_server_is_not_taken_for_one_of_ours() {
        assert_eq!(Failure::of_answer(404, b"<html>").to_string(), "not what a Wideroom says: it answers 404");
    }
}
