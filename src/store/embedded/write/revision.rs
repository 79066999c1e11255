//! Edits and deletions in the embedded store, and their log.

use std::sync::Arc;

use super::compare_and_set::{Plan, state_write};
use super::pin::PinListChange;
use crate::model::{
    Change, ConversationId, Direction, Message, OrderKey, OutboxEvent, Revision, UserId,
};
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::{Op, Write};
use crate::store::embedded::engine::db::InTable;
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record::{self, ConversationChangeRecord, LoggedChangeKind};
use crate::store::embedded::inbox;
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::{mention, message};
use crate::store::{Audience, CHANGE_LIFETIME_MICROS, Result, Revised};

/// Plans a revision, on the condition that the head is that of `state`. `None` if no such message exists.
pub(crate) fn plan(
    context: &ReadContext,
    state: &ConversationState,
    id: ConversationId,
    revision: &Revision,
    change: &Change,
) -> Result<Plan<Option<Revised>>> {
    let Some(present) = context.view().message(id, change.message)? else {
        return Ok((None, None));
    };
    let revised = |message, users| {
        let audience = Audience {
            users: state.people.is_some().then_some(users),
        };
        Some(Revised {
            message: Arc::new(message),
            audience,
        })
    };
    if present.deleted_at.is_some() {
        return Ok((revised(present, Arc::default()), None));
    }
    let is_pinned = present.current_pin().is_some();
    let message = revision.apply(present.clone(), change.id.moment());
    let mentions = mention::revised(&present, &message);
    // A deletion may change unread counts, as an edit may change mentions. Any other edit shows in the
    // inbox only if the message is the last one.
    let is_shown = *revision == Revision::Deletion
        || state.head.last_message == Some(change.message)
        || !mentions.is_empty();
    let users = state
        .people
        .as_ref()
        .filter(|_| is_shown)
        .map_or_else(Arc::default, |people| people.joined.clone());
    let mut write = write(context, state, &message, &users, (change, revision));
    if mentions.iter().any(|op| matches!(op, Op::Put(..))) {
        let (lists, applied) = (context.mentions.clone(), write.applied.take());
        write.applied = Some(Box::new(move || {
            applied.into_iter().for_each(|applied| applied());
            lists.on_edit(id);
        }));
    }
    write.ops.extend(mentions);
    if is_pinned && message.pin.is_none() {
        let mut list = PinListChange::begin(&context.view(), id)?;
        list.pins.remove(message.id);
        list.add_to(&mut write);
    }
    Ok((revised(message, users), Some(write)))
}

fn write(
    context: &ReadContext,
    state: &ConversationState,
    message: &Message,
    users: &[UserId],
    (change, revision): (&Change, &Revision),
) -> Write {
    let id = state.conversation.id;
    let mut ops = vec![message::put(message)];
    ops.extend(log(id, change));
    ops.extend(
        users
            .iter()
            .flat_map(|user| inbox::change(user, id, change.id, LoggedChangeKind::MessageChanged)),
    );
    let event = || vec![OutboxEvent::of_revision(change, revision)];
    ops.extend(context.outbox.put(id, event));
    state_write(context, state, state.changed(change.id), ops, change.id)
}

/// Operations that log a change of a conversation, with its expiry.
pub(crate) fn log(id: ConversationId, change: &Change) -> [Op; 2] {
    let key = key::change_of_conversation(id, change.id.order_key());
    let expiry = key::expiry(&key, change.id.moment().plus_micros(CHANGE_LIFETIME_MICROS));
    let entry = ConversationChangeRecord {
        kind: change.kind,
        message: change.message,
        user: change.user.clone(),
    };
    [
        Op::Put(key, record::encode(&entry)),
        Op::Put(expiry, Vec::new()),
    ]
}

pub(crate) fn changes(
    context: &ReadContext,
    conversation: ConversationId,
    after: OrderKey,
    limit: usize,
) -> Result<Vec<Change>> {
    let view = context.view();
    let each = |row: Result<(fjall::Slice, fjall::Slice)>| {
        let (key, value) = row?;
        let id = key::change_id(&key).in_table("changes")?;
        let record: ConversationChangeRecord = record::decode(&value).in_table("changes")?;
        Ok(Change {
            id,
            kind: record.kind,
            message: record.message,
            user: record.user,
        })
    };
    view.scan(
        key::changes_of_conversation_after(conversation, after),
        Direction::Forward,
    )
    .take(limit)
    .map(each)
    .collect()
}
