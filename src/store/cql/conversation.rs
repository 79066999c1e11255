//! conversation

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

pub(super) async fn seats(_inner: &Inner, _viewer: &UserId, _conversations: &[ConversationId]) -> Result<Vec<Option<Seat>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn direct_conversation(_inner: &Inner, _one: &UserId, _other: &UserId) -> Result<Option<ConversationId>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn create_conversation(_inner: &Inner, _new: &NewConversation) -> Result<Created> {
    Err(unavailable("not written yet"))
}

pub(super) async fn participants(_inner: &Inner, _conversation: ConversationId, _page: &PageRequest<UserId>) -> Result<Page<Participant>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn participants_by_name(_inner: &Inner, _keys: &[(ConversationId, UserId)]) -> Result<Vec<Option<Participant>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn participant_counts(_inner: &Inner, _conversations: &[ConversationId]) -> Result<Vec<u64>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn receivers(
    _inner: &Inner,
    _conversation: ConversationId,
    _message: MessageId,
    _sender: &UserId,
    _page: &PageRequest<UserId>,
) -> Result<Page<Participant>> {
    Err(unavailable("not written yet"))
}
