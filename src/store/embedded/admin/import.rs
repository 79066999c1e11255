//! Import into the embedded store: rows in order, with the heads and inboxes derived from them.
//!
//! A draft holds the rows of one commit. The rows of a conversation advance its head and its
//! inboxes once, at the end ([`super::import_conversation`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::import_conversation::ConversationImport;
use crate::model::{
    AppKey, AppKeyClaim, Conversation, ConversationId, ConversationKind, Emoji, Flags, InputHash,
    Membership, Message, MessageId, NotificationLevel, Pin, Profile, Report, Restriction, Role,
    TimeUuid, Timestamp, UserId,
};
use crate::store::embedded::cache::state::{ConversationState, memberships};
use crate::store::embedded::engine::committer::{Condition, Op, Rows, Write};
use crate::store::embedded::engine::db::{View, corrupt};
use crate::store::embedded::engine::key::{self, Cell, EntryCell, Key};
use crate::store::embedded::engine::record::{self, MessageRecord};
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::write::append;
use crate::store::embedded::write::pin::PinListChange;
use crate::store::embedded::{block, mention, message, report};
use crate::store::rules::pin_list::PinList;
use crate::store::{ImportPositions, ImportRow, Imported, RestrictionChange, Result, rules};

/// Bytes of one commit, about. A call with fewer bytes is atomic.
const COMMIT_BYTES_MAX: usize = 8 << 20;

/// Bytes of one pin in the list of its conversation, about.
const PIN_BYTES: usize = 64;

/// ImportCommit of one commit: the first rows of an import.
pub(in crate::store::embedded) struct ImportCommit {
    pub(in crate::store::embedded) write: Write,
    /// Result of each row in the plan.
    pub(in crate::store::embedded) fates: Vec<Imported>,
}

pub(in crate::store::embedded) fn plan(
    context: &ReadContext,
    rows: &[ImportRow],
) -> Result<ImportCommit> {
    let view = context.view();
    let mut draft = ImportDraft {
        context,
        view,
        rows: Rows::new(),
        bytes: 0,
        newest_id: None,
        conversations: HashMap::new(),
    };
    let mut fates = Vec::with_capacity(rows.len());
    for row in rows {
        fates.push(draft.add(row)?);
        if draft.bytes >= COMMIT_BYTES_MAX {
            break;
        }
    }
    Ok(ImportCommit {
        write: draft.finish()?,
        fates,
    })
}

pub(super) struct ImportDraft<'a> {
    context: &'a ReadContext,
    view: View<'a>,
    pub(super) rows: Rows,
    bytes: usize,
    newest_id: Option<TimeUuid>,
    conversations: HashMap<ConversationId, ConversationImport>,
}

