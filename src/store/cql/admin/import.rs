//! Import on the cluster: what becomes of each row, in their order.
//!
//! What is there is read first, then each row's fate is decided in memory, then all of it is written, conversation by conversation. A row
//! is there once the last of what it means is written, and what is written twice is the same: so an import that ended half way is begun
//! again, and nothing of it is lost. All cells carry the lowest timestamp, so that what was changed since stays.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::try_join3;
use scylla::value::Row;

use crate::model::id::pair_key;
use crate::model::{
    Conversation, ConversationId, ConversationKind, Emoji, IdempotencyKey, InputHash, Membership, Message, MessageId, Profile, Timestamp,
    UserId,
};
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::at_once;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{Cells, cells};
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::register::{LastMessage, REGISTER_TIMESTAMP};
use crate::store::cql::participant::roster::Seen;
use crate::store::{ImportPlaces, ImportRow, Imported, Result};

statements! {
    /// The statements of this file.
    Statements {
        head: Read "SELECT last_message, last_activity, WRITETIME(last_activity) FROM conversations WHERE conversation_id = ?";
        user: Read "SELECT user_id FROM users WHERE user_id = ?";
        add_user: Write "INSERT INTO users (user_id, display_name, avatar_url, last_seen_at) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
        send: Conditional "INSERT INTO sends_by_key (conversation_id, sender_id, key, message_id, width, start, input_hash) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS USING TTL ?";
    }
}

/// A conversation while rows of it are imported.
pub(crate) struct Working {
    /// `None` as long as it is not there.
    pub(crate) conversation: Option<Conversation>,
    /// Made by this import.
    pub(crate) is_new: bool,
    pub(crate) seen: Seen,
    pub(crate) head: Head,
    /// Everybody who is known to be in it, or to have been: of a small or a direct one, all.
    pub(crate) people: BTreeMap<UserId, Membership>,
    /// Of those, whom this import brings.
    pub(crate) added: Vec<(UserId, Membership, ImportPlaces)>,
    /// Pairs that this import takes for it.
    pub(crate) pairs: Vec<Vec<u8>>,
    /// Messages that are there; those that this import brings without a bucket yet.
    there: HashMap<MessageId, Option<Bucket>>,
    /// Buckets that hold something and may hold more of these.
    pub(crate) buckets: HashSet<Bucket>,
    pub(crate) messages: Vec<Arc<Message>>,
    /// Reactions that were there, on or off.
    reacted: HashSet<(MessageId, Emoji, UserId)>,
    pub(crate) reactions: Vec<(MessageId, Emoji, UserId)>,
    /// The newest of these rows that is there: should the head not know of it, an earlier import ended half way.
    pub(crate) newest_there: Option<(Arc<Message>, Bucket)>,
}

/// Where a conversation stood before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) last: Option<LastMessage>,
    pub(crate) activity: Option<Timestamp>,
    /// The activity is only the time at which the conversation was made: any message sets it, also an older one.
    pub(crate) is_fallback: bool,
}

pub(crate) async fn import(inner: &Inner, rows: &[ImportRow]) -> Result<Vec<Imported>> {
    let mut working = load(inner, rows).await?;
    let paired = pairs(inner, rows, &working).await?;
    let known_users = known_users(inner, rows).await?;
    let mut draft = Draft { working: &mut working, paired, users: known_users, new_users: Vec::new() };
    let fates: Vec<_> = rows.iter().map(|row| draft.add(row)).collect();
    let users = std::mem::take(&mut draft.new_users);
    at_once(users.into_iter().map(|(user, profile)| add_user(inner, user, profile)).collect()).await?;
    at_once(working.values().map(|working| super::import_write::write(inner, working)).collect()).await?;
    Ok(fates)
}

/// What is there of all conversations that rows speak of.
async fn load(inner: &Inner, rows: &[ImportRow]) -> Result<BTreeMap<ConversationId, Working>> {
    let mut concerned: BTreeMap<ConversationId, Vec<&ImportRow>> = BTreeMap::new();
    for row in rows {
        if let Some(id) = row.conversation() {
            concerned.entry(id).or_default().push(row);
        }
    }
    let each = concerned.into_iter().map(async |(id, rows)| Ok((id, load_one(inner, id, &rows).await?)));
    Ok(at_once(each.collect()).await?.into_iter().collect())
}

