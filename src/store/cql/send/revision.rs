//! Edits, deletions, and the log that streams read: a change is one LOGGED batch.
//!
//! The content is one cell, which an edit replaces with its own microsecond. A deletion sets `deleted_at`, which wins for every reader, and
//! puts an empty content in the place of the old one; an edit by a faster clock that came after it is kept and never shown.

use std::sync::Arc;

use futures_util::future::{join, try_join, try_join_all};
use scylla::value::{CqlTimeuuid, CqlValue};

use super::writer_cache::{Line, People};
use crate::model::{Change, ChangeKind, ConversationId, Message, MessageId, OrderKey, Revision, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::{corrupt, unavailable, unknown};
use crate::store::cql::driver::executor::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, place, time_uuid, user};
use crate::store::cql::inbox::writes::{InboxChangeKind, day_of};
use crate::store::cql::message::bucket::{Bucket, Width};
use crate::store::cql::message::register::{REGISTER_TIMESTAMP, encode_content};
use crate::store::cql::message::row::{MessageColumns, message_columns, read_message};
use crate::store::{Audience, Result, Revised, WakePlace};

const CHANGES: &str = "changes_by_conversation";
/// How long the log is kept, and one day more as days have edges.
const DAYS_KEPT: i32 = 36;
const DAYS_AT_ONCE: usize = 12;
const ROWS_MAX: usize = 1_000;
/// How often the membership may change while a change looks who takes part.
const TRIES_MAX: usize = 16;

statements! {
    /// The statements of this file.
    Statements {
        message: Read concat!("SELECT ", message_columns!(), " FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?");
        revise: Write "UPDATE messages_by_conversation USING TIMESTAMP ? SET content = ?, deleted_at = ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
        log: Write "INSERT INTO changes_by_conversation (conversation_id, day, change_id, kind, message_id, user_id) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
        newest: Write "UPDATE conversations USING TIMESTAMP ? SET newest_change = ? WHERE conversation_id = ?";
        newest_change: Read "SELECT newest_change FROM conversations WHERE conversation_id = ?";
        changes: Read "SELECT change_id, kind, message_id, user_id FROM changes_by_conversation WHERE conversation_id = ? AND day = ? AND change_id > ? ORDER BY change_id ASC LIMIT ?";
    }
}

impl Inner {
    /// A message, wherever it lies: in the bucket that is guessed, or in one of the four that can hold it.
    pub(crate) async fn seek_message(
        &self,
        conversation: ConversationId,
        id: MessageId,
        guess: Option<Bucket>,
    ) -> Result<Option<(Message, Bucket)>> {
        if let Some(bucket) = guess
            && let Some(message) = self.message_in(conversation, id, bucket).await?
        {
            return Ok(Some((message, bucket)));
        }
        let buckets = Width::ALL.map(|width| Bucket::holding(id.moment(), width));
        let found = try_join_all(buckets.map(|bucket| self.message_in(conversation, id, bucket))).await?;
        Ok(found.into_iter().zip(buckets).find_map(|(message, bucket)| Some((message?, bucket))))
    }

    async fn message_in(&self, conversation: ConversationId, id: MessageId, bucket: Bucket) -> Result<Option<Message>> {
        let values = cells![conversation, bucket.width.number(), bucket.start, id];
        let row: Option<MessageColumns> = self.cluster.read_one(&self.statements.revision.message, values).await?;
        row.map_or(Ok(None), |columns| read_message(conversation, columns))
    }

    /// Logs a change for streams that were away.
    pub(crate) fn log_change(&self, writes: &mut Writes, conversation: ConversationId, change: &Change) {
        let kind = change.kind as i8;
        let values = cells![conversation, day_of(change.id.moment()), change.id, kind, change.message, &change.user, change.id.moment()];
        writes.push(&self.statements.revision.log, values);
        writes.push(&self.statements.revision.newest, cells![REGISTER_TIMESTAMP, change.id.order_key(), conversation]);
    }
}

pub(crate) async fn revise_message(
    inner: &Inner,
    conversation: ConversationId,
    revision: &Revision,
    change: &Change,
) -> Result<Option<Revised>> {
    let Some(line) = inner.line(conversation).await? else { return Ok(None) };
    let guess = line.state().course.placed(change.message);
    let (found, head) = try_join(inner.seek_message(conversation, change.message, guess), inner.head(conversation)).await?;
    let Some((present, bucket)) = found else { return Ok(None) };
    // Deleted by this very change: its outcome was not known, and what is written once more settles it.
    let is_our_deletion = *revision == Revision::Deletion && present.deleted_at == Some(change.id.moment());
    if present.deleted_at.is_some() && !is_our_deletion {
        let users = (!line.people().is_large).then(Arc::default);
        return Ok(Some(Revised { message: Arc::new(present), audience: Audience { users } }));
    }
    let message = match revision {
        Revision::Content(content) => Message { content: Some(content.clone()), ..present },
        Revision::Deletion => Message { content: None, deleted_at: Some(change.id.moment()), ..present },
    };
    let mut writes = Writes::logged();
    // Empty, not null: a page full of deletions is no page full of tombstones.
    let content = message.content.as_ref().map_or_else(Vec::new, encode_content);
    let values = cells![change.id.moment(), content, message.deleted_at, conversation, bucket.width.number(), bucket.start, message.id,];
    writes.push(&inner.statements.revision.revise, values);
    inner.log_change(&mut writes, conversation, change);
    // A deletion may alter what is unread; an edit shows only where the message is the last one.
    let is_last = head.and_then(|head| head.last).is_some_and(|last| last.id == message.id);
    let shown = (is_last || *revision == Revision::Deletion).then_some((change, InboxChangeKind::MessageChanged));
    let audience = keep(inner, &line, conversation, writes, shown).await?;
    Ok(Some(Revised { message: Arc::new(message), audience }))
}

