//! Creation of conversations, in three steps.
//!
//! A lightweight transaction claims the pair of a direct conversation, another one its row; then one batch writes the participants. If a
//! server dies in between, the conversation has no participants, and the next attempt to create it completes it.

use futures_util::future::try_join;

use super::Sends;
use crate::model::id::pair_key;
use crate::model::{Conversation, HistorySettings, Membership, OutboxEvent, UserId};
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::inbox::writes::InboxChangeKind;
use crate::store::cql::participant::roster::Roster;
use crate::store::rules::pair;
use crate::store::{Created, Error, NewConversation, Result};

const TABLE: &str = "conversations";
/// Participants that fit into one batch with their inbox entries.
const BATCH_ENTRIES_MAX: usize = 16;
/// Participants that fit into one batch without their inbox entries.
const BATCH_ROWS_MAX: usize = 100;

/// The pair of a direct conversation. One participant makes a pair with themselves.
fn pair_of(new: &NewConversation) -> Option<Vec<u8>> {
    pair::of_new(new).map(|(one, other)| pair_key(one, other))
}

fn created(new: &NewConversation) -> Vec<OutboxEvent> {
    vec![OutboxEvent::conversation_created(new.change)]
}

impl Sends {
    pub(crate) async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        let mut new = new.clone();
        if let Some(pair) = pair_of(&new) {
            // A pair without a conversation was left by a server that died. The conversation is created now, under its id.
            new.conversation.id = self
                .participants
                .claim_pair(&pair, new.conversation.id)
                .await?;
        }
        let Conversation {
            id,
            kind,
            input_hash,
            ..
        } = new.conversation;
        if self
            .messages
            .claim_conversation(&new.conversation, new.change)
            .await?
        {
            self.write_participants(&new).await?;
            return Ok(Created::New);
        }
        let (found, seen) =
            try_join(self.messages.conversation(id), self.participants.roster(id)).await?;
        let found = found.ok_or_else(|| corrupt(TABLE, "a claimed conversation has a row"))?;
        // The same input has the same participants and the same name.
        let is_same =
            found.conversation.kind == kind && found.conversation.input_hash == input_hash;
        if let (None, Some(created_under), true) = (seen.bytes, found.created_under, is_same) {
            let created_at = found.conversation.created_at;
            let new = NewConversation {
                conversation: Conversation {
                    created_at,
                    ..new.conversation
                },
                change: created_under,
                ..new
            };
            self.write_participants(&new).await?;
            // No other server publishes it.
            if let Some(handler) = self.completions.handler() {
                let users = new.participants.iter().map(|(user, _)| user.clone());
                handler.on_creation_completed(id, created_under, users.collect());
            }
            let found = self
                .messages
                .conversation(id)
                .await?
                .ok_or_else(|| corrupt(TABLE, "a conversation that was there"))?;
            return Ok(Created::Existing(found.conversation));
        }
        Ok(Created::Existing(found.conversation))
    }

    /// Writes the head and the participants of a conversation that has its row: entries first, so that no participant lacks one.
    async fn write_participants(&self, new: &NewConversation) -> Result<()> {
        let NewConversation {
            conversation,
            participants,
            change,
            profile,
        } = new;
        let id = conversation.id;
        let is_large = conversation.is_large_with(participants.len() as u64);
        let is_one_batch = participants.len() <= BATCH_ENTRIES_MAX && !is_large;
        let memberships: Vec<_> = participants
            .iter()
            .map(|(user, role)| (user, Membership::joined(*role)))
            .collect();

        let mut head = Writes::logged();
        head.put_head(id, None, Some(*change), Some(conversation.created_at));
        if let Some(name) = &conversation.name {
            head.put_name(id, name, change.moment());
        }
        if is_large {
            head.put_is_large(id);
        }
        let at = change.moment().micros();
        if conversation.history != HistorySettings::default() {
            let history = &conversation.history;
            head.put_history(id, history, at);
        }
        head.put_first_profile(id, profile, at);
        let roster = Roster::of(
            conversation.kind,
            Some(*change),
            memberships
                .iter()
                .map(|(user, membership)| (*user, membership)),
        );
        if is_one_batch {
            memberships.iter().for_each(|(user, membership)| {
                self.put_first_entry(&mut head, new, user, membership, false)
            });
            memberships
                .iter()
                .for_each(|(user, membership)| head.put_first_membership(id, user, membership));
            head.put_first_roster(id, Some(*change), roster.encode());
            let row = self.outbox.row(id, || created(new));
            self.outbox.write_all(head, row).await?;
        } else {
            // If one batch fails, others may be stored: the outcome of the whole is unknown.
            self.write_in_batches(new, &memberships, head, &roster, is_large)
                .await
                .map_err(Error::after_write)?;
        }
        Ok(())
    }

    /// Writes participants that do not fit into one batch: all entries, then the head of the conversation, then the memberships.
    async fn write_in_batches(
        &self,
        new: &NewConversation,
        memberships: &[(&UserId, Membership)],
        head: Writes,
        roster: &Roster,
        is_large: bool,
    ) -> Result<()> {
        let id = new.conversation.id;
        let entries = memberships.chunks(BATCH_ENTRIES_MAX).map(|piece| {
            let mut writes = Writes::logged();
            piece.iter().for_each(|(user, membership)| {
                self.put_first_entry(&mut writes, new, user, membership, is_large)
            });
            self.executor.write_all(writes)
        });
        concurrently(entries).await?;
        self.executor.write_all(head).await?;
        let mut pieces = memberships.chunks(BATCH_ROWS_MAX).peekable();
        while let Some(piece) = pieces.next() {
            let is_last = pieces.peek().is_none();
            let row = if is_last {
                self.outbox.row(id, || created(new))
            } else {
                None
            };
            let mut writes = match row {
                Some(_) => Writes::logged(),
                None => Writes::of_one_partition(),
            };
            piece
                .iter()
                .for_each(|(user, membership)| writes.put_first_membership(id, user, membership));
            // The last batch has the roster: with it the conversation is created.
            if is_last {
                writes.put_first_roster(id, Some(new.change), roster.encode());
            }
            self.outbox.write_all(writes, row).await?;
        }
        Ok(())
    }

    /// Adds the first inbox entry of a participant.
    fn put_first_entry(
        &self,
        writes: &mut Writes,
        new: &NewConversation,
        user: &UserId,
        membership: &Membership,
        is_large: bool,
    ) {
        let (id, activity, created) = (
            new.conversation.id,
            new.conversation.created_at,
            new.change.moment().micros(),
        );
        writes.put_entry_membership(user, id, membership, created);
        writes.put_entry(user, id, None, Some(activity), None);
        if is_large {
            writes.put_large(user, id, created);
        } else {
            writes.put_hint(user, id, activity);
        }
        writes.put_inbox_change(user, id, new.change, InboxChangeKind::ConversationMade);
    }
}
