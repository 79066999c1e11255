//! All that the naive engine keeps, and what an import adds to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use wideroom::model::{
    AppKey, AppKeyClaim, Block, ConversationId, ConversationKind, IdempotencyKey, InputHash, Job,
    JobId, LiveKey, LiveMessageId, Message, OutboxEvent, OutboxRow, OutboxShard, Pin, Profile,
    Report, ReportId, Restriction, TimeUuid, Timestamp, UserId,
};
use wideroom::store::live::LiveListing;
use wideroom::store::{
    DeadLetter, DueRemoval, EarlierSend, Error, ImportRow, Imported, ReaderPosition, Restricted,
    Result, SearchSegmentKey,
};

use super::conversation::{OracleConversation, OracleParticipant};
use super::live::OracleLive;

#[derive(Default)]
pub(super) struct Kept {
    pub(super) conversations: BTreeMap<ConversationId, OracleConversation>,
    pub(super) app_keys: BTreeMap<AppKey, AppKeyClaim>,
    pub(super) sends: HashMap<(ConversationId, UserId, IdempotencyKey), EarlierSend>,
    pub(super) profiles: BTreeMap<UserId, Profile>,
    pub(super) restrictions: BTreeMap<Restricted, Restriction>,
    /// Blocks, by the user and the blocked user.
    pub(super) blocks: BTreeMap<(UserId, UserId), Block>,
    /// Reports, and when they were last resolved or opened again.
    pub(super) reports: BTreeMap<ReportId, (Report, Timestamp)>,
    pub(super) notes: HashMap<String, String>,
    pub(super) newest: Option<TimeUuid>,
    pub(super) has_outbox: bool,
    pub(super) outbox: BTreeMap<(TimeUuid, ConversationId), OutboxRow>,
    /// Positions of the readers of the outbox.
    pub(super) readers: BTreeMap<(String, OutboxShard), ReaderPosition>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// Dead letters of each reader, by event and part.
    pub(super) dead: BTreeMap<(String, TimeUuid, u8, String), DeadLetter>,
    pub(super) retention: Option<u32>,
    pub(super) scheduled_retention: Option<u32>,
    pub(super) due: BTreeSet<DueRemoval>,
    /// The search index: directories, and the blocks of segments.
    pub(super) directories: HashMap<ConversationId, Vec<u8>>,
    pub(super) segments: HashMap<SearchSegmentKey, Vec<Vec<u8>>>,
    pub(super) lives: BTreeMap<LiveKey, OracleLive>,
    pub(super) live_listings: BTreeMap<(u32, LiveKey), LiveListing>,
    pub(super) due_lives: BTreeMap<(u32, LiveMessageId, ConversationId), LiveListing>,
}

impl Kept {
    /// The conversation, to change it.
    pub(super) fn conversation(&mut self, id: ConversationId) -> Result<&mut OracleConversation> {
        self.conversations
            .get_mut(&id)
            .ok_or_else(|| Error::Corrupt {
                table: "conversations",
                cause: "it is not there".into(),
            })
    }

    pub(super) fn saw(&mut self, id: TimeUuid) {
        self.newest = self.newest.max(Some(id));
    }

    /// Adds the row of a write with these events.
    pub(super) fn tell_outbox(&mut self, conversation: ConversationId, events: Vec<OutboxEvent>) {
        let row = OutboxRow::new(conversation, events).filter(|_| self.has_outbox);
        self.outbox
            .extend(row.map(|row| ((row.id, conversation), row)));
    }

    pub(super) fn by_pair(&self, pair: &[u8]) -> Option<ConversationId> {
        self.conversations
            .iter()
            .find(|(_, stored)| {
                stored
                    .pair()
                    .is_some_and(|of_conversation| of_conversation == pair)
            })
            .map(|(id, _)| *id)
    }

