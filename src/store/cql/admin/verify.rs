//! Whether what follows from messages and people agrees with them: piece by piece over the tables of the cluster.
//!
//! The index of buckets comes first, as histories are read by it. Then conversations, each with all that follows from it; then inboxes, for
//! entries of those who are not in a conversation, and reactions, for messages that do not say that they have some. What is repaired is
//! looked at again: what was not of use is not told as repaired.

use uuid::Uuid;

use super::token_scan::{behind, row_limit};
use super::verify_conversation;
use crate::model::{ConversationId, Emoji, Membership, MembershipState, MessageId, Role, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::{Writes, at_once};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, time_uuid, user};
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::register::decode_membership;
use crate::store::{Error, Finding, Result, Verified, VerifyPlace};

/// Of one piece.
const PARTITIONS_MAX: usize = 500;
const CONVERSATIONS_MAX: usize = 16;
const USERS_MAX: usize = 32;
/// Entries of one read.
const ENTRIES_MAX: usize = 500;

const BUCKET: &str = "a bucket of messages that the index does not know";
const STRAY: &str = "an entry of one who is not in the conversation";
const MARK: &str = "a message that does not say that it has reactions";

statements! {
    /// The statements of this file.
    Statements {
        buckets: Read "SELECT DISTINCT conversation_id, width, start FROM messages_by_conversation WHERE token(conversation_id, width, start) >= ? LIMIT ?";
        buckets_from: Read "SELECT DISTINCT conversation_id, width, start FROM messages_by_conversation WHERE token(conversation_id, width, start) >= token(?, ?, ?) LIMIT ?";
        indexed: Read "SELECT start FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start = ?";
        owners: Read "SELECT DISTINCT user_id FROM inbox_by_user WHERE token(user_id) >= ? LIMIT ?";
        owners_from: Read "SELECT DISTINCT user_id FROM inbox_by_user WHERE token(user_id) >= token(?) LIMIT ?";
        entries: Read "SELECT conversation_id, membership FROM inbox_by_user WHERE user_id = ? AND conversation_id > ? LIMIT ?";
        membership: Read "SELECT membership FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?";
        reacted: Read "SELECT DISTINCT conversation_id, message_id FROM reactions_by_message WHERE token(conversation_id, message_id) >= ? LIMIT ?";
        reacted_from: Read "SELECT DISTINCT conversation_id, message_id FROM reactions_by_message WHERE token(conversation_id, message_id) >= token(?, ?) LIMIT ?";
    }
}

/// In this order. A place is one of these and the key of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Buckets,
    Conversations,
    Inboxes,
    Reactions,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Buckets, Self::Conversations, Self::Inboxes, Self::Reactions];
}

type Key = Option<Vec<u8>>;

pub(crate) async fn verify(inner: &Inner, after: Option<&VerifyPlace>, repair: bool) -> Result<Verified> {
    let (stage, from) = match after.and_then(|place| place.0.split_first()) {
        Some((stage, from)) => (Stage::ALL[usize::from(*stage).min(Stage::ALL.len() - 1)], Some(from).filter(|from| !from.is_empty())),
        None => (Stage::Buckets, None),
    };
    let mut verified = Verified::default();
    let last: Key = match stage {
        Stage::Buckets => buckets(inner, from, repair, &mut verified).await?,
        Stage::Conversations => conversations(inner, from, repair, &mut verified).await?,
        Stage::Inboxes => inboxes(inner, from, repair, &mut verified).await?,
        Stage::Reactions => reactions(inner, from, repair, &mut verified).await?,
    };
    let number = stage as u8;
    verified.next = match last {
        Some(key) => Some(VerifyPlace([&[number], key.as_slice()].concat())),
        None if stage == Stage::Reactions => None,
        None => Some(VerifyPlace(vec![number + 1])),
    };
    Ok(verified)
}

fn found(what: &'static str, example: String, is_repaired: bool) -> Finding {
    Finding { what, example, is_repaired }
}

fn uuid_of(bytes: &[u8]) -> Uuid {
    Uuid::from_slice(bytes.get(..16).unwrap_or_default()).unwrap_or_default()
}

async fn buckets(inner: &Inner, from: Option<&[u8]>, repair: bool, verified: &mut Verified) -> Result<Key> {
    type Columns = (Uuid, i8, i64);
    let from: Option<Columns> = from.map(|bytes| {
        let (width, start) =
            (bytes.get(16).copied().unwrap_or_default().cast_signed(), bytes.get(17..).and_then(|bytes| bytes.try_into().ok()));
        (uuid_of(bytes), width, i64::from_be_bytes(start.unwrap_or_default()))
    });
    let statements = &inner.statements.verify;
    let after = from.map(|(id, width, start)| cells![id, width, start]);
    let is_after = |row: &Columns| from.as_ref() == Some(row);
    let rows = behind(inner, (&statements.buckets, &statements.buckets_from), after, PARTITIONS_MAX, is_after).await?;
    verified.looked_at += rows.len() as u64;
    let each = rows.iter().map(async |(id, width, start)| {
        let (id, bucket) = (ConversationId(*id), Bucket::from_row(*width, *start)?);
        let indexed = inner.cluster.read_one::<(i64,)>(&statements.indexed, cells![id, *width, *start]).await?;
        if indexed.is_some() {
            return Ok(None);
        }
        if repair {
            let mut writes = Writes::of_one_partition();
            inner.put_bucket(&mut writes, id, bucket);
            inner.cluster.write_all(writes).await?;
            crate::store::cql::message::count::forget_counts(inner, id).await?;
        }
        Ok(Some(found(BUCKET, format!("from {} on, conversation {id}", bucket.start), repair)))
    });
    verified.findings.extend(at_once(each.collect()).await?.into_iter().flatten());
    let last = rows.last().filter(|_| rows.len() == PARTITIONS_MAX);
    Ok(last.map(|(id, width, start)| [id.as_bytes().as_slice(), &width.to_be_bytes(), &start.to_be_bytes()].concat()))
}

