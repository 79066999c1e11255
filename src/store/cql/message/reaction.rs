//! Reactions on the cluster: a register for each user and emoji that ever was on a message. None is ever deleted.

use std::sync::Arc;

use futures_util::future::{join, try_join_all};

use super::bucket::Bucket;
use super::register::REGISTER_TIMESTAMP;
use crate::model::{Change, ConversationId, Emoji, Message, MessageId, Reaction, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::unknown;
use crate::store::cql::driver::executor::{Writes, at_once};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, user};
use crate::store::{Result, WakePlace};

const TABLE: &str = "reactions_by_message";
/// Rows of one read.
const ROWS_MAX: i32 = 1_000;
/// Rows of one write.
const BATCH_ROWS_MAX: usize = 64;

statements! {
    /// The statements of this file.
    Statements {
        set: Write "INSERT INTO reactions_by_message (conversation_id, message_id, emoji, user_id, is_on) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
        mark: Write "UPDATE messages_by_conversation USING TIMESTAMP ? SET has_reactions = ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
        first: Read "SELECT emoji, user_id, is_on FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? LIMIT ?";
        next_users: Read "SELECT emoji, user_id, is_on FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? AND (emoji, user_id) > (?, ?) LIMIT ?";
        next_emoji: Read "SELECT emoji, user_id, is_on FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? AND emoji > ? LIMIT ?";
        one: Read "SELECT is_on FROM reactions_by_message WHERE conversation_id = ? AND message_id = ? AND emoji = ? AND user_id = ?";
    }
}

pub(crate) async fn react(
    inner: &Inner,
    conversation: ConversationId,
    emoji: &Emoji,
    is_on: bool,
    change: &Change,
) -> Result<Option<Arc<Message>>> {
    let Some(line) = inner.line(conversation).await? else { return Ok(None) };
    let guess = line.state().course.placed(change.message);
    let Some((present, bucket)) = inner.seek_message(conversation, change.message, guess).await? else { return Ok(None) };
    if present.deleted_at.is_some() {
        return Ok(Some(Arc::new(present)));
    }
    let mut writes = Writes::logged();
    let values = cells![conversation, change.message, emoji.as_str(), &change.user, is_on, change.id.moment()];
    writes.push(&inner.statements.reaction.set, values);
    if !present.has_reactions {
        let values = cells![change.id.moment(), true, conversation, bucket.width.number(), bucket.start, change.message];
        writes.push(&inner.statements.reaction.mark, values);
    }
    inner.log_change(&mut writes, conversation, change);
    let (kept, woken) = join(inner.cluster.write_all(writes), inner.wake(&WakePlace::Conversation(conversation))).await;
    kept?;
    woken.map_err(unknown)?;
    Ok(Some(Arc::new(Message { has_reactions: true, ..present })))
}

pub(crate) async fn reactions(inner: &Inner, viewer: &UserId, messages: &[(ConversationId, MessageId)]) -> Result<Vec<Vec<Reaction>>> {
    let each = async |(conversation, message): &(ConversationId, MessageId)| of_message(inner, viewer, *conversation, *message).await;
    at_once(messages.iter().map(each).collect()).await
}

/// A row as it comes back. One without a value is none.
pub(crate) type Columns = (String, String, Option<bool>);

impl Inner {
    /// The reactions to a message behind an emoji and a name, on or off.
    pub(crate) async fn reaction_rows(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(String, String)>,
        limit: i32,
    ) -> Result<Vec<Columns>> {
        let (cluster, statements) = (&self.cluster, &self.statements.reaction);
        match after {
            None => cluster.read(&statements.first, cells![conversation, message, limit]).await,
            Some((emoji, name)) => {
                let values = cells![conversation, message, emoji.as_str(), name.as_str(), limit];
                cluster.read(&statements.next_users, values).await
            }
        }
    }

