//! Responses of a subscription: of one subscriber, or shared by a group.

use std::sync::Arc;

use async_graphql::Response;
use serde_json::value::RawValue;

use crate::graphql::scalar::AnswerJson;

/// Response to one event.
#[derive(Debug)]
pub struct EventResponse {
    pub content: EventContent,
    /// Whether the next event of a replay is at hand: both may leave with one write.
    pub has_more: bool,
}

/// Content of a response to one event: a tree of values, or its text.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
pub enum EventContent {
    /// Executed for this subscriber alone. Boxed: every waiting stream would reserve its size.
    Own(Box<Response>),
    /// Without errors; all subscribers of the group receive the same bytes.
    Shared(SharedPayload),
}

/// JSON text of a response.
pub type SharedPayload = Arc<RawValue>;

impl EventContent {
    /// Whether the root field failed: the stream of the chat has ended.
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::Own(response) => response.errors.iter().any(|error| error.path.len() <= 1),
            Self::Shared(_) => false,
        }
    }
}

impl From<Response> for EventResponse {
    fn from(response: Response) -> Self {
        Self {
            content: response.into(),
            has_more: false,
        }
    }
}

impl From<Response> for EventContent {
    fn from(response: Response) -> Self {
        Self::Own(Box::new(response))
    }
}

/// JSON text of a response without errors.
pub(super) fn shared_payload(response: &Response) -> Option<SharedPayload> {
    #[derive(serde::Serialize)]
    struct DataOnly<'a> {
        data: AnswerJson<'a>,
    }
    let is_shareable = response.errors.is_empty() && response.extensions.is_empty();
    let data = DataOnly {
        data: AnswerJson(&response.data),
    };
    is_shareable.then(|| {
        serde_json::value::to_raw_value(&data)
            .expect("a response is a tree of text and numbers")
            .into()
    })
}
