//! Who is in a conversation, and its name, on the cluster.
//!
//! A change of the membership is decided by a lightweight transaction on the participants' partition: it writes their rows, the roster and,
//! beside it, all that is still to be written of it. Then follow the entries of those who come and go, and the SYSTEM message, as a send.
//! A server that dies between leaves a roster that is not settled, and whoever looks at the membership next finishes it first. Sends need
//! not wait for that: they write to everybody who is in the partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join;
use scylla::value::Row;

use super::append::append_beside;
use super::writer_cache::{Head, People};
use crate::model::{Change, ChangeId, ChangeKind, Conversation, ConversationId, Membership, Message, ReadMarker, Role, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::{corrupt, unavailable, unknown};
use crate::store::cql::driver::executor::{Writes, at_once};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::cells;
use crate::store::cql::inbox::writes::InboxChangeKind;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::register::encode_membership;
use crate::store::cql::participant::roster::{Roster, Seen, TABLE};
use crate::store::{Audience, Members, MembershipChange, Renaming, Result, Turn, TurnKind, WakePlace};

/// How often it is begun anew because another server was faster.
const TRIES_MAX: usize = 8;
/// So many turns fit into the batch of the message that tells of them.
const BESIDE_MAX: usize = 8;
/// And into one of their own, with names as long as they may be.
const BATCH_TURNS_MAX: usize = 16;
/// An event that becomes visible so long after its id is told of once more.
const LATE_MICROS: i64 = 4_000_000;

statements! {
    /// The statements of this file. What a transaction writes has the cluster's own timestamp.
    Statements {
        change: Conditional "UPDATE participants_by_conversation SET members_version = ?, roster = ?, pending = ? WHERE conversation_id = ? IF roster = ?";
        first_change: Conditional "UPDATE participants_by_conversation SET members_version = ?, roster = ?, pending = ? WHERE conversation_id = ? IF roster = null";
        turn: Conditional "UPDATE participants_by_conversation SET membership = ? WHERE conversation_id = ? AND user_id = ?";
        pending: Read "SELECT pending FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1";
    }
}

/// All that is to be written once a change is decided. It stays where it is until the next change.
#[derive(serde::Serialize, serde::Deserialize)]
struct Pending {
    message: Message,
    /// Where the message goes, whoever writes it.
    bucket: (i8, i64),
    was_large: bool,
    turns: Vec<PendingTurn>,
    changes: Vec<(ChangeId, ChangeKind, UserId)>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct PendingTurn {
    user: UserId,
    /// Whether they join or leave; `None` where they stay.
    joins: Option<bool>,
    membership: Membership,
}

impl Pending {
    fn of(change: &MembershipChange, bucket: Bucket, was_large: bool) -> Self {
        let turn = |turn: &Turn| PendingTurn {
            user: turn.user.clone(),
            joins: match turn.kind {
                TurnKind::Joins => Some(true),
                TurnKind::Leaves => Some(false),
                TurnKind::Stays => None,
            },
            membership: turn.membership,
        };
        Self {
            message: (*change.message).clone(),
            bucket: (bucket.width.number(), bucket.start.micros()),
            was_large,
            turns: change.turns.iter().map(turn).collect(),
            changes: change.changes.iter().map(|change| (change.id, change.kind, change.user.clone())).collect(),
        }
    }

    fn changes(&self) -> impl Iterator<Item = Change> {
        self.changes.iter().map(|(id, kind, user)| Change { id: *id, kind: *kind, message: self.message.id, user: user.clone() })
    }
}

async fn pending(inner: &Inner, id: ConversationId) -> Result<Option<Pending>> {
    let row = inner.cluster.read_one::<(Option<Vec<u8>>,)>(&inner.statements.membership.pending, cells![id]).await?;
    let bytes = row.and_then(|(bytes,)| bytes);
    bytes.map(|bytes| postcard::from_bytes(&bytes)).transpose().map_err(|error| corrupt(TABLE, error))
}

/// The conversation and its roster, once everything of the last change is written.
async fn settled(inner: &Inner, id: ConversationId) -> Result<Option<(Arc<Conversation>, Seen)>> {
    let (found, seen) = try_join(inner.conversation(id), inner.roster(id)).await?;
    let Some(found) = found else { return Ok(None) };
    if seen.is_settled() {
        return Ok(Some((found.conversation, seen)));
    }
    if let Some(pending) = pending(inner, id).await?.filter(|pending| seen.roster.version == Some(pending.message.id)) {
        settle(inner, &pending).await?;
        let now = inner.clock.now();
        if pending.message.id.moment().plus_micros(LATE_MICROS) < now {
            let (message, user) = (pending.message.id, pending.message.sender.clone());
            let own = Change { id: message, kind: ChangeKind::MessageLate, message, user };
            let late = pending.changes().chain([own]).map(|change| Change { id: inner.common_wake_ids.next(now), ..change });
            super::revision::log_late(inner, id, &late.collect::<Vec<_>>()).await?;
        }
        // Who began it tells nobody any more, and who finishes it knows nothing of that.
        let moved = pending.turns.iter().filter(|turn| turn.joins.is_some()).map(|turn| WakePlace::Inbox(turn.user.clone()));
        let places: Vec<_> = moved.chain([WakePlace::Conversation(id)]).collect();
        at_once(places.iter().map(|place| inner.wake_all(place)).collect()).await.map_err(unknown)?;
    }
    let (found, seen) = try_join(inner.conversation(id), inner.roster(id)).await?;
    Ok(found.map(|found| (found.conversation, seen)))
}

fn is_owner(membership: &Membership) -> bool {
    membership.is_joined() && membership.role == Role::Owner
}

fn count(memberships: impl Iterator<Item = bool>) -> u32 {
    memberships.map(u32::from).sum()
}

pub(crate) async fn members(inner: &Inner, id: ConversationId, users: &[UserId]) -> Result<Option<Members>> {
    for _ in 0..TRIES_MAX {
        let Some((conversation, seen)) = settled(inner, id).await? else { return Ok(None) };
        let Some(given) = inner.memberships_of(id, users.iter(), &seen).await? else { continue };
        let successor = if seen.roster.owners > count(given.values().map(is_owner)) {
            None
        } else {
            let all = inner.memberships(id).await?;
            Roster::of(conversation.kind, None, all.iter().filter(|(user, _)| !users.contains(user))).heir
        };
        let counting = |user: &UserId| given.get(user).map(|given| seen.roster.as_it_counts(user, *given));
        return Ok(Some(Members {
            version: seen.roster.version,
            participant_count: u64::from(seen.roster.joined),
            memberships: users.iter().map(counting).collect(),
            successor,
            conversation,
        }));
    }
    Err(contended())
}

fn contended() -> crate::store::Error {
    unavailable("the participants of a conversation change all the time")
}

pub(crate) async fn change_membership(inner: &Inner, id: ConversationId, change: &MembershipChange) -> Result<Option<Audience>> {
    let version = change.message.id;
    for _ in 0..TRIES_MAX {
        let Some((conversation, seen)) = settled(inner, id).await? else {
            return Err(corrupt("conversations", "a change of a conversation that is not there"));
        };
        if seen.roster.has_seen(version) {
            let told = pending(inner, id).await?.filter(|pending| pending.message.id == version);
            return audience(inner, id, told.map_or(conversation.is_large, |pending| pending.was_large)).await.map(Some);
        }
        if seen.roster.version != change.seen {
            return Ok(None);
        }
        let Some(roster) = roster_after(inner, &conversation, &seen, change).await? else { continue };
        let line = inner.line(id).await?.ok_or_else(|| corrupt("conversations", "a conversation that was there"))?;
        let bucket = line.state().course.place(version, 1_024);
        let bucket = bucket.ok_or_else(|| unavailable("a conversation has too many messages in one minute"))?;
        let pending = Pending::of(change, bucket, conversation.is_large);
        if decide(inner, id, &seen, &roster, change, &pending).await? {
            settle(inner, &pending).await.map_err(unknown)?;
            return audience(inner, id, pending.was_large).await.map_err(unknown).map(Some);
        }
    }
    Err(contended())
}

/// The roster as it is after a change. `None` where it is not the one that was seen any more.
async fn roster_after(inner: &Inner, conversation: &Conversation, seen: &Seen, change: &MembershipChange) -> Result<Option<Roster>> {
    let turned = || change.turns.iter().map(|turn| (turn.user.clone(), turn.membership));
    let version = Some(change.message.id);
    if conversation.is_large {
        let users = change.turns.iter().map(|turn| &turn.user);
        let Some(before) = inner.memberships_of(conversation.id, users, seen).await? else { return Ok(None) };
        let after = || change.turns.iter().map(|turn| &turn.membership);
        let was = |of: fn(&Membership) -> bool| count(before.values().map(of));
        let is = |of: fn(&Membership) -> bool| count(after().map(of));
        let owners = (seen.roster.owners + is(is_owner)).saturating_sub(was(is_owner));
        if owners > 0 {
            let joined = (seen.roster.joined + is(Membership::is_joined)).saturating_sub(was(Membership::is_joined));
            let roster = Roster::counted(version, joined, owners);
            return Ok(Some(roster.followed_by(&seen.roster)));
        }
    }
    let mut all = inner.memberships(conversation.id).await?;
    all.extend(turned());
    Ok(Some(Roster::of(conversation.kind, version, all.iter()).followed_by(&seen.roster)))
}

/// Whether it is this change that follows on what was seen.
async fn decide(
    inner: &Inner,
    id: ConversationId,
    seen: &Seen,
    roster: &Roster,
    change: &MembershipChange,
    pending: &Pending,
) -> Result<bool> {
    let statements = &inner.statements.membership;
    let pending = postcard::to_stdvec(pending).expect("plain data serialises");
    let mut values = cells![change.message.id, roster.encode(), pending, id];
    let mut writes = Writes::of_one_partition();
    match &seen.bytes {
        Some(bytes) => {
            values.extend(cells![bytes.clone()]);
            writes.push(&statements.change, values);
        }
        None => writes.push(&statements.first_change, values),
    }
    for turn in &change.turns {
        writes.push(&statements.turn, cells![encode_membership(&turn.membership), id, &turn.user]);
    }
    Ok(inner.cluster.write_all_if::<Row>(writes).await?.is_none())
}

/// Those who are in it now, of a conversation that was not large.
async fn audience(inner: &Inner, id: ConversationId, was_large: bool) -> Result<Audience> {
    if was_large {
        return Ok(Audience { users: None });
    }
    Ok(Audience { users: Some(joined(&inner.memberships(id).await?).into()) })
}

fn joined(all: &BTreeMap<UserId, Membership>) -> Vec<UserId> {
    all.iter().filter(|(_, membership)| membership.is_joined()).map(|(user, _)| user.clone()).collect()
}

/// Writes all that follows from a change that was decided. The same once more changes nothing.
async fn settle(inner: &Inner, pending: &Pending) -> Result<()> {
    let Pending { message, bucket: (width, start), was_large, turns, .. } = pending;
    let (id, version) = (message.conversation, message.id);
    let line = inner.line(id).await?.ok_or_else(|| corrupt("conversations", "a conversation that was there"))?;
    let joined = if *was_large { Vec::new() } else { joined(&inner.memberships(id).await?) };
    let is_large = *was_large || joined.len() > Conversation::FAN_OUT_MAX;
    if is_large && !was_large {
        grow(inner, message, &joined).await?;
    }
    let joined = if is_large { Arc::default() } else { joined.into() };
    line.put_people(Arc::new(People { roster: None, is_large, joined }));
    // Read after the change was decided: a send that does not know of it yet is in it.
    let head = inner.head(id).await?;
    let head = head.filter(|head| head.last.as_ref().is_some_and(|last| last.id > version) || head.last_activity > Some(version.moment()));
    let context = Settling { inner, message, head: head.as_ref(), is_large };
    let is_beside = turns.len() <= BESIDE_MAX;
    if !is_beside {
        let pieces = turns.chunks(BATCH_TURNS_MAX).map(|piece| {
            let mut writes = Writes::logged();
            piece.iter().for_each(|turn| context.turn(&mut writes, turn));
            inner.cluster.write_all(writes)
        });
        at_once(pieces.collect()).await?;
    }
    let beside = |writes: &mut Writes| {
        turns.iter().filter(|_| is_beside).for_each(|turn| context.turn(writes, turn));
        pending.changes().for_each(|change| inner.log_change(writes, id, &change));
        inner.raise_settled(writes, id, version.order_key());
    };
    // Another server may write it too: both where it was decided, or it would be there twice.
    append_beside(inner, message, Some(Bucket::from_row(*width, *start)?), &beside).await?;
    inner.saw_message(id, version);
    let moved = turns.iter().filter(|turn| turn.joins.is_some()).map(|turn| &turn.user);
    inner.wake_inboxes(moved).await
}

/// The conversation is large from here on: first its people know, then its senders. From then on its messages are told to no inbox: whoever
/// listens to one is woken, on whichever server, and finds that the conversation is to be listened to. A wake is followed for seconds, so
/// that it may be written before the flag: and so nobody is left out where this server dies between.
async fn grow(inner: &Inner, message: &Message, joined: &[UserId]) -> Result<()> {
    let (id, version) = (message.conversation, message.id);
    let pieces = joined.chunks(2 * BATCH_TURNS_MAX).map(|piece| {
        let mut writes = Writes::logged();
        for user in piece {
            inner.put_large(&mut writes, user, id, version.moment().micros());
            inner.log_inbox_change(&mut writes, user, id, version, InboxChangeKind::MembershipChanged);
        }
        inner.cluster.write_all(writes)
    });
    // This server too: it may finish what another one decided.
    let places: Vec<_> = joined.iter().map(|user| WakePlace::Inbox(user.clone())).collect();
    let wakes = places.iter().map(|place| inner.wake_all(place)).collect();
    try_join(at_once(pieces.collect()), at_once(wakes)).await?;
    let mut flag = Writes::of_one_partition();
    inner.put_flag(&mut flag, id);
    inner.cluster.write_all(flag).await
}

struct Settling<'a> {
    inner: &'a Inner,
    message: &'a Message,
    /// Where the conversation stands further than the message.
    head: Option<&'a Head>,
    is_large: bool,
}

impl Settling<'_> {
    /// What one user's turn leaves in their inbox.
    fn turn(&self, writes: &mut Writes, turn: &PendingTurn) {
        let Self { inner, message, .. } = self;
        let (id, at, user) = (message.conversation, message.id.moment(), &turn.user);
        let Some(joins) = turn.joins else { return };
        inner.put_membership(writes, user, id, &turn.membership, at.micros());
        if joins {
            inner.raise_marker(writes, user, id, ReadMarker::at_joining(message.id));
            if self.is_large {
                inner.put_large(writes, user, id, at.micros());
            }
            if let Some(head) = self.head {
                let activity = head.last_activity.unwrap_or(at);
                inner.raise(writes, user, id, head.last.as_ref(), activity);
                inner.hint(writes, user, id, activity);
            }
        } else if self.is_large {
            inner.forget_large(writes, user, id, at.micros());
        }
        inner.log_inbox_change(writes, user, id, message.id, InboxChangeKind::MembershipChanged);
    }
}

/// The name is in the batch of the message, and of two names that of the later message stays. So nothing need be asked before.
pub(crate) async fn rename_conversation(inner: &Inner, id: ConversationId, to: &Renaming) -> Result<Audience> {
    let beside = |writes: &mut Writes| {
        inner.put_name(writes, id, &to.name, to.message.id.moment());
        inner.log_change(writes, id, &to.change);
    };
    append_beside(inner, &to.message, None, &beside).await
}
