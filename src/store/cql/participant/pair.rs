//! Pairs: the direct conversation of two users, or of one user with themselves.

use scylla::value::Row;
use uuid::Uuid;

use super::Participants;
use crate::model::id::pair_key;
use crate::model::{ConversationId, UserId};
use crate::store::Result;
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;

statements! {
    SELECT_PAIR: Read "SELECT conversation_id FROM direct_by_pair WHERE pair_key = ?";
    RELEASE_PAIR: Conditional "DELETE FROM direct_by_pair WHERE pair_key = ? IF conversation_id = ?";
    CLAIM_PAIR: Conditional "INSERT INTO direct_by_pair (pair_key, conversation_id) VALUES (?, ?) IF NOT EXISTS";
}

impl Participants {
    pub(crate) async fn direct_conversation(
        &self,
        one: &UserId,
        other: &UserId,
    ) -> Result<Option<ConversationId>> {
        self.conversation_of_pair(&pair_key(one, other)).await
    }

    pub(crate) async fn conversation_of_pair(&self, pair: &[u8]) -> Result<Option<ConversationId>> {
        let values = values![pair.to_vec()];
        let id: Option<Uuid> = self.executor.read_cell(&SELECT_PAIR, values).await?;
        Ok(id.map(ConversationId))
    }

    /// Deletes a pair, if it leads to this conversation.
    pub(crate) async fn release_pair(&self, pair: &[u8], id: ConversationId) -> Result<()> {
        let values = values![pair.to_vec(), id];
        let answer = self.executor.write_if::<Row>(&RELEASE_PAIR, values).await;
        answer.map(drop)
    }

    /// Claims a pair for a conversation by a lightweight transaction, and returns the conversation that has it.
    pub(crate) async fn claim_pair(
        &self,
        pair: &[u8],
        id: ConversationId,
    ) -> Result<ConversationId> {
        let taken = self
            .executor
            .write_if::<Row>(&CLAIM_PAIR, values![pair.to_vec(), id])
            .await?;
        if taken.is_none() {
            return Ok(id);
        }
        self.conversation_of_pair(pair)
            .await?
            .ok_or_else(|| unavailable("cannot read a pair that another server has claimed"))
    }
}
