//! Import into the embedded store: rows in order, with the heads and inboxes derived from them.
//!
//! A draft holds the rows of one commit. The rows of a conversation advance its head and its
//! inboxes once, at the end ([`super::import_conversation`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::import_conversation::ConversationImport;
use crate::model::{
    AppKey, AppKeyClaim, Conversation, ConversationId, ConversationKind, Emoji, Flags, InputHash,
    Membership, Message, MessageId, NotificationLevel, Pin, Report, Restriction, Role, TimeUuid,
    UserId,
};
use crate::store::embedded::cache::state::{ConversationState, memberships};
use crate::store::embedded::engine::committer::{Condition, Op, Rows, Write};
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, Cell, EntryCell, Key};
use crate::store::embedded::engine::record::{self, MessageRecord};
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::write::append;
use crate::store::embedded::write::pin::PinListChange;
use crate::store::embedded::{block, mention, message, report};
use crate::store::rules::import::{ImportTarget, RowKey, add_row};
use crate::store::rules::pin_list::PinList;
use crate::store::{ImportPositions, ImportRow, Imported, RestrictionChange, Result, rules};

/// Bytes of one commit, about. A call with fewer bytes is atomic.
const COMMIT_BYTES_MAX: usize = 8 << 20;

/// Bytes of one pin in the list of its conversation, about.
const PIN_BYTES: usize = 64;

/// ImportCommit of one commit: the first rows of an import.
pub(crate) struct ImportCommit {
    pub(crate) write: Write,
    /// Result of each row in the plan.
    pub(crate) fates: Vec<Imported>,
}

pub(crate) fn plan(context: &ReadContext, rows: &[ImportRow]) -> Result<ImportCommit> {
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
        fates.push(add_row(&mut draft, row)?);
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

impl<'a> ImportTarget<'a> for ImportDraft<'_> {
    fn has(&mut self, row: RowKey<'a>) -> Result<bool> {
        match row {
            RowKey::User(user) => self.has_row(&key::user(user)),
            // A maximum, as a revocation is.
            RowKey::EveryoneRevoked(moment) => {
                let restriction: Option<Restriction> = self.record(&key::restriction(&None))?;
                Ok(restriction.unwrap_or_default().tokens_from >= Some(moment))
            }
            RowKey::Block(user, blocked) => self.has_row(&key::block(user, blocked)),
            RowKey::Report(id) => self.has_row(&key::report(id.order_key())),
            RowKey::Conversation(id) => self.working(id),
            RowKey::Participant(id, user) => {
                self.has_row(&key::participant(id, user, Cell::Membership))
            }
            RowKey::Message(id, message) => self.has_row(&key::message(id, message.order_key())),
            RowKey::Reaction(id, message, emoji, user) => {
                let ended = key::ended_reaction(id, message, emoji, user);
                Ok(self.has_row(&key::reaction(id, message, emoji, user))?
                    || self.has_row(&ended)?)
            }
            RowKey::Pin(id, message) => Ok(self
                .message(id, message)?
                .is_none_or(|message| message.pin.is_some() || message.deleted_at.is_some())),
        }
    }

    fn joined(&self, id: ConversationId) -> u64 {
        self.conversations[&id].head.participant_count
    }

    fn direct_participants(&self, id: ConversationId) -> Option<Vec<&UserId>> {
        let working = &self.conversations[&id];
        let is_direct = working.conversation.kind == ConversationKind::Direct;
        is_direct.then(|| working.people.iter().collect())
    }

    fn claim_pair(&mut self, one: &UserId, other: &UserId, id: ConversationId) -> Result<bool> {
        let pair = key::pair(one, other);
        let holder: Option<ConversationId> = self.record(&pair)?;
        if holder.is_some_and(|holder| holder != id) {
            return Ok(false);
        }
        self.put(pair, record::encode(&id));
        // An earlier version paired a lone participant with themselves, whatever the id.
        let of_one = key::pair(one, one);
        if one != other && self.record(&of_one)? == Some(id) {
            self.rows.insert(of_one, None);
        }
        Ok(true)
    }

    fn claim_app_key(&mut self, key: &'a AppKey, conversation: &Conversation) -> Result<bool> {
        let (row, claim) = (key::app_key(key), AppKeyClaim::of(conversation));
        let holder: Option<AppKeyClaim> = self.record(&row)?;
        if holder.is_some_and(|holder| holder.conversation != conversation.id) {
            return Ok(false);
        }
        self.put(row, record::encode(&claim));
        Ok(true)
    }

    fn add(&mut self, row: &'a ImportRow) -> Result<()> {
        match row {
            ImportRow::User {
                user,
                profile,
                restriction,
            } => {
                self.put(key::user(user), record::encode_profile(profile));
                if !restriction.is_empty() {
                    let key = key::restriction(&Some(user.clone()));
                    self.put(key, record::encode(restriction));
                }
            }
            ImportRow::EveryoneRevoked(moment) => {
                let key = key::restriction(&None);
                let before = self.record(&key)?.unwrap_or_default();
                let after = RestrictionChange::RevokeTokens(*moment).apply(before);
                self.put(key, record::encode(&after));
            }
            ImportRow::Block {
                user,
                blocked,
                since,
            } => {
                let (key, value) = block::imported(user, blocked, *since);
                self.put(key, value);
            }
            ImportRow::Report(report) => self.add_report(report),
            ImportRow::Conversation {
                conversation,
                last_activity,
                profile,
            } => {
                if !profile.is_empty() {
                    let key = key::conversation_profile(conversation.id);
                    self.put(key, record::encode(profile));
                }
                self.bytes += 256;
                let import = ConversationImport::new(conversation.clone(), *last_activity);
                self.conversations.insert(conversation.id, import);
            }
            ImportRow::Participant {
                conversation,
                user,
                membership,
                positions,
                ban,
            } => {
                self.add_participant(*conversation, user, *membership, positions);
                if let Some(ban) = ban {
                    self.put(key::ban(*conversation, user), rules::ban::encode(ban));
                }
            }
            ImportRow::Message(message) => self.add_message(message, None)?,
            ImportRow::ChangedMessage(message, hash) => self.add_message(message, Some(*hash))?,
            ImportRow::Pin {
                conversation,
                message,
                by,
                at,
            } => self.add_pin(*conversation, *message, Pin::imported(by.clone(), *at))?,
            ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            } => self.add_reaction(*conversation, *message, emoji, user)?,
        }
        Ok(())
    }
}