async fn conversations(inner: &Inner, from: Option<&[u8]>, repair: bool, verified: &mut Verified) -> Result<Key> {
    let after = from.map(|bytes| ConversationId(uuid_of(bytes)));
    let page = super::export::conversations(inner, after, CONVERSATIONS_MAX).await?;
    for (conversation, _) in &page {
        let looked = verify_conversation::look(inner, conversation, false).await?;
        verified.looked_at += looked.rows;
        if looked.findings.is_empty() {
            continue;
        }
        // What was only being written is not found a second time.
        let again = verify_conversation::look(inner, conversation, repair).await?;
        let left = if repair { verify_conversation::look(inner, conversation, false).await?.findings } else { again.findings.clone() };
        verified.findings.extend(again.findings.into_iter().map(|(what, example)| {
            let is_repaired = !left.iter().any(|(other, at)| *other == what && *at == example);
            found(what, example, is_repaired)
        }));
    }
    let last = page.last().filter(|_| page.len() == CONVERSATIONS_MAX);
    Ok(last.map(|(conversation, _)| conversation.id.0.as_bytes().to_vec()))
}

async fn inboxes(inner: &Inner, from: Option<&[u8]>, repair: bool, verified: &mut Verified) -> Result<Key> {
    let from = from.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let statements = &inner.statements.verify;
    let after = from.clone().map(|name| cells![name]);
    let is_after = |(name,): &(String,)| from.as_ref() == Some(name);
    let owners: Vec<(String,)> = behind(inner, (&statements.owners, &statements.owners_from), after, USERS_MAX, is_after).await?;
    for (name,) in &owners {
        inbox(inner, &user("inbox_by_user", name)?, repair, verified).await?;
    }
    Ok(owners.last().filter(|_| owners.len() == USERS_MAX).map(|(name,)| name.clone().into_bytes()))
}

async fn inbox(inner: &Inner, owner: &UserId, repair: bool, verified: &mut Verified) -> Result<()> {
    let statements = &inner.statements.verify;
    let mut after = Uuid::nil();
    loop {
        let values = cells![owner, after, row_limit(ENTRIES_MAX)];
        let rows: Vec<(Uuid, Option<Vec<u8>>)> = inner.cluster.read(&statements.entries, values).await?;
        verified.looked_at += rows.len() as u64;
        let is_last = rows.len() < ENTRIES_MAX;
        after = rows.last().map_or(after, |(id, _)| *id);
        let each = rows.into_iter().map(async |(id, membership)| {
            let id = ConversationId(id);
            let entry = membership.map(|bytes| decode_membership("inbox_by_user", &bytes)).transpose()?;
            if !entry.is_some_and(|entry| entry.is_joined()) {
                return Ok(None);
            }
            let row: Option<(Option<Vec<u8>>,)> = inner.cluster.read_one(&statements.membership, cells![id, owner]).await?;
            let given =
                row.and_then(|(bytes,)| bytes).map(|bytes| decode_membership("participants_by_conversation", &bytes)).transpose()?;
            if given.is_some_and(|given| given.is_joined()) {
                return Ok(None);
            }
            if repair {
                let never = Membership { state: MembershipState::Left, role: Role::Member, since: None };
                let mut writes = Writes::of_one_partition();
                inner.put_membership(&mut writes, owner, id, &given.unwrap_or(never), inner.clock.now().micros());
                inner.cluster.write_all(writes).await?;
            }
            Ok(Some(found(STRAY, format!("{owner}, conversation {id}"), repair)))
        });
        verified.findings.extend(at_once(each.collect()).await?.into_iter().flatten());
        if is_last {
            return Ok(());
        }
    }
}

async fn reactions(inner: &Inner, from: Option<&[u8]>, repair: bool, verified: &mut Verified) -> Result<Key> {
    type Columns = (Uuid, scylla::value::CqlTimeuuid);
    let from = from.map(|bytes| (uuid_of(bytes), uuid_of(bytes.get(16..).unwrap_or_default())));
    let statements = &inner.statements.verify;
    let after = from.map(|(id, message)| Ok(cells![id, time_uuid("reactions_by_message", message.into())?])).transpose()?;
    let is_after = |(id, message): &Columns| from == Some((*id, (*message).into()));
    let rows: Vec<Columns> = behind(inner, (&statements.reacted, &statements.reacted_from), after, PARTITIONS_MAX, is_after).await?;
    verified.looked_at += rows.len() as u64;
    let each = rows.iter().map(async |(id, message)| {
        let (id, message): (_, MessageId) = (ConversationId(*id), time_uuid("reactions_by_message", *message)?);
        // A reaction to a message that is not there shows nowhere.
        let Some((there, bucket)) = readable(inner.seek_message(id, message, None).await)? else { return Ok(None) };
        if there.has_reactions {
            return Ok(None);
        }
        if repair {
            let none: [(&Emoji, &UserId); 0] = [];
            inner.put_imported_reactions(id, message, bucket, &none).await?;
        }
        Ok(Some(found(MARK, format!("{message}, conversation {id}"), repair)))
    });
    verified.findings.extend(at_once(each.collect()).await?.into_iter().flatten());
    let last = rows.last().filter(|_| rows.len() == PARTITIONS_MAX);
    Ok(last.map(|(id, message)| [id.as_bytes().as_slice(), Uuid::from(*message).as_bytes()].concat()))
}

/// A damaged message was named with its conversation.
pub(super) fn readable<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(Error::Corrupt { .. }) => Ok(None),
        read => read,
    }
}
