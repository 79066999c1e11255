//! Writes of an import to one conversation.
//!
//! The order makes an aborted import repeatable: a participant is written after their entry, the head last of all. Importing the same rows
//! again completes whatever is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use scylla::value::Row;

use super::Admin;
use super::import::ImportedConversation;
use crate::model::{
    ActPosition, AppKeyClaim, Conversation, ConversationId, Emoji, HistorySettings, InputHash,
    Membership, Message, MessageId, Timestamp, UserId,
};
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, values};
use crate::store::cql::inbox::flags::encode_level;
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::cql::inbox::writes::{encode_copy, slot_of};
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::bucket::last_message::LastMessage;
use crate::store::cql::message::conversation::kind_number;
use crate::store::{ImportPositions, Result};

/// The write timestamp of an activity that stands in for an unknown one. Any known activity wins over it, also an older one.
const FALLBACK_TIMESTAMP: i64 = REGISTER_TIMESTAMP - 1;
const BATCH_ROWS_MAX: usize = 64;

statements! {
    INSERT_CONVERSATION: Write "INSERT INTO conversations (conversation_id, kind, name, created_at, created_by, input_hash) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    UPDATE_ACTIVITY: Write "UPDATE conversations USING TIMESTAMP ? SET last_activity = ? WHERE conversation_id = ?";
    IMPORT_ENTRY: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET membership = ?, read_up_to = ?, is_muted = ?, is_pinned = ?, archived_at = ?, level = ? WHERE user_id = ? AND conversation_id = ?";
}

/// The head of a conversation after an import.
struct ImportedHead {
    last: Option<LastMessage>,
    activity: Timestamp,
    is_fallback: bool,
    /// Whether the import advances the head, and with it the entries of present participants.
    is_advanced: bool,
}

impl ImportedHead {
    fn of(
        imported: &ImportedConversation,
        conversation: &Conversation,
        placed: &[(Arc<Message>, Bucket)],
    ) -> Self {
        let found = placed
            .iter()
            .chain(&imported.newest_present)
            .max_by_key(|(message, _)| message.id);
        let found = found.map(|(message, bucket)| LastMessage {
            id: message.id,
            bucket: *bucket,
            sender: message.sender.clone(),
        });
        let before = &imported.head;
        let is_advanced = found
            .as_ref()
            .is_some_and(|found| before.last.as_ref().is_none_or(|last| last.id < found.id));
        let last = if is_advanced {
            found
        } else {
            before.last.clone()
        };
        let known = before
            .last_activity
            .filter(|_| !before.is_fallback)
            .max(last.as_ref().map(|last| last.id.moment()));
        let fallback = before.last_activity.unwrap_or(conversation.created_at);
        let activity = known.unwrap_or(fallback);
        Self {
            last,
            activity,
            is_fallback: known.is_none(),
            is_advanced,
        }
    }
}

/// The participants from before this import.
fn present_participants(imported: &ImportedConversation) -> impl Iterator<Item = &UserId> {
    let is_added = |user: &UserId| imported.added.iter().any(|(added, ..)| added == user);
    let joined = imported
        .participants
        .iter()
        .filter(|(_, membership)| membership.is_joined());
    joined
        .filter(move |(user, _)| !is_added(user))
        .map(|(user, _)| user)
}

impl Admin {
    pub(super) async fn write_import(&self, imported: &ImportedConversation) -> Result<()> {
        let Some(conversation) = &imported.conversation else {
            return Ok(());
        };
        let id = conversation.id;
        if imported.is_new {
            self.put_conversation(imported, conversation).await?;
        }
        let placed = self
            .place_imported(id, &imported.messages, &imported.buckets)
            .await?;
        self.put_imported(id, &placed).await?;
        self.put_reactions(imported, id, &placed).await?;
        self.put_pins(imported, id, &placed).await?;
        self.put_mentions(imported, &placed).await?;
        let keyed = placed
            .iter()
            .filter(|(message, _)| message.client_key.is_some());
        concurrently(keyed.map(|(message, bucket)| {
            let hash = imported.input_hashes.get(&message.id).copied();
            self.sends.claim_imported_key(message, *bucket, hash)
        }))
        .await?;

        let head = ImportedHead::of(imported, conversation, &placed);
        let is_large = self.put_large(imported, conversation).await?;
        if head.is_advanced && !is_large {
            self.advance_entries(imported, id, &head).await?;
        }
        self.put_participants(imported, conversation, &head, is_large)
            .await?;
        if head.is_advanced {
            let mut writes = Writes::of_one_partition();
            writes.put_head(id, head.last.as_ref(), None, Some(head.activity));
            self.executor.write_all(writes).await?;
        }
        if let Some(last) = head.last {
            self.messages.observe_message(id, last.id);
        }
        self.sends.invalidate(id);
        Ok(())
    }

