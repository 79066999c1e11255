//! Plan of an import: decides about each row, in order and in memory, before anything is written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::import::ImportedConversation;
use crate::model::id::pair_key;
use crate::model::{
    AppKey, Ban, Conversation, ConversationId, ConversationKind, ConversationProfile, Emoji,
    Membership, Message, MessageId, Pin, Profile, Report, ReportId, Restriction, Timestamp, UserId,
};
use crate::store::cql::message::conversation::Head;
use crate::store::{ImportPositions, ImportRow, Imported, rules};

/// The decisions of an import, before anything is written.
pub(super) struct ImportPlan<'a> {
    pub(super) imported: &'a mut BTreeMap<ConversationId, ImportedConversation>,
    pub(super) paired: HashMap<Vec<u8>, ConversationId>,
    pub(super) app_keys: HashMap<AppKey, ConversationId>,
    pub(super) users: HashSet<UserId>,
    pub(super) new_users: Vec<(&'a UserId, &'a Profile, &'a Restriction)>,
    pub(super) everyone_revoked: Option<Timestamp>,
    pub(super) blocks: HashSet<(&'a UserId, &'a UserId)>,
    pub(super) new_blocks: Vec<(&'a UserId, &'a UserId, Timestamp)>,
    pub(super) new_bans: Vec<(ConversationId, &'a Ban)>,
    pub(super) reports: HashSet<ReportId>,
    pub(super) new_reports: Vec<&'a Report>,
}

impl<'a> ImportPlan<'a> {
    pub(super) fn add(&mut self, row: &'a ImportRow) -> Imported {
        match row {
            ImportRow::User {
                user,
                profile,
                restriction,
            } => {
                if !self.users.insert(user.clone()) {
                    return Imported::Unchanged;
                }
                self.new_users.push((user, profile, restriction));
                Imported::Added
            }
            ImportRow::EveryoneRevoked(moment) => {
                self.everyone_revoked = self.everyone_revoked.max(Some(*moment));
                Imported::Added
            }
            ImportRow::Block {
                user,
                blocked,
                since,
            } => {
                if !self.blocks.insert((user, blocked)) {
                    return Imported::Unchanged;
                }
                self.new_blocks.push((user, blocked, *since));
                Imported::Added
            }
            ImportRow::Report(report) => {
                if !self.reports.insert(report.id) {
                    return Imported::Unchanged;
                }
                self.new_reports.push(report);
                Imported::Added
            }
            ImportRow::Conversation {
                conversation,
                last_activity,
                profile,
            } => self.add_conversation(conversation, *last_activity, profile),
            ImportRow::Participant {
                conversation,
                user,
                membership,
                positions,
                ban,
            } => {
                let imported = self.add_participant(*conversation, user, *membership, *positions);
                if imported == Imported::Added {
                    self.new_bans
                        .extend(ban.iter().map(|ban| (*conversation, ban)));
                }
                imported
            }
            ImportRow::Message(message) => self.add_message(message),
            ImportRow::ChangedMessage(message, hash) => {
                let added = self.add_message(message);
                if let Some((imported, _)) = self.imported(message.conversation) {
                    imported.input_hashes.insert(message.id, *hash);
                }
                added
            }
            ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            } => self.add_reaction(*conversation, *message, emoji, user),
            ImportRow::Pin {
                conversation,
                message,
                by,
                at,
            } => self.add_pin(*conversation, *message, Pin::imported(by.clone(), *at)),
        }
    }

    /// The conversation, if it exists by now.
    fn imported(
        &mut self,
        id: ConversationId,
    ) -> Option<(&mut ImportedConversation, ConversationKind)> {
        let imported = self.imported.get_mut(&id)?;
        let kind = imported.conversation.as_ref()?.kind;
        Some((imported, kind))
    }

    fn add_conversation(
        &mut self,
        conversation: &Conversation,
        last_activity: Option<Timestamp>,
        profile: &ConversationProfile,
    ) -> Imported {
        let Some(imported) = self.imported.get_mut(&conversation.id) else {
            return Imported::ConversationMissing;
        };
        if imported.conversation.is_some() {
            return Imported::Unchanged;
        }
        if let Some(key) = &profile.app_key {
            let holder = self.app_keys.entry(key.clone());
            if *holder.or_insert(conversation.id) != conversation.id {
                return Imported::Refused(rules::import::APP_KEY_TAKEN);
            }
        }
        // The number of participants decides whether the conversation is large.
        imported.conversation = Some(Conversation {
            is_large: false,
            ..conversation.clone()
        });
        imported.profile = profile.clone();
        imported.is_new = true;
        let activity = Some(last_activity.unwrap_or(conversation.created_at));
        imported.head = Head {
            last_activity: activity,
            is_fallback: last_activity.is_none(),
            ..Head::default()
        };
        Imported::Added
    }

    fn add_participant(
        &mut self,
        id: ConversationId,
        user: &UserId,
        membership: Membership,
        positions: ImportPositions,
    ) -> Imported {
        let Some((imported, kind)) = self.imported(id) else {
            return Imported::ConversationMissing;
        };
        if imported.participants.contains_key(user) {
            return Imported::Unchanged;
        }
        let added = imported.added.iter().filter(|(_, one, _)| one.is_joined());
        let joined = u64::from(imported.seen.roster.participants.joined) + added.count() as u64;
        if let Err(why) = rules::import::refuse_without_room(joined) {
            return Imported::Refused(why);
        }
        if kind == ConversationKind::Direct
            && let Err(why) = self.claim_pair(id, user)
        {
            return Imported::Refused(why);
        }
        let Some((imported, _)) = self.imported(id) else {
            return Imported::ConversationMissing;
        };
        imported.participants.insert(user.clone(), membership);
        imported.added.push((user.clone(), membership, positions));
        Imported::Added
    }

    /// Claims the pair that a participant completes. The error is the sentence of the refusal.
    fn claim_pair(&mut self, id: ConversationId, user: &UserId) -> Result<(), &'static str> {
        let Some(imported) = self.imported.get_mut(&id) else {
            return Ok(());
        };
        let present: Vec<_> = imported.participants.keys().collect();
        let Some((one, other)) = rules::pair::of_imported(id, &present, user)? else {
            return Ok(());
        };
        let pair = pair_key(one, other);
        if *self.paired.entry(pair.clone()).or_insert(id) != id {
            return Err(rules::pair::TAKEN);
        }
        imported.pairs.push(pair);
        Ok(())
    }

    fn add_message(&mut self, message: &Arc<Message>) -> Imported {
        let Some((imported, _)) = self.imported(message.conversation) else {
            return Imported::ConversationMissing;
        };
        match imported.present.get(&message.id) {
            Some(bucket) => {
                let is_newer = imported
                    .newest_present
                    .as_ref()
                    .is_none_or(|(newest, _)| newest.id < message.id);
                if let Some(bucket) = bucket.filter(|_| is_newer) {
                    imported.newest_present = Some((Arc::clone(message), bucket));
                }
                Imported::Unchanged
            }
            None => {
                imported.present.insert(message.id, None);
                imported.messages.push(Arc::clone(message));
                Imported::Added
            }
        }
    }

    /// A pin that the message had before, on or off, stays as it is.
    fn add_pin(&mut self, id: ConversationId, message: MessageId, pin: Pin) -> Imported {
        let Some((imported, _)) = self.imported(id) else {
            return Imported::ConversationMissing;
        };
        if !imported.present.contains_key(&message) {
            return Imported::MessageMissing;
        }
        let is_deleted = |one: &Arc<Message>| one.id == message && one.deleted_at.is_some();
        if imported.messages.iter().any(is_deleted) || !imported.pinned.insert(message) {
            return Imported::Unchanged;
        }
        imported.pins.push((message, pin));
        Imported::Added
    }

    fn add_reaction(
        &mut self,
        id: ConversationId,
        message: MessageId,
        emoji: &Emoji,
        user: &UserId,
    ) -> Imported {
        let Some((imported, _)) = self.imported(id) else {
            return Imported::ConversationMissing;
        };
        if !imported.present.contains_key(&message) {
            return Imported::MessageMissing;
        }
        if !imported
            .reacted
            .insert((message, emoji.clone(), user.clone()))
        {
            return Imported::Unchanged;
        }
        imported
            .reactions
            .push((message, emoji.clone(), user.clone()));
        Imported::Added
    }
}
