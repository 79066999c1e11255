//! Conversations on the cluster: a viewer's place in them, and how they are made.
//!
//! A conversation is made in three steps: its pair, where it is a direct one, and its row are each taken by a lightweight transaction; then
//! come its people, all in one batch. One whose maker died between is nobody's yet, and whoever makes it again finishes it.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select, try_join};
use scylla::value::{CqlTimeuuid, Row};
use uuid::Uuid;

use crate::model::id::pair_key;
use crate::model::{
    ChangeId, Conversation, ConversationId, ConversationKind, GroupName, InputHash, Membership, TimeUuid, Timestamp, UserId,
};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::{corrupt, unavailable, unknown};
use crate::store::cql::driver::executor::{Writes, at_once};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, time_uuid, user};
use crate::store::cql::inbox::writes::InboxChangeKind;
use crate::store::cql::message::register::{decode_membership, newest_of};
use crate::store::cql::participant::roster::{self, Roster};
use crate::store::{Created, NewConversation, Result, Seat, WakePlace};

const TABLE: &str = "conversations";
/// So many people and all that they begin with fit into one batch.
const BATCH_PEOPLE_MAX: usize = 16;
/// So many rows of people alone do.
const BATCH_ROWS_MAX: usize = 100;

statements! {
    /// The statements of this file.
    Statements {
        conversation: Read "SELECT kind, name, created_at, created_by, input_hash, is_large, made, last_message, newest_change FROM conversations WHERE conversation_id = ?";
        seat: Read "SELECT membership, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?";
        direct: Read "SELECT conversation_id FROM direct_by_pair WHERE pair_key = ?";
        claim_pair: Conditional "INSERT INTO direct_by_pair (pair_key, conversation_id) VALUES (?, ?) IF NOT EXISTS";
        make: Conditional "INSERT INTO conversations (conversation_id, kind, created_at, created_by, input_hash, made) VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS";
    }
}

/// Never reordered: the place in this list is what is stored.
pub(crate) fn kind_number(kind: ConversationKind) -> i8 {
    match kind {
        ConversationKind::Direct => 0,
        ConversationKind::Group => 1,
    }
}

/// A conversation's row, and under which change it was made, where it was not imported.
pub(crate) struct Found {
    pub(crate) conversation: Arc<Conversation>,
    made: Option<ChangeId>,
    newest: Option<TimeUuid>,
}

type Columns = (
    Option<i8>,
    Option<String>,
    Option<i64>,
    Option<String>,
    Option<Vec<u8>>,
    Option<bool>,
    Option<CqlTimeuuid>,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
);

/// What a conversation's row says of itself: kind, name, created_at, created_by, input_hash and is_large.
pub(crate) type ConversationColumns = (Option<i8>, Option<String>, Option<i64>, Option<String>, Option<Vec<u8>>, Option<bool>);

/// The conversation of a row. `None` where it is only where a conversation would stand.
pub(crate) fn read_conversation(id: ConversationId, columns: ConversationColumns) -> Result<Option<Conversation>> {
    let (Some(kind), name, created_at, created_by, input_hash, is_large) = columns else { return Ok(None) };
    let kind = match kind {
        0 => ConversationKind::Direct,
        1 => ConversationKind::Group,
        _ => return Err(corrupt(TABLE, "a conversation is of one of two kinds")),
    };
    let hash = |bytes: Vec<u8>| bytes.try_into().map(InputHash).map_err(|_| corrupt(TABLE, "a hash has 32 bytes"));
    Ok(Some(Conversation {
        id,
        kind,
        name: name.map(|name| GroupName::from_history(&name)).transpose().map_err(|error| corrupt(TABLE, error))?,
        created_at: Timestamp::from_micros(created_at.ok_or_else(|| corrupt(TABLE, "a conversation has a time"))?),
        created_by: created_by.map(|name| user(TABLE, &name)).transpose()?,
        input_hash: input_hash.map(hash).transpose()?,
        is_large: is_large.unwrap_or_default(),
    }))
}

impl Inner {
    pub(crate) async fn conversation(&self, id: ConversationId) -> Result<Option<Found>> {
        let row = self.cluster.read_one::<Columns>(&self.statements.conversation.conversation, cells![id]).await?;
        let Some((kind, name, created_at, created_by, input_hash, is_large, made, last, change)) = row else { return Ok(None) };
        let Some(conversation) = read_conversation(id, (kind, name, created_at, created_by, input_hash, is_large))? else {
            return Ok(None);
        };
        let made = made.map(|id| time_uuid(TABLE, id)).transpose()?;
        let newest = newest_of(TABLE, last, change)?;
        Ok(Some(Found { conversation: Arc::new(conversation), made, newest }))
    }

