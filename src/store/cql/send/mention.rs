//! Mentions of edited and deleted messages.
//!
//! An edit that changes mentions adds the old and the new names to a set in the row of the message. After
//! its batch, every edit and deletion reads the message with this set, and settles the rows to the state
//! that it finds. So of two at once, one sees the other, and no row is left of a mention that the message
//! does not have.

use std::collections::BTreeSet;

use super::Sends;
use crate::model::{Change, ConversationId, Message, MessageId, UserId};
use crate::store::Result;
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{set, user, values};
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::content::decode_content;

const TABLE: &str = "messages_by_conversation";
/// Names that the edits of one message may add and remove.
const NAMES_EVER_MAX: usize = 1_000;
/// Rows of one batch.
const BATCH_ROWS_MAX: usize = 64;

statements! {
    ADD_MENTIONED: Write "UPDATE messages_by_conversation USING TIMESTAMP ? SET mentioned = mentioned + ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
    SELECT_MENTIONED: Read "SELECT mentioned FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
    SELECT_SETTLED: Read "SELECT sender_id, content, deleted_at, mentioned, WRITETIME(content), WRITETIME(deleted_at) FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
}

/// The state of a message that its rows follow from.
struct MentionState {
    message: Message,
    /// Names that edits added or removed.
    edited: Vec<Mentioned>,
    /// Write timestamp of the state.
    at: i64,
}

/// The mentions of a message before and after a revision.
pub(super) struct MentionRevision {
    old: BTreeSet<Mentioned>,
    new: BTreeSet<Mentioned>,
}

impl MentionRevision {
    pub(super) fn of(before: &Message, after: &Message) -> Self {
        Self {
            old: Mentioned::of(before).into_iter().collect(),
            new: Mentioned::of(after).into_iter().collect(),
        }
    }

    pub(super) fn changes(&self) -> bool {
        self.old != self.new
    }
}

impl Sends {
    /// Checks that the set of a message's names has room for those of an edit.
    pub(super) async fn check_mentioned_room(
        &self,
        (conversation, message): (ConversationId, MessageId),
        bucket: Bucket,
        revision: &MentionRevision,
    ) -> Result<()> {
        let values = values![conversation, bucket.width.number(), bucket.start, message];
        let names: Option<Vec<String>> = self.executor.read_cell(&SELECT_MENTIONED, values).await?;
        let mut names: BTreeSet<String> = names.into_iter().flatten().collect();
        let more = revision.old.union(&revision.new);
        names.extend(more.map(|one| one.name().to_owned()));
        if names.len() > NAMES_EVER_MAX {
            return Err(unavailable(
                "the mentions of a message were edited too often",
            ));
        }
        Ok(())
    }

    /// Adds the writes of changed mentions to the batch of an edit or a deletion.
    pub(super) fn put_revised_mentions(
        &self,
        writes: &mut Writes,
        message: &Message,
        bucket: Bucket,
        revision: &MentionRevision,
        (change, participants): (&Change, Option<&[UserId]>),
    ) {
        if !revision.changes() {
            return;
        }
        let (conversation, at) = (message.conversation, change.id.moment().micros());
        let names = revision.old.union(&revision.new).map(Mentioned::name);
        let values = values![
            at,
            set(names),
            conversation,
            bucket.width.number(),
            bucket.start,
            message.id
        ];
        writes.push(&ADD_MENTIONED, values);
        for stale in revision.old.difference(&revision.new) {
            writes.delete_mention(conversation, message.id, stale, at);
        }
        let new: Vec<_> = revision.new.iter().cloned().collect();
        writes.put_mentions(message, &new, at);
        if !revision.new.is_subset(&revision.old) {
            self.messages.invalidate_mentions(writes, message);
        }
        if revision.new.contains(&Mentioned::Everyone) {
            for user in participants.into_iter().flatten() {
                writes.put_mentioned_up_to(user, conversation, message.id);
            }
        }
    }

    /// Settles the rows of a message to its present state.
    pub(super) async fn settle_mentions(
        &self,
        message: &Message,
        bucket: Bucket,
        revision: &MentionRevision,
        change: &Change,
    ) -> Result<()> {
        let Some(state) = self.mention_state(message, bucket).await? else {
            return Ok(());
        };
        let present = Mentioned::of(&state.message);
        let is_own = state.at == change.id.moment().micros();
        let is_known = |one: &Mentioned| revision.old.contains(one) || revision.new.contains(one);
        if is_own && state.edited.iter().all(is_known) {
            // The batch has written just these rows.
            return Ok(());
        }
        let mut all: BTreeSet<Mentioned> = present.iter().cloned().collect();
        all.extend(state.edited);
        all.extend(revision.old.union(&revision.new).cloned());
        let all: Vec<_> = all.into_iter().collect();
        for some in all.chunks(BATCH_ROWS_MAX) {
            let mut writes = Writes::logged();
            self.messages
                .invalidate_mentions(&mut writes, &state.message);
            for one in some {
                if present.contains(one) {
                    let one = std::slice::from_ref(one);
                    writes.put_mentions(&state.message, one, state.at);
                } else {
                    let Message {
                        conversation, id, ..
                    } = state.message;
                    writes.delete_mention(conversation, id, one, state.at);
                }
            }
            self.executor.write_all(writes).await?;
        }
        Ok(())
    }

    async fn mention_state(
        &self,
        message: &Message,
        bucket: Bucket,
    ) -> Result<Option<MentionState>> {
        type Columns = (
            Option<String>,
            Option<Vec<u8>>,
            Option<i64>,
            Option<Vec<String>>,
            Option<i64>,
            Option<i64>,
        );
        let values = values![
            message.conversation,
            bucket.width.number(),
            bucket.start,
            message.id
        ];
        let row: Option<Columns> = self.executor.read_one(&SELECT_SETTLED, values).await?;
        let Some((Some(sender), content, deleted_at, mentioned, written_at, deleted_when)) = row
        else {
            return Ok(None);
        };
        let content = match content {
            Some(content) if deleted_at.is_none() => Some(decode_content(&content)?),
            Some(_) | None => None,
        };
        let edited = mentioned.into_iter().flatten();
        let edited = edited.map(|name| Mentioned::from_name(&name));
        let at = written_at
            .max(deleted_when)
            .ok_or_else(|| corrupt(TABLE, "a message has a content or was deleted"))?;
        Ok(Some(MentionState {
            message: Message {
                sender: user(TABLE, &sender)?,
                content,
                ..message.clone()
            },
            edited: edited.collect::<Result<_>>()?,
            at,
        }))
    }
}
