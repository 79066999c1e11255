//! Responses of a subscription: of one subscriber, or shared by a group.

use std::sync::Arc;

use async_graphql::Response;
use serde_json::value::RawValue;

use crate::graphql::scalar::AnswerJson;

/// Response to one event.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
#[expect(
    clippy::large_enum_variant,
    reason = "a response is moved once; a box would cost an allocation for each event"
)]
pub enum EventResponse {
    /// Executed for this subscriber alone.
    Own(Response),
    /// Without errors; all subscribers of the group receive the same bytes.
    Shared(SharedPayload),
}

/// JSON text of a response.
pub type SharedPayload = Arc<RawValue>;

impl EventResponse {
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
        Self::Own(response)
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