    pub(super) fn import(&mut self, row: &ImportRow, now: Timestamp) -> Imported {
        match row {
            ImportRow::EveryoneRevoked(moment) => {
                let everyone = self.restrictions.entry(None).or_default();
                if everyone.tokens_from >= Some(*moment) {
                    return Imported::Unchanged;
                }
                everyone.tokens_from = Some(*moment);
            }
            ImportRow::User {
                user,
                profile,
                restriction,
            } => {
                if self.profiles.contains_key(user) {
                    return Imported::Unchanged;
                }
                self.profiles.insert(user.clone(), profile.clone());
                self.restrictions
                    .insert(Some(user.clone()), restriction.clone());
            }
            ImportRow::Block {
                user,
                blocked,
                since,
            } => {
                let key = (user.clone(), blocked.clone());
                if self.blocks.contains_key(&key) {
                    return Imported::Unchanged;
                }
                let block = Block {
                    blocked: blocked.clone(),
                    is_on: true,
                    change: TimeUuid::new(*since, [0; 8]),
                };
                self.blocks.insert(key, block);
            }
            ImportRow::Report(report) => {
                if self.reports.contains_key(&report.id) {
                    return Imported::Unchanged;
                }
                self.saw(report.id);
                let resolved_at = report.resolution.as_ref().map(|one| one.at);
                let report = Report::clone(report);
                self.reports
                    .insert(report.id, (report, resolved_at.unwrap_or_default()));
            }
            ImportRow::Conversation {
                conversation,
                last_activity,
                profile,
            } => {
                if self.conversations.contains_key(&conversation.id) {
                    return Imported::Unchanged;
                }
                if let Some(key) = &profile.app_key {
                    let claim = AppKeyClaim::of(conversation);
                    let holder = self.app_keys.entry(key.clone()).or_insert(claim);
                    if holder.conversation != conversation.id {
                        return Imported::Refused("another conversation has this `appKey` already");
                    }
                }
                let stored = OracleConversation {
                    profile: profile.clone(),
                    ..OracleConversation::new(conversation.clone(), *last_activity)
                };
                self.conversations.insert(conversation.id, stored);
            }
            ImportRow::Participant {
                conversation,
                user,
                membership,
                positions,
                ban,
            } => {
                let participant = match user.is_agent() {
                    true => OracleParticipant::new(*membership),
                    false => OracleParticipant::imported(*membership, positions),
                };
                let fate = self.import_participant(*conversation, user, participant);
                if let (Imported::Added, Some(ban), Some(stored)) =
                    (&fate, ban, self.conversations.get_mut(conversation))
                {
                    stored.bans.insert(user.clone(), ban.clone());
                }
                return fate;
            }
            ImportRow::Message(message) => return self.import_message(message, None, now),
            ImportRow::ChangedMessage(message, hash) => {
                return self.import_message(message, Some(*hash), now);
            }
            ImportRow::Pin {
                conversation,
                message,
                by,
                at,
            } => {
                let Some(stored) = self.conversations.get_mut(conversation) else {
                    return Imported::ConversationMissing;
                };
                return stored.import_pin(*message, Pin::imported(by.clone(), *at));
            }
            ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            } => {
                let Some(stored) = self.conversations.get_mut(conversation) else {
                    return Imported::ConversationMissing;
                };
                return stored.import_reaction(*message, emoji, user);
            }
        }
        Imported::Added
    }

    fn import_participant(
        &mut self,
        conversation: ConversationId,
        user: &UserId,
        participant: OracleParticipant,
    ) -> Imported {
        let Some(stored) = self.conversations.get_mut(&conversation) else {
            return Imported::ConversationMissing;
        };
        if stored.people.contains_key(user) {
            return Imported::Unchanged;
        }
        if let (ConversationKind::Direct, Some(other)) =
            (stored.record.kind, stored.people.keys().next())
        {
            if stored.people.len() == 2 {
                return Imported::Refused("a direct conversation has at most two participants");
            }
            if [user, other].map(|one| conversation.is_with_oneself(one)) != [false, false] {
                return Imported::Refused("the id is of a conversation with oneself");
            }
        }
        stored.people.insert(user.clone(), participant);
        stored.grow();
        let Some(pair) = stored.pair() else {
            return Imported::Added;
        };
        let is_taken = self
            .conversations
            .iter()
            .any(|(id, stored)| *id != conversation && stored.pair().as_ref() == Some(&pair));
        if is_taken {
            self.conversations
                .get_mut(&conversation)
                .unwrap()
                .people
                .remove(user);
            return Imported::Refused("these users have another direct conversation already");
        }
        Imported::Added
    }

    fn import_message(
        &mut self,
        message: &Arc<Message>,
        hash: Option<InputHash>,
        now: Timestamp,
    ) -> Imported {
        let Some(stored) = self.conversations.get_mut(&message.conversation) else {
            return Imported::ConversationMissing;
        };
        if stored.messages.contains_key(&message.id) {
            return Imported::Unchanged;
        }
        stored.messages.insert(message.id, message.clone());
        self.saw(message.id);
        let is_young =
            now.micros() - message.id.moment().micros() < IdempotencyKey::LIFETIME_MICROS;
        if let (Some(key), true) = (&message.client_key, is_young) {
            let input_hash = hash.unwrap_or_else(|| InputHash::of_imported(message));
            let send = EarlierSend {
                message: message.id,
                input_hash,
                is_delivered: false,
            };
            self.sends
                .entry((message.conversation, message.sender.clone(), key.clone()))
                .or_insert(send);
        }
        Imported::Added
    }
}
