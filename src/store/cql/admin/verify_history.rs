//! Verification of the settings of a history: their two copies, in the row of the conversation and beside its participants.

use super::Admin;
use crate::model::{ConversationId, HistorySettings};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;
use crate::store::cql::message::conversation::decode_history;

/// Reads of both copies. A change may come between the two reads of one try.
const TRIES_MAX: usize = 3;

statements! {
    SELECT_HISTORY_CELL: Read "SELECT history FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1";
}

impl Admin {
    /// Whether the two copies differ. The row of the conversation decides, but a floor never goes back.
    pub(super) async fn have_settings_diverged(
        &self,
        id: ConversationId,
        repair: bool,
    ) -> Result<bool> {
        let mut diverged = None;
        for _ in 0..TRIES_MAX {
            diverged = self.diverged_settings(id).await?;
            if diverged.is_none() {
                return Ok(false);
            }
        }
        if let (Some(settings), true) = (diverged, repair) {
            let mut writes = Writes::logged();
            let now = self.clock.now().micros();
            writes.put_history(id, &settings, now);
            self.executor.write_all(writes).await?;
        }
        Ok(true)
    }

    /// The settings that both copies should have. `None` if they have.
    async fn diverged_settings(&self, id: ConversationId) -> Result<Option<HistorySettings>> {
        let cell = self.executor.read_cell(&SELECT_HISTORY_CELL, values![id]);
        let cell: Option<Vec<u8>> = cell.await?;
        // An import writes no copy: readers then take the row of the conversation.
        let Some(cell) = cell else {
            return Ok(None);
        };
        let Some(found) = self.messages.conversation(id).await? else {
            return Ok(None);
        };
        let truth = found.conversation.history;
        let copy = decode_history(Some(&cell))?;
        let settings = HistorySettings {
            floor: truth.floor.max(copy.floor),
            ..truth
        };
        Ok((copy != truth).then_some(settings))
    }
}
