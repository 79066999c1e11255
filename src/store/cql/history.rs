//! history

use std::sync::Arc;

use super::Inner;
use super::error::unavailable;
use super::statement::statements;
use crate::model::*;
use crate::store::*;

statements! {
    /// The statements of this file.
    Statements {
        probe: Read "SELECT version FROM schema_migrations WHERE version = ?";
    }
}

pub(super) async fn history(
    _inner: &Inner,
    _conversation: ConversationId,
    _cut: &Cut<OrderKey>,
    _page: &PageRequest<OrderKey>,
) -> Result<Page<Arc<Message>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn messages(_inner: &Inner, _keys: &[(ConversationId, MessageId)]) -> Result<Vec<Option<Arc<Message>>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn messages_at(_inner: &Inner, _places: &[(ConversationId, OrderKey)]) -> Result<Vec<Option<Arc<Message>>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn last_messages(_inner: &Inner, _conversations: &[ConversationId]) -> Result<Vec<Option<MessageId>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn newest_events(_inner: &Inner, _conversations: &[ConversationId]) -> Result<Vec<Option<TimeUuid>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn message_counts(_inner: &Inner, _conversations: &[ConversationId]) -> Result<Vec<u64>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn unread(_inner: &Inner, _user: &UserId, _questions: &[UnreadQuestion], _cap: u32) -> Result<Vec<Unread>> {
    Err(unavailable("not written yet"))
}
