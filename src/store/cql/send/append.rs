//! Sends: messages, and what they leave in the index of buckets, in the head of their conversation and in inboxes, in one LOGGED batch.
//!
//! Nothing is read before it: who takes part is known from the last time, and checked afterwards by the roster. Who came
//! in meanwhile is written to before the send is acknowledged; and who brings somebody in reads the newest message afterwards. So one of
//! the two always sees the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{join, try_join_all};

use super::idempotency::{self, Placed};
use super::writer_cache::{Hint, Line, People};
use crate::model::{Conversation, ConversationId, Message, MessageKind, OrderKey, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::{corrupt, unavailable, unknown};
use crate::store::cql::driver::executor::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::cells;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::register::{LastMessage, REGISTER_TIMESTAMP, encode_content};
use crate::store::{Appended, Audience, NewMessage, Result, WakePlace};

/// What a batch holds, as estimated here; Cassandra refuses 50 KiB. One message always fits.
const BATCH_BYTES_MAX: usize = 40 * 1024;
/// What the cluster adds to the cells of a row, rounded up.
const ROW_BYTES: usize = 160;
/// How often the membership may change while a send looks who takes part.
const TRIES_MAX: usize = 16;
/// Messages that are looked for at the same time, each in four buckets.
const LOOKED_FOR_AT_ONCE: usize = 8;

statements! {
    /// The statements of this file.
    Statements {
        head: Write "UPDATE conversations USING TIMESTAMP ? SET last_message = ?, last_activity = ? WHERE conversation_id = ?";
        entry: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET last_message = ?, last_activity = ?, sent_up_to = ? WHERE user_id = ? AND conversation_id = ?";
    }
}

/// What goes into the batch of a message beside it.
pub(crate) type Beside<'a> = &'a (dyn Fn(&mut Writes) + Sync);

pub(crate) async fn append_messages(inner: &Inner, conversation: ConversationId, messages: &[NewMessage]) -> Result<Appended> {
    append(inner, conversation, messages, None, &|_| ()).await
}

/// Keeps a message without a key together with something else, which is small. With a bucket: there, whatever this server would choose.
pub(crate) async fn append_beside(inner: &Inner, message: &Message, bucket: Option<Bucket>, beside: Beside<'_>) -> Result<Audience> {
    let new = NewMessage { message: Arc::new(message.clone()), input_hash: None };
    Ok(append(inner, message.conversation, &[new], bucket, beside).await?.audience)
}

async fn append(
    inner: &Inner,
    conversation: ConversationId,
    messages: &[NewMessage],
    bucket: Option<Bucket>,
    beside: Beside<'_>,
) -> Result<Appended> {
    let line = inner.line(conversation).await?;
    let line = line.ok_or_else(|| corrupt("conversations", "a message of a conversation that is not there"))?;
    inner.known.hold(conversation, &line);
    let placed = match bucket {
        Some(bucket) => messages.iter().map(|new| Placed { new, bucket }).collect(),
        None => place(inner, &line, messages).await?,
    };
    let (kept, taken) = idempotency::claim(inner, placed).await?;
    let audience = if kept.is_empty() { line.people().audience() } else { keep(inner, &line, &kept, beside).await? };
    inner.known.release(conversation);
    Ok(Appended { audience, taken })
}

/// Chooses the buckets. The same messages again get the same ones: they are remembered while the outcome is open, and where this server
/// has forgotten, it looks whether the message is there. Where a key was claimed, the claim decides.
async fn place<'a>(inner: &Inner, line: &Line, messages: &'a [NewMessage]) -> Result<Vec<Placed<'a>>> {
    let may_be_there: Vec<_> = {
        let state = line.state();
        let unkeyed = messages.iter().filter(|new| new.message.client_key.is_none());
        unkeyed.filter(|new| Some(new.message.id) <= state.newest_then && state.course.placed(new.message.id).is_none()).collect()
    };
    for some in may_be_there.chunks(LOOKED_FOR_AT_ONCE) {
        let found = try_join_all(some.iter().map(|new| inner.seek_message(new.message.conversation, new.message.id, None))).await?;
        let mut state = line.state();
        found.into_iter().flatten().for_each(|(message, bucket)| state.course.remember(message.id, bucket));
    }
    let mut state = line.state();
    let place = |new: &'a NewMessage| {
        let bucket = state.course.place(new.message.id, message_bytes(&new.message));
        bucket.map(|bucket| Placed { new, bucket }).ok_or_else(|| unavailable("a conversation has too many messages in one minute"))
    };
    messages.iter().map(place).collect()
}

/// What a message takes in a batch, rounded up.
fn message_bytes(message: &Message) -> usize {
    let content = message.content.as_ref().map_or(0, |content| encode_content(content).len());
    content + message.sender.as_str().len() + message.client_key.as_ref().map_or(0, |key| key.as_str().len()) + ROW_BYTES
}

