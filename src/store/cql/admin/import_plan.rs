//! Plan of an import: the rows that it adds, collected in memory before anything is written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::import::ImportedConversation;
use crate::model::id::pair_key;
use crate::model::{
    AppKey, Conversation, ConversationId, ConversationKind, ConversationProfile, Message, Pin,
    Timestamp, UserId,
};
use crate::store::cql::message::conversation::Head;
use crate::store::rules::import::{ImportTarget, RowKey};
use crate::store::{ImportRow, Result};

/// The decisions of an import, before anything is written.
pub(super) struct ImportPlan<'a> {
    pub(super) imported: BTreeMap<ConversationId, ImportedConversation>,
    /// Conversations of the pairs and app keys that the rows have.
    pub(super) paired: HashMap<Vec<u8>, ConversationId>,
    pub(super) app_keys: HashMap<&'a AppKey, ConversationId>,
    /// Present rows, but for conversations with their participants and messages.
    pub(super) present: HashSet<RowKey<'a>>,
    pub(super) added: Vec<&'a ImportRow>,
}

impl<'a> ImportTarget<'a> for ImportPlan<'a> {
    fn has(&mut self, row: RowKey<'a>) -> Result<bool> {
        Ok(match row {
            RowKey::Conversation(id) => self.imported[&id].conversation.is_some(),
            RowKey::Participant(id, user) => self.imported[&id].participants.contains_key(user),
            RowKey::Message(id, message) => self.imported[&id].present.contains_key(&message),
            RowKey::User(_)
            | RowKey::EveryoneRevoked(_)
            | RowKey::Block(..)
            | RowKey::Report(_)
            | RowKey::Reaction(..)
            | RowKey::Pin(..) => self.present.contains(&row),
        })
    }

    fn joined(&self, id: ConversationId) -> u64 {
        self.imported[&id].joined()
    }

    fn direct_participants(&self, id: ConversationId) -> Option<Vec<&UserId>> {
        let imported = &self.imported[&id];
        let kind = imported.conversation.as_ref()?.kind;
        (kind == ConversationKind::Direct).then(|| imported.participants.keys().collect())
    }

    fn claim_pair(&mut self, one: &UserId, other: &UserId, id: ConversationId) -> Result<bool> {
        let pair = pair_key(one, other);
        let is_claimed = *self.paired.entry(pair.clone()).or_insert(id) == id;
        if is_claimed {
            self.conversation(id).pairs.push(pair);
        }
        Ok(is_claimed)
    }

    fn claim_app_key(&mut self, key: &'a AppKey, conversation: &Conversation) -> Result<bool> {
        let holder = self.app_keys.entry(key).or_insert(conversation.id);
        Ok(*holder == conversation.id)
    }

    fn add(&mut self, row: &'a ImportRow) -> Result<()> {
        self.present.insert(RowKey::of(row));
        self.added.push(row);
        match row {
            ImportRow::User { .. }
            | ImportRow::EveryoneRevoked(_)
            | ImportRow::Block { .. }
            | ImportRow::Report(_) => {}
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
                ban: _,
            } => {
                let imported = self.conversation(*conversation);
                let added = (user.clone(), *membership, *positions);
                imported.participants.insert(user.clone(), *membership);
                imported.added.push(added);
            }
            ImportRow::Message(message) => self.add_message(message),
            ImportRow::ChangedMessage(message, hash) => {
                self.add_message(message);
                let imported = self.conversation(message.conversation);
                imported.input_hashes.insert(message.id, *hash);
            }
            ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            } => {
                let reaction = (*message, emoji.clone(), user.clone());
                self.conversation(*conversation).reactions.push(reaction);
            }
            ImportRow::Pin {
                conversation,
                message,
                by,
                at,
            } => {
                let pin = (*message, Pin::imported(by.clone(), *at));
                self.conversation(*conversation).pins.push(pin);
            }
        }
        Ok(())
    }
}

impl ImportPlan<'_> {
    fn conversation(&mut self, id: ConversationId) -> &mut ImportedConversation {
        let imported = self.imported.get_mut(&id);
        imported.expect("the conversations of all rows are loaded")
    }

    fn add_conversation(
        &mut self,
        conversation: &Conversation,
        last_activity: Option<Timestamp>,
        profile: &ConversationProfile,
    ) {
        let imported = self.conversation(conversation.id);
        // The number of participants decides whether the conversation is large.
        imported.conversation = Some(Conversation {
            is_large: false,
            ..conversation.clone()
        });
        imported.profile = profile.clone();
        imported.is_new = true;
        imported.head = Head {
            last_activity: Some(last_activity.unwrap_or(conversation.created_at)),
            is_fallback: last_activity.is_none(),
            ..Head::default()
        };
    }

    fn add_message(&mut self, message: &Arc<Message>) {
        if message.deleted_at.is_some() {
            let pin = RowKey::Pin(message.conversation, message.id);
            self.present.insert(pin);
        }
        let imported = self.conversation(message.conversation);
        imported.present.insert(message.id, None);
        imported.messages.push(Arc::clone(message));
    }
}