async fn load_one(inner: &Inner, id: ConversationId, rows: &[&ImportRow]) -> Result<Working> {
    let (found, seen, head) = try_join3(inner.conversation(id), inner.roster(id), read_head(inner, id)).await?;
    let mut working = Working {
        conversation: found.map(|found| (*found.conversation).clone()),
        is_new: false,
        seen,
        head,
        people: BTreeMap::new(),
        added: Vec::new(),
        pairs: Vec::new(),
        there: HashMap::new(),
        buckets: HashSet::new(),
        messages: Vec::new(),
        reacted: HashSet::new(),
        reactions: Vec::new(),
        newest_there: None,
    };
    let Some(conversation) = &working.conversation else { return Ok(working) };
    if working.seen.bytes.is_some() {
        working.people = if conversation.is_large {
            let users: Vec<_> = rows.iter().filter_map(|row| participant_of(row)).collect();
            let given = inner.memberships_of(id, users.into_iter(), &working.seen).await?;
            given.ok_or_else(|| crate::store::cql::driver::error::unavailable("a conversation is changed while it is imported"))?
        } else {
            inner.memberships(id).await?
        };
    }
    let messages: BTreeSet<_> = rows.iter().filter_map(|row| message_of(row)).collect();
    let messages: Vec<_> = messages.into_iter().collect();
    (working.there, working.buckets) = inner.messages_there(id, &messages).await?;
    working.reacted = reacted(inner, rows, &working.there).await?;
    Ok(working)
}

/// Of these rows, the reactions that are there. To a message that is not there, nobody reacted.
async fn reacted(
    inner: &Inner,
    rows: &[&ImportRow],
    there: &HashMap<MessageId, Option<Bucket>>,
) -> Result<HashSet<(MessageId, Emoji, UserId)>> {
    let asked = rows.iter().filter_map(|row| {
        let ImportRow::Reaction { conversation, message, emoji, user } = row else { return None };
        there.contains_key(message).then_some((*conversation, *message, emoji, user))
    });
    let each = asked.map(async |(conversation, message, emoji, user)| {
        let is_there = inner.has_reacted(conversation, message, emoji, user).await?;
        Ok(is_there.then(|| (message, emoji.clone(), user.clone())))
    });
    Ok(at_once(each.collect()).await?.into_iter().flatten().collect())
}

fn participant_of(row: &ImportRow) -> Option<&UserId> {
    if let ImportRow::Participant { user, .. } = row { Some(user) } else { None }
}

/// The message that a row is, or speaks of.
fn message_of(row: &ImportRow) -> Option<MessageId> {
    match row {
        ImportRow::Message(message) => Some(message.id),
        ImportRow::Reaction { message, .. } => Some(*message),
        ImportRow::User { .. } | ImportRow::Conversation { .. } | ImportRow::Participant { .. } => None,
    }
}

async fn read_head(inner: &Inner, id: ConversationId) -> Result<Head> {
    type Columns = (Option<Vec<u8>>, Option<i64>, Option<i64>);
    let row = inner.cluster.read_one::<Columns>(&inner.statements.import.head, cells![id]).await?;
    let Some((last, activity, written)) = row else { return Ok(Head::default()) };
    Ok(Head {
        last: last.map(|bytes| LastMessage::decode("conversations", &bytes)).transpose()?,
        activity: activity.map(Timestamp::from_micros),
        is_fallback: written.is_some_and(|written| written < REGISTER_TIMESTAMP),
    })
}