    /// Whether a user ever reacted with this, whatever became of it.
    pub(crate) async fn has_reacted(&self, conversation: ConversationId, message: MessageId, emoji: &Emoji, user: &UserId) -> Result<bool> {
        let values = cells![conversation, message, emoji.as_str(), user];
        let row: Option<(Option<bool>,)> = self.cluster.read_one(&self.statements.reaction.one, values).await?;
        Ok(row.is_some_and(|(is_on,)| is_on.is_some()))
    }

    /// Reactions that were on before anybody reacted here. The message says so first: it may say more than is true, and never less.
    pub(crate) async fn put_imported_reactions(
        &self,
        id: ConversationId,
        message: MessageId,
        bucket: Bucket,
        reactions: &[(&Emoji, &UserId)],
    ) -> Result<()> {
        let values = cells![REGISTER_TIMESTAMP, true, id, bucket.width.number(), bucket.start, message];
        self.cluster.write(&self.statements.reaction.mark, values).await?;
        for piece in reactions.chunks(BATCH_ROWS_MAX) {
            let mut writes = Writes::of_one_partition();
            for (emoji, user) in piece {
                writes.push(&self.statements.reaction.set, cells![id, message, emoji.as_str(), *user, true, REGISTER_TIMESTAMP]);
            }
            self.cluster.write_all(writes).await?;
        }
        Ok(())
    }
}

async fn of_message(inner: &Inner, viewer: &UserId, conversation: ConversationId, message: MessageId) -> Result<Vec<Reaction>> {
    let (cluster, statements) = (&inner.cluster, &inner.statements.reaction);
    let mut tally = Tally::default();
    let mut rows = inner.reaction_rows(conversation, message, None, ROWS_MAX).await?;
    loop {
        let is_last = rows.len() < ROWS_MAX as usize;
        let place = rows.last().map(|(emoji, name, _)| (emoji.clone(), name.clone()));
        for row in rows {
            tally.take(viewer, row)?;
        }
        let Some((emoji, name)) = place.filter(|_| !is_last) else { break };
        // The others of one that is full are not read.
        rows = if tally.is_full() {
            cluster.read(&statements.next_emoji, cells![conversation, message, emoji, ROWS_MAX]).await?
        } else {
            inner.reaction_rows(conversation, message, Some(&(emoji, name)), ROWS_MAX).await?
        };
    }
    let mut reactions = tally.reactions;
    let unseen: Vec<_> = reactions.iter_mut().filter(|reaction| reaction.is_capped && !reaction.has_viewer).collect();
    try_join_all(unseen.into_iter().map(async |reaction| {
        let values = cells![conversation, message, reaction.emoji.as_str(), viewer];
        let row: Option<(Option<bool>,)> = cluster.read_one(&statements.one, values).await?;
        reaction.has_viewer = row.is_some_and(|(is_on,)| is_on == Some(true));
        Ok(())
    }))
    .await?;
    Ok(reactions)
}

/// Reactions as they are counted, emoji by emoji.
#[derive(Default)]
struct Tally {
    reactions: Vec<Reaction>,
    /// Rows of the last emoji.
    looked_at: usize,
}

impl Tally {
    fn is_full(&self) -> bool {
        self.reactions.last().is_some_and(|reaction| reaction.is_capped)
    }

    fn take(&mut self, viewer: &UserId, (emoji, name, is_on): Columns) -> Result<()> {
        let is_new = self.reactions.last().is_none_or(|last| last.emoji.as_str() != emoji);
        if is_new {
            let emoji = Emoji::kept(&emoji);
            self.reactions.push(Reaction { emoji, count: 0, is_capped: false, has_viewer: false, users: Vec::new() });
            self.looked_at = 0;
        } else if self.is_full() {
            return Ok(());
        }
        let reaction = self.reactions.last_mut().expect("one was pushed where there was none");
        self.looked_at += 1;
        if is_on == Some(true) {
            reaction.count += 1;
            reaction.has_viewer |= name == viewer.as_str();
            if reaction.users.len() < Reaction::USERS_MAX {
                reaction.users.push(user(TABLE, &name)?);
            }
        }
        reaction.is_capped = reaction.count == Reaction::COUNT_MAX || self.looked_at == Reaction::ROWS_MAX;
        Ok(())
    }
}
