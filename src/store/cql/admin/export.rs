//! Export: users and conversations in the order of their tokens, then the partitions of each conversation.

use super::Admin;
use crate::model::{
    Conversation, ConversationId, Direction, Emoji, Flags, Membership, MessageId, Metadata,
    OrderKey, Profile, Timestamp, UserId,
};
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{non_empty, row_limit, user, values};
use crate::store::cql::message::bucket::id_range::IdRange;
use crate::store::cql::message::conversation::{ConversationColumns, conversation_columns};
use crate::store::{ImportPositions, Result, StoredMessage, activity_to_give};

/// Rows of one read.
const ROWS_MAX: usize = 1_000;

macro_rules! users {
    () => {
        "SELECT user_id, display_name, avatar_url, metadata, last_seen_at FROM users WHERE token(user_id) >= "
    };
}

statements! {
    SCAN_USERS: Read concat!(users!(), "? LIMIT ?");
    SCAN_USERS_FROM: Read concat!(users!(), "token(?) LIMIT ?");
    SCAN_CONVERSATIONS: Read concat!("SELECT ", conversation_columns!(), " FROM conversations WHERE token(conversation_id) >= ? LIMIT ?");
    SCAN_CONVERSATIONS_FROM: Read concat!("SELECT ", conversation_columns!(), " FROM conversations WHERE token(conversation_id) >= token(?) LIMIT ?");
}

type UserColumns = (
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<i64>,
);

impl Admin {
    pub(crate) async fn all_users(
        &self,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Profile)>> {
        let is_after = |row: &UserColumns| after.is_some_and(|after| after.as_str() == row.0);
        let rows = self
            .rows_after(
                (&SCAN_USERS, &SCAN_USERS_FROM),
                after.map(|user| values![user]),
                limit,
                is_after,
            )
            .await?;
        let each = |(name, display_name, avatar_url, metadata, last_seen_at): UserColumns| {
            let last_seen_at = last_seen_at.map(Timestamp::from_micros);
            Ok((
                user("users", &name)?,
                Profile {
                    display_name: non_empty(display_name),
                    avatar_url: non_empty(avatar_url),
                    metadata: non_empty(metadata).map(Metadata::of_stored),
                    last_seen_at,
                },
            ))
        };
        rows.into_iter().map(each).collect()
    }
}

impl Admin {
    /// Skips rows without a kind, which a late write left where no conversation is.
    pub(crate) async fn all_conversations(
        &self,
        mut after: Option<ConversationId>,
        limit: usize,
    ) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
        let statements = (&SCAN_CONVERSATIONS, &SCAN_CONVERSATIONS_FROM);
        let mut found = Vec::with_capacity(limit);
        loop {
            let wanted = (limit - found.len()).min(ROWS_MAX);
            let is_after = |row: &ConversationColumns| after.is_some_and(|after| after.0 == row.id);
            let rows = self
                .rows_after(statements, after.map(|id| values![id]), wanted, is_after)
                .await?;
            let is_last = rows.len() < wanted;
            after = rows
                .last()
                .map_or(after, |row| Some(ConversationId(row.id)));
            for row in &rows {
                let Some(conversation) = row.conversation()? else {
                    continue;
                };
                let activity = row.last_activity.map(Timestamp::from_micros);
                let activity = activity.unwrap_or(conversation.created_at);
                let last = row.last_message()?.map(|last| last.id);
                let activity = activity_to_give(&conversation, last, activity);
                found.push((conversation, activity));
            }
            if is_last || found.len() == limit {
                return Ok(found);
            }
        }
    }
}

impl Admin {
    pub(crate) async fn all_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPositions)>> {
        let participants = self
            .participants
            .stored_participants(conversation, after, limit)
            .await?;
        let each = participants.into_iter().map(async |one| {
            if one.user.is_agent() {
                let positions = ImportPositions::of(&one, OrderKey::MIN, Flags::default());
                return Ok((one.user, one.membership, positions));
            }
            let row = self.inboxes.stored_row(&one.user, conversation).await?;
            let positions = ImportPositions::of(&one, row.read_up_to(), row.flags);
            Ok((one.user, one.membership, positions))
        });
        concurrently(each).await
    }

    /// Messages after an id, the oldest first. Damaged rows are among them.
    pub(crate) async fn all_messages(
        &self,
        conversation: ConversationId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        let rest = after.map_or(IdRange::WHOLE, |id| IdRange::WHOLE.after(id.order_key()));
        self.messages
            .merge(conversation, rest, Direction::Forward, limit)
            .await
    }

    pub(crate) async fn all_reactions(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(Emoji, UserId)>,
        limit: usize,
    ) -> Result<Vec<(Emoji, UserId)>> {
        let mut found = Vec::new();
        let mut position =
            after.map(|(emoji, user)| (emoji.as_str().to_owned(), user.as_str().to_owned()));
        while found.len() < limit {
            let rows = self
                .messages
                .reaction_rows(
                    conversation,
                    message,
                    position.as_ref(),
                    row_limit(ROWS_MAX),
                )
                .await?;
            let is_last = rows.len() < ROWS_MAX;
            position = rows
                .last()
                .map(|(emoji, name, _)| (emoji.clone(), name.clone()));
            for (emoji, name, is_on) in rows {
                if is_on == Some(true) {
                    found.push((Emoji::kept(&emoji), user("reactions_by_message", &name)?));
                }
            }
            if is_last {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }
}
