//! Writes what an import brings to one conversation. The order is such that what is named is there, and that whatever ends half way is
//! finished by importing the same again: a participant counts last, after their entry; the head last of all.

use std::collections::BTreeMap;
use std::sync::Arc;

use scylla::value::Row;

use super::import::{Working, remember_key};
use crate::model::{Conversation, ConversationId, Emoji, InputHash, Membership, Message, MessageId, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::executor::{Writes, at_once};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{Cells, cells};
use crate::store::cql::inbox::writes::slot_of;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::register::{LastMessage, REGISTER_TIMESTAMP, encode_membership};
use crate::store::cql::send::creation::kind_number;
use crate::store::{ImportPlaces, Result};

/// What stands in for an activity that is not known: any activity that is known wins over it, also an older one.
const FALLBACK_TIMESTAMP: i64 = REGISTER_TIMESTAMP - 1;
const BATCH_ROWS_MAX: usize = 64;

statements! {
    /// The statements of this file.
    Statements {
        conversation: Write "INSERT INTO conversations (conversation_id, kind, name, created_at, created_by, input_hash) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
        activity: Write "UPDATE conversations USING TIMESTAMP ? SET last_activity = ? WHERE conversation_id = ?";
        entry: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET membership = ?, read_up_to = ?, is_muted = ?, is_pinned = ?, archived_at = ? WHERE user_id = ? AND conversation_id = ?";
        receipts: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET read_up_to = ?, delivered_up_to = ? WHERE conversation_id = ? AND user_id = ?";
        roster: Conditional "UPDATE participants_by_conversation SET roster = ? WHERE conversation_id = ? IF roster = ?";
        first_roster: Conditional "UPDATE participants_by_conversation SET roster = ? WHERE conversation_id = ? IF roster = null";
    }
}

/// Where a conversation stands with what is imported.
struct Stand {
    last: Option<LastMessage>,
    activity: Timestamp,
    is_fallback: bool,
    /// It stood elsewhere before: whoever was in it is to be told.
    is_moved: bool,
}

impl Stand {
    fn of(working: &Working, conversation: &Conversation, placed: &[(Arc<Message>, Bucket)]) -> Self {
        let found = placed.iter().chain(&working.newest_there).max_by_key(|(message, _)| message.id);
        let found = found.map(|(message, bucket)| LastMessage { id: message.id, bucket: *bucket, sender: message.sender.clone() });
        let before = &working.head;
        let is_moved = found.as_ref().is_some_and(|found| before.last.as_ref().is_none_or(|last| last.id < found.id));
        let last = if is_moved { found } else { before.last.clone() };
        let known = before.activity.filter(|_| !before.is_fallback).max(last.as_ref().map(|last| last.id.moment()));
        let activity = known.or(before.activity).unwrap_or(conversation.created_at);
        Self { last, activity, is_fallback: known.is_none(), is_moved }
    }
}

pub(crate) async fn write(inner: &Inner, working: &Working) -> Result<()> {
    let Some(conversation) = &working.conversation else { return Ok(()) };
    let id = conversation.id;
    if working.is_new {
        put_conversation(inner, working, conversation).await?;
    }
    let placed = inner.place_imported(id, &working.messages, &working.buckets).await?;
    inner.put_imported(id, &placed).await?;
    put_reactions(inner, working, id, &placed).await?;
    let keyed = placed.iter().filter(|(message, _)| message.client_key.is_some());
    at_once(keyed.map(|(message, bucket)| remember_key(inner, message, *bucket)).collect()).await?;

    let stand = Stand::of(working, conversation, &placed);
    let is_large = grow(inner, working, conversation).await?;
    if stand.is_moved && !is_large {
        move_entries(inner, working, id, &stand).await?;
    }
    add_people(inner, working, conversation, &stand, is_large).await?;
    if stand.is_moved {
        let mut head = Writes::of_one_partition();
        inner.raise_head(&mut head, id, stand.last.as_ref(), None, Some(stand.activity));
        inner.cluster.write_all(head).await?;
    }
    if let Some(last) = stand.last {
        inner.saw_message(id, last.id);
    }
    inner.known.forget(id);
    Ok(())
}

async fn put_reactions(inner: &Inner, working: &Working, id: ConversationId, placed: &[(Arc<Message>, Bucket)]) -> Result<()> {
    let mut by_message: BTreeMap<MessageId, Vec<(&Emoji, &UserId)>> = BTreeMap::new();
    working.reactions.iter().for_each(|(message, emoji, user)| by_message.entry(*message).or_default().push((emoji, user)));
    let each = by_message.iter().filter_map(|(message, reactions)| {
        let bucket = working.bucket_of(*message, placed)?;
        Some(inner.put_imported_reactions(id, *message, bucket, reactions))
    });
    at_once(each.collect()).await?;
    Ok(())
}

async fn put_conversation(inner: &Inner, working: &Working, conversation: &Conversation) -> Result<()> {
    let Conversation { id, kind, name, created_at, created_by, input_hash, .. } = conversation;
    let hash = input_hash.map(|InputHash(bytes)| bytes.to_vec());
    let name = name.as_ref().map(|name| name.as_str());
    let mut writes = Writes::of_one_partition();
    let values = cells![*id, kind_number(*kind), name, *created_at, created_by.as_ref(), hash, REGISTER_TIMESTAMP];
    writes.push(&inner.statements.import_write.conversation, values);
    let at = if working.head.is_fallback { FALLBACK_TIMESTAMP } else { REGISTER_TIMESTAMP };
    writes.push(&inner.statements.import_write.activity, cells![at, working.head.activity, *id]);
    inner.cluster.write_all(writes).await
}

/// Those who were in it before.
fn there_before(working: &Working) -> impl Iterator<Item = &UserId> {
    let is_added = |user: &UserId| working.added.iter().any(|(added, ..)| added == user);
    working.people.iter().filter(move |(user, membership)| membership.is_joined() && !is_added(user)).map(|(user, _)| user)
}

/// Whether the conversation is large with whom this import brings. Where it becomes so, its people know before the flag says it.
async fn grow(inner: &Inner, working: &Working, conversation: &Conversation) -> Result<bool> {
    let added = working.added.iter().filter(|(_, membership, _)| membership.is_joined());
    let joined = working.seen.roster.joined as usize + added.clone().count();
    let is_large = conversation.is_large || joined > Conversation::FAN_OUT_MAX;
    let before: Vec<_> = if conversation.is_large { Vec::new() } else { there_before(working).collect() };
    if is_large {
        let users = before.into_iter().chain(added.map(|(user, ..)| user));
        let put = |user: &UserId| inner.cluster.write(&inner.statements.joining.large, cells![user, conversation.id, REGISTER_TIMESTAMP]);
        at_once(users.map(put).collect()).await?;
    }
    if is_large && !conversation.is_large {
        let mut flag = Writes::of_one_partition();
        inner.put_flag(&mut flag, conversation.id);
        inner.cluster.write_all(flag).await?;
    }
    Ok(is_large)
}

/// Brings the entries of those who were there before to where the conversation stands now.
async fn move_entries(inner: &Inner, working: &Working, id: ConversationId, stand: &Stand) -> Result<()> {
    let before = &working.head;
    let left = before.activity.filter(|left| before.is_fallback || slot_of(*left) < slot_of(stand.activity));
    let each = there_before(working).map(async |user| {
        let mut writes = Writes::logged();
        inner.raise(&mut writes, user, id, stand.last.as_ref(), stand.activity);
        inner.hint(&mut writes, user, id, stand.activity);
        if let Some(left) = left {
            let at = if before.is_fallback { Timestamp::from_micros(FALLBACK_TIMESTAMP) } else { stand.activity };
            inner.forget_hint(&mut writes, user, id, slot_of(left), at);
        }
        inner.cluster.write_all(writes).await
    });
    at_once(each.collect()).await?;
    Ok(())
}

async fn add_people(inner: &Inner, working: &Working, conversation: &Conversation, stand: &Stand, is_large: bool) -> Result<()> {
    let id = conversation.id;
    for pair in &working.pairs {
        if inner.claim_pair(pair, id).await? != id {
            return Err(unavailable("a pair was taken while it was imported"));
        }
    }
    let entries = working.added.iter().map(|(user, membership, places)| add_entry(inner, id, user, membership, places, stand, is_large));
    at_once(entries.collect()).await?;
    let mut seen = working.seen.clone();
    let mut pieces = working.added.chunks(BATCH_ROWS_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let mut roster = seen.roster.clone();
        piece.iter().for_each(|(user, membership, _)| roster.add(conversation.kind, user, *membership));
        let mut writes = Writes::of_one_partition();
        let bytes = roster.encode();
        if working.is_new {
            piece.iter().for_each(|(user, membership, _)| inner.put_first_participant(&mut writes, id, user, membership));
            if pieces.peek().is_none() {
                inner.put_first_roster(&mut writes, id, None, bytes);
            }
            inner.cluster.write_all(writes).await?;
        } else {
            put_people(inner, id, seen.bytes.as_ref(), &bytes, &mut writes, piece);
            if inner.cluster.write_all_if::<Row>(writes).await?.is_some() {
                return Err(unavailable("a conversation is changed while it is imported"));
            }
            seen.bytes = Some(bytes);
        }
        seen.roster = roster;
    }
    Ok(())
}

/// These people, on the condition that the roster is the one that was seen.
fn put_people(
    inner: &Inner,
    id: ConversationId,
    seen: Option<&Vec<u8>>,
    roster: &[u8],
    writes: &mut Writes,
    people: &[(UserId, Membership, ImportPlaces)],
) {
    let mut values: Cells = cells![roster.to_vec(), id];
    let statements = &inner.statements.import_write;
    match seen {
        Some(seen) => {
            values.extend(cells![seen.clone()]);
            writes.push(&statements.roster, values);
        }
        None => writes.push(&statements.first_roster, values),
    }
    for (user, membership, _) in people {
        writes.push(&inner.statements.membership.turn, cells![encode_membership(membership), id, user]);
    }
}

/// What a participant begins with, but for being one.
async fn add_entry(
    inner: &Inner,
    id: ConversationId,
    user: &UserId,
    membership: &Membership,
    places: &ImportPlaces,
    stand: &Stand,
    is_large: bool,
) -> Result<()> {
    let ImportPlaces { read_up_to, unread_from: _, delivered_up_to, flags } = *places;
    let read_up_to = read_up_to.map(MessageId::order_key);
    let set = |flag: bool| flag.then_some(true);
    let mut writes = Writes::logged();
    let values = cells![
        REGISTER_TIMESTAMP,
        encode_membership(membership),
        places.marker(),
        set(flags.is_muted),
        set(flags.is_pinned),
        flags.archived_at,
        user,
        id
    ];
    writes.push(&inner.statements.import_write.entry, values);
    if read_up_to.is_some() || delivered_up_to.is_some() {
        let values = cells![REGISTER_TIMESTAMP, read_up_to, delivered_up_to.map(MessageId::order_key), id, user];
        writes.push(&inner.statements.import_write.receipts, values);
    }
    if membership.is_joined() {
        let (at, hinted_at) =
            if stand.is_fallback { (FALLBACK_TIMESTAMP, FALLBACK_TIMESTAMP) } else { (REGISTER_TIMESTAMP, stand.activity.micros()) };
        let last = stand.last.as_ref().map(LastMessage::encode);
        writes.push(&inner.statements.raise.last_message, cells![at, last, stand.activity, user, id]);
        if !is_large {
            let values = cells![user, slot_of(stand.activity), id, stand.activity, hinted_at];
            writes.push(&inner.statements.raise.hint, values);
        }
    }
    inner.cluster.write_all(writes).await
}
