//! Reactions: a row for each user and emoji of a message. One that is taken back is deleted, so that no reader reads its row, and
//! has a row in a table of ended ones for a while, so that no import brings it back. Readers pass over the tombstones, of which a
//! user leaves a few to a message at most (`chat::write`).
//!
//! Version 0.2 leaves a row with the value false behind instead, which expires.

use futures_util::future::try_join_all;

use super::Messages;
use super::bucket::Bucket;
use crate::model::{
    Change, ConversationId, Emoji, Message, MessageId, Reaction, Timestamp, UserId,
};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, list, row_limit, user, values};

const TABLE: &str = "reactions_by_message";
/// Rows of one read.
const ROWS_MAX: i32 = 1_000;
/// TTL of the end of a reaction, in seconds.
const END_SECONDS: i32 = (Reaction::END_LIFETIME_MICROS / 1_000_000) as i32;
/// Rows of one write.
const BATCH_ROWS_MAX: usize = 64;

statements! {
    INSERT_REACTION: Write "INSERT INTO reactions_by_message (conversation_id, message_id, emoji, user_id, is_on) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
    UPDATE_HAS_REACTIONS: Write "UPDATE messages_by_conversation USING TIMESTAMP ? SET has_reactions = ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
    SELECT_FIRST_REACTIONS: Read "SELECT emoji, user_id, is_on FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? LIMIT ?";
    SELECT_NEXT_REACTIONS: Read "SELECT emoji, user_id, is_on FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? AND (emoji, user_id) > (?, ?) LIMIT ?";
    SELECT_NEXT_EMOJI: Read "SELECT emoji, user_id, is_on FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? AND emoji > ? LIMIT ?";
    SELECT_REACTIONS_BY: Read "SELECT emoji FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? AND emoji IN ? AND user_id = ?";
    DELETE_REACTION: Write "DELETE FROM reactions_by_message USING TIMESTAMP ? WHERE conversation_id = ? AND message_id = ? AND emoji = ? AND user_id = ?";
    INSERT_ENDED_REACTION: Write "INSERT INTO ended_reactions_by_message (conversation_id, message_id, user_id, emoji) VALUES (?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?";
    SELECT_ENDED_REACTION: Read "SELECT emoji FROM ended_reactions_by_message WHERE conversation_id = ? AND message_id = ? AND user_id = ? AND emoji = ?";
    SELECT_ENDED_REACTIONS: Read "SELECT emoji FROM ended_reactions_by_message WHERE conversation_id = ? AND message_id = ? AND user_id = ? LIMIT ?";
    DELETE_ENDED_REACTIONS: Write "DELETE FROM ended_reactions_by_message USING TIMESTAMP ? WHERE conversation_id = ? AND message_id = ? AND user_id = ?";
    SELECT_REACTION: Read "SELECT is_on FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? AND emoji = ? AND user_id = ?";
}

impl Messages {
    pub(crate) async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>> {
        let each = async |(conversation, message): &(ConversationId, MessageId)| {
            self.reactions_to(viewer, *conversation, *message).await
        };
        concurrently(messages.iter().map(each)).await
    }
}

impl Messages {
    /// Adds the deletion of all reactions of a user to a message, those that are off included.
    pub(crate) async fn delete_reactions_by(
        &self,
        writes: &mut Writes,
        (conversation, message): (ConversationId, MessageId),
        by: &UserId,
        at: Timestamp,
    ) -> Result<()> {
        let kinds = self.reactions_to(by, conversation, message).await?;
        let kinds = kinds
            .iter()
            .map(|reaction| reaction.emoji.as_str().to_owned());
        let values = values![conversation, message, list(kinds), by];
        let own: Vec<(String,)> = self.executor.read(&SELECT_REACTIONS_BY, values).await?;
        for (emoji,) in own {
            let values = values![at, conversation, message, emoji, by];
            writes.push(&DELETE_REACTION, values);
        }
        writes.push(
            &DELETE_ENDED_REACTIONS,
            values![at, conversation, message, by],
        );
        Ok(())
    }
}

/// A row: emoji, username, and whether the reaction is on. A row without a value is none.
pub(crate) type ReactionColumns = (String, String, Option<bool>);

impl Messages {
    /// The reactions to a message after an emoji and a username, on or off.
    pub(crate) async fn reaction_rows(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(String, String)>,
        limit: i32,
    ) -> Result<Vec<ReactionColumns>> {
        match after {
            None => {
                self.executor
                    .read(
                        &SELECT_FIRST_REACTIONS,
                        values![conversation, message, limit],
                    )
                    .await
            }
            Some((emoji, name)) => {
                let values = values![conversation, message, emoji.as_str(), name.as_str(), limit];
                self.executor.read(&SELECT_NEXT_REACTIONS, values).await
            }
        }
    }

    /// Whether a user has reacted with an emoji, or took it back lately.
    pub(crate) async fn has_reacted(
        &self,
        conversation: ConversationId,
        message: MessageId,
        emoji: &Emoji,
        user: &UserId,
    ) -> Result<bool> {
        let values = values![conversation, message, emoji.as_str(), user];
        let is_on: Option<bool> = self.executor.read_cell(&SELECT_REACTION, values).await?;
        if is_on.is_some() {
            return Ok(true);
        }
        let values = values![conversation, message, user, emoji.as_str()];
        let ended = self
            .executor
            .read_one::<(String,)>(&SELECT_ENDED_REACTION, values)
            .await?;
        Ok(ended.is_some())
    }

