//! membership

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

pub(super) async fn members(_inner: &Inner, _conversation: ConversationId, _users: &[UserId]) -> Result<Option<Members>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn change_membership(
    _inner: &Inner,
    _conversation: ConversationId,
    _change: &MembershipChange,
) -> Result<Option<Audience>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn rename_conversation(_inner: &Inner, _conversation: ConversationId, _to: &Renaming) -> Result<Audience> {
    Err(unavailable("not written yet"))
}