    /// Takes a pair for a conversation. Answers with the one that has it.
    pub(crate) async fn claim_pair(&self, pair: &[u8], id: ConversationId) -> Result<ConversationId> {
        let taken = self.cluster.write_if::<Row>(&self.statements.conversation.claim_pair, cells![pair.to_vec(), id]).await?;
        if taken.is_none() {
            return Ok(id);
        }
        self.paired(pair).await?.ok_or_else(|| unavailable("a pair that is taken is not to be read"))
    }

    /// Tells the other servers to look into these inboxes.
    pub(crate) async fn wake_inboxes(&self, users: impl Iterator<Item = &UserId>) -> Result<()> {
        let places: Vec<_> = users.map(|user| WakePlace::Inbox(user.clone())).collect();
        at_once(places.iter().map(|place| self.wake(place)).collect()).await.map_err(unknown)?;
        Ok(())
    }

    pub(crate) async fn paired(&self, pair: &[u8]) -> Result<Option<ConversationId>> {
        let row = self.cluster.read_one::<(Option<Uuid>,)>(&self.statements.conversation.direct, cells![pair.to_vec()]).await?;
        Ok(row.and_then(|(id,)| id).map(ConversationId))
    }
}

pub(crate) async fn seats(inner: &Inner, viewer: &UserId, conversations: &[ConversationId]) -> Result<Vec<Option<Seat>>> {
    at_once(conversations.iter().map(|id| seat(inner, viewer, *id)).collect()).await
}

async fn seat(inner: &Inner, viewer: &UserId, id: ConversationId) -> Result<Option<Seat>> {
    type Columns = (Option<Vec<u8>>, Option<Vec<u8>>);
    let row = inner.cluster.read_one::<Columns>(&inner.statements.conversation.seat, cells![id, viewer]);
    // The viewer's own row decides: a stranger waits for nothing of the conversation, be it there or not.
    let (row, found) = match select(pin!(row), pin!(inner.conversation(id))).await {
        Either::Left((row, found)) => match row? {
            None | Some((None, _)) => return Ok(None),
            row @ Some(_) => (row, found.await?),
        },
        Either::Right((found, row)) => match row.await? {
            None | Some((None, _)) => return Ok(None),
            row @ Some(_) => (row, found?),
        },
    };
    let (Some(found), Some((Some(membership), roster))) = (found, row) else { return Ok(None) };
    let given = decode_membership(roster::TABLE, &membership)?;
    let membership = Roster::beside(roster.as_deref())?.as_it_counts(viewer, given);
    Ok(Some(Seat { conversation: found.conversation, membership, newest: found.newest }))
}

pub(crate) async fn direct_conversation(inner: &Inner, one: &UserId, other: &UserId) -> Result<Option<ConversationId>> {
    inner.paired(&pair_key(one, other)).await
}

/// The pair by which a direct conversation is found: of one participant, with oneself.
fn pair_of(new: &NewConversation) -> Option<Vec<u8>> {
    match (new.conversation.kind, new.participants.as_slice()) {
        (ConversationKind::Direct, [(one, _)]) => Some(pair_key(one, one)),
        (ConversationKind::Direct, [(one, _), (other, _)]) => Some(pair_key(one, other)),
        _ => None,
    }
}

