//! Import: loads the present state of all conversations of the rows, plans, and writes.
//!
//! An import first reads the present state of all its conversations, then decides about each row in memory, then writes conversation by
//! conversation. It counts a row as present once the last write of it is done, and every write can be repeated: an import that was aborted
//! is started again and loses nothing. All cells have the lowest timestamp, so live changes win.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::try_join;

use super::Admin;
use super::import_plan::ImportPlan;
use crate::model::id::pair_key;
use crate::model::{
    AppKey, Conversation, ConversationId, ConversationKind, ConversationProfile, Emoji, InputHash,
    Membership, Message, MessageId, Metadata, Pin, Profile, Restriction, UserId,
};
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, values};
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::conversation::Head;
use crate::store::cql::participant::profile::SELECT_USER;
use crate::store::cql::participant::roster::RosterSnapshot;
use crate::store::rules::import::{RowKey, add_row};
use crate::store::{ImportPositions, ImportRow, Imported, RestrictionChange, Result};

/// Users of one direct conversation whose pairs an import reads.
const NAMED_MAX: usize = 8;

statements! {
    INSERT_USER: Write "INSERT INTO users (user_id, display_name, avatar_url, metadata, last_seen_at) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
}

/// A conversation while its rows are imported.
#[derive(Default)]
pub(super) struct ImportedConversation {
    /// `None` until it exists.
    pub(super) conversation: Option<Conversation>,
    pub(super) profile: ConversationProfile,
    /// Created by this import.
    pub(super) is_new: bool,
    pub(super) seen: RosterSnapshot,
    pub(super) head: Head,
    /// Known participants, present and former: all of them, except in a large conversation.
    pub(super) participants: BTreeMap<UserId, Membership>,
    /// Participants that this import adds.
    pub(super) added: Vec<(UserId, Membership, ImportPositions)>,
    /// Pairs that this import claims for it.
    pub(super) pairs: Vec<Vec<u8>>,
    /// Present messages, with their buckets; those that this import adds have none yet.
    pub(super) present: HashMap<MessageId, Option<Bucket>>,
    /// Present buckets that can hold messages of this import.
    pub(super) buckets: HashSet<Bucket>,
    pub(super) messages: Vec<Arc<Message>>,
    /// Hashes of the sends of messages whose content was changed.
    pub(super) input_hashes: HashMap<MessageId, InputHash>,
    pub(super) reactions: Vec<(MessageId, Emoji, UserId)>,
    pub(super) pins: Vec<(MessageId, Pin)>,
    /// The newest present message of these rows. If the head does not have it, an earlier import was aborted.
    pub(super) newest_present: Option<(Arc<Message>, Bucket)>,
}

impl Admin {
    pub(crate) async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>> {
        let imported = self.load(rows).await?;
        let mut plan = ImportPlan {
            paired: self.pairs(rows, &imported).await?,
            app_keys: self.app_keys(rows).await?,
            present: self.present_rows(rows, &imported).await?,
            imported,
            added: Vec::new(),
        };
        let outcomes = rows.iter().map(|row| add_row(&mut plan, row));
        let outcomes = outcomes.collect::<Result<_>>()?;
        // Bans are written first, as a participant with a membership counts as imported.
        let each = plan.added.iter().map(|row| self.write_row(row));
        concurrently(each).await?;
        let each = plan.imported.values();
        let each = each.map(|imported| self.write_import(imported));
        concurrently(each).await?;
        Ok(outcomes)
    }

    /// Writes a row outside the conversations.
    async fn write_row(&self, row: &ImportRow) -> Result<()> {
        match row {
            ImportRow::User {
                user,
                profile,
                restriction,
            } => self.add_user(user, profile, restriction).await,
            ImportRow::EveryoneRevoked(moment) => {
                let change = RestrictionChange::RevokeTokens(*moment);
                self.restrictions.restrict(&None, &change).await.map(drop)
            }
            ImportRow::Block {
                user,
                blocked,
                since,
            } => self.blocks.import(user, blocked, *since).await,
            ImportRow::Report(report) => self.reports.import(report).await,
            ImportRow::Participant {
                conversation,
                ban: Some(ban),
                ..
            } => self.bans.import(*conversation, ban).await,
            ImportRow::Participant { ban: None, .. }
            | ImportRow::Conversation { .. }
            | ImportRow::Message(_)
            | ImportRow::ChangedMessage(..)
            | ImportRow::Reaction { .. }
            | ImportRow::Pin { .. } => Ok(()),
        }
    }

