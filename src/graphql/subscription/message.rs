//! Payload of `messageAdded`.

use async_graphql::SimpleObject;

use super::payload_stream::SharedUpdate;
use crate::chat::MessageUpdate;
use crate::graphql::cursor::List;
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{MessageEdge, message_edge_at};
use crate::model::ConversationId;

/// Payload of `messageAdded`.
#[derive(SimpleObject)]
pub(super) struct MessageAddedPayload {
    /// Edge of the message in `Conversation.messages`. Its cursor resumes this subscription.
    message_edge: MessageEdge,
}

impl SharedUpdate for MessageUpdate {
    type Payload = MessageAddedPayload;

    fn list(conversation: ConversationId) -> Option<List<'static>> {
        Some(List::Messages(conversation))
    }

    async fn payload(self, scope: &ViewerScope, _: ConversationId) -> Result<MessageAddedPayload> {
        Ok(MessageAddedPayload {
            message_edge: message_edge_at(scope, self.message, &self.position),
        })
    }
}
