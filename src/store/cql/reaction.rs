//! reaction

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

pub(super) async fn react(_: &Inner, _: ConversationId, _: &Emoji, _: bool, _: &Change) -> Result<Option<Arc<Message>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn reactions(_: &Inner, _: &UserId, _: &[(ConversationId, MessageId)]) -> Result<Vec<Vec<Reaction>>> {
    Err(unavailable("not written yet"))
}