impl ImportDraft<'_> {
    fn has_row(&self, key: &Key) -> Result<bool> {
        match self.rows.get(key) {
            Some(value) => Ok(value.is_some()),
            None => self.view.has(key),
        }
    }

    /// Reads a record, including the pending rows of the draft.
    fn record<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        let Some(pending) = self.rows.get(key) else {
            return self.view.record(key);
        };
        let record = pending.as_deref().map(record::decode).transpose();
        record.in_table(key.table_name())
    }

    pub(super) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.bytes += key.bytes.len() + value.len();
        self.rows.insert(key, Some(value));
    }

    fn put_all(&mut self, ops: impl IntoIterator<Item = Op>) {
        for op in ops {
            if let Op::Put(key, value) | Op::Max(key, value) = op {
                self.put(key, value);
            }
        }
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

    /// The conversation of a row that is added. Every imported row is on the condition that the conversation is unchanged.
    fn changed(&mut self, id: ConversationId) -> &mut ConversationImport {
        let working = self
            .conversations
            .get_mut(&id)
            .expect("it was looked up before");
        working.is_changed = true;
        working
    }

    fn add_report(&mut self, report: &Report) {
        self.put_all(report::rows(report));
        if let Some(resolution) = &report.resolution {
            let at = resolution.at;
            self.put_all(report::resolved(report.id, Some(resolution), at));
        }
        self.newest_id = self.newest_id.max(Some(report.id));
    }

    fn add_message(&mut self, message: &Message, hash: Option<InputHash>) -> Result<()> {
        self.put(message::key_of(message), MessageRecord::encode(message));
        self.put_all(mention::listed(message));
        self.newest_id = self.newest_id.max(Some(message.id));
        self.changed(message.conversation).head.count(message.id);
        self.remember_key(message, hash)
    }

    fn add_reaction(
        &mut self,
        id: ConversationId,
        message: MessageId,
        emoji: &Emoji,
        user: &UserId,
    ) -> Result<()> {
        let key = key::reaction(id, message, emoji, user);
        self.put(key, record::encode(&true));
        if let Some(message) = self.message(id, message)?
            && !message.has_reactions
        {
            self.put_message(&Message {
                has_reactions: true,
                ..message
            });
        }
        self.changed(id);
        Ok(())
    }

    fn add_pin(&mut self, id: ConversationId, message: MessageId, pin: Pin) -> Result<()> {
        let mut list = PinListChange::begin(&self.view, id)?;
        if let Some(Some(bytes)) = self.rows.get(&list.key) {
            list.pins = PinList::decode(bytes)?;
        }
        list.pins.set(message, &pin);
        self.bytes += PIN_BYTES;
        self.rows.extend(list.into_rows());
        if let Some(message) = self.message(id, message)? {
            self.put_message(&Message {
                pin: Some(Box::new(pin)),
                ..message
            });
        }
        self.changed(id);
        Ok(())
    }

    fn put_message(&mut self, message: &Message) {
        self.put(message::key_of(message), MessageRecord::encode(message));
    }

    /// Reads a message, including the pending rows of the draft.
    fn message(&self, conversation: ConversationId, id: MessageId) -> Result<Option<Message>> {
        match self.rows.get(&key::message(conversation, id.order_key())) {
            Some(Some(value)) => {
                let record = MessageRecord::decode(value).in_table("messages")?;
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
        let row = key::send_by_key(message.conversation, &message.sender, client_key);
        let is_recognised = rules::import::key_expiry(message, self.context.clock.now()).is_some();
        if is_recognised && !self.has_row(&row)? {
            let hash = hash.unwrap_or_else(|| InputHash::of_imported(message));
            self.put_all(append::send_by_key(message, client_key, hash));
        }
        Ok(())
    }

    fn add_participant(
        &mut self,
        id: ConversationId,
        user: &UserId,
        membership: Membership,
        positions: &ImportPositions,
    ) {
        let key = key::participant(id, user, Cell::Membership);
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
    }

    fn put_positions(&mut self, id: ConversationId, user: &UserId, positions: &ImportPositions) {
        let cell = |cell| key::participant(id, user, cell);
        if let Some(marker) = positions.marker() {
            let key = key::entry(user, id, EntryCell::Marker);
            self.put(key, record::encode_marker(marker));
        }
        if let Some(message) = positions.read_up_to {
            let position = record::encode_position(message.order_key());
            self.put(cell(Cell::ReadUpTo), position);
        }
        if let Some(message) = positions.delivered_up_to {
            let position = record::encode_position(message.order_key());
            self.put(cell(Cell::DeliveredUpTo), position);
        }
        let flags = positions.flags;
        if flags != Flags::default() {
            let key = key::entry(user, id, EntryCell::Flags);
            self.put(key, record::encode_flags(&flags));
        }
        if flags.level == Some(NotificationLevel::All) {
            self.put(key::notify_all(id, user), Vec::new());
        }
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
                .for_each(|working| states.forget(&working.conversation.id));
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