/// Which conversation has each pair that these rows may complete.
async fn pairs(inner: &Inner, rows: &[ImportRow], working: &BTreeMap<ConversationId, Working>) -> Result<HashMap<Vec<u8>, ConversationId>> {
    let new = rows.iter().filter_map(|row| {
        let ImportRow::Conversation { conversation, .. } = row else { return None };
        (conversation.kind == ConversationKind::Direct).then_some(conversation.id)
    });
    let is_direct = |working: &Working| working.conversation.as_ref().is_some_and(|one| one.kind == ConversationKind::Direct);
    let old = working.iter().filter(|(_, working)| is_direct(working)).map(|(id, _)| *id);
    let mut people: BTreeMap<ConversationId, Vec<&UserId>> = BTreeMap::new();
    for id in new.chain(old) {
        people.entry(id).or_insert_with(|| working[&id].people.keys().collect());
    }
    for row in rows {
        if let ImportRow::Participant { conversation, user, .. } = row
            && let Some(people) = people.get_mut(conversation)
            // Two belong to it; of more that are named, some may be refused.
            && people.len() < 8
            && !people.contains(&user)
        {
            people.push(user);
        }
    }
    let mut wanted = HashSet::new();
    for people in people.values() {
        for (n, one) in people.iter().enumerate() {
            wanted.extend(people[n..].iter().map(|other| pair_key(one, other)));
        }
    }
    let wanted: Vec<_> = wanted.into_iter().collect();
    let taken = at_once(wanted.iter().map(|pair| inner.paired(pair)).collect()).await?;
    Ok(wanted.into_iter().zip(taken).filter_map(|(pair, taken)| Some((pair, taken?))).collect())
}

async fn known_users(inner: &Inner, rows: &[ImportRow]) -> Result<HashSet<UserId>> {
    let users: HashSet<_> = rows.iter().filter_map(|row| if let ImportRow::User { user, .. } = row { Some(user) } else { None }).collect();
    let each = users.into_iter().map(async |user| {
        let row = inner.cluster.read_one::<(String,)>(&inner.statements.import.user, cells![user]).await?;
        Ok(row.map(|_| user.clone()))
    });
    Ok(at_once(each.collect()).await?.into_iter().flatten().collect())
}

async fn add_user(inner: &Inner, user: &UserId, profile: &Profile) -> Result<()> {
    let Profile { display_name, avatar_url, last_seen_at } = profile;
    let values = cells![user, display_name.as_deref(), avatar_url.as_deref(), *last_seen_at, REGISTER_TIMESTAMP];
    inner.cluster.write(&inner.statements.import.add_user, values).await
}

/// Remembers the key of a young message, so that a retry from before the import is recognised after it. One that a send left stays.
pub(crate) async fn remember_key(inner: &Inner, message: &Message, bucket: Bucket) -> Result<()> {
    let Some(key) = &message.client_key else { return Ok(()) };
    let until = message.id.moment().plus_micros(IdempotencyKey::LIFETIME_MICROS);
    let left = (until.micros() - inner.clock.now().micros()) / 1_000_000;
    if left <= 0 {
        return Ok(());
    }
    let hash = InputHash::of_imported(message).0.to_vec();
    let (width, start) = (bucket.width.number(), bucket.start);
    let left = i32::try_from(left).unwrap_or(i32::MAX);
    let values: Cells = cells![message.conversation, &message.sender, key.as_str(), message.id, width, start, hash, left];
    inner.cluster.write_if::<Row>(&inner.statements.import.send, values).await?;
    Ok(())
}

struct Draft<'a> {
    working: &'a mut BTreeMap<ConversationId, Working>,
    paired: HashMap<Vec<u8>, ConversationId>,
    users: HashSet<UserId>,
    new_users: Vec<(&'a UserId, &'a Profile)>,
}

impl Working {
    /// Where a message lies that is there or is brought by this import.
    pub(crate) fn bucket_of(&self, message: MessageId, placed: &[(Arc<Message>, Bucket)]) -> Option<Bucket> {
        let brought = || placed.iter().find(|(one, _)| one.id == message).map(|(_, bucket)| *bucket);
        self.there.get(&message).copied().flatten().or_else(brought)
    }
}

impl<'a> Draft<'a> {
    fn add(&mut self, row: &'a ImportRow) -> Imported {
        match row {
            ImportRow::User { user, profile } => {
                if !self.users.insert(user.clone()) {
                    return Imported::Unchanged;
                }
                self.new_users.push((user, profile));
                Imported::Added
            }
            ImportRow::Conversation { conversation, last_activity } => self.add_conversation(conversation, *last_activity),
            ImportRow::Participant { conversation, user, membership, places } => {
                self.add_participant(*conversation, user, *membership, *places)
            }
            ImportRow::Message(message) => self.add_message(message),
            ImportRow::Reaction { conversation, message, emoji, user } => self.add_reaction(*conversation, *message, emoji, user),
        }
    }