    async fn put_reactions(
        &self,
        imported: &ImportedConversation,
        id: ConversationId,
        placed: &[(Arc<Message>, Bucket)],
    ) -> Result<()> {
        let mut by_message: BTreeMap<MessageId, Vec<(&Emoji, &UserId)>> = BTreeMap::new();
        imported
            .reactions
            .iter()
            .for_each(|(message, emoji, user)| {
                by_message.entry(*message).or_default().push((emoji, user))
            });
        let each = by_message.iter().filter_map(|(message, reactions)| {
            let bucket = imported.bucket_of(*message, placed)?;
            Some(
                self.messages
                    .put_imported_reactions(id, *message, bucket, reactions),
            )
        });
        concurrently(each).await?;
        Ok(())
    }

    async fn put_pins(
        &self,
        imported: &ImportedConversation,
        id: ConversationId,
        placed: &[(Arc<Message>, Bucket)],
    ) -> Result<()> {
        if imported.pins.is_empty() {
            return Ok(());
        }
        // The registers say what was imported: a second import passes over them.
        self.messages.list_pins(id, &imported.pins).await?;
        let each = imported.pins.iter().filter_map(|(message, pin)| {
            let bucket = imported.bucket_of(*message, placed)?;
            Some(self.messages.put_imported_pin(id, *message, bucket, pin))
        });
        concurrently(each).await?;
        Ok(())
    }

    /// Counts the mentions of imported messages. A participant may come in a later import than the
    /// messages, so an added entry has a maximum at the newest message.
    async fn put_mentions(
        &self,
        imported: &ImportedConversation,
        placed: &[(Arc<Message>, Bucket)],
    ) -> Result<()> {
        let mut everyone = None;
        let mut batches = Vec::new();
        for (message, _) in placed {
            let mentioned = Mentioned::of(message);
            if mentioned.contains(&Mentioned::Everyone) {
                everyone = everyone.max(Some(message.id));
            }
            if !mentioned.is_empty() {
                let mut writes = Writes::logged();
                let at = message.id.moment().micros();
                writes.put_mentions(message, &mentioned, at);
                batches.push(self.executor.write_all(writes));
            }
        }
        concurrently(batches).await?;
        let (Some(everyone), Some(conversation)) = (everyone, &imported.conversation) else {
            return Ok(());
        };
        let each = present_participants(imported).map(async |user| {
            let mut writes = Writes::of_one_partition();
            writes.put_mentioned_up_to(user, conversation.id, everyone);
            self.executor.write_all(writes).await
        });
        concurrently(each).await?;
        Ok(())
    }

    async fn put_conversation(
        &self,
        imported: &ImportedConversation,
        conversation: &Conversation,
    ) -> Result<()> {
        let Conversation {
            id,
            kind,
            name,
            created_at,
            created_by,
            input_hash,
            slow_mode_seconds,
            history,
            ..
        } = conversation;
        if let Some(key) = &imported.profile.app_key {
            let claim = AppKeyClaim::of(conversation);
            let holder = self.messages.claim_app_key(key, claim).await?;
            if holder.conversation != *id {
                return Err(unavailable(
                    "another conversation claimed an app key during the import: repeat the import",
                ));
            }
        }
        let hash = input_hash.map(|InputHash(bytes)| bytes.to_vec());
        let name = name.as_ref().map(|name| name.as_str());
        let mut writes = Writes::of_one_partition();
        let values = values![
            *id,
            kind_number(*kind),
            name,
            *created_at,
            created_by.as_ref(),
            hash,
            REGISTER_TIMESTAMP
        ];
        writes.push(&INSERT_CONVERSATION, values);
        // A row without the cell of its memberships is read as it is.
        if *slow_mode_seconds > 0 {
            let seconds = i32::try_from(*slow_mode_seconds).unwrap_or(i32::MAX);
            writes.put_slow_mode_row(*id, seconds, REGISTER_TIMESTAMP);
        }
        if *history != HistorySettings::default() {
            writes.put_history_row(*id, history, REGISTER_TIMESTAMP);
        }
        let at = if imported.head.is_fallback {
            FALLBACK_TIMESTAMP
        } else {
            REGISTER_TIMESTAMP
        };
        writes.push(
            &UPDATE_ACTIVITY,
            values![at, imported.head.last_activity, *id],
        );
        self.executor.write_all(writes).await?;
        if imported.profile.is_empty() {
            return Ok(());
        }
        let mut writes = Writes::of_one_partition();
        writes.put_first_profile(*id, &imported.profile, REGISTER_TIMESTAMP);
        self.executor.write_all(writes).await
    }

    /// Whether the conversation is large after this import. If it becomes large, the lists of its participants are written before the flag.
    async fn put_large(
        &self,
        imported: &ImportedConversation,
        conversation: &Conversation,
    ) -> Result<bool> {
        let is_large = conversation.is_large_with(imported.joined());
        let present: Vec<_> = if conversation.is_large {
            Vec::new()
        } else {
            present_participants(imported).collect()
        };
        if is_large {
            let added = imported.added.iter().filter(|(_, one, _)| one.is_joined());
            let users = present.into_iter().chain(added.map(|(user, ..)| user));
            let put = |user: &UserId| {
                let mut writes = Writes::of_one_partition();
                writes.put_large(user, conversation.id, REGISTER_TIMESTAMP);
                self.executor.write_all(writes)
            };
            concurrently(users.map(put)).await?;
        }
        if is_large && !conversation.is_large {
            let mut flag = Writes::logged();
            flag.put_is_large(conversation.id);
            self.executor.write_all(flag).await?;
        }
        Ok(is_large)
    }