    /// Loads the present state of all conversations of the rows.
    async fn load(
        &self,
        rows: &[ImportRow],
    ) -> Result<BTreeMap<ConversationId, ImportedConversation>> {
        let mut by_conversation: BTreeMap<ConversationId, Vec<&ImportRow>> = BTreeMap::new();
        for row in rows {
            if let Some(id) = row.conversation() {
                by_conversation.entry(id).or_default().push(row);
            }
        }
        let each = by_conversation
            .into_iter()
            .map(async |(id, rows)| Ok((id, self.load_one(id, &rows).await?)));
        Ok(concurrently(each).await?.into_iter().collect())
    }

    async fn load_one(
        &self,
        id: ConversationId,
        rows: &[&ImportRow],
    ) -> Result<ImportedConversation> {
        let (found, seen) =
            try_join(self.messages.conversation(id), self.participants.roster(id)).await?;
        let mut imported = ImportedConversation {
            conversation: found.as_ref().map(|found| (*found.conversation).clone()),
            seen,
            head: found.map(|found| found.head).unwrap_or_default(),
            ..ImportedConversation::default()
        };
        let Some(conversation) = &imported.conversation else {
            return Ok(imported);
        };
        if imported.seen.bytes.is_some() {
            imported.participants = if conversation.is_large {
                let users: Vec<_> = rows.iter().filter_map(|row| participant_of(row)).collect();
                let stored = self
                    .participants
                    .memberships_of(id, users.into_iter(), &imported.seen)
                    .await?;
                stored.ok_or_else(|| {
                    unavailable(
                        "a live change of the participants interrupted the import: repeat it",
                    )
                })?
            } else {
                self.participants.memberships(id).await?
            };
        }
        let messages: BTreeSet<_> = rows.iter().filter_map(|row| message_of(row)).collect();
        let messages: Vec<_> = messages.into_iter().collect();
        (imported.present, imported.buckets) = self.present_messages(id, &messages).await?;
        let present = rows.iter().filter_map(|row| {
            let (ImportRow::Message(message) | ImportRow::ChangedMessage(message, _)) = row else {
                return None;
            };
            let bucket = imported.present.get(&message.id).copied().flatten()?;
            Some((Arc::clone(message), bucket))
        });
        imported.newest_present = present.max_by_key(|(message, _)| message.id);
        Ok(imported)
    }

    /// The present rows, but for conversations with their participants and messages.
    async fn present_rows<'a>(
        &self,
        rows: &'a [ImportRow],
        imported: &BTreeMap<ConversationId, ImportedConversation>,
    ) -> Result<HashSet<RowKey<'a>>> {
        let keys: HashSet<_> = rows.iter().map(RowKey::of).collect();
        let each = keys.into_iter().map(async |key| {
            let is_present = self.is_present(key, imported).await?;
            Ok(is_present.then_some(key))
        });
        let present = concurrently(each).await?;
        Ok(present.into_iter().flatten().collect())
    }

    async fn is_present(
        &self,
        row: RowKey<'_>,
        imported: &BTreeMap<ConversationId, ImportedConversation>,
    ) -> Result<bool> {
        match row {
            RowKey::User(user) => {
                let row = self
                    .executor
                    .read_one::<(String,)>(&SELECT_USER, values![user]);
                Ok(row.await?.is_some())
            }
            RowKey::EveryoneRevoked(moment) => {
                let restriction = self.restrictions.of(&None).await?;
                Ok(restriction.tokens_from >= Some(moment))
            }
            RowKey::Block(user, blocked) => self.blocks.has(user, blocked).await,
            RowKey::Report(id) => self.reports.has(id).await,
            RowKey::Conversation(_) | RowKey::Participant(..) | RowKey::Message(..) => Ok(false),
            // A message that is absent has neither.
            RowKey::Reaction(id, message, emoji, user) => {
                Ok(imported[&id].present.contains_key(&message)
                    && self.messages.has_reacted(id, message, emoji, user).await?)
            }
            RowKey::Pin(id, message) => {
                let Some(bucket) = imported[&id].present.get(&message) else {
                    return Ok(false);
                };
                let stored = self.messages.find_message(id, message, *bucket).await?;
                let is_deleted = stored.is_none_or(|(stored, _)| stored.deleted_at.is_some());
                Ok(is_deleted || self.messages.has_pin(id, message).await?)
            }
        }
    }
}

