//! entry

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

pub(super) async fn move_read_marker(_inner: &Inner, _user: &UserId, _to: &MarkerMove) -> Result<()> {
    Err(unavailable("not written yet"))
}

pub(super) async fn mark_delivered(_inner: &Inner, _user: &UserId, _conversation: ConversationId, _up_to: OrderKey) -> Result<()> {
    Err(unavailable("not written yet"))
}

pub(super) async fn set_flags(_inner: &Inner, _user: &UserId, _to: &FlagsChange) -> Result<Option<Flags>> {
    Err(unavailable("not written yet"))
}
