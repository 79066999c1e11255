//! Responses of a subscription: of one subscriber, or shared by a group.

use std::sync::Arc;

use async_graphql::Response;
use serde_json::value::RawValue;

use crate::graphql::execution::AnswerBudget;
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
    /// Response to this subscriber alone. Unless the stream ends with it, it holds the cursor that
    /// resumes the subscription after the event.
    pub(in crate::graphql) fn own(response: Response, budget: &AnswerBudget) -> Self {
        let content = Self::Own(Box::new(response));
        match (content.is_last(), budget.event_cursor(), content) {
            (false, Some(cursor), Self::Own(response)) => {
                Self::Own(Box::new(response.extension("cursor", cursor.into())))
            }
            (_, _, content) => content,
        }
    }

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

/// JSON text of a response without errors, with the cursor that resumes the subscription after it.
pub(super) fn shared_payload(response: &Response, cursor: Option<String>) -> Option<SharedPayload> {
    #[derive(serde::Serialize)]
    struct Cursor {
        cursor: String,
    }
    #[derive(serde::Serialize)]
    struct Payload<'a> {
        data: AnswerJson<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        extensions: Option<Cursor>,
    }
    let is_shareable = response.errors.is_empty() && response.extensions.is_empty();
    let payload = Payload {
        data: AnswerJson(&response.data),
        extensions: cursor.map(|cursor| Cursor { cursor }),
    };
    is_shareable.then(|| {
        serde_json::value::to_raw_value(&payload)
            .expect("a response is a tree of text and numbers")
            .into()
    })
}