pub(crate) async fn create_conversation(inner: &Inner, new: &NewConversation) -> Result<Created> {
    let mut new = new.clone();
    if let Some(pair) = pair_of(&new) {
        // One that has the pair and is not there: its maker died between, and it is made now.
        new.conversation.id = inner.claim_pair(&pair, new.conversation.id).await?;
    }
    let Conversation { id, kind, created_at, ref created_by, input_hash, .. } = new.conversation;
    let hash = input_hash.map(|InputHash(bytes)| bytes.to_vec());
    let values = cells![id, kind_number(kind), created_at, created_by.as_ref(), hash, new.change];
    if inner.cluster.write_if::<Row>(&inner.statements.conversation.make, values).await?.is_none() {
        people(inner, &new).await?;
        return Ok(Created::New);
    }
    let (found, seen) = try_join(inner.conversation(id), inner.roster(id)).await?;
    let found = found.ok_or_else(|| corrupt(TABLE, "a conversation that is taken has a row"))?;
    // Made with the same input, so that its people and its name are the same, too.
    let is_same = found.conversation.kind == kind && found.conversation.input_hash == input_hash;
    if let (None, Some(made), true) = (seen.bytes, found.made, is_same) {
        let created_at = found.conversation.created_at;
        let new = NewConversation { conversation: Conversation { created_at, ..new.conversation }, change: made, ..new };
        people(inner, &new).await?;
        // Nobody else tells of it.
        let places: Vec<_> = new.participants.iter().map(|(user, _)| WakePlace::Inbox(user.clone())).collect();
        at_once(places.iter().map(|place| inner.wake_all(place)).collect()).await.map_err(unknown)?;
        let found = inner.conversation(id).await?.ok_or_else(|| corrupt(TABLE, "a conversation that was there"))?;
        return Ok(Created::Existing(found.conversation));
    }
    Ok(Created::Existing(found.conversation))
}

/// The people of a conversation that has its row: their entries, and then themselves, so that nobody is in it without an entry.
async fn people(inner: &Inner, new: &NewConversation) -> Result<()> {
    let NewConversation { conversation, participants, change } = new;
    let id = conversation.id;
    let is_large = conversation.is_large || participants.len() > Conversation::FAN_OUT_MAX;
    let is_whole = participants.len() <= BATCH_PEOPLE_MAX && !is_large;
    let memberships: Vec<_> = participants.iter().map(|(user, role)| (user, Membership::joined(*role))).collect();

    let mut head = Writes::logged();
    inner.raise_head(&mut head, id, None, Some(*change), Some(conversation.created_at));
    if let Some(name) = &conversation.name {
        inner.put_name(&mut head, id, name, change.moment());
    }
    if is_large {
        inner.put_flag(&mut head, id);
    }
    let roster = Roster::of(conversation.kind, Some(*change), memberships.iter().map(|(user, membership)| (*user, membership)));
    if is_whole {
        memberships.iter().for_each(|(user, membership)| entry(inner, &mut head, new, user, membership, false));
        memberships.iter().for_each(|(user, membership)| inner.put_first_participant(&mut head, id, user, membership));
        inner.put_first_roster(&mut head, id, Some(*change), roster.encode());
        inner.cluster.write_all(head).await?;
    } else {
        // Some of it may be there when another part fails, and then nobody can say that it was not done.
        in_pieces(inner, new, &memberships, head, &roster, is_large).await.map_err(unknown)?;
    }
    inner.wake_inboxes(participants.iter().map(|(user, _)| user)).await
}

/// More people than fit into one batch: all entries, then the conversation's head, then who is in it.
async fn in_pieces(
    inner: &Inner,
    new: &NewConversation,
    memberships: &[(&UserId, Membership)],
    head: Writes,
    roster: &Roster,
    is_large: bool,
) -> Result<()> {
    let id = new.conversation.id;
    let entries = memberships.chunks(BATCH_PEOPLE_MAX).map(|piece| {
        let mut writes = Writes::logged();
        piece.iter().for_each(|(user, membership)| entry(inner, &mut writes, new, user, membership, is_large));
        inner.cluster.write_all(writes)
    });
    at_once(entries.collect()).await?;
    inner.cluster.write_all(head).await?;
    let mut pieces = memberships.chunks(BATCH_ROWS_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let mut writes = Writes::of_one_partition();
        piece.iter().for_each(|(user, membership)| inner.put_first_participant(&mut writes, id, user, membership));
        // With the last of them it is made.
        if pieces.peek().is_none() {
            inner.put_first_roster(&mut writes, id, Some(new.change), roster.encode());
        }
        inner.cluster.write_all(writes).await?;
    }
    Ok(())
}

/// What one participant of a new conversation begins with.
fn entry(inner: &Inner, writes: &mut Writes, new: &NewConversation, user: &UserId, membership: &Membership, is_large: bool) {
    let (id, activity, made) = (new.conversation.id, new.conversation.created_at, new.change.moment().micros());
    inner.put_membership(writes, user, id, membership, made);
    inner.raise(writes, user, id, None, activity);
    if is_large {
        inner.put_large(writes, user, id, made);
    } else {
        inner.hint(writes, user, id, activity);
    }
    inner.log_inbox_change(writes, user, id, new.change, InboxChangeKind::ConversationMade);
}
