//! revision

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

pub(super) async fn revise_message(
    _inner: &Inner,
    _conversation: ConversationId,
    _revision: &Revision,
    _change: &Change,
) -> Result<Option<Revised>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn changes(_inner: &Inner, _conversation: ConversationId, _after: OrderKey, _limit: usize) -> Result<Vec<Change>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn log_late(_inner: &Inner, _conversation: ConversationId, _changes: &[Change]) -> Result<()> {
    Err(unavailable("not written yet"))
}
