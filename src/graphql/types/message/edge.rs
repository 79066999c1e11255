//! Edges and pages of messages.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{Object, SimpleObject};

use super::Message;
use crate::graphql::connection::{PageInfo, RelayConnection};
use crate::graphql::cursor::{CursorEncoder, List};
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::sync_fields::{JsonText, SyncFields, SyncList, SyncObject};
use crate::model::{self, OrderKey};

/// Edge of a message.
#[derive(SimpleObject)]
pub(crate) struct MessageEdge {
    /// Cursor for `after` and `before` of `Conversation.messages`, and for `messageAdded(after:)`.
    pub(in crate::graphql::types) cursor: String,
    /// The message.
    node: SyncObject<Message>,
}

impl SyncFields for MessageEdge {
    const TYPES: &'static [&'static str] = &["MessageEdge"];

    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool {
        match field.name.node.as_str() {
            "cursor" => json.put_plain(&self.cursor),
            "node" => json.object(&self.node.0, field),
            _ => false,
        }
    }
}

pub(crate) fn message_edge(scope: &ViewerScope, message: Arc<model::Message>) -> MessageEdge {
    let position = message.id.order_key();
    message_edge_at(scope, message, &position)
}

/// Edge whose cursor resumes a stream of messages at this position.
pub(crate) fn message_edge_at(
    scope: &ViewerScope,
    message: Arc<model::Message>,
    position: &OrderKey,
) -> MessageEdge {
    let cursors = List::Messages(message.conversation).cursors();
    MessageEdge {
        cursor: cursors.of(position),
        node: SyncObject(Message::new(scope, message)),
    }
}

/// Edge with a cursor of this encoder.
pub(in crate::graphql::types) fn message_edge_by(
    cursors: &CursorEncoder,
    scope: &ViewerScope,
    message: Arc<model::Message>,
) -> MessageEdge {
    MessageEdge {
        cursor: cursors.of(&message.id.order_key()),
        node: SyncObject(Message::new(scope, message)),
    }
}

/// Page of messages, newest first.
#[Object(name = "MessageConnection")]
impl RelayConnection<MessageEdge> {
    /// Edges of this page, newest first.
    async fn edges(&self) -> SyncList<&MessageEdge> {
        SyncList(self.edges.iter().collect())
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> &PageInfo {
        &self.page
    }
}
