//! Payload of `liveMessages`.

use async_graphql::SimpleObject;

use super::payload_stream::SharedUpdate;
use crate::chat::LiveUpdate;
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::LiveMessage;
use crate::model::ConversationId;

/// Payload of `liveMessages`: text to append to the part of this live message that the subscriber has. With `isWhole`
/// it takes the place of that part.
#[derive(SimpleObject)]
pub(super) struct LiveMessagePayload {
    /// Cursor to resume the subscription after this payload, with `after`. It expires after 24 hours.
    cursor: String,
    /// The live message after this change. Null in the first payload, and in the one that an idle stream sends about once an
    /// hour: they are only the position.
    live_message: Option<LiveMessage>,
    /// Text to append. Empty if only the state, the status or the steps changed.
    text: String,
    /// True if the text takes the place of all that the subscriber has of this live message: at first, and after another
    /// writer has taken over.
    is_whole: bool,
}

impl SharedUpdate for LiveUpdate {
    type Payload = LiveMessagePayload;

    fn list(conversation: ConversationId) -> Option<List<'static>> {
        Some(List::Lives(conversation))
    }

    async fn payload(
        self,
        scope: &ViewerScope,
        conversation: ConversationId,
    ) -> Result<LiveMessagePayload> {
        let cursor = self.cursor.encode(List::Lives(conversation));
        Ok(match self.change {
            None => LiveMessagePayload {
                cursor,
                live_message: None,
                text: String::new(),
                is_whole: false,
            },
            Some(change) => LiveMessagePayload {
                cursor,
                text: change.text().to_owned(),
                is_whole: change.is_whole,
                live_message: Some(LiveMessage::new(scope, change.step.view.clone())),
            },
        })
    }
}
