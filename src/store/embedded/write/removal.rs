//! Removal of history from the embedded store: rows are deleted in bounded batches, the oldest messages first.
//!
//! The engine has no deletion of a range, so each deleted row leaves a tombstone until it is compacted. Reads end at the
//! floor and meet none of them. A batch holds messages with all that belongs to them, so no crash leaves a part.

use std::sync::atomic::Ordering;

use fjall::Slice;

use super::compare_and_set::{Plan, state_write};
use super::pin::PinListChange;
use crate::model::{
    ConversationId, Direction, Message, MessageId, OrderKey, OutboxEvent, TimeUuid, Timestamp,
};
use crate::store::embedded::admin::compaction::MESSAGE_TABLES;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::{CommitOutcome, Op};
use crate::store::embedded::engine::db::{InTable, MalformedKey, View, corrupt};
use crate::store::embedded::engine::key::{self, Key};
use crate::store::embedded::engine::record::HeadRecord;
use crate::store::embedded::message::stored;
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::{Embedded, TRIES_MAX, contended, mention};
use crate::store::rules::expiry;
use crate::store::{
    DueQuery, DueRemoval, HistoryRemoval, OldestBucket, RemovalStore, RemovedHistory, Result,
    StoreAdmin as _, StoreFuture, removal_operations,
};

/// Note with the expiry for which all conversations were scheduled, in seconds.
const NOTE_RETENTION: &str = "scheduled_retention";
/// Rows of one batch, about.
const OPS_MAX: usize = 4_000;

impl RemovalStore for Embedded {
    removal_operations! { reads {
        due_removals: due_removals,
        oldest_bucket: oldest_bucket,
    } }

    fn set_retention(&self, seconds: Option<u32>) {
        let retention = &self.inner.context.retention;
        retention.store(seconds.unwrap_or(0), Ordering::Relaxed);
    }

    fn scheduled_retention(&self) -> StoreFuture<'_, Option<u32>> {
        Box::pin(async move {
            let note = self.note(NOTE_RETENTION).await?;
            Ok(note.and_then(|seconds| seconds.parse().ok()))
        })
    }

    fn note_scheduled_retention(&self, seconds: Option<u32>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let note = seconds.map(|seconds| seconds.to_string());
            self.set_note(NOTE_RETENTION, note.as_deref()).await
        })
    }

    fn schedule_removal(&self, due: DueRemoval) -> StoreFuture<'_, ()> {
        let ops = vec![Op::Put(key::due_removal(due), Vec::new())];
        Box::pin(self.inner.committer.commit_ops(ops, None))
    }

    fn end_removal(&self, due: DueRemoval) -> StoreFuture<'_, ()> {
        let ops = vec![Op::Delete(key::due_removal(due))];
        Box::pin(self.inner.committer.commit_ops(ops, None))
    }

    fn remove_history<'a>(
        &'a self,
        conversation: ConversationId,
        removal: &'a HistoryRemoval,
    ) -> StoreFuture<'a, RemovedHistory> {
        Box::pin(async move {
            let removal = *removal;
            for _ in 0..TRIES_MAX {
                let state = self.state(conversation).await?;
                let (removed, write) = self
                    .read(move |context| plan(context, &state, &removal))
                    .await?;
                let is_committed = match write {
                    // It frees space, so it runs on a full disk, too.
                    Some(write) => {
                        self.inner.note_removal(MESSAGE_TABLES).await?;
                        self.inner.committer.commit(write).await? == CommitOutcome::Done
                    }
                    None => true,
                };
                if is_committed {
                    return Ok(removed);
                }
                self.states().forget(&conversation);
            }
            Err(contended())
        })
    }

    fn log_expiry(&self, conversation: ConversationId, event: TimeUuid) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let outbox = &self.inner.context.outbox;
            let row = outbox.put(conversation, || vec![OutboxEvent::history_expired(event)]);
            match row {
                Some(row) => {
                    self.inner
                        .committer
                        .commit_ops(vec![row], Some(event))
                        .await
                }
                None => Ok(()),
            }
        })
    }
}

fn due_removals(context: &ReadContext, query: &DueQuery) -> Result<Vec<DueRemoval>> {
    let span = key::due_removals(query.shard, (query.from, query.up_to), query.after);
    let due =
        |row: Result<(Slice, Slice)>| key::due_removal_of(&row?.0).in_table("expiries_by_hour");
    let view = context.view();
    let rows = view.scan(span, Direction::Forward).take(query.limit);
    rows.map(due).collect()
}

fn oldest_bucket(
    context: &ReadContext,
    conversation: ConversationId,
) -> Result<Option<OldestBucket>> {
    let Some(state) = context.state(conversation)? else {
        return Ok(None);
    };
    let oldest = oldest(&context.view(), conversation)?;
    let width = widest(context, &state).unwrap_or(expiry::WIDTHS_MICROS[0]);
    Ok(oldest.map(|oldest| {
        let start = slot(oldest, width);
        let at = |micros| OrderKey::first_at(Timestamp::from_micros(micros));
        OldestBucket {
            first: at(start),
            last: at(start + width).before(),
        }
    }))
}

