//! Large conversations of a user: inboxes merge in their heads, as a send to one writes only the sender's entry.

use futures_util::future::try_join_all;
use uuid::Uuid;

use super::Inboxes;
use super::row::{PIECE, PIECES_AT_ONCE};
use crate::model::{Conversation, ConversationId, UserId};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, values};

/// Rows of one read, which are all that is listed.
const ROWS_MAX: i32 = Conversation::LARGE_LISTED_MAX as i32;

statements! {
    SELECT_LARGE: Read "SELECT conversation_id FROM large_conversations_by_user WHERE user_id = ? LIMIT ?";
    SELECT_LARGE_AMONG: Read "SELECT conversation_id FROM large_conversations_by_user WHERE user_id = ? AND conversation_id IN ?";
    INSERT_LARGE: Write "INSERT INTO large_conversations_by_user (user_id, conversation_id) VALUES (?, ?) USING TIMESTAMP ?";
    DELETE_LARGE: Write "DELETE FROM large_conversations_by_user USING TIMESTAMP ? WHERE user_id = ? AND conversation_id = ?";
}

impl Inboxes {
    /// The listed large conversations of a user. The list may still have some that the user has left.
    pub(super) async fn listed_large(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        let rows: Vec<(Uuid,)> = self
            .executor
            .read(&SELECT_LARGE, values![user, ROWS_MAX])
            .await?;
        Ok(rows.into_iter().map(|(id,)| ConversationId(id)).collect())
    }

    pub(crate) async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        if user.is_agent() {
            return Ok(Vec::new());
        }
        let listed = self.listed_large(user).await?;
        let rows = self.own_rows(user, &listed).await?;
        Ok(listed
            .into_iter()
            .filter(|conversation| rows.contains_key(conversation))
            .collect())
    }

    /// The listed large conversations among some.
    pub(crate) async fn large_among(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<ConversationId>> {
        let mut found = Vec::new();
        let pieces: Vec<_> = conversations.chunks(PIECE).collect();
        for pieces in pieces.chunks(PIECES_AT_ONCE) {
            let reads = pieces.iter().map(|piece| {
                let values = values![user, list(piece.iter().copied())];
                self.executor.read::<(Uuid,)>(&SELECT_LARGE_AMONG, values)
            });
            found.extend(
                try_join_all(reads)
                    .await?
                    .into_iter()
                    .flatten()
                    .map(|(id,)| ConversationId(id)),
            );
        }
        Ok(found)
    }
}

impl Writes {
    pub(crate) fn put_large(&mut self, user: &UserId, id: ConversationId, at: i64) {
        if user.is_agent() {
            return;
        }
        self.push(&INSERT_LARGE, values![user, id, at]);
    }

    pub(crate) fn delete_large(&mut self, user: &UserId, id: ConversationId, at: i64) {
        self.push(&DELETE_LARGE, values![at, user, id]);
    }
}
