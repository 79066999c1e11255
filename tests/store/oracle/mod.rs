//! The naive engine: plain maps under one lock, each answer found by looking at everything. It cannot be fast, and so can be right.
//!
//! It is what the engines are compared with, and passes the same contract, so that the contract asks for nothing impossible.

mod admin;
mod conversation;
mod erasure;
mod kept;
mod removal;
mod search;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use wideroom::clock::Clock;
use wideroom::model::id::pair_key;
use wideroom::model::{
    Ban, Block, Change, Conversation, ConversationId, Cut, DirectIds, Direction, Emoji, Flags,
    IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Job, JobId, Membership, Message, MessageId,
    MessageKind, NotificationLevel, OrderKey, OutboxEvent, OutboxShard, Page, PageRequest,
    Participant, Pin, Profile, Reaction, Report, ReportId, ReportResolution, Restriction, Revision,
    TimeUuid, Timestamp, Unread, UserId,
};
use wideroom::store::cluster::ClusterStore;
use wideroom::store::{
    Appended, Archive, Audience, BanChange, ChangedRow, ConversationsPiece, Created, DeadLetter,
    EarlierSend, ErasureStore, Error, FlagsChange, ImportPositions, ImportRow, Imported,
    LateChange, LoggedRestriction, MarkerMove, MembershipChange, MembershipSnapshot,
    NOTE_DIRECT_SECRET, NOTE_IMPORTED_AT, NOTE_OUTBOX_SINCE, NewConversation, NewMessage,
    OutboxPage, OutboxRead, Participation, ProfileChange, ReaderPosition, Renaming, ReportQuery,
    Restricted, RestrictionChange, Result, Revised, Store, StoreAdmin, StoredMessage, UnreadQuery,
    Verified, VerifyPosition,
};

use self::conversation::{OracleConversation, OracleParticipant};
use self::kept::Kept;
use super::ask::{inbox_order, is_in, slice};

pub struct Naive {
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
}

impl Naive {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            kept: Mutex::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    /// An answer for each of these conversations.
    fn each<T>(
        &self,
        conversations: &[ConversationId],
        answer: impl Fn(&OracleConversation) -> T,
    ) -> Vec<Option<T>> {
        let kept = self.kept();
        conversations
            .iter()
            .map(|id| kept.conversations.get(id).map(&answer))
            .collect()
    }

    fn changed_rows(&self, user: &UserId) -> Vec<ChangedRow> {
        let kept = self.kept();
        let changed = |stored: &OracleConversation| {
            let (participant, row) = (stored.people.get(user)?, stored.row(user));
            // A send counts as a change for current participants.
            // A large conversation has one newest change for all its people.
            let logged = stored
                .record
                .is_large
                .then(|| stored.changes.iter().map(|change| change.id).max())
                .flatten();
            let newest_change = participant
                .newest_change
                .max(stored.newest_send.max(logged).filter(|_| row.is_some()))?;
            Some(ChangedRow {
                newest_change,
                conversation: stored.record.id,
                row,
            })
        };
        kept.conversations.values().filter_map(changed).collect()
    }
}

/// The changes of a group, and the message that announces them.
fn announced(message: &Message, changes: &[Change]) -> Vec<OutboxEvent> {
    let changes = changes.iter().map(OutboxEvent::of_change);
    changes
        .chain([OutboxEvent::message_added(message.id)])
        .collect()
}

impl fmt::Display for Naive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("naive")
    }
}

#[async_trait]
impl Store for Naive {
    fn set_outbox_keep(&self, _: Duration) {}

    fn overlap_micros(&self) -> i64 {
        0
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
        None
    }

    async fn newest_id(&self) -> Result<Option<TimeUuid>> {
        Ok(self.kept().newest)
    }

    async fn imported_at(&self) -> Result<Option<Timestamp>> {
        let note = self.note(NOTE_IMPORTED_AT).await?;
        Ok(note.and_then(|note| Timestamp::parse(&note)))
    }

    async fn direct_ids(&self) -> Result<DirectIds> {
        let proposed = DirectIds::random().secret_text();
        let kept = self.note_once(NOTE_DIRECT_SECRET, &proposed).await?;
        Ok(DirectIds::parse(&kept).expect("it was just made"))
    }