    /// The conversation, where it is there by now.
    fn working(&mut self, id: ConversationId) -> Option<(&mut Working, ConversationKind)> {
        let working = self.working.get_mut(&id)?;
        let kind = working.conversation.as_ref()?.kind;
        Some((working, kind))
    }

    fn add_conversation(&mut self, conversation: &Conversation, last_activity: Option<Timestamp>) -> Imported {
        let Some(working) = self.working.get_mut(&conversation.id) else { return Imported::ConversationMissing };
        if working.conversation.is_some() {
            return Imported::Unchanged;
        }
        // Whether it is large follows from who is in it.
        working.conversation = Some(Conversation { is_large: false, ..conversation.clone() });
        working.is_new = true;
        let activity = Some(last_activity.unwrap_or(conversation.created_at));
        working.head = Head { last: None, activity, is_fallback: last_activity.is_none() };
        Imported::Added
    }

    fn add_participant(&mut self, id: ConversationId, user: &UserId, membership: Membership, places: ImportPlaces) -> Imported {
        let Some((working, kind)) = self.working(id) else { return Imported::ConversationMissing };
        if working.people.contains_key(user) {
            return Imported::Unchanged;
        }
        if kind == ConversationKind::Direct {
            let others: Vec<_> = working.people.keys().cloned().collect();
            if let Err(why) = self.pair_with(id, user, &others) {
                return Imported::Refused(why);
            }
        }
        let Some((working, _)) = self.working(id) else { return Imported::ConversationMissing };
        if working.seen.roster.joined as usize + working.added.len() >= Conversation::PARTICIPANTS_MAX {
            return Imported::Refused("a conversation has at most 20,000 participants");
        }
        working.people.insert(user.clone(), membership);
        working.added.push((user.clone(), membership, places));
        Imported::Added
    }

    /// Takes the pair that this participant completes. The sentence says why they may not.
    fn pair_with(&mut self, id: ConversationId, user: &UserId, others: &[UserId]) -> Result<(), &'static str> {
        let pair = match others {
            // With oneself, which its id says; else somebody is still to come.
            [] if id.is_with_oneself(user) => pair_key(user, user),
            [] => return Ok(()),
            [other] if id.is_with_oneself(other) => return Err("it is somebody's conversation with themselves"),
            [other] => pair_key(user, other),
            [_, _, ..] => return Err("a direct conversation has at most two participants"),
        };
        match self.paired.get(&pair) {
            Some(taken_by) if *taken_by != id => Err("these two have another direct conversation already"),
            _ => {
                self.paired.insert(pair.clone(), id);
                self.working.get_mut(&id).ok_or("its conversation is not there")?.pairs.push(pair);
                Ok(())
            }
        }
    }

    fn add_message(&mut self, message: &Arc<Message>) -> Imported {
        let Some((working, _)) = self.working(message.conversation) else { return Imported::ConversationMissing };
        match working.there.get(&message.id) {
            Some(bucket) => {
                let is_newer = working.newest_there.as_ref().is_none_or(|(newest, _)| newest.id < message.id);
                if let Some(bucket) = bucket.filter(|_| is_newer) {
                    working.newest_there = Some((Arc::clone(message), bucket));
                }
                Imported::Unchanged
            }
            None => {
                working.there.insert(message.id, None);
                working.messages.push(Arc::clone(message));
                Imported::Added
            }
        }
    }

    fn add_reaction(&mut self, id: ConversationId, message: MessageId, emoji: &Emoji, user: &UserId) -> Imported {
        let Some((working, _)) = self.working(id) else { return Imported::ConversationMissing };
        if !working.there.contains_key(&message) {
            return Imported::MessageMissing;
        }
        if !working.reacted.insert((message, emoji.clone(), user.clone())) {
            return Imported::Unchanged;
        }
        working.reactions.push((message, emoji.clone(), user.clone()));
        Imported::Added
    }
}
