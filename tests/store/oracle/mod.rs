//! The naive engine: plain maps under one lock, each answer found by looking at everything. It cannot be fast, and so can be right.
//!
//! It is what the engines are compared with, and passes the same contract, so that the contract asks for nothing impossible.

mod admin;
mod conversation;
mod erasure;
mod kept;
mod live;
mod removal;
mod search;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use wideroom::clock::Clock;
use wideroom::model::id::pair_key;
use wideroom::model::{
    AppKey, AppKeyClaim, Ban, Block, Change, Conversation, ConversationId, ConversationProfile,
    Cut, DirectIds, Direction, Emoji, Flags, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow,
    Job, JobId, Membership, Message, MessageId, MessageKind, NotificationLevel, OrderKey,
    OutboxEvent, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction, Report,
    ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use wideroom::store::cluster::ClusterStore;
use wideroom::store::{
    Appended, Archive, Audience, BanChange, ChangedRow, ConversationProfileChange,
    ConversationsPiece, Created, DeadLetter, EarlierSend, ErasureStore, FlagsChange,
    ImportPositions, ImportRow, Imported, LateChange, LoggedRestriction, MarkerMove,
    MembershipChange, MembershipSnapshot, NOTE_DIRECT_SECRET, NOTE_IMPORTED_AT, NOTE_OUTBOX_SINCE,
    NOTE_RESTORED_AT, NewConversation, NewMessage, OutboxPage, OutboxRead, Participation,
    ProfileChange, ReaderPosition, Renaming, ReportQuery, Restricted, RestrictionChange, Result,
    Revised, ScanStore, Store, StoreAdmin, StoreFuture, StoredMessage, UnreadQuery, Verified,
    VerifyPosition,
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

    /// The same, with an empty answer for a conversation that is not there.
    fn each_or_default<T: Default>(
        &self,
        conversations: &[ConversationId],
        answer: impl Fn(&OracleConversation) -> T,
    ) -> Vec<T> {
        let answers = self.each(conversations, answer).into_iter();
        answers.map(Option::unwrap_or_default).collect()
    }

    fn changed_rows(&self, user: &UserId) -> Vec<ChangedRow> {
        if user.is_agent() {
            return Vec::new();
        }
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

impl Store for Naive {
    fn set_outbox_keep(&self, _: Duration) {}

    fn overlap_micros(&self) -> i64 {
        0
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
        None
    }

    fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> {
        Box::pin(async move { Ok(self.kept().newest) })
    }

    fn imported_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let note = self.note(NOTE_IMPORTED_AT).await?;
            Ok(note.and_then(|note| Timestamp::parse(&note)))
        })
    }

    fn restored_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let note = self.note(NOTE_RESTORED_AT).await?;
            Ok(note.and_then(|note| Timestamp::parse(&note)))
        })
    }

    fn direct_ids(&self) -> StoreFuture<'_, DirectIds> {
        Box::pin(async move {
            let proposed = DirectIds::random().secret_text();
            let kept = self.note_once(NOTE_DIRECT_SECRET, &proposed).await?;
            Ok(DirectIds::parse(&kept).expect("it was just made"))
        })
    }

    fn participations<'a>(
        &'a self,
        viewer: &'a UserId,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Participation>>> {
        Box::pin(async move {
            let participation = |stored: &OracleConversation| {
                let participant = stored.people.get(viewer)?;
                Some(Participation {
                    conversation: Arc::new(stored.record.clone()),
                    membership: stored.counting(viewer, participant),
                })
            };
            Ok(self.each_or_default(conversations, participation))
        })
    }

    fn direct_conversation<'a>(
        &'a self,
        one: &'a UserId,
        other: &'a UserId,
    ) -> StoreFuture<'a, Option<ConversationId>> {
        Box::pin(async move { Ok(self.kept().by_pair(&pair_key(one, other))) })
    }

    fn app_key_claim<'a>(&'a self, key: &'a AppKey) -> StoreFuture<'a, Option<AppKeyClaim>> {
        Box::pin(async move { Ok(self.kept().app_keys.get(key).copied()) })
    }

    fn claim_app_key<'a>(
        &'a self,
        key: &'a AppKey,
        claim: AppKeyClaim,
    ) -> StoreFuture<'a, AppKeyClaim> {
        Box::pin(async move { Ok(*self.kept().app_keys.entry(key.clone()).or_insert(claim)) })
    }

    fn create_conversation<'a>(&'a self, new: &'a NewConversation) -> StoreFuture<'a, Created> {
        Box::pin(async move {
            let mut kept = self.kept();
            let mut stored = OracleConversation {
                made: Some(new.change),
                version: Some(new.change),
                profile: new.profile.clone(),
                ..OracleConversation::new(
                    new.conversation.clone(),
                    Some(new.conversation.created_at),
                )
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
        })
    }

    fn participants<'a>(
        &'a self,
        conversation: ConversationId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        self.participants_with_prefix(conversation, "", page)
    }

    fn bans<'a>(
        &'a self,
        conversation: ConversationId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Ban>> {
        Box::pin(async move {
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
        })
    }

    fn bans_of<'a>(
        &'a self,
        conversation: ConversationId,
        users: &'a [UserId],
    ) -> StoreFuture<'a, Vec<Option<Ban>>> {
        Box::pin(async move {
            let now = self.clock.now();
            Ok(only(self.each(&[conversation], |stored| {
                let ban = |user| stored.bans.get(user).cloned();
                let holds = |ban: &Ban| ban.holds_at(now);
                users.iter().map(|user| ban(user).filter(holds)).collect()
            })))
        })
    }

    fn ban_count(&self, conversation: ConversationId, limit: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            let page = self.bans(conversation, &PageRequest::first(limit)).await?;
            Ok(page.items.len())
        })
    }

    fn participants_with_prefix<'a>(
        &'a self,
        conversation: ConversationId,
        prefix: &'a str,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(async move {
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
        })
    }

    fn participants_by_name<'a>(
        &'a self,
        keys: &'a [(ConversationId, UserId)],
    ) -> StoreFuture<'a, Vec<Option<Participant>>> {
        Box::pin(async move {
            Ok(keys
                .iter()
                .map(|(id, user)| only(self.each(&[*id], |stored| stored.participant(user))))
                .collect())
        })
    }

    fn participant_counts<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(async move {
            Ok(self.each_or_default(conversations, |stored| stored.joined().count() as u64))
        })
    }

    fn membership_snapshot<'a>(
        &'a self,
        conversation: ConversationId,
        users: &'a [UserId],
    ) -> StoreFuture<'a, Option<MembershipSnapshot>> {
        Box::pin(async move {
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
        })
    }

    fn change_membership<'a>(
        &'a self,
        conversation: ConversationId,
        change: &'a MembershipChange,
    ) -> StoreFuture<'a, Option<Audience>> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
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
                        BanChange::Set(ban) => {
                            drop(stored.bans.insert(ban.user.clone(), ban.clone()))
                        }
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
                        participant.newest_change =
                            participant.newest_change.max(Some(change.version));
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
        })
    }

    fn rename_conversation<'a>(
        &'a self,
        conversation: ConversationId,
        to: &'a Renaming,
    ) -> StoreFuture<'a, Audience> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
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
        })
    }

    fn set_slow_mode<'a>(
        &'a self,
        conversation: ConversationId,
        seconds: u32,
        change: &'a Change,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
            let mut events = Vec::new();
            if stored.changes.iter().all(|known| known.id != change.id) {
                stored.record.slow_mode_seconds = seconds;
                stored.changes.push(change.clone());
                events.push(OutboxEvent::of_change(change));
            }
            kept.tell_outbox(conversation, events);
            kept.saw(change.id);
            Ok(())
        })
    }

    fn conversation_profiles<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<ConversationProfile>> {
        Box::pin(async move {
            let kept = self.kept();
            let profile = |id| {
                kept.conversations
                    .get(id)
                    .map(|stored| stored.profile.clone())
            };
            Ok(conversations
                .iter()
                .map(|id| profile(id).unwrap_or_default())
                .collect())
        })
    }

    fn change_conversation_profile<'a>(
        &'a self,
        conversation: ConversationId,
        to: &'a ConversationProfileChange,
        change: &'a Change,
    ) -> StoreFuture<'a, Audience> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
            let mut events = Vec::new();
            if stored.changes.iter().all(|known| known.id != change.id) {
                stored.profile = to.apply(stored.profile.clone());
                stored.changes.push(change.clone());
                if !stored.record.is_large {
                    stored.show(change.id);
                }
                events.push(OutboxEvent::of_change(change));
            }
            let users = (!stored.record.is_large).then(|| stored.joined_users().into());
            kept.tell_outbox(conversation, events);
            kept.saw(change.id);
            Ok(Audience { users })
        })
    }

    fn append_messages<'a>(
        &'a self,
        conversation: ConversationId,
        messages: &'a [NewMessage],
    ) -> StoreFuture<'a, Appended> {
        Box::pin(async move {
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
            let stored = kept.conversation(conversation)?;
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
        })
    }

    fn revise_message<'a>(
        &'a self,
        conversation: ConversationId,
        revision: &'a Revision,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Revised>> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
            let before = stored.changes.len();
            let Some((message, users)) = stored.revise(revision, change) else {
                return Ok(None);
            };
            let users = (!stored.record.is_large).then(|| users.into());
            if stored.changes.len() > before {
                kept.tell_outbox(
                    conversation,
                    vec![OutboxEvent::of_revision(change, revision)],
                );
                kept.saw(change.id);
            }
            Ok(Some(Revised {
                message,
                audience: Audience { users },
            }))
        })
    }

    fn react<'a>(
        &'a self,
        conversation: ConversationId,
        emoji: &'a Emoji,
        is_on: bool,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Arc<Message>>> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
            let Some(message) = stored.react(emoji, is_on, change) else {
                return Ok(None);
            };
            if message.deleted_at.is_none() {
                kept.tell_outbox(conversation, vec![OutboxEvent::of_change(change)]);
                kept.saw(change.id);
            }
            Ok(Some(message))
        })
    }

    fn pin_message<'a>(
        &'a self,
        conversation: ConversationId,
        is_on: bool,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Arc<Message>>> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
            let Some(message) = stored.pin(is_on, change) else {
                return Ok(None);
            };
            if message.deleted_at.is_none() {
                kept.tell_outbox(conversation, vec![OutboxEvent::of_change(change)]);
                kept.saw(change.id);
            }
            Ok(Some(message))
        })
    }

    fn pins(&self, conversation: ConversationId) -> StoreFuture<'_, Vec<(MessageId, Pin)>> {
        Box::pin(async move {
            let pins = self.each(&[conversation], OracleConversation::pins);
            Ok(only(pins))
        })
    }

    fn reactions<'a>(
        &'a self,
        viewer: &'a UserId,
        messages: &'a [(ConversationId, MessageId)],
    ) -> StoreFuture<'a, Vec<Vec<Reaction>>> {
        Box::pin(async move {
            let of = |(conversation, id): &(ConversationId, MessageId)| {
                only(self.each(&[*conversation], |stored| stored.reactions(viewer, *id)))
            };
            Ok(messages.iter().map(of).collect())
        })
    }

    fn ended_reaction_count<'a>(
        &'a self,
        user: &'a UserId,
        (conversation, message): (ConversationId, MessageId),
        limit: usize,
    ) -> StoreFuture<'a, usize> {
        Box::pin(async move {
            let of = |stored: &OracleConversation| stored.ended_reactions(user, message);
            Ok(only(self.each(&[conversation], of)).min(limit))
        })
    }

    fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(async move {
            let changes = |stored: &OracleConversation| {
                stored
                    .changes
                    .iter()
                    .filter(|change| change.id.order_key() > after)
                    .take(limit)
                    .cloned()
                    .collect()
            };
            Ok(only(self.each(&[conversation], changes)))
        })
    }

    fn newest_events<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<TimeUuid>>> {
        Box::pin(async move {
            Ok(self.each_or_default(conversations, OracleConversation::newest_event))
        })
    }

    fn log_late<'a>(&'a self, _: ConversationId, _: &'a [LateChange]) -> StoreFuture<'a, ()> {
        Box::pin(async move { Ok(()) })
    }

    fn outbox_since(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let note = self.note(NOTE_OUTBOX_SINCE).await?;
            Ok(note.and_then(|note| Timestamp::parse(&note)))
        })
    }

    fn outbox<'a>(
        &'a self,
        reads: &'a [OutboxRead],
        up_to: OrderKey,
        _: usize,
    ) -> StoreFuture<'a, Vec<OutboxPage>> {
        Box::pin(async move {
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
        })
    }

    fn reader_positions<'a>(
        &'a self,
        reader: &'a str,
    ) -> StoreFuture<'a, Vec<Option<ReaderPosition>>> {
        Box::pin(async move {
            let kept = self.kept();
            let position = |shard| kept.readers.get(&(reader.to_owned(), shard)).cloned();
            Ok(OutboxShard::all().map(position).collect())
        })
    }

    fn swap_reader_position<'a>(
        &'a self,
        reader: &'a str,
        shard: OutboxShard,
        seen: Option<&'a ReaderPosition>,
        to: &'a ReaderPosition,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let key = (reader.to_owned(), shard);
            let mut kept = self.kept();
            let is_seen = kept.readers.get(&key) == seen;
            if is_seen {
                kept.readers.insert(key, to.clone());
            }
            Ok(is_seen)
        })
    }

    fn put_dead_letter<'a>(
        &'a self,
        reader: &'a str,
        letter: &'a DeadLetter,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.kept()
                .dead
                .insert(dead_key(reader, letter), letter.clone());
            Ok(())
        })
    }

    fn dead_letters<'a>(
        &'a self,
        reader: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<DeadLetter>> {
        Box::pin(async move {
            let kept = self.kept();
            let own = kept.dead.iter().filter(|(key, _)| key.0 == reader);
            Ok(own.map(|(_, letter)| letter.clone()).take(limit).collect())
        })
    }

    fn delete_dead_letter<'a>(
        &'a self,
        reader: &'a str,
        letter: &'a DeadLetter,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.kept().dead.remove(&dead_key(reader, letter));
            Ok(())
        })
    }

    fn conversations<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Arc<Conversation>>>> {
        Box::pin(
            async move { Ok(self.each(conversations, |stored| Arc::new(stored.record.clone()))) },
        )
    }

    fn earlier_sends<'a>(
        &'a self,
        conversation: ConversationId,
        keys: &'a [(UserId, IdempotencyKey)],
    ) -> StoreFuture<'a, Vec<Option<EarlierSend>>> {
        Box::pin(async move {
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
        })
    }

    fn history<'a>(
        &'a self,
        conversation: ConversationId,
        cut: &'a Cut<OrderKey>,
        page: &'a PageRequest<OrderKey>,
    ) -> StoreFuture<'a, Page<Arc<Message>>> {
        Box::pin(async move {
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
        })
    }

    fn messages<'a>(
        &'a self,
        keys: &'a [(ConversationId, MessageId)],
    ) -> StoreFuture<'a, Vec<Option<Arc<Message>>>> {
        Box::pin(async move {
            Ok(keys
                .iter()
                .map(|(conversation, id)| {
                    only(self.each(&[*conversation], |stored| stored.messages.get(id).cloned()))
                })
                .collect())
        })
    }

    fn messages_at<'a>(
        &'a self,
        positions: &'a [(ConversationId, OrderKey)],
    ) -> StoreFuture<'a, Vec<Option<Arc<Message>>>> {
        Box::pin(async move {
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
        })
    }

    fn last_messages<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<MessageId>>> {
        Box::pin(async move {
            Ok(self.each_or_default(conversations, OracleConversation::last_message))
        })
    }

    fn message_counts<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(async move {
            Ok(self.each_or_default(conversations, |stored| stored.messages.len() as u64))
        })
    }

    fn message_counts_after<'a>(
        &'a self,
        positions: &'a [(ConversationId, OrderKey)],
    ) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(async move {
            let count = |(id, position): &(ConversationId, OrderKey)| {
                let counted = self.each(&[*id], |stored| {
                    let ids = stored.messages.keys();
                    ids.filter(|id| id.order_key() > *position).count() as u64
                });
                counted.into_iter().flatten().sum()
            };
            Ok(positions.iter().map(count).collect())
        })
    }

    fn inbox<'a>(
        &'a self,
        user: &'a UserId,
        page: &'a PageRequest<InboxKey>,
    ) -> StoreFuture<'a, Page<InboxRow>> {
        Box::pin(async move {
            if user.is_agent() {
                return Ok(Page::empty());
            }
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
        })
    }

    fn inbox_rows<'a>(
        &'a self,
        user: &'a UserId,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<InboxRow>>> {
        Box::pin(async move { Ok(self.each_or_default(conversations, |stored| stored.row(user))) })
    }

    fn inbox_changes<'a>(
        &'a self,
        user: &'a UserId,
        after: OrderKey,
        limit: usize,
    ) -> StoreFuture<'a, Option<Vec<ChangedRow>>> {
        Box::pin(async move {
            let mut changed: Vec<_> = self
                .changed_rows(user)
                .into_iter()
                .filter(|row| row.newest_change.order_key() > after)
                .collect();
            changed.sort_by_key(|row| row.newest_change);
            Ok((changed.len() <= limit).then_some(changed))
        })
    }

    fn conversation_count<'a>(&'a self, user: &'a UserId, limit: usize) -> StoreFuture<'a, usize> {
        Box::pin(async move {
            Ok(self
                .kept()
                .conversations
                .values()
                .filter(|stored| !user.is_agent() && stored.row(user).is_some())
                .count()
                .min(limit))
        })
    }

    fn large_conversations<'a>(&'a self, user: &'a UserId) -> StoreFuture<'a, Vec<ConversationId>> {
        Box::pin(async move {
            let kept = self.kept();
            let is_one = |stored: &&OracleConversation| {
                stored.record.is_large && !user.is_agent() && stored.row(user).is_some()
            };
            Ok(kept
                .conversations
                .values()
                .filter(is_one)
                .map(|stored| stored.record.id)
                .collect())
        })
    }

    fn unread<'a>(
        &'a self,
        user: &'a UserId,
        questions: &'a [UnreadQuery],
        cap: u32,
        ignored: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<Unread>> {
        Box::pin(async move {
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
        })
    }

    fn mentions<'a>(
        &'a self,
        user: &'a UserId,
        questions: &'a [UnreadQuery],
        cap: u32,
        ignored: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<Unread>> {
        Box::pin(async move {
            let answer = |question: &UnreadQuery| {
                let range = (question.after, question.up_to.unwrap_or(OrderKey::MAX));
                only(self.each(&[question.conversation], |stored| {
                    stored.mentions(user, range, cap, ignored)
                }))
            };
            Ok(questions.iter().map(answer).collect())
        })
    }

    fn move_read_marker<'a>(&'a self, user: &'a UserId, to: &'a MarkerMove) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if user.is_agent() {
                return Ok(());
            }
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
        })
    }

    fn mark_delivered<'a>(
        &'a self,
        user: &'a UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            if let Some(participant) = kept
                .conversations
                .get_mut(&conversation)
                .and_then(|stored| stored.people.get_mut(user))
                .filter(|_| !user.is_agent())
            {
                participant.delivered_up_to = participant.delivered_up_to.max(up_to);
            }
            Ok(())
        })
    }

    fn receivers<'a>(
        &'a self,
        conversation: ConversationId,
        message: MessageId,
        sender: &'a UserId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(async move {
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
                    .filter(|(user, _)| !user.is_agent())
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
        })
    }

    fn set_flags<'a>(
        &'a self,
        user: &'a UserId,
        to: &'a FlagsChange,
    ) -> StoreFuture<'a, Option<Flags>> {
        Box::pin(async move {
            if user.is_agent() {
                return Ok(None);
            }
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
        })
    }

    fn notified_of_all<'a>(
        &'a self,
        conversation: ConversationId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<UserId>> {
        Box::pin(async move {
            let kept = self.kept();
            let people = kept.conversations.get(&conversation);
            let people = people.into_iter().flat_map(|stored| &stored.people);
            let all = people
                .filter(|(_, participant)| participant.flags.level == Some(NotificationLevel::All))
                .map(|(user, _)| user.clone())
                .filter(|user| after.is_none_or(|after| user > after));
            Ok(all.take(limit).collect())
        })
    }

    fn profiles<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Option<Profile>>> {
        Box::pin(async move {
            let kept = self.kept();
            Ok(users
                .iter()
                .map(|user| kept.profiles.get(user).cloned())
                .collect())
        })
    }

    fn change_profile<'a>(
        &'a self,
        user: &'a UserId,
        to: &'a ProfileChange,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
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
        })
    }

    fn mark_seen<'a>(&'a self, user: &'a UserId, at: Timestamp) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            let profile = kept.profiles.entry(user.clone()).or_default();
            profile.last_seen_at = profile.last_seen_at.max(Some(at));
            Ok(())
        })
    }

    fn restrict<'a>(
        &'a self,
        restricted: &'a Restricted,
        change: &'a RestrictionChange,
    ) -> StoreFuture<'a, Restriction> {
        Box::pin(async move {
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
        })
    }

    fn restrictions_of<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Restriction>> {
        Box::pin(async move {
            let kept = self.kept();
            let of = |user: &UserId| kept.restrictions.get(&Some(user.clone())).cloned();
            Ok(users
                .iter()
                .map(|user| of(user).unwrap_or_default())
                .collect())
        })
    }

    fn restrictions(&self) -> StoreFuture<'_, Vec<(Restricted, Restriction)>> {
        Box::pin(async move {
            let kept = self.kept();
            let found = kept.restrictions.iter().filter(|(_, one)| !one.is_empty());
            Ok(found
                .map(|(restricted, one)| (restricted.clone(), one.clone()))
                .collect())
        })
    }

    fn blocks<'a>(&'a self, user: &'a UserId) -> StoreFuture<'a, Vec<Block>> {
        Box::pin(async move {
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
        })
    }

    fn set_block<'a>(&'a self, user: &'a UserId, block: &'a Block) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            kept.saw(block.change);
            kept.profiles.entry(user.clone()).or_default();
            let key = (user.clone(), block.blocked.clone());
            let present = kept.blocks.entry(key).or_insert_with(|| block.clone());
            if present.change < block.change {
                *present = block.clone();
            }
            Ok(())
        })
    }

    fn add_report<'a>(&'a self, report: &'a Report, _: TimeUuid) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            kept.saw(report.id);
            let event = vec![OutboxEvent::reported(report.id)];
            kept.tell_outbox(report.outbox_conversation(), event);
            kept.reports
                .entry(report.id)
                .or_insert_with(|| (report.clone(), Timestamp::ZERO));
            Ok(())
        })
    }

    fn reports<'a>(&'a self, query: &'a ReportQuery) -> StoreFuture<'a, Vec<Report>> {
        Box::pin(async move {
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
        })
    }

    fn reports_by_id<'a>(&'a self, ids: &'a [ReportId]) -> StoreFuture<'a, Vec<Option<Report>>> {
        Box::pin(async move {
            let (kept, now) = (self.kept(), self.clock.now());
            let found = ids.iter().map(|id| kept.reports.get(id));
            Ok(found
                .map(|found| Some(found?.0.clone()).filter(|report| !report.has_expired(now)))
                .collect())
        })
    }

    fn report_count(&self, after: OrderKey, limit: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            let kept = self.kept();
            let later = kept.reports.keys().filter(|id| id.order_key() > after);
            Ok(later.take(limit).count())
        })
    }

    fn resolve_report<'a>(
        &'a self,
        report: ReportId,
        resolution: Option<&'a ReportResolution>,
        at: Timestamp,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if let Some((report, resolved_at)) = self.kept().reports.get_mut(&report)
                && at > *resolved_at
            {
                report.resolution = resolution.cloned();
                *resolved_at = at;
            }
            Ok(())
        })
    }

    fn replace_report<'a>(&'a self, report: &'a Report) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if let Some((present, _)) = self.kept().reports.get_mut(&report.id) {
                let resolution = present.resolution.take();
                *present = Report {
                    resolution,
                    ..report.clone()
                };
            }
            Ok(())
        })
    }

    fn delete_reports<'a>(&'a self, reports: &'a [ReportId]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            kept.reports.retain(|id, _| !reports.contains(id));
            Ok(())
        })
    }

    fn restriction_log(&self, _: Timestamp) -> StoreFuture<'_, Vec<LoggedRestriction>> {
        Box::pin(async move { Ok(Vec::new()) })
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
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
