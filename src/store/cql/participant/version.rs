//! Version of a membership: the static cells that tell a reader whether anything has changed since an earlier version, by one statement.

use std::sync::Arc;

use super::Participants;
use super::participation::DescriptionCells;
use super::roster::Roster;
use crate::model::{Conversation, ConversationId};
use crate::store::Result;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;

statements! {
    SELECT_VERSION: Read "SELECT roster, pending, name, is_large, slow_mode_seconds, history FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1";
}

type VersionColumns = (
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<String>,
    Option<bool>,
    Option<i32>,
    Option<Vec<u8>>,
);

/// Static cells of a conversation's participants.
pub(crate) struct VersionCells {
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) roster: Roster,
    /// The last change that was decided, encoded.
    pub(crate) pending: Option<Vec<u8>>,
}

impl Participants {
    /// `None` for a conversation that does not exist.
    pub(crate) async fn version_cells(&self, id: ConversationId) -> Result<Option<VersionCells>> {
        let row = self
            .executor
            .read_one::<VersionColumns>(&SELECT_VERSION, values![id])
            .await?;
        // An import may bring a conversation without participants, which has no row here.
        let (roster, pending, name, is_large, slow_mode_seconds, history) = row.unwrap_or_default();
        let Some(conversation) = self.described(&[id]).await?.pop().flatten() else {
            return Ok(None);
        };
        Ok(Some(VersionCells {
            conversation: DescriptionCells {
                name,
                is_large,
                slow_mode_seconds,
                history,
            }
            .apply(conversation)?,
            roster: Roster::decode_optional(roster.as_deref())?,
            pending,
        }))
    }
}