/// Writes messages whose keys are claimed, and all that follows from them.
async fn keep(inner: &Inner, line: &Line, placed: &[Placed<'_>], beside: Beside<'_>) -> Result<Audience> {
    let people = line.people();
    write(inner, line, &people, placed, beside).await?;
    let people = write_missed(inner, line, people, placed).await.map_err(unknown)?;
    Ok(people.audience())
}

/// In one batch, or in several one after the other, where one would be too big: each with its wake.
async fn write(inner: &Inner, line: &Line, people: &Arc<People>, placed: &[Placed<'_>], beside: Beside<'_>) -> Result<()> {
    for (number, part) in parts(people, placed).into_iter().enumerate() {
        let raised = Raised::by(part);
        let (hint, new_buckets) = {
            let state = line.state();
            let mut buckets: Vec<_> = part.iter().map(|one| one.bucket).filter(|bucket| !state.is_indexed(*bucket)).collect();
            buckets.sort_unstable();
            buckets.dedup();
            (state.wanted_hint(people, raised.last.id.moment()), buckets)
        };
        let mut writes = Writes::logged();
        part.iter().for_each(|one| inner.put_message(&mut writes, one.message(), one.bucket));
        new_buckets.iter().for_each(|bucket| inner.put_bucket(&mut writes, raised.conversation, *bucket));
        raised.put(inner, &mut writes, people, hint);
        if number == 0 {
            beside(&mut writes);
        }
        let wake = WakePlace::Conversation(raised.conversation);
        let (written, woken) = join(inner.cluster.write_all(writes), inner.wake(&wake)).await;
        if number == 0 {
            written?
        } else {
            written.map_err(unknown)?
        }
        woken.map_err(unknown)?;
        inner.renew_head(raised.conversation, &raised.last, raised.last.id.moment());
        let mut state = line.state();
        new_buckets.into_iter().for_each(|bucket| state.put_indexed(bucket));
        state.last_activity = state.last_activity.max(raised.last.id.moment());
        if let Some(hint) = hint {
            state.put_hinted(hint, people);
        }
    }
    Ok(())
}

/// Each message is wholly in one part, with the inbox rows.
fn parts<'a, 'b>(people: &People, placed: &'b [Placed<'a>]) -> Vec<&'b [Placed<'a>]> {
    let sender = placed.iter().map(|one| one.message().sender.as_str().len()).max().unwrap_or(0);
    let entries = if people.is_large { placed.len() } else { people.joined.len() };
    // The head, and for each entry its row, a hint and the end of one.
    let frame = (1 + entries) * (2 * ROW_BYTES + sender);
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, frame);
    for (index, one) in placed.iter().enumerate() {
        let more = message_bytes(one.message());
        if bytes + more > BATCH_BYTES_MAX && index > start {
            parts.push(&placed[start..index]);
            (start, bytes) = (index, frame);
        }
        bytes += more;
    }
    parts.push(&placed[start..]);
    parts
}

/// What messages raise: the newest of them the head and the entries, each sender's newest their own marker.
struct Raised<'a> {
    conversation: ConversationId,
    last: LastMessage,
    /// Up to where each sender sent; `None` for one in whose name the server spoke.
    sent: BTreeMap<&'a UserId, Option<OrderKey>>,
}

impl<'a> Raised<'a> {
    /// By at least one message.
    fn by(part: &[Placed<'a>]) -> Self {
        let newest = part.iter().max_by_key(|one| one.message().id).expect("a part has a message");
        let mut sent = BTreeMap::new();
        for message in part.iter().map(Placed::message) {
            // What the server says in somebody's name moves no marker of theirs.
            let up_to = (message.kind == MessageKind::Text).then_some(message.id.order_key());
            let known = sent.entry(&message.sender).or_insert(up_to);
            *known = up_to.max(*known);
        }
        let Message { conversation, id, sender, .. } = newest.message();
        Self { conversation: *conversation, last: LastMessage { id: *id, bucket: newest.bucket, sender: sender.clone() }, sent }
    }

    fn put(&self, inner: &Inner, writes: &mut Writes, people: &People, hint: Option<Hint>) {
        let activity = self.last.id.moment();
        writes.push(&inner.statements.append.head, cells![REGISTER_TIMESTAMP, self.last.encode(), activity, self.conversation]);
        for user in people.joined.iter() {
            self.put_entry(inner, writes, user, hint);
        }
        for (sender, up_to) in &self.sent {
            if people.is_large {
                self.put_entry(inner, writes, sender, None);
            } else if let Some(up_to) = up_to
                && !people.joined.contains(sender)
            {
                inner.raise_sent(writes, sender, self.conversation, *up_to);
            }
        }
    }

    fn put_entry(&self, inner: &Inner, writes: &mut Writes, user: &UserId, hint: Option<Hint>) {
        let activity = self.last.id.moment();
        let sent = self.sent.get(user).copied().flatten();
        let values = cells![REGISTER_TIMESTAMP, self.last.encode(), activity, sent, user, self.conversation];
        writes.push(&inner.statements.append.entry, values);
        let Some(hint) = hint else { return };
        inner.hint(writes, user, self.conversation, hint.activity);
        if let Some(left) = hint.left {
            inner.forget_hint(writes, user, self.conversation, left, hint.activity);
        }
    }
}

/// Writes to those who came in since the list of people was read, until nobody did. Answers with who takes part then.
async fn write_missed(inner: &Inner, line: &Line, mut people: Arc<People>, placed: &[Placed<'_>]) -> Result<Arc<People>> {
    let raised = Raised::by(placed);
    let activity = raised.last.id.moment();
    for _ in 0..TRIES_MAX {
        let Some(now) = inner.other_people(raised.conversation, &people).await? else { return Ok(people) };
        let hint = (line.state().last_activity <= activity).then_some(Hint { activity, left: None });
        let missed: Vec<_> = now.beside(&people).collect();
        for some in missed.chunks(Conversation::FAN_OUT_MAX) {
            let mut writes = Writes::logged();
            some.iter().for_each(|user| raised.put_entry(inner, &mut writes, user, hint));
            inner.cluster.write_all(writes).await?;
        }
        line.put_people(Arc::clone(&now));
        people = now;
    }
    Err(unavailable("the participants of a conversation change all the time"))
}