    /// Advances the entries of present participants to the new head.
    async fn advance_entries(
        &self,
        imported: &ImportedConversation,
        id: ConversationId,
        head: &ImportedHead,
    ) -> Result<()> {
        let before = &imported.head;
        let obsolete = before
            .last_activity
            .filter(|activity| before.is_fallback || slot_of(*activity) < slot_of(head.activity));
        let each = present_participants(imported).map(async |user| {
            let mut writes = Writes::logged();
            writes.put_entry(user, id, head.last.as_ref(), Some(head.activity), None);
            writes.put_hint(user, id, head.activity);
            if let Some(obsolete) = obsolete {
                let at = if before.is_fallback {
                    Timestamp::from_micros(FALLBACK_TIMESTAMP)
                } else {
                    head.activity
                };
                writes.delete_hint(user, id, slot_of(obsolete), at);
            }
            self.executor.write_all(writes).await
        });
        concurrently(each).await?;
        Ok(())
    }

    /// Claims the pairs, then writes the entries, then the participants with the roster.
    async fn put_participants(
        &self,
        imported: &ImportedConversation,
        conversation: &Conversation,
        head: &ImportedHead,
        is_large: bool,
    ) -> Result<()> {
        let id = conversation.id;
        for pair in &imported.pairs {
            if self.participants.claim_pair(pair, id).await? != id {
                return Err(unavailable(
                    "another conversation claimed a pair during the import: repeat the import",
                ));
            }
        }
        let entries = imported.added.iter().map(|(user, membership, positions)| {
            self.put_entry(id, user, membership, positions, head, is_large)
        });
        concurrently(entries).await?;
        let mut seen = imported.seen.clone();
        let mut pieces = imported.added.chunks(BATCH_ROWS_MAX).peekable();
        while let Some(piece) = pieces.next() {
            let mut roster = seen.roster.clone();
            piece.iter().for_each(|(user, membership, _)| {
                roster
                    .participants
                    .add(conversation.kind, user, *membership);
            });
            let mut writes = Writes::of_one_partition();
            let bytes = roster.encode();
            if imported.is_new {
                for (user, membership, _) in piece {
                    writes.put_first_membership(id, user, membership);
                }
                if pieces.peek().is_none() {
                    writes.put_first_roster(id, None, bytes);
                }
                self.executor.write_all(writes).await?;
            } else {
                writes.swap_roster(id, seen.bytes.as_ref(), bytes.clone());
                for (user, membership, _) in piece {
                    writes.swap_membership(id, user, membership);
                }
                if self.executor.write_all_if::<Row>(writes).await?.is_some() {
                    return Err(unavailable(
                        "a live change of the participants interrupted the import: repeat it",
                    ));
                }
                seen.bytes = Some(bytes);
            }
            seen.roster = roster;
        }
        Ok(())
    }

    /// Writes the entry and the receipts of an added participant. An agent has neither.
    async fn put_entry(
        &self,
        id: ConversationId,
        user: &UserId,
        membership: &Membership,
        positions: &ImportPositions,
        head: &ImportedHead,
        is_large: bool,
    ) -> Result<()> {
        if user.is_agent() {
            return Ok(());
        }
        let ImportPositions {
            read_up_to,
            unread_from: _,
            delivered_up_to,
            flags,
        } = *positions;
        let set = |flag: bool| flag.then_some(true);
        let mut writes = Writes::logged();
        let values = values![
            REGISTER_TIMESTAMP,
            encode_copy(membership),
            positions.marker(),
            set(flags.is_muted),
            set(flags.is_pinned),
            flags.archived_at,
            flags.level.map(|level| encode_level(Some(level))),
            user,
            id
        ];
        writes.push(&IMPORT_ENTRY, values);
        let at = REGISTER_TIMESTAMP;
        writes.put_notify_all(user, id, (None, flags.level), at);
        if read_up_to.is_some() || delivered_up_to.is_some() {
            let (read_up_to, delivered_up_to) = (
                read_up_to.map(|message| ActPosition::own(message.order_key())),
                delivered_up_to.map(MessageId::order_key),
            );
            writes.put_receipts(id, user, read_up_to, delivered_up_to);
        }
        if let Some(last) = &head.last {
            writes.put_mentioned_up_to(user, id, last.id);
        }
        if membership.is_joined() {
            let (entry_at, hint_at) = if head.is_fallback {
                (FALLBACK_TIMESTAMP, FALLBACK_TIMESTAMP)
            } else {
                (REGISTER_TIMESTAMP, head.activity.micros())
            };
            let (last, activity) = (head.last.as_ref(), Some(head.activity));
            writes.put_entry_at(user, id, last, activity, None, entry_at);
            if !is_large {
                writes.put_hint_at(user, id, head.activity, hint_at);
            }
        }
        self.executor.write_all(writes).await
    }
}
