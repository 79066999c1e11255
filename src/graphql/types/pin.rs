//! Pinned messages of a conversation.

use std::sync::Arc;

use async_graphql::{Object, SimpleObject};

use super::sync_fields::SyncObject;
use super::{Message, User};
use crate::graphql::connection::{PageInfo, RelayConnection};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::model::{self, PinKey};

/// Edge of a pinned message.
#[derive(SimpleObject)]
pub(crate) struct PinnedMessageEdge {
    /// Cursor for `after` and `before` of `Conversation.pinnedMessages`.
    pub(super) cursor: String,
    /// The pinned message.
    node: SyncObject<Message>,
    /// User who pinned the message.
    pinned_by: User,
    /// Time of pinning.
    pinned_at: DateTime,
}

impl PinnedMessageEdge {
    /// `None` if the message is not pinned.
    pub(crate) fn of(scope: &ViewerScope, message: &Arc<model::Message>) -> Option<Self> {
        let pin = message.current_pin()?;
        Some(Self {
            cursor: PinKey::of(message.id, pin).encode(List::Pinned(message.conversation)),
            node: SyncObject(Message::new(scope, Arc::clone(message))),
            pinned_by: User::new(scope, pin.by.clone()),
            pinned_at: DateTime(pin.change.moment()),
        })
    }
}

/// Page of pinned messages, the last pinned first.
#[Object(name = "PinnedMessageConnection")]
impl RelayConnection<PinnedMessageEdge> {
    /// Edges of this page, the last pinned message first.
    async fn edges(&self) -> &[PinnedMessageEdge] {
        &self.edges
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> &PageInfo {
        &self.page
    }
}