/// The last position up to which messages of a conversation were removed.
pub(crate) fn removed_up_to(view: &View<'_>, conversation: ConversationId) -> Result<OrderKey> {
    let key = key::removed_up_to(conversation);
    let Some(bytes) = view.get(&key)? else {
        return Ok(OrderKey::MIN);
    };
    let position = bytes.as_ref().try_into();
    position
        .map(OrderKey)
        .map_err(|_| corrupt(key.table_name(), MalformedKey))
}

/// Operations that list a conversation for removal, where one of these messages opens a bucket of it.
pub(crate) fn due(
    context: &ReadContext,
    state: &ConversationState,
    messages: impl IntoIterator<Item = MessageId>,
) -> Vec<Op> {
    let (Some(ttl), Some(width)) = (ttl_seconds(context, state), widest(context, state)) else {
        return Vec::new();
    };
    let mut last = state.head.last_message.map(|last| slot(last, width));
    let mut ops = Vec::new();
    for message in messages {
        let slot = slot(message, width);
        if last.replace(slot) == Some(slot) {
            continue;
        }
        let end = Timestamp::from_micros(slot + width);
        let due = DueRemoval {
            hour: expiry::removal_hour(end, ttl),
            conversation: state.conversation.id,
        };
        ops.push(Op::Put(key::due_removal(due), Vec::new()));
    }
    ops
}

/// The expiry of messages: the conversation's or the deployment's, whichever is shorter.
fn ttl_seconds(context: &ReadContext, state: &ConversationState) -> Option<u32> {
    let retention = Some(context.retention.load(Ordering::Relaxed)).filter(|ttl| *ttl > 0);
    let own = state.conversation.history.ttl_seconds;
    own.into_iter().chain(retention).min()
}

fn widest(context: &ReadContext, state: &ConversationState) -> Option<i64> {
    ttl_seconds(context, state).map(expiry::widest_micros)
}

/// Begin of the bucket of a message.
fn slot(message: MessageId, width: i64) -> i64 {
    let micros = message.moment().micros();
    micros - micros.rem_euclid(width)
}

fn oldest(view: &View<'_>, conversation: ConversationId) -> Result<Option<MessageId>> {
    let oldest = view
        .scan(key::messages(conversation), Direction::Backward)
        .next();
    oldest
        .map(|row| {
            let (key, _) = row?;
            key::message_id(&key).in_table("messages")
        })
        .transpose()
}

/// Plans a batch: the oldest messages up to the bound, with their rows.
fn plan(
    context: &ReadContext,
    state: &ConversationState,
    removal: &HistoryRemoval,
) -> Result<Plan<RemovedHistory>> {
    let id = state.conversation.id;
    let view = context.view();
    let span = key::messages(id).from(&key::message_position(id, removal.up_to));
    let mut removed = RemovedHistory {
        messages: 0,
        is_done: true,
    };
    let (mut ops, mut last) = (Vec::new(), None);
    for row in view.scan(span, Direction::Backward) {
        let row = row?;
        let is_full = ops.len() >= OPS_MAX || removed.messages >= removal.limit as u64;
        if is_full || !remove_message(&view, id, &row, &mut ops)? {
            removed.is_done = false;
            break;
        }
        removed.messages += 1;
        last = key::message_id(&row.0);
    }
    if ops.is_empty() {
        return Ok((removed, None));
    }
    let head = HeadRecord {
        message_count: state.head.message_count.saturating_sub(removed.messages),
        ..state.head
    };
    let up_to = removal.up_to.0.to_vec();
    ops.push(Op::Max(key::removed_up_to(id), up_to));
    let mut write = state_write(context, state, state.with_head(head), ops, None::<TimeUuid>);
    let mut list = PinListChange::begin(&view, id)?;
    if let Some(last) = last.filter(|last| list.pins.has_up_to(*last)) {
        list.pins.remove_up_to(last);
        list.add_to(&mut write);
    }
    Ok((removed, Some(write)))
}

/// Adds the deletions of a message and its rows. False if its reactions alone fill the batch: the message goes with a
/// later one.
fn remove_message<B: AsRef<[u8]>>(
    view: &View<'_>,
    id: ConversationId,
    row: &(B, B),
    ops: &mut Vec<Op>,
) -> Result<bool> {
    let stored = stored(id, row)?;
    // A row that cannot be read may have everything.
    let message = stored.message.as_ref().ok();
    if message.is_none_or(|message| message.has_reactions) {
        for reaction in view.scan(key::reactions(id, stored.id), Direction::Forward) {
            if ops.len() >= 2 * OPS_MAX {
                return Ok(false);
            }
            let (key, _) = reaction?;
            ops.push(Op::Delete(Key::of_row(&key)));
        }
    }
    ops.extend(message.into_iter().flat_map(|message| mentions(message)));
    ops.push(Op::Delete(key::message(id, stored.id.order_key())));
    Ok(true)
}

/// Deletions of the mentions of a message, and of the row that would expire them.
fn mentions(message: &Message) -> impl Iterator<Item = Op> {
    let keys = mention::keys(message);
    let expiry = (!keys.is_empty()).then(|| mention::expiry(message));
    keys.into_iter().chain(expiry).map(Op::Delete)
}

#[cfg(test)]
#[path = "removal_test.rs"]
mod tests;