pub(crate) async fn log_late(inner: &Inner, conversation: ConversationId, changes: &[Change]) -> Result<()> {
    let Some(newest) = changes.iter().max_by_key(|change| change.id) else { return Ok(()) };
    let line = inner.line(conversation).await?;
    let line = line.ok_or_else(|| corrupt("conversations", "a change of a conversation that is not there"))?;
    let mut writes = Writes::logged();
    changes.iter().for_each(|change| inner.log_change(&mut writes, conversation, change));
    let is_message = changes.iter().any(|change| change.kind == ChangeKind::MessageLate);
    let kind = if is_message { InboxChangeKind::MessageLate } else { InboxChangeKind::MessageChanged };
    // Inboxes tell states: the newest stands for all.
    keep(inner, &line, conversation, writes, Some((newest, kind))).await?;
    Ok(())
}

/// Writes a change, and into the inboxes that show it. Answers with whose those are.
async fn keep(
    inner: &Inner,
    line: &Line,
    conversation: ConversationId,
    mut writes: Writes,
    shown: Option<(&Change, InboxChangeKind)>,
) -> Result<Audience> {
    let mut people = line.people();
    let tell = |writes: &mut Writes, user: &UserId| {
        if let Some((change, kind)) = shown {
            inner.log_inbox_change(writes, user, conversation, change.id, kind);
        }
    };
    people.joined.iter().for_each(|user| tell(&mut writes, user));
    let (kept, woken) = join(inner.cluster.write_all(writes), inner.wake(&WakePlace::Conversation(conversation))).await;
    kept?;
    if let Some((change, _)) = shown {
        inner.saw_change(conversation, change.id);
    }
    woken.map_err(unknown)?;
    for _ in 0..TRIES_MAX {
        let Some(now) = inner.other_people(conversation, &people).await.map_err(unknown)? else {
            return Ok(audience(&people, shown.is_some()));
        };
        let mut writes = Writes::logged();
        now.beside(&people).for_each(|user| tell(&mut writes, user));
        inner.cluster.write_all(writes).await.map_err(unknown)?;
        line.put_people(Arc::clone(&now));
        people = now;
    }
    Err(unknown(unavailable("the participants of a conversation change all the time")))
}

fn audience(people: &People, is_shown: bool) -> Audience {
    if is_shown || people.is_large { people.audience() } else { Audience { users: Some(Arc::default()) } }
}

pub(crate) async fn changes(inner: &Inner, conversation: ConversationId, after: OrderKey, limit: usize) -> Result<Vec<Change>> {
    let row: Option<(Option<Vec<u8>>,)> = inner.cluster.read_one(&inner.statements.revision.newest_change, cells![conversation]).await?;
    let Some((Some(newest),)) = row else { return Ok(Vec::new()) };
    let newest = place("conversations", &newest)?;
    if newest <= after {
        return Ok(Vec::new());
    }
    let last = day_of(newest.moment());
    let days: Vec<_> = (day_of(after.moment()).max(last - DAYS_KEPT)..=last).collect();
    let mut changes = Vec::new();
    for some in days.chunks(DAYS_AT_ONCE) {
        let rest = limit - changes.len();
        let found = try_join_all(some.iter().map(|day| changes_of(inner, conversation, *day, after, rest))).await?;
        changes.extend(found.into_iter().flatten().take(rest));
        if changes.len() == limit {
            break;
        }
    }
    if let Some(newest) = changes.last() {
        inner.saw_change(conversation, newest.id);
    }
    Ok(changes)
}

async fn changes_of(inner: &Inner, conversation: ConversationId, day: i32, after: OrderKey, limit: usize) -> Result<Vec<Change>> {
    type Columns = (CqlTimeuuid, Option<i8>, Option<CqlTimeuuid>, Option<String>);
    let mut changes = Vec::new();
    let mut bound = time_uuid_at(after);
    while changes.len() < limit {
        let count = (limit - changes.len()).min(ROWS_MAX);
        let values = cells![conversation, day, bound, i32::try_from(count).expect("at most a thousand")];
        let rows: Vec<Columns> = inner.cluster.read(&inner.statements.revision.changes, values).await?;
        let is_last = rows.len() < count;
        for (id, kind, message, name) in rows {
            let (Some(kind), Some(message), Some(name)) = (kind, message, name) else { continue };
            changes.push(Change {
                id: time_uuid(CHANGES, id)?,
                // By the place in the enum, as serde counts.
                kind: postcard::from_bytes(&[kind.cast_unsigned()]).map_err(|error| corrupt(CHANGES, error))?,
                message: time_uuid(CHANGES, message)?,
                user: user(CHANGES, &name)?,
            });
        }
        match changes.last() {
            Some(last) if !is_last => bound = time_uuid_at(last.id.order_key()),
            Some(_) | None => break,
        }
    }
    Ok(changes)
}

/// A place as a bound for a clustering key, be it that of an id or not: Cassandra compares the time and then the other bytes.
fn time_uuid_at(place: OrderKey) -> CqlValue {
    let place = place.max(OrderKey::first_at(Timestamp::ZERO)).min(OrderKey::first_at(Timestamp::MAX));
    let [a, b, c, d, e, f, g, h, rest @ ..] = place.0;
    let mut bytes = [e, f, g, h, c, d, a & 0x0f | 0x10, b, 0, 0, 0, 0, 0, 0, 0, 0];
    for (to, from) in bytes[8..].iter_mut().zip(rest) {
        *to = from ^ 0x80;
    }
    CqlValue::Timeuuid(CqlTimeuuid::from_bytes(bytes))
}
