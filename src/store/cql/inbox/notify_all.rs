//! Users who chose the notification level ALL for a conversation: an index of the level in their entries.
//!
//! It is written in the batch of the level, with the same timestamp. A reader looks at the level too, so an entry that
//! concurrent changes leave behind costs a read and nothing else.

use super::Inboxes;
use crate::model::{ConversationId, NotificationLevel, UserId};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{row_limit, user, values};

const TABLE: &str = "notify_all_by_conversation";

statements! {
    INSERT_NOTIFY_ALL: Write "INSERT INTO notify_all_by_conversation (conversation_id, user_id) VALUES (?, ?) USING TIMESTAMP ?";
    DELETE_NOTIFY_ALL: Write "DELETE FROM notify_all_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND user_id = ?";
    SELECT_NOTIFY_ALL: Read "SELECT user_id FROM notify_all_by_conversation WHERE conversation_id = ? AND user_id > ? LIMIT ?";
}

impl Inboxes {
    pub(crate) async fn notified_of_all(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let after = after.map_or("", UserId::as_str);
        let values = values![conversation, after, row_limit(limit)];
        let rows: Vec<(String,)> = self.executor.read(&SELECT_NOTIFY_ALL, values).await?;
        rows.into_iter().map(|(name,)| user(TABLE, &name)).collect()
    }
}

impl Writes {
    /// Adds the change of a level, written at a microsecond, to a batch.
    pub(crate) fn put_notify_all(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        (before, after): (Option<NotificationLevel>, Option<NotificationLevel>),
        at: i64,
    ) {
        let is_all = |level| level == Some(NotificationLevel::All);
        if is_all(after) && !user.is_agent() {
            self.push(&INSERT_NOTIFY_ALL, values![conversation, user, at]);
        } else if is_all(before) {
            self.push(&DELETE_NOTIFY_ALL, values![at, conversation, user]);
        }
    }
}
