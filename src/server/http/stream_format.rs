//! Stream formats: how answers of a subscription are framed in one HTTP body.
//!
//! - Server-Sent Events in the distinct connections mode of `graphql-sse`: `next` for each answer, `complete` at the end.
//! - `multipart/mixed` in Apollo's protocol for subscriptions. A boundary *ends* a part there: the server sends it with
//!   the part, because the client knows only then that the part is complete. Readers that look for the next boundary in
//!   the next bytes find the end by the length of the part.

use axum::body::Bytes;
use serde::Serialize;

use crate::graphql::HeldBytes;
use crate::server::answer::{Answer, EventText, Problem};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFormat {
    Events,
    Parts,
}

/// Transport error: the stream ends, whatever the state of the subscription.
#[derive(Serialize)]
struct Fatal<'a> {
    payload: Option<()>,
    #[serde(flatten)]
    answer: &'a Answer,
}

impl StreamFormat {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream; charset=utf-8",
            // Without quotation marks: some clients compare the text.
            Self::Parts => "multipart/mixed;boundary=graphql;subscriptionSpec=1.0",
        }
    }

    /// Name in the log and in metrics.
    pub(super) const fn transport(self) -> &'static str {
        match self {
            Self::Events => "sse",
            Self::Parts => "multipart",
        }
    }

    /// First bytes, sent at once: a client that waits for the first byte knows that the stream is open.
    pub(super) const fn start(self) -> &'static str {
        match self {
            Self::Events => ":\n\n",
            Self::Parts => "\r\n--graphql",
        }
    }

    pub(super) const fn heartbeat(self) -> &'static str {
        match self {
            Self::Events => ":\n\n",
            Self::Parts => {
                "\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}\r\n--graphql"
            }
        }
    }

    /// Frames one event. Its bytes count in the user's quota until they are written.
    pub(super) fn deliver(self, text: &EventText, held: Option<HeldBytes>) -> Bytes {
        Bytes::from_owner(HeldText {
            text: self.frame(text.as_str()),
            _held: held,
        })
    }

    fn frame(self, json: &str) -> String {
        let (head, tail) = self.envelope();
        match self {
            Self::Events => [head, json, tail].concat(),
            Self::Parts => part(&format!("{{\"payload\":{json}}}")),
        }
    }

    /// Bytes before and after the JSON of an answer whose length is unknown. The JSON has no line break, so one `data` line
    /// holds it.
    pub(super) const fn envelope(self) -> (&'static str, &'static str) {
        match self {
            Self::Events => ("event: next\ndata: ", "\n\n"),
            Self::Parts => (
                "\r\ncontent-type: application/json\r\n\r\n{\"payload\":",
                "}\r\n--graphql",
            ),
        }
    }

    pub(super) fn next(self, answer: &Answer) -> String {
        match self {
            // A server error in the middle of a stream is a transport error.
            Self::Parts if answer.is_refusal() && answer.status.is_server_error() => fatal(answer),
            Self::Events | Self::Parts => self.frame(&answer.json()),
        }
    }

    /// Bytes that complete the subscription for good.
    pub(super) const fn complete(self) -> &'static str {
        match self {
            // A browser's EventSource ignores an event without a `data` line.
            Self::Events => "event: complete\ndata:\n\n",
            Self::Parts => "--\r\n",
        }
    }

    /// Ends the stream but not the subscription: the client reconnects with its cursor.
    ///
    /// - `graphql-sse` reconnects after a stream without `complete`, and calls its `headers` function for a new token. It
    ///   takes `complete` for the end of the subscription, and misses an end that arrives together with a `next`.
    /// - Apollo's `RetryLink` reconnects after a transport error; a client without that link shows the error. It would
    ///   take a closing boundary alone for the end of the subscription.
    pub(super) fn cut(self, problem: Problem) -> Bytes {
        match self {
            Self::Events => Bytes::new(),
            Self::Parts => (fatal(&problem.into()) + self.complete()).into(),
        }
    }
}

/// Text of an event, which holds its bytes in the quota until it is written.
struct HeldText {
    text: String,
    _held: Option<HeldBytes>,
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

fn fatal(answer: &Answer) -> String {
    let fatal = Fatal {
        payload: None,
        answer,
    };
    part(&serde_json::to_string(&fatal).expect("an answer is a tree of text and numbers"))
}

fn part(json: &str) -> String {
    let length = json.len();
    format!(
        "\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{json}\r\n--graphql"
    )
}