    /// How many kinds of reactions a user took back lately. Each left a tombstone in the rows that readers scan.
    pub(crate) async fn ended_reaction_count(
        &self,
        user: &UserId,
        (conversation, message): (ConversationId, MessageId),
        limit: usize,
    ) -> Result<usize> {
        let values = values![conversation, message, user, row_limit(limit)];
        let rows: Vec<(String,)> = self.executor.read(&SELECT_ENDED_REACTIONS, values).await?;
        Ok(rows.len())
    }

    /// Imports reactions, with the lowest timestamp. The message is marked first: a mark without reactions does no harm, the reverse does.
    pub(crate) async fn put_imported_reactions(
        &self,
        id: ConversationId,
        message: MessageId,
        bucket: Bucket,
        reactions: &[(&Emoji, &UserId)],
    ) -> Result<()> {
        let values = values![
            REGISTER_TIMESTAMP,
            true,
            id,
            bucket.width.number(),
            bucket.start,
            message
        ];
        self.executor.write(&UPDATE_HAS_REACTIONS, values).await?;
        for piece in reactions.chunks(BATCH_ROWS_MAX) {
            let mut writes = Writes::of_one_partition();
            for (emoji, user) in piece {
                writes.push(
                    &INSERT_REACTION,
                    values![id, message, emoji.as_str(), *user, true, REGISTER_TIMESTAMP],
                );
            }
            self.executor.write_all(writes).await?;
        }
        Ok(())
    }

    async fn reactions_to(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<Vec<Reaction>> {
        let mut tally = ReactionTally::default();
        let mut rows = self
            .reaction_rows(conversation, message, None, ROWS_MAX)
            .await?;
        loop {
            let is_last = rows.len() < ROWS_MAX as usize;
            let position = rows
                .last()
                .map(|(emoji, name, _)| (emoji.clone(), name.clone()));
            for row in rows {
                tally.take(viewer, row)?;
            }
            let Some((emoji, name)) = position.filter(|_| !is_last) else {
                break;
            };
            // The remaining rows of a capped emoji are skipped.
            rows = if tally.is_full() {
                self.executor
                    .read(
                        &SELECT_NEXT_EMOJI,
                        values![conversation, message, emoji, ROWS_MAX],
                    )
                    .await?
            } else {
                self.reaction_rows(conversation, message, Some(&(emoji, name)), ROWS_MAX)
                    .await?
            };
        }
        let mut reactions = tally.reactions;
        let unseen: Vec<_> = reactions
            .iter_mut()
            .filter(|reaction| reaction.is_capped && !reaction.has_viewer)
            .collect();
        try_join_all(unseen.into_iter().map(async |reaction| {
            let values = values![conversation, message, reaction.emoji.as_str(), viewer];
            let is_on = self.executor.read_cell(&SELECT_REACTION, values).await?;
            reaction.has_viewer = is_on == Some(true);
            Ok(())
        }))
        .await?;
        Ok(reactions)
    }
}

/// Reactions while they are counted, emoji by emoji.
#[derive(Default)]
struct ReactionTally {
    reactions: Vec<Reaction>,
    /// Rows of the last emoji.
    examined: usize,
}

impl ReactionTally {
    fn is_full(&self) -> bool {
        self.reactions
            .last()
            .is_some_and(|reaction| reaction.is_capped)
    }

    fn take(&mut self, viewer: &UserId, (emoji, name, is_on): ReactionColumns) -> Result<()> {
        let is_new = self
            .reactions
            .last()
            .is_none_or(|last| last.emoji.as_str() != emoji);
        if is_new {
            let emoji = Emoji::kept(&emoji);
            self.reactions.push(Reaction {
                emoji,
                count: 0,
                is_capped: false,
                has_viewer: false,
                users: Vec::new(),
            });
            self.examined = 0;
        } else if self.is_full() {
            return Ok(());
        }
        let reaction = self
            .reactions
            .last_mut()
            .expect("the first row of an emoji pushes one");
        self.examined += 1;
        if is_on == Some(true) {
            reaction.count += 1;
            reaction.has_viewer |= name == viewer.as_str();
            if reaction.users.len() < Reaction::USERS_MAX {
                reaction.users.push(user(TABLE, &name)?);
            }
        }
        reaction.is_capped =
            reaction.count == Reaction::COUNT_MAX || self.examined == Reaction::ROWS_MAX;
        Ok(())
    }
}

impl Writes {
    /// Turns a reaction on or off, and marks the message as one that has reactions.
    pub(crate) fn put_reaction(
        &mut self,
        message: &Message,
        bucket: Bucket,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) {
        let (conversation, at) = (message.conversation, change.id.moment());
        let (id, emoji, user) = (message.id, emoji.as_str(), &change.user);
        if is_on {
            let values = values![conversation, id, emoji, user, true, at];
            self.push(&INSERT_REACTION, values);
        } else {
            let values = values![at, conversation, id, emoji, user];
            self.push(&DELETE_REACTION, values);
            let values = values![conversation, id, user, emoji, at, END_SECONDS];
            self.push(&INSERT_ENDED_REACTION, values);
        }
        if !message.has_reactions {
            let values = values![
                at,
                true,
                conversation,
                bucket.width.number(),
                bucket.start,
                message.id
            ];
            self.push(&UPDATE_HAS_REACTIONS, values);
        }
    }
}
