//! inbox

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

pub(super) async fn inbox(_inner: &Inner, _user: &UserId, _page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn inbox_rows(_inner: &Inner, _user: &UserId, _conversations: &[ConversationId]) -> Result<Vec<Option<InboxRow>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn inbox_changes(_inner: &Inner, _user: &UserId, _after: OrderKey, _limit: usize) -> Result<Option<Vec<ChangedRow>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn large_conversations(_inner: &Inner, _user: &UserId) -> Result<Vec<ConversationId>> {
    Err(unavailable("not written yet"))
}