    async fn participations(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        let participation = |stored: &OracleConversation| {
            let participant = stored.people.get(viewer)?;
            Some(Participation {
                conversation: Arc::new(stored.record.clone()),
                membership: stored.counting(viewer, participant),
            })
        };
        Ok(self
            .each(conversations, participation)
            .into_iter()
            .map(Option::flatten)
            .collect())
    }

    async fn direct_conversation(
        &self,
        one: &UserId,
        other: &UserId,
    ) -> Result<Option<ConversationId>> {
        Ok(self.kept().by_pair(&pair_key(one, other)))
    }

    async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        let mut kept = self.kept();
        let mut stored = OracleConversation {
            made: Some(new.change),
            version: Some(new.change),
            ..OracleConversation::new(new.conversation.clone(), Some(new.conversation.created_at))
        };
        for (user, role) in &new.participants {
            let participant = OracleParticipant {
                newest_change: Some(new.change),
                ..OracleParticipant::new(Membership::joined(*role))
            };
            stored.people.insert(user.clone(), participant);
        }
        stored.grow();
        let by_pair = stored.pair().and_then(|pair| kept.by_pair(&pair));
        if let Some(there) = kept
            .conversations
            .get(&new.conversation.id)
            .or(by_pair.and_then(|id| kept.conversations.get(&id)))
        {
            return Ok(Created::Existing(Arc::new(there.record.clone())));
        }
        kept.conversations.insert(new.conversation.id, stored);
        let created = OutboxEvent::conversation_created(new.change);
        kept.tell_outbox(new.conversation.id, vec![created]);
        kept.saw(new.change);
        Ok(Created::New)
    }

    async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.participants_with_prefix(conversation, "", page).await
    }

    async fn bans(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Ban>> {
        let now = self.clock.now();
        let all: Vec<Ban> = only(self.each(&[conversation], |stored| {
            let bans = stored.bans.values().cloned();
            bans.filter(|ban| ban.holds_at(now)).collect()
        }));
        Ok(slice(
            &all,
            |one: &Ban| one.user.as_str().to_owned(),
            |user| user.as_str().to_owned(),
            page,
        ))
    }

    async fn bans_of(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Vec<Option<Ban>>> {
        let now = self.clock.now();
        Ok(only(self.each(&[conversation], |stored| {
            let ban = |user| stored.bans.get(user).cloned();
            let holds = |ban: &Ban| ban.holds_at(now);
            users.iter().map(|user| ban(user).filter(holds)).collect()
        })))
    }

    async fn ban_count(&self, conversation: ConversationId, limit: usize) -> Result<usize> {
        let page = self.bans(conversation, &PageRequest::first(limit)).await?;
        Ok(page.items.len())
    }

    async fn participants_with_prefix(
        &self,
        conversation: ConversationId,
        prefix: &str,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        let all: Vec<Participant> = only(self.each(&[conversation], |stored| {
            stored
                .joined()
                .filter(|(user, _)| user.as_str().starts_with(prefix))
                .filter_map(|(user, _)| stored.participant(user))
                .collect()
        }));
        Ok(slice(
            &all,
            |one: &Participant| one.user.as_str().to_owned(),
            |user| user.as_str().to_owned(),
            page,
        ))
    }

    async fn participants_by_name(
        &self,
        keys: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>> {
        Ok(keys
            .iter()
            .map(|(id, user)| only(self.each(&[*id], |stored| stored.participant(user))))
            .collect())
    }

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        Ok(self
            .each(conversations, |stored| stored.joined().count() as u64)
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect())
    }

    async fn membership_snapshot(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Option<MembershipSnapshot>> {
        let members = |stored: &OracleConversation| MembershipSnapshot {
            conversation: Arc::new(stored.record.clone()),
            version: stored.version,
            participant_count: stored.joined().count() as u64,
            memberships: users
                .iter()
                .map(|user| {
                    stored
                        .people
                        .get(user)
                        .map(|participant| stored.counting(user, participant))
                })
                .collect(),
            successor: stored.next_owner(users),
        };
        Ok(self.each(&[conversation], members).pop().flatten())
    }

    async fn change_membership(
        &self,
        conversation: ConversationId,
        change: &MembershipChange,
    ) -> Result<Option<Audience>> {
        let mut kept = self.kept();
        let Some(stored) = kept.conversations.get_mut(&conversation) else {
            return Err(not_there());
        };
        let was_large = stored.record.is_large;
        let mut events = Vec::new();
        if stored.version != Some(change.version) {
            if stored.version != change.seen {
                return Ok(None);
            }
            stored.version = Some(change.version);
            if let Some(history) = change.history {
                stored.record.history = history;
            }
            change
                .transitions
                .iter()
                .for_each(|transition| stored.transition(transition, change.version));
            for ban in &change.bans {
                match ban {
                    BanChange::Set(ban) => drop(stored.bans.insert(ban.user.clone(), ban.clone())),
                    BanChange::Lift(user) => drop(stored.bans.remove(user)),
                }
            }
            match &change.message {
                Some(message) => {
                    stored.tell(message, &change.changes);
                    events = announced(message, &change.changes);
                }
                None => {
                    stored.changes.extend(change.changes.iter().cloned());
                    let changes = change.changes.iter();
                    events = changes.map(OutboxEvent::of_change).collect();
                }
            }
            stored.grow();
            if change.raises_history_unannounced() && !stored.record.is_large {
                for user in stored.joined_users() {
                    let participant = stored.people.get_mut(&user).unwrap();
                    participant.newest_change = participant.newest_change.max(Some(change.version));
                }
            }
        }
        let is_told = change.message.is_some() || change.raises_history_unannounced();
        let users = if is_told {
            (!was_large).then(|| stored.joined_users().into())
        } else {
            Some(Arc::default())
        };
        kept.tell_outbox(conversation, events);
        kept.saw(change.version);
        Ok(Some(Audience { users }))
    }

    async fn rename_conversation(
        &self,
        conversation: ConversationId,
        to: &Renaming,
    ) -> Result<Audience> {
        let mut kept = self.kept();
        let Some(stored) = kept.conversations.get_mut(&conversation) else {
            return Err(not_there());
        };
        let mut events = Vec::new();
        if !stored.messages.contains_key(&to.message.id) {
            stored.record.name = Some(to.name.clone());
            stored.tell(&to.message, std::slice::from_ref(&to.change));
            events = announced(&to.message, std::slice::from_ref(&to.change));
        }
        let users = (!stored.record.is_large).then(|| stored.joined_users().into());
        kept.tell_outbox(conversation, events);
        kept.saw(to.message.id);
        Ok(Audience { users })
    }

    async fn set_slow_mode(
        &self,
        conversation: ConversationId,
        seconds: u32,
        change: &Change,
    ) -> Result<()> {
        let mut kept = self.kept();
        let Some(stored) = kept.conversations.get_mut(&conversation) else {
            return Err(not_there());
        };
        let mut events = Vec::new();
        if stored.changes.iter().all(|known| known.id != change.id) {
            stored.record.slow_mode_seconds = seconds;
            stored.changes.push(change.clone());
            events.push(OutboxEvent::of_change(change));
        }
        kept.tell_outbox(conversation, events);
        kept.saw(change.id);
        Ok(())
    }

    async fn append_messages(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended> {
        let keys = |new: &NewMessage| {
            new.message
                .client_key
                .iter()
                .map(|key| (new.message.sender.clone(), key.clone()))
                .collect::<Vec<_>>()
        };
        let mut taken = Vec::new();
        for (index, new) in messages.iter().enumerate() {
            let earlier = self
                .earlier_sends(conversation, &keys(new))
                .await?
                .pop()
                .flatten();
            taken.extend(
                earlier
                    .filter(|earlier| earlier.message != new.message.id)
                    .map(|earlier| (index, earlier)),
            );
        }
        let is_free = |index: usize| taken.iter().all(|(participant, _)| *participant != index);
        let messages: Vec<_> = messages
            .iter()
            .enumerate()
            .filter(|(index, _)| is_free(*index))
            .map(|(_, new)| new)
            .collect();
        let mut kept = self.kept();
        let Some(stored) = kept.conversations.get_mut(&conversation) else {
            return Err(not_there());
        };
        let mut events = Vec::new();
        for NewMessage {
            message,
            is_by_service,
            ..
        } in &messages
        {
            if message.id.order_key() <= stored.removed_up_to {
                // It was stored, and was removed.
                continue;
            }
            if !stored.messages.contains_key(&message.id) {
                events.push(OutboxEvent::message_added(message.id));
            }
            stored.messages.insert(message.id, message.clone());
            stored.newest_send = stored.newest_send.max(Some(message.id));
            if let (MessageKind::Text, Some(participant)) =
                (message.kind, stored.people.get_mut(&message.sender))
                && Some(message.id) > participant.sent_up_to
            {
                participant.sent_up_to = Some(message.id);
                participant.is_sent_by_service = *is_by_service;
            }
        }
        let users = (!stored.record.is_large)
            .then(|| stored.joined().map(|(user, _)| user.clone()).collect());
        kept.tell_outbox(conversation, events);
        for NewMessage {
            message,
            input_hash,
            is_by_service: _,
        } in messages
        {
            kept.saw(message.id);
            removal::list(&mut kept, message);
            if let (Some(key), Some(input_hash)) = (&message.client_key, *input_hash) {
                let send = EarlierSend {
                    message: message.id,
                    input_hash,
                    is_delivered: false,
                };
                kept.sends
                    .insert((conversation, message.sender.clone(), key.clone()), send);
            }
        }
        Ok(Appended {
            audience: Audience { users },
            taken,
        })
    }

    async fn revise_message(
        &self,
        conversation: ConversationId,
        revision: &Revision,
        change: &Change,
    ) -> Result<Option<Revised>> {
        let mut kept = self.kept();
        let Some(stored) = kept.conversations.get_mut(&conversation) else {
            return Err(not_there());
        };
        let before = stored.changes.len();
        let Some((message, users)) = stored.revise(revision, change) else {
            return Ok(None);
        };
        let users = (!stored.record.is_large).then(|| users.into());
        if stored.changes.len() > before {
            kept.tell_outbox(conversation, vec![OutboxEvent::of_change(change)]);
            kept.saw(change.id);
        }
        Ok(Some(Revised {
            message,
            audience: Audience { users },
        }))
    }

    async fn react(
        &self,
        conversation: ConversationId,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        let mut kept = self.kept();
        let Some(stored) = kept.conversations.get_mut(&conversation) else {
            return Err(not_there());
        };
        let Some(message) = stored.react(emoji, is_on, change) else {
            return Ok(None);
        };
        if message.deleted_at.is_none() {
            kept.tell_outbox(conversation, vec![OutboxEvent::of_change(change)]);
            kept.saw(change.id);
        }
        Ok(Some(message))
    }

    async fn pin_message(
        &self,
        conversation: ConversationId,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        let mut kept = self.kept();
        let Some(stored) = kept.conversations.get_mut(&conversation) else {
            return Err(not_there());
        };
        let Some(message) = stored.pin(is_on, change) else {
            return Ok(None);
        };
        if message.deleted_at.is_none() {
            kept.tell_outbox(conversation, vec![OutboxEvent::of_change(change)]);
            kept.saw(change.id);
        }
        Ok(Some(message))
    }

    async fn pins(&self, conversation: ConversationId) -> Result<Vec<(MessageId, Pin)>> {
        let pins = self.each(&[conversation], OracleConversation::pins);
        Ok(only(pins))
    }

    async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>> {
        let of = |(conversation, id): &(ConversationId, MessageId)| {
            only(self.each(&[*conversation], |stored| stored.reactions(viewer, *id)))
        };
        Ok(messages.iter().map(of).collect())
    }

    async fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>> {
        let changes = |stored: &OracleConversation| {
            stored
                .changes
                .iter()
                .filter(|change| change.id.order_key() > after)
                .take(limit)
                .cloned()
                .collect()
        };
        Ok(self
            .each(&[conversation], changes)
            .pop()
            .flatten()
            .unwrap_or_default())
    }

    async fn newest_events(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<TimeUuid>>> {
        Ok(self
            .each(conversations, OracleConversation::newest_event)
            .into_iter()
            .map(Option::flatten)
            .collect())
    }

    async fn log_late(&self, _: ConversationId, _: &[LateChange]) -> Result<()> {
        Ok(())
    }

    async fn outbox_since(&self) -> Result<Option<Timestamp>> {
        let note = self.note(NOTE_OUTBOX_SINCE).await?;
        Ok(note.and_then(|note| Timestamp::parse(&note)))
    }

    async fn outbox(
        &self,
        reads: &[OutboxRead],
        up_to: OrderKey,
        _: usize,
    ) -> Result<Vec<OutboxPage>> {
        let kept = self.kept();
        let page = |read: &OutboxRead| {
            let rows = kept.outbox.values().filter(|row| {
                let position = row.id.order_key();
                row.shard() == read.shard && position > read.after && position <= up_to
            });
            OutboxPage {
                rows: rows.cloned().collect(),
                read_to: up_to,
            }
        };
        Ok(reads.iter().map(page).collect())
    }

    async fn reader_positions(&self, reader: &str) -> Result<Vec<Option<ReaderPosition>>> {
        let kept = self.kept();
        let position = |shard| kept.readers.get(&(reader.to_owned(), shard)).copied();
        Ok(OutboxShard::all().map(position).collect())
    }

    async fn swap_reader_position(
        &self,
        reader: &str,
        shard: OutboxShard,
        seen: Option<&ReaderPosition>,
        to: &ReaderPosition,
    ) -> Result<bool> {
        let key = (reader.to_owned(), shard);
        let mut kept = self.kept();
        let is_seen = kept.readers.get(&key) == seen;
        if is_seen {
            kept.readers.insert(key, *to);
        }
        Ok(is_seen)
    }

    async fn put_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        self.kept()
            .dead
            .insert(dead_key(reader, letter), letter.clone());
        Ok(())
    }

    async fn dead_letters(&self, reader: &str, limit: usize) -> Result<Vec<DeadLetter>> {
        let kept = self.kept();
        let own = kept.dead.iter().filter(|(key, _)| key.0 == reader);
        Ok(own.map(|(_, letter)| letter.clone()).take(limit).collect())
    }

    async fn delete_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        self.kept().dead.remove(&dead_key(reader, letter));
        Ok(())
    }

    async fn conversations(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        Ok(self.each(conversations, |stored| Arc::new(stored.record.clone())))
    }

    async fn earlier_sends(
        &self,
        conversation: ConversationId,
        keys: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>> {
        let kept = self.kept();
        let oldest = self
            .clock
            .now()
            .plus_micros(-IdempotencyKey::LIFETIME_MICROS);
        let send = |(user, key): &(UserId, IdempotencyKey)| {
            kept.sends
                .get(&(conversation, user.clone(), key.clone()))
                .copied()
        };
        Ok(keys
            .iter()
            .map(|key| send(key).filter(|send| send.message.moment() > oldest))
            .collect())
    }

    async fn history(
        &self,
        conversation: ConversationId,
        cut: &Cut<OrderKey>,
        page: &PageRequest<OrderKey>,
    ) -> Result<Page<Arc<Message>>> {
        let inside = |stored: &OracleConversation| {
            let messages = stored
                .messages
                .values()
                .rev()
                .filter(|message| is_in(cut, &message.id.order_key()));
            messages.cloned().collect::<Vec<_>>()
        };
        let all = only(self.each(&[conversation], inside));
        Ok(slice(
            &all,
            |message| std::cmp::Reverse(message.id.order_key()),
            |key| std::cmp::Reverse(*key),
            page,
        ))
    }

    async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        Ok(keys
            .iter()
            .map(|(conversation, id)| {
                only(self.each(&[*conversation], |stored| stored.messages.get(id).cloned()))
            })
            .collect())
    }

    async fn messages_at(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        let at = |stored: &OracleConversation, participant: OrderKey| {
            stored
                .messages
                .values()
                .rfind(|message| message.id.order_key() <= participant)
                .cloned()
        };
        Ok(positions
            .iter()
            .map(|(conversation, participant)| {
                only(self.each(&[*conversation], |stored| at(stored, *participant)))
            })
            .collect())
    }

    async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>> {
        Ok(self
            .each(conversations, OracleConversation::last_message)
            .into_iter()
            .map(Option::flatten)
            .collect())
    }

    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        Ok(self
            .each(conversations, |stored| stored.messages.len() as u64)
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect())
    }

    async fn message_counts_after(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<u64>> {
        let count = |(id, position): &(ConversationId, OrderKey)| {
            let counted = self.each(&[*id], |stored| {
                let ids = stored.messages.keys();
                ids.filter(|id| id.order_key() > *position).count() as u64
            });
            counted.into_iter().flatten().sum()
        };
        Ok(positions.iter().map(count).collect())
    }

    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        let kept = self.kept();
        let of = |is_large: bool| {
            kept.conversations
                .values()
                .filter(move |stored| stored.record.is_large == is_large)
        };
        let mut larges: Vec<_> = of(true).filter_map(|stored| stored.row(user)).collect();
        larges.sort_by_key(|row| (row.is_answered(), row.read_up_to(), row.conversation));
        let answered = larges.iter().filter(|row| row.is_answered()).count();
        let shown = larges
            .into_iter()
            .rev()
            .take(answered.max(Conversation::LARGE_MERGED_MAX));
        let mut rows: Vec<_> = of(false)
            .filter_map(|stored| stored.row(user))
            .chain(shown)
            .collect();
        rows.sort_by_key(|row| inbox_order(&row.key()));
        Ok(slice(
            &rows,
            |row| inbox_order(&row.key()),
            inbox_order,
            page,
        ))
    }

    async fn inbox_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        Ok(self
            .each(conversations, |stored| stored.row(user))
            .into_iter()
            .map(Option::flatten)
            .collect())
    }

    async fn inbox_changes(
        &self,
        user: &UserId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Option<Vec<ChangedRow>>> {
        let mut changed: Vec<_> = self
            .changed_rows(user)
            .into_iter()
            .filter(|row| row.newest_change.order_key() > after)
            .collect();
        changed.sort_by_key(|row| row.newest_change);
        Ok((changed.len() <= limit).then_some(changed))
    }

    async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize> {
        Ok(self
            .kept()
            .conversations
            .values()
            .filter(|stored| stored.row(user).is_some())
            .count()
            .min(limit))
    }

    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        let kept = self.kept();
        let is_one =
            |stored: &&OracleConversation| stored.record.is_large && stored.row(user).is_some();
        Ok(kept
            .conversations
            .values()
            .filter(is_one)
            .map(|stored| stored.record.id)
            .collect())
    }

    async fn unread(
        &self,
        user: &UserId,
        questions: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        let answer = |UnreadQuery {
                          conversation,
                          after,
                          up_to,
                      }: &UnreadQuery| {
            let up_to = up_to.unwrap_or(OrderKey::MAX);
            self.each(&[*conversation], |stored| {
                stored.unread(user, (*after, up_to), cap, ignored)
            })
            .pop()
            .flatten()
            .unwrap_or_default()
        };
        Ok(questions.iter().map(answer).collect())
    }

    async fn mentions(
        &self,
        user: &UserId,
        questions: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        let answer = |question: &UnreadQuery| {
            let range = (question.after, question.up_to.unwrap_or(OrderKey::MAX));
            only(self.each(&[question.conversation], |stored| {
                stored.mentions(user, range, cap, ignored)
            }))
        };
        Ok(questions.iter().map(answer).collect())
    }

    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()> {
        let mut kept = self.kept();
        kept.saw(to.change);
        let Some(participant) = kept
            .conversations
            .get_mut(&to.conversation)
            .and_then(|stored| stored.people.get_mut(user))
        else {
            return Ok(());
        };
        participant.marker = participant.marker.max(to.marker);
        if let Some(up_to) = to.read_up_to {
            // At one position the user's own act is the greater one.
            let known = (participant.read_up_to, !participant.is_read_by_service);
            if (up_to, !to.is_by_service) > known {
                participant.read_up_to = up_to;
                participant.is_read_by_service = to.is_by_service;
            }
        }
        participant.newest_change = participant.newest_change.max(Some(to.change));
        Ok(())
    }

    async fn mark_delivered(
        &self,
        user: &UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()> {
        let mut kept = self.kept();
        if let Some(participant) = kept
            .conversations
            .get_mut(&conversation)
            .and_then(|stored| stored.people.get_mut(user))
        {
            participant.delivered_up_to = participant.delivered_up_to.max(up_to);
        }
        Ok(())
    }

    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        let was_there = |participant: &OracleParticipant| {
            participant
                .membership
                .since
                .is_none_or(|since| since <= message.moment())
        };
        let receivers = |stored: &OracleConversation| {
            let others = stored
                .joined()
                .filter(|(user, participant)| *user != sender && was_there(participant));
            others
                .filter_map(|(user, _)| stored.participant(user))
                .collect::<Vec<_>>()
        };
        let all = only(self.each(&[conversation], receivers));
        Ok(slice(
            &all,
            |one| one.user.as_str().to_owned(),
            |user| user.as_str().to_owned(),
            page,
        ))
    }

    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
        let mut kept = self.kept();
        let Some(participant) = kept
            .conversations
            .get_mut(&to.conversation)
            .and_then(|stored| stored.people.get_mut(user))
        else {
            return Ok(None);
        };
        let before = participant.flags;
        if let Some(is_muted) = to.muted {
            participant.flags.is_muted = is_muted;
        }
        if let Some(is_pinned) = to.pinned {
            participant.flags.is_pinned = is_pinned;
        }
        match to.archive {
            Some(Archive::Begin(moment)) => participant.flags.archived_at = Some(moment),
            Some(Archive::End) => participant.flags.archived_at = None,
            Some(Archive::EndOf(moment)) if before.archived_at == Some(moment) => {
                participant.flags.archived_at = None
            }
            Some(Archive::EndOf(_)) | None => {}
        }
        if let Some(level) = to.level {
            participant.flags.level = level;
        }
        let after = participant.flags;
        if after == before {
            return Ok(None);
        }
        participant.newest_change = participant.newest_change.max(Some(to.change));
        kept.saw(to.change);
        Ok(Some(after))
    }

    async fn notified_of_all(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let kept = self.kept();
        let people = kept.conversations.get(&conversation);
        let people = people.into_iter().flat_map(|stored| &stored.people);
        let all = people
            .filter(|(_, participant)| participant.flags.level == Some(NotificationLevel::All))
            .map(|(user, _)| user.clone())
            .filter(|user| after.is_none_or(|after| user > after));
        Ok(all.take(limit).collect())
    }

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        let kept = self.kept();
        Ok(users
            .iter()
            .map(|user| kept.profiles.get(user).cloned())
            .collect())
    }

    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()> {
        let mut kept = self.kept();
        let before = kept.profiles.get(user).cloned().unwrap_or_default();
        let mut after = before.clone();
        if let Some(display_name) = &to.display_name {
            after.display_name.clone_from(display_name);
        }
        if let Some(avatar_url) = &to.avatar_url {
            after.avatar_url.clone_from(avatar_url);
        }
        if let Some(metadata) = &to.metadata {
            after.metadata.clone_from(metadata);
        }
        if after != before {
            kept.profiles.insert(user.clone(), after);
        }
        Ok(())
    }

    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()> {
        let mut kept = self.kept();
        let profile = kept.profiles.entry(user.clone()).or_default();
        profile.last_seen_at = profile.last_seen_at.max(Some(at));
        Ok(())
    }

    async fn restrict(
        &self,
        restricted: &Restricted,
        change: &RestrictionChange,
    ) -> Result<Restriction> {
        let mut kept = self.kept();
        if let Some(user) = restricted {
            kept.profiles.entry(user.clone()).or_default();
        }
        let restriction = kept.restrictions.entry(restricted.clone()).or_default();
        match change {
            RestrictionChange::Suspend(suspension) => {
                restriction.suspension = Some(suspension.clone());
            }
            RestrictionChange::Restore => restriction.suspension = None,
            RestrictionChange::RevokeTokens(moment) => {
                restriction.tokens_from = restriction.tokens_from.max(Some(*moment));
            }
        }
        Ok(restriction.clone())
    }

    async fn restrictions_of(&self, users: &[UserId]) -> Result<Vec<Restriction>> {
        let kept = self.kept();
        let of = |user: &UserId| kept.restrictions.get(&Some(user.clone())).cloned();
        Ok(users
            .iter()
            .map(|user| of(user).unwrap_or_default())
            .collect())
    }

    async fn restrictions(&self) -> Result<Vec<(Restricted, Restriction)>> {
        let kept = self.kept();
        let found = kept.restrictions.iter().filter(|(_, one)| !one.is_empty());
        Ok(found
            .map(|(restricted, one)| (restricted.clone(), one.clone()))
            .collect())
    }

    async fn blocks(&self, user: &UserId) -> Result<Vec<Block>> {
        let now = self.clock.now();
        let kept = self.kept();
        let of_user = kept
            .blocks
            .iter()
            .filter(|((blocker, _), _)| blocker == user);
        Ok(of_user
            .map(|(_, block)| block.clone())
            .filter(|block| !block.has_expired(now))
            .collect())
    }

    async fn set_block(&self, user: &UserId, block: &Block) -> Result<()> {
        let mut kept = self.kept();
        kept.saw(block.change);
        kept.profiles.entry(user.clone()).or_default();
        let key = (user.clone(), block.blocked.clone());
        let present = kept.blocks.entry(key).or_insert_with(|| block.clone());
        if present.change < block.change {
            *present = block.clone();
        }
        Ok(())
    }

    async fn add_report(&self, report: &Report, _: TimeUuid) -> Result<()> {
        let mut kept = self.kept();
        kept.saw(report.id);
        let event = vec![OutboxEvent::reported(report.id)];
        kept.tell_outbox(report.outbox_conversation(), event);
        kept.reports
            .entry(report.id)
            .or_insert_with(|| (report.clone(), Timestamp::ZERO));
        Ok(())
    }

    async fn reports(&self, query: &ReportQuery) -> Result<Vec<Report>> {
        let (kept, now) = (self.kept(), self.clock.now());
        let mut found: Vec<_> = kept
            .reports
            .values()
            .map(|(report, _)| report.clone())
            .filter(|report| {
                let at = report.id.order_key();
                at < query.older_than && at > query.newer_than && !report.has_expired(now)
            })
            .collect();
        if query.direction == Direction::Forward {
            found.reverse();
        }
        found.truncate(query.limit);
        Ok(found)
    }

    async fn reports_by_id(&self, ids: &[ReportId]) -> Result<Vec<Option<Report>>> {
        let (kept, now) = (self.kept(), self.clock.now());
        let found = ids.iter().map(|id| kept.reports.get(id));
        Ok(found
            .map(|found| Some(found?.0.clone()).filter(|report| !report.has_expired(now)))
            .collect())
    }

    async fn report_count(&self, after: OrderKey, limit: usize) -> Result<usize> {
        let kept = self.kept();
        let later = kept.reports.keys().filter(|id| id.order_key() > after);
        Ok(later.take(limit).count())
    }

    async fn resolve_report(
        &self,
        report: ReportId,
        resolution: Option<&ReportResolution>,
        at: Timestamp,
    ) -> Result<()> {
        if let Some((report, resolved_at)) = self.kept().reports.get_mut(&report)
            && at > *resolved_at
        {
            report.resolution = resolution.cloned();
            *resolved_at = at;
        }
        Ok(())
    }

    async fn replace_report(&self, report: &Report) -> Result<()> {
        if let Some((present, _)) = self.kept().reports.get_mut(&report.id) {
            let resolution = present.resolution.take();
            *present = Report {
                resolution,
                ..report.clone()
            };
        }
        Ok(())
    }

    async fn delete_reports(&self, reports: &[ReportId]) -> Result<()> {
        let mut kept = self.kept();
        kept.reports.retain(|id, _| !reports.contains(id));
        Ok(())
    }

    async fn restriction_log(&self, _: Timestamp) -> Result<Vec<LoggedRestriction>> {
        Ok(Vec::new())
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn not_there() -> Error {
    Error::Corrupt {
        table: "conversations",
        cause: "it is not there".into(),
    }
}

/// Answer for a single key. The default if the key does not exist.
fn only<T: Default>(answers: Vec<Option<T>>) -> T {
    answers.into_iter().flatten().next().unwrap_or_default()
}

fn dead_key(reader: &str, letter: &DeadLetter) -> (String, TimeUuid, u8, String) {
    let event = &letter.event;
    (
        reader.to_owned(),
        event.id,
        event.kind.number(),
        letter.part.clone(),
    )
}