impl ImportDraft<'_> {
    fn add(&mut self, row: &ImportRow) -> Result<Imported> {
        match row {
            ImportRow::User {
                user,
                profile,
                restriction,
            } => self.add_user(user, profile, restriction),
            ImportRow::EveryoneRevoked(moment) => self.revoke_everyone(*moment),
            ImportRow::Block {
                user,
                blocked,
                since,
            } => self.add_block(user, blocked, *since),
            ImportRow::Report(report) => self.add_report(report),
            ImportRow::Conversation {
                conversation,
                last_activity,
                profile,
            } => {
                let key = profile.app_key.as_ref();
                if let Some(key) = key
                    && self.is_app_key_of_another(key, conversation.id)?
                {
                    return Ok(Imported::Refused(rules::import::APP_KEY_TAKEN));
                }
                let fate = self.add_conversation(conversation, *last_activity)?;
                if let (Imported::Added, Some(key)) = (&fate, key) {
                    let claim = AppKeyClaim::of(conversation);
                    self.put(key::app_key(key), record::encode(&claim));
                }
                if fate == Imported::Added && !profile.is_empty() {
                    let key = key::conversation_profile(conversation.id);
                    self.put(key, record::encode(profile));
                }
                Ok(fate)
            }
            ImportRow::Participant {
                conversation,
                user,
                membership,
                positions,
                ban,
            } => {
                let fate = self.add_participant(*conversation, user, *membership, positions)?;
                if let (Imported::Added, Some(ban)) = (&fate, ban) {
                    self.put(key::ban(*conversation, user), rules::ban::encode(ban));
                }
                Ok(fate)
            }
            ImportRow::Message(message) => self.add_message(message, None),
            ImportRow::ChangedMessage(message, hash) => self.add_message(message, Some(*hash)),
            ImportRow::Pin {
                conversation,
                message,
                by,
                at,
            } => self.add_pin(*conversation, *message, by, *at),
            ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            } => self.add_reaction(*conversation, *message, emoji, user),
        }
    }

    fn has(&self, key: &Key) -> Result<bool> {
        match self.rows.get(key) {
            Some(value) => Ok(value.is_some()),
            None => self.view.has(key),
        }
    }

    pub(super) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.bytes += key.bytes.len() + value.len();
        self.rows.insert(key, Some(value));
    }

    /// Loads the conversation whose rows come next.
    fn working(&mut self, id: ConversationId) -> Result<bool> {
        if !self.conversations.contains_key(&id) {
            let Some(state) = ConversationState::load(&self.view, id)? else {
                return Ok(false);
            };
            let people = match state.people {
                Some(_) => memberships(&self.view, id)?.into_keys().collect(),
                None => BTreeSet::new(),
            };
            let working = ConversationImport::of(state, people);
            self.conversations.insert(id, working);
        }
        Ok(true)
    }

    fn changed(&mut self, id: ConversationId) -> &mut ConversationImport {
        let working = self
            .conversations
            .get_mut(&id)
            .expect("it was looked up before");
        working.is_changed = true;
        working
    }

    fn add_user(
        &mut self,
        user: &UserId,
        profile: &Profile,
        restriction: &Restriction,
    ) -> Result<Imported> {
        let key = key::user(user);
        if self.has(&key)? {
            return Ok(Imported::Unchanged);
        }
        self.put(key, record::encode_profile(profile));
        if !restriction.is_empty() {
            let key = key::restriction(&Some(user.clone()));
            self.put(key, record::encode(restriction));
        }
        Ok(Imported::Added)
    }

    /// A block that the store has, or had until lately, stays as it is.
    fn add_block(&mut self, user: &UserId, blocked: &UserId, since: Timestamp) -> Result<Imported> {
        let (key, value) = block::imported(user, blocked, since);
        if self.has(&key)? {
            return Ok(Imported::Unchanged);
        }
        self.put(key, value);
        Ok(Imported::Added)
    }

    fn add_report(&mut self, report: &Report) -> Result<Imported> {
        if self.has(&report::key_of(report))? {
            return Ok(Imported::Unchanged);
        }
        let mut ops = report::rows(report);
        if let Some(resolution) = &report.resolution {
            ops.extend(report::resolved(report.id, Some(resolution), resolution.at));
        }
        for op in ops {
            if let Op::Put(key, value) | Op::Max(key, value) = op {
                self.put(key, value);
            }
        }
        self.newest_id = self.newest_id.max(Some(report.id));
        Ok(Imported::Added)
    }

    /// A maximum, as a revocation is.
    fn revoke_everyone(&mut self, moment: Timestamp) -> Result<Imported> {
        let key = key::restriction(&None);
        let before: Restriction = match self.rows.get(&key) {
            Some(Some(value)) => {
                record::decode(value).map_err(|error| corrupt("restrictions", error))?
            }
            Some(None) | None => self.view.record(&key)?.unwrap_or_default(),
        };
        if before.tokens_from >= Some(moment) {
            return Ok(Imported::Unchanged);
        }
        let after = RestrictionChange::RevokeTokens(moment).apply(before);
        self.put(key, record::encode(&after));
        Ok(Imported::Added)
    }

    fn add_conversation(
        &mut self,
        conversation: &Conversation,
        last_activity: Option<Timestamp>,
    ) -> Result<Imported> {
        if self.working(conversation.id)? {
            return Ok(Imported::Unchanged);
        }
        self.bytes += 256;
        self.conversations.insert(
            conversation.id,
            ConversationImport::new(conversation.clone(), last_activity),
        );
        Ok(Imported::Added)
    }

    fn add_message(&mut self, message: &Message, hash: Option<InputHash>) -> Result<Imported> {
        if !self.working(message.conversation)? {
            return Ok(Imported::ConversationMissing);
        }
        let key = message::key_of(message);
        if self.has(&key)? {
            return Ok(Imported::Unchanged);
        }
        self.put(key, MessageRecord::encode(message));
        for op in mention::listed(message) {
            if let Op::Put(key, value) = op {
                self.put(key, value);
            }
        }
        self.newest_id = self.newest_id.max(Some(message.id));
        self.changed(message.conversation).head.count(message.id);
        self.remember_key(message, hash)?;
        Ok(Imported::Added)
    }

    /// Adds a reaction, on the condition that the conversation is unchanged, like every imported row.
    fn add_reaction(
        &mut self,
        id: ConversationId,
        message: MessageId,
        emoji: &Emoji,
        user: &UserId,
    ) -> Result<Imported> {
        if !self.working(id)? {
            return Ok(Imported::ConversationMissing);
        }
        let Some(message) = self.message(id, message)? else {
            return Ok(Imported::MessageMissing);
        };
        let key = key::reaction(id, message.id, emoji, user);
        let ended = key::ended_reaction(id, message.id, emoji, user);
        if self.has(&key)? || self.has(&ended)? {
            return Ok(Imported::Unchanged);
        }
        self.put(key, record::encode(&true));
        if !message.has_reactions {
            self.put(
                message::key_of(&message),
                MessageRecord::encode(&Message {
                    has_reactions: true,
                    ..message
                }),
            );
        }
        self.changed(id);
        Ok(Imported::Added)
    }

    /// Adds a pin. One that the message had before, on or off, stays as it is.
    fn add_pin(
        &mut self,
        id: ConversationId,
        message: MessageId,
        by: &UserId,
        at: Timestamp,
    ) -> Result<Imported> {
        if !self.working(id)? {
            return Ok(Imported::ConversationMissing);
        }
        let Some(message) = self.message(id, message)? else {
            return Ok(Imported::MessageMissing);
        };
        if message.pin.is_some() || message.deleted_at.is_some() {
            return Ok(Imported::Unchanged);
        }
        let pin = Pin::imported(by.clone(), at);
        let mut list = PinListChange::begin(&self.view, id)?;
        if let Some(Some(bytes)) = self.rows.get(&list.key) {
            list.pins = PinList::decode(bytes)?;
        }
        list.pins.set(message.id, &pin);
        self.bytes += PIN_BYTES;
        self.rows.extend(list.into_rows());
        self.put(
            message::key_of(&message),
            MessageRecord::encode(&Message {
                pin: Some(Box::new(pin)),
                ..message
            }),
        );
        self.changed(id);
        Ok(Imported::Added)
    }

    /// Reads a message, including the pending rows of the draft.
    fn message(&self, conversation: ConversationId, id: MessageId) -> Result<Option<Message>> {
        match self.rows.get(&key::message(conversation, id.order_key())) {
            Some(Some(value)) => {
                let record =
                    MessageRecord::decode(value).map_err(|error| corrupt("messages", error))?;
                Ok(Some(record.into_message(conversation, id)))
            }
            Some(None) => Ok(None),
            None => self.view.message(conversation, id),
        }
    }

    /// Stores the idempotency key, so that a retry from before the import is still recognised.
    fn remember_key(&mut self, message: &Message, hash: Option<InputHash>) -> Result<()> {
        let Some(client_key) = &message.client_key else {
            return Ok(());
        };
        if rules::import::key_expiry(message, self.context.clock.now()).is_none() {
            return Ok(());
        }
        if self.has(&key::send_by_key(
            message.conversation,
            &message.sender,
            client_key,
        ))? {
            return Ok(());
        }
        let hash = hash.unwrap_or_else(|| InputHash::of_imported(message));
        for op in append::send_by_key(message, client_key, hash) {
            if let Op::Put(key, value) = op {
                self.put(key, value);
            }
        }
        Ok(())
    }

    fn add_participant(
        &mut self,
        id: ConversationId,
        user: &UserId,
        membership: Membership,
        positions: &ImportPositions,
    ) -> Result<Imported> {
        if !self.working(id)? {
            return Ok(Imported::ConversationMissing);
        }
        let key = key::participant(id, user, Cell::Membership);
        if self.has(&key)? {
            return Ok(Imported::Unchanged);
        }
        let joined = self.conversations[&id].head.participant_count;
        if let Err(why) = rules::import::refuse_without_room(joined) {
            return Ok(Imported::Refused(why));
        }
        if let Err(why) = self.claim_pair(id, user)? {
            return Ok(Imported::Refused(why));
        }
        self.put(key, record::encode_membership(&membership));
        if !user.is_agent() {
            self.put_positions(id, user, positions);
        }
        let working = self.changed(id);
        working.people.insert(user.clone());
        if membership.is_joined() {
            working.joined.insert(user.clone());
            working.head.participant_count += 1;
            working.roster.owner_count += u64::from(membership.role == Role::Owner);
            working.conversation.is_large = working
                .conversation
                .is_large_with(working.head.participant_count);
        }
        Ok(Imported::Added)
    }

    fn put_positions(&mut self, id: ConversationId, user: &UserId, positions: &ImportPositions) {
        let ImportPositions {
            read_up_to,
            unread_from: _,
            delivered_up_to,
            flags,
        } = *positions;
        if let Some(marker) = positions.marker() {
            self.put(
                key::entry(user, id, EntryCell::Marker),
                record::encode_marker(marker),
            );
        }
        if let Some(message) = read_up_to {
            self.put(
                key::participant(id, user, Cell::ReadUpTo),
                record::encode_position(message.order_key()),
            );
        }
        if let Some(message) = delivered_up_to {
            self.put(
                key::participant(id, user, Cell::DeliveredUpTo),
                record::encode_position(message.order_key()),
            );
        }
        if flags != Flags::default() {
            self.put(
                key::entry(user, id, EntryCell::Flags),
                record::encode_flags(&flags),
            );
        }
        if flags.level == Some(NotificationLevel::All) {
            self.put(key::notify_all(id, user), Vec::new());
        }
    }

    fn is_app_key_of_another(&self, key: &AppKey, id: ConversationId) -> Result<bool> {
        let key = key::app_key(key);
        let claim: Option<AppKeyClaim> = match self.rows.get(&key) {
            Some(None) => None,
            Some(Some(value)) => {
                let decoded = record::decode(value).map(Some);
                decoded.map_err(|error| corrupt("conversations_by_app_key", error))?
            }
            None => self.view.record(&key)?,
        };
        Ok(claim.is_some_and(|claim| claim.conversation != id))
    }

    fn paired(&self, pair: &Key) -> Result<Option<ConversationId>> {
        match self.rows.get(pair) {
            Some(None) => Ok(None),
            Some(Some(value)) => record::decode(value)
                .map(Some)
                .map_err(|error| corrupt("direct_by_pair", error)),
            None => self.view.record(pair),
        }
    }

    /// Claims the pair that this participant completes. The inner error is the sentence of a refusal.
    fn claim_pair(
        &mut self,
        id: ConversationId,
        user: &UserId,
    ) -> Result<std::result::Result<(), &'static str>> {
        let working = &self.conversations[&id];
        if working.conversation.kind != ConversationKind::Direct {
            return Ok(Ok(()));
        }
        let present: Vec<_> = working.people.iter().collect();
        let pair = match rules::pair::of_imported(id, &present, user) {
            Ok(Some((one, other))) => key::pair(one, other),
            Ok(None) => return Ok(Ok(())),
            Err(why) => return Ok(Err(why)),
        };
        // An earlier version paired a lone participant with themselves, whatever the id.
        let of_one = present.first().map(|one| key::pair(one, one));
        if self.paired(&pair)?.is_some_and(|taken_by| taken_by != id) {
            return Ok(Err(rules::pair::TAKEN));
        }
        self.put(pair, record::encode(&id));
        if let Some(of_one) = of_one
            && self.paired(&of_one)? == Some(id)
        {
            self.rows.insert(of_one, None);
        }
        Ok(Ok(()))
    }

    fn finish(mut self) -> Result<Write> {
        let mut conversations: Vec<ConversationImport> = std::mem::take(&mut self.conversations)
            .into_values()
            .filter(|one| one.is_changed)
            .collect();
        let mut conditions = Vec::with_capacity(conversations.len());
        for working in &mut conversations {
            self.keep_busy(working);
            self.finish_conversation(working)?;
            let id = working.conversation.id;
            conditions.push(match &working.before {
                None => Condition::Absent(key::conversation(id)),
                Some(before) => Condition::Is(key::head(id), before.head_bytes.clone()),
            });
        }
        let op = |(key, value)| match value {
            Some(value) => Op::Put(key, value),
            None => Op::Delete(key),
        };
        let states = Arc::clone(&self.context.states);
        let floors = Arc::clone(&self.context.floors);
        let forget = move || {
            conversations
                .iter()
                .for_each(|working| states.forget(working.conversation.id));
            floors.end_by_import();
        };
        Ok(Write {
            ops: self.rows.into_iter().map(op).collect(),
            conditions,
            newest_id: self.newest_id,
            applied: Some(Box::new(forget)),
        })
    }
}
