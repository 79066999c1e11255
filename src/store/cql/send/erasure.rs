//! Erasure of a user from messages, and from the participants of a conversation.

use scylla::value::Row;

use super::Sends;
use super::pending_change::PendingChange;
use crate::model::id::pair_key;
use crate::model::{
    ChangeId, ConversationId, ConversationKind, MessageId, MessageKind, Pin, UserId,
};
use crate::store::Result;
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;
use crate::store::cql::participant::present;
use crate::store::rules::pair;
use crate::store::rules::pin_list::PinList;

/// Attempts while other servers change the same membership.
const TRIES_MAX: usize = 8;

statements! {
    UPDATE_SENDER: Write "UPDATE messages_by_conversation USING TIMESTAMP ? SET sender_id = ?, client_key = ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
    FORGET_KEY: Conditional "DELETE FROM sends_by_key WHERE conversation_id = ? AND sender_id = ? AND key = ? IF message_id = ?";
    FORGET_PARTICIPANT: Conditional "DELETE FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?";
    FORGET_CHANGE: Conditional "UPDATE participants_by_conversation SET roster = ?, pending = ?, present = ? WHERE conversation_id = ? IF roster = ?";
}

impl Sends {
    pub(crate) async fn erase_messages(
        &self,
        conversation: ConversationId,
        user: &UserId,
        messages: &[MessageId],
        change: ChangeId,
    ) -> Result<()> {
        let each = messages
            .iter()
            .map(|message| self.erase_message(conversation, user, *message, change));
        let renamed = concurrently(each).await?;
        let renamed: Vec<_> = renamed.into_iter().flatten().collect();
        if renamed.is_empty() {
            return Ok(());
        }
        self.messages.list_pins(conversation, &renamed).await
    }

    /// Returns the pin of the message, if it is to be listed under another name.
    async fn erase_message(
        &self,
        conversation: ConversationId,
        user: &UserId,
        id: MessageId,
        change: ChangeId,
    ) -> Result<Option<(MessageId, Pin)>> {
        let found = self.messages.find_message(conversation, id, None).await?;
        let Some((message, bucket)) = found else {
            return Ok(None);
        };
        let at = change.moment();
        let (mut writes, mut renamed) = (Writes::logged(), None);
        if message.has_reactions {
            self.messages
                .delete_reactions_by(&mut writes, (conversation, id), user, at)
                .await?;
        }
        if let Some(erased) = message.without_name(user) {
            if message.sender == *user {
                if let Some(key) = &message.client_key {
                    let values = values![conversation, user, key.as_str(), id];
                    self.executor.write_if::<Row>(&FORGET_KEY, values).await?;
                }
                // An empty key, not a null: a page full of erased messages must not be full of tombstones.
                let values = values![
                    at,
                    &erased.sender,
                    "",
                    conversation,
                    bucket.width.number(),
                    bucket.start,
                    id
                ];
                writes.push(&UPDATE_SENDER, values);
            }
            if erased.content != message.content && erased.kind == MessageKind::System {
                writes.put_content(&erased, bucket, at);
            }
            if let (Some(before), Some(pin)) = (&message.pin, &erased.pin)
                && before != pin
            {
                let later = pin.change.moment().micros() + 1;
                writes.put_pin_at((conversation, id), bucket, pin, later);
                renamed = Some((id, (**pin).clone()));
            }
        }
        if !writes.is_empty() {
            self.executor.write_all(writes).await?;
        }
        Ok(renamed)
    }

    /// The entry goes last: it is by this row that the conversation is found again.
    pub(crate) async fn erase_participant(
        &self,
        conversation: ConversationId,
        user: &UserId,
        change: ChangeId,
    ) -> Result<()> {
        let at = change.moment();
        let found = self.messages.conversation(conversation).await?;
        let Some(found) = found else {
            return Err(corrupt("conversations", "an entry of no conversation"));
        };
        if found.conversation.kind == ConversationKind::Direct {
            let all = self.participants.memberships(conversation).await?;
            let names: Vec<_> = all.keys().collect();
            if let Some((one, other)) = pair::of_stored(conversation, &names) {
                self.participants
                    .release_pair(&pair_key(one, other), conversation)
                    .await?;
            }
        }
        self.erase_pins(conversation, user).await?;
        if found.conversation.created_by.as_ref() == Some(user) {
            self.messages
                .replace_creator(conversation, user, &UserId::erased())
                .await?;
        }
        let mut writes = Writes::logged();
        writes.delete_mentions(user, conversation, at);
        self.executor.write_all(writes).await?;
        self.participants.forget_description(conversation);
        self.forget_participant(conversation, user, change).await?;
        let mut entry = Writes::logged();
        entry.delete_entry(user, conversation, at);
        self.executor.write_all(entry).await
    }

    /// Pins by the user that no read of a message shows: those that have ended, and those of messages that were deleted since.
    async fn erase_pins(&self, conversation: ConversationId, user: &UserId) -> Result<()> {
        for (message, mut pin) in self.messages.pin_registers(conversation).await? {
            if pin.by != *user {
                continue;
            }
            pin.by = UserId::erased();
            let key = (conversation, message);
            let later = pin.change.moment().micros() + 1;
            let found = self
                .messages
                .find_message(conversation, message, None)
                .await?;
            let mut writes = Writes::logged();
            match found {
                Some((_, bucket)) => {
                    writes.put_pin_at(key, bucket, &pin, later);
                }
                None => writes.put_listed_pin(key, &pin, later),
            }
            self.executor.write_all(writes).await?;
        }
        let erase = |list: &mut PinList| list.erase(user);
        self.messages.change_pin_list(conversation, erase).await
    }

    /// Deletes the row of a participant who has left, and the last change of the membership, which may name
    /// the user. The roster stays as it is.
    async fn forget_participant(
        &self,
        id: ConversationId,
        user: &UserId,
        change: ChangeId,
    ) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let Some((_, seen)) = self.settled(id).await? else {
                return Err(corrupt("conversations", "a conversation that was there"));
            };
            if !seen.is_settled() {
                return Err(unavailable("a conversation is becoming large"));
            }
            let Some(roster) = &seen.bytes else {
                return Ok(());
            };
            // Without the version of the roster, it counts as a change that nobody knows.
            let forgotten = PendingChange::forgotten(id, change).encode();
            let mut writes = Writes::of_one_partition();
            // A cell of an earlier roster may name the user.
            let names = seen.present.as_ref();
            let present = names.and_then(|names| present::encode(roster, names.iter()));
            let values = values![
                roster.clone(),
                forgotten,
                present.unwrap_or(present::VOID),
                id,
                roster.clone()
            ];
            writes.push(&FORGET_CHANGE, values);
            writes.push(&FORGET_PARTICIPANT, values![id, user]);
            if self.executor.write_all_if::<Row>(writes).await?.is_none() {
                return Ok(());
            }
        }
        Err(unavailable(
            "the participants of a conversation change all the time",
        ))
    }
}
