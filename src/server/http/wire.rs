//! How a stream of answers lies in the body of one HTTP answer: as Server-Sent Events, or in parts.
//!
//! - Server-Sent Events by the distinct connections mode of `graphql-sse`: `next` for each answer, `complete` at the end.
//! - `multipart/mixed` by Apollo's protocol for subscriptions, where the boundary *ends* a part: it is sent with the part, because a client
//!   cannot know that a part is whole before it has seen it.

use axum::body::Bytes;
use serde::Serialize;

use crate::graphql::HeldBytes;
use crate::server::answer::{Answer, EventText, Problem};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Events,
    Parts,
}

/// What a part says.
#[derive(Serialize)]
struct Part<'a> {
    payload: Option<()>,
    /// Of the transport: the stream is over, whatever the subscription would have had to tell.
    #[serde(flatten)]
    fatal: Option<&'a Answer>,
}

impl Wire {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream; charset=utf-8",
            Self::Parts => "multipart/mixed;boundary=\"graphql\";subscriptionSpec=\"1.0\"",
        }
    }

    /// What the log calls it.
    pub(super) const fn door(self) -> &'static str {
        match self {
            Self::Events => "sse",
            Self::Parts => "multipart",
        }
    }

    /// Goes out at once, so that whoever waits for the first byte of a body knows that the stream is open.
    pub(super) const fn start(self) -> &'static str {
        match self {
            Self::Events => ":\n\n",
            Self::Parts => "\r\n--graphql",
        }
    }

    pub(super) const fn heartbeat(self) -> &'static str {
        match self {
            Self::Events => ":\n\n",
            Self::Parts => "\r\ncontent-type: application/json\r\n\r\n{}\r\n--graphql",
        }
    }

    /// One event. Its bytes count until they were written.
    pub(super) fn deliver(self, text: &EventText, held: Option<HeldBytes>) -> Bytes {
        let (head, tail) = self.around();
        Bytes::from_owner(HeldText {
            text: [head, text.as_str(), tail].concat(),
            _held: held,
        })
    }

    /// What stands before and behind the JSON of an answer. JSON has no line breaks of its own, so that one line of data is enough.
    pub(super) const fn around(self) -> (&'static str, &'static str) {
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
            // An answer that failed here, in the midst of it, is none of the subscription's.
            Self::Parts if answer.is_refusal() && answer.status.is_server_error() => part(&Part {
                payload: None,
                fatal: Some(answer),
            }),
            Self::Events | Self::Parts => {
                let (head, tail) = self.around();
                [head, &answer.json(), tail].concat()
            }
        }
    }

    /// The subscription is over for good.
    pub(super) const fn complete(self) -> &'static str {
        match self {
            // A browser's own EventSource passes over an event without a line of data.
            Self::Events => "event: complete\ndata:\n\n",
            Self::Parts => "--\r\n",
        }
    }

    /// The stream ends and the subscription does not: its client is to come back, with its cursor.
    ///
    /// - `graphql-sse` comes back after a stream that ends without `complete`, and asks its `headers` function for a token again. It takes
    ///   `complete` for the end of the subscription; and would miss the end of the stream if it came together with a `next`.
    /// - Apollo's `RetryLink` comes back after an error of the transport, and who has none is shown the error. A mere closing boundary would
    ///   be taken for the end of the subscription.
    pub(super) fn cut(self, problem: Problem) -> Bytes {
        match self {
            Self::Events => Bytes::new(),
            Self::Parts => (part(&Part {
                payload: None,
                fatal: Some(&problem.into()),
            }) + self.complete())
            .into(),
        }
    }
}

/// An event that is under way.
struct HeldText {
    text: String,
    _held: Option<HeldBytes>,
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

fn part(part: &Part<'_>) -> String {
    let json = serde_json::to_string(part).expect("an answer is a tree of text and numbers");
    format!("\r\ncontent-type: application/json\r\n\r\n{json}\r\n--graphql")
}
