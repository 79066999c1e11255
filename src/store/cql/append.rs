//! append

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

pub(super) async fn append_messages(_inner: &Inner, _conversation: ConversationId, _messages: &[NewMessage]) -> Result<Appended> {
    Err(unavailable("not written yet"))
}

pub(super) async fn earlier_sends(
    _inner: &Inner,
    _conversation: ConversationId,
    _keys: &[(UserId, IdempotencyKey)],
) -> Result<Vec<Option<EarlierSend>>> {
    Err(unavailable("not written yet"))
}