fn participant_of(row: &ImportRow) -> Option<&UserId> {
    if let ImportRow::Participant { user, .. } = row {
        Some(user)
    } else {
        None
    }
}

/// The message of a row, or that of its reaction or pin.
fn message_of(row: &ImportRow) -> Option<MessageId> {
    let key = RowKey::of(row);
    if let RowKey::Message(_, message) = key {
        return Some(message);
    }
    key.owner().1
}

impl Admin {
    /// The conversations of all app keys that these rows have.
    async fn app_keys<'a>(
        &self,
        rows: &'a [ImportRow],
    ) -> Result<HashMap<&'a AppKey, ConversationId>> {
        let keys = rows.iter().filter_map(|row| {
            let ImportRow::Conversation { profile, .. } = row else {
                return None;
            };
            profile.app_key.as_ref()
        });
        let each = keys.map(async |key| Ok((key, self.messages.app_key_claim(key).await?)));
        let claims = concurrently(each).await?.into_iter();
        Ok(claims
            .filter_map(|(key, claim)| Some((key, claim?.conversation)))
            .collect())
    }

    /// The conversations of all pairs that these rows may complete.
    async fn pairs(
        &self,
        rows: &[ImportRow],
        imported: &BTreeMap<ConversationId, ImportedConversation>,
    ) -> Result<HashMap<Vec<u8>, ConversationId>> {
        let new = rows.iter().filter_map(|row| {
            let ImportRow::Conversation { conversation, .. } = row else {
                return None;
            };
            Some(conversation)
        });
        let old = imported.values();
        let all = new.chain(old.filter_map(|imported| imported.conversation.as_ref()));
        let direct = all.filter(|one| one.kind == ConversationKind::Direct);
        let participants = direct.map(|one| {
            let stored = imported[&one.id].participants.keys();
            (one.id, stored.collect::<Vec<_>>())
        });
        let mut participants: BTreeMap<_, _> = participants.collect();
        for row in rows {
            if let ImportRow::Participant { conversation, user, .. } = row
                && let Some(participants) = participants.get_mut(conversation)
                // A pair has two users. If the rows name more, some are refused.
                && participants.len() < NAMED_MAX
                && !participants.contains(&user)
            {
                participants.push(user);
            }
        }
        let mut wanted = HashSet::new();
        for participants in participants.values() {
            for (n, one) in participants.iter().enumerate() {
                wanted.extend(participants[n..].iter().map(|other| pair_key(one, other)));
            }
        }
        let each = wanted.into_iter().map(async |pair| {
            let holder = self.participants.conversation_of_pair(&pair).await?;
            Ok(holder.map(|holder| (pair, holder)))
        });
        let taken = concurrently(each).await?;
        Ok(taken.into_iter().flatten().collect())
    }

    async fn add_user(
        &self,
        user: &UserId,
        profile: &Profile,
        restriction: &Restriction,
    ) -> Result<()> {
        // First, as a user with a row counts as imported.
        if !restriction.is_empty() {
            self.restrictions.import(user, restriction).await?;
        }
        let Profile {
            display_name,
            avatar_url,
            metadata,
            last_seen_at,
        } = profile;
        let values = values![
            user,
            display_name.as_deref(),
            avatar_url.as_deref(),
            metadata.as_ref().map(Metadata::as_str),
            *last_seen_at,
            REGISTER_TIMESTAMP
        ];
        self.executor.write(&INSERT_USER, values).await
    }
}

impl ImportedConversation {
    /// Number of present participants, with those that this import adds.
    pub(super) fn joined(&self) -> u64 {
        let added = self.added.iter().filter(|(_, one, _)| one.is_joined());
        u64::from(self.seen.roster.participants.joined) + added.count() as u64
    }

    /// The bucket of a message that is present, or added by this import.
    pub(super) fn bucket_of(
        &self,
        message: MessageId,
        placed: &[(Arc<Message>, Bucket)],
    ) -> Option<Bucket> {
        let brought = || {
            placed
                .iter()
                .find(|(one, _)| one.id == message)
                .map(|(_, bucket)| *bucket)
        };
        self.present
            .get(&message)
            .copied()
            .flatten()
            .or_else(brought)
    }
}
