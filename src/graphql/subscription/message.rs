//! Payload of `messageAdded`.

use async_graphql::SimpleObject;

use super::payload_stream::SharedUpdate;
use crate::chat::MessageUpdate;
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::{Error, Result};
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{MessageEdge, message_edge_at};
use crate::model::{ConversationId, OrderKey};

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

/// Position of a cursor of messages or of events.
pub(super) fn message_position(conversation: ConversationId, cursor: &str) -> Result<OrderKey> {
    let lists = [List::Messages(conversation), List::Events(conversation)];
    let position = lists
        .into_iter()
        .find_map(|list| OrderKey::decode(cursor, list));
    position.ok_or_else(|| {
        Error::bad_input(
            &["after"],
            "`after` is neither a cursor of this conversation's messages nor its eventsCursor",
        )
    })
}
