//! Pins in the embedded store: a row for each pinned message, and the register in the message itself.

use std::sync::Arc;

use super::compare_and_set::Plan;
use super::revision;
use crate::model::{Change, ConversationId, Direction, Message, MessageId, Pin};
use crate::store::Result;
use crate::store::embedded::Embedded;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::{Condition, Op, Write};
use crate::store::embedded::engine::db::{MalformedKey, View, corrupt};
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record::{self, MessageRecord};
use crate::store::embedded::read_context::ReadContext;

const TABLE: &str = "pins_by_conversation";

impl Embedded {
    pub(in crate::store::embedded) async fn pinned(
        &self,
        id: ConversationId,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        let change = change.clone();
        self.carry_out(id, move |context, state| {
            plan(context, state, is_on, &change)
        })
        .await
    }
}

/// Plans a pin, on the condition that the head is that of `state`: no concurrent deletion slips in.
fn plan(
    context: &ReadContext,
    state: &ConversationState,
    is_on: bool,
    change: &Change,
) -> Result<Plan<Option<Arc<Message>>>> {
    let id = state.conversation.id;
    let Some(present) = context.view().message(id, change.message)? else {
        return Ok((None, None));
    };
    if present.deleted_at.is_some() {
        return Ok((Some(Arc::new(present)), None));
    }
    let mut head = state.head;
    head.newest_change = head.newest_change.max(Some(change.id));
    let after = Arc::new(state.with_head(head));
    let pin = Pin {
        change: change.id,
        by: change.user.clone(),
        is_on,
    };
    let row = key::pin(id, change.message);
    let row = if is_on {
        Op::Put(row, record::encode(&pin))
    } else {
        Op::Delete(row)
    };
    let message = Message {
        pin: Some(Box::new(pin)),
        ..present
    };
    let mut ops = vec![
        row,
        Op::Put(
            key::message(id, message.id.order_key()),
            MessageRecord::encode(&message),
        ),
        Op::Put(key::head(id), after.head_bytes.clone()),
    ];
    ops.extend(revision::log(id, change));
    let changes = std::slice::from_ref(change);
    ops.extend(context.outbox.put_changes(id, changes));
    let states = Arc::clone(&context.states);
    let write = Write {
        ops,
        conditions: vec![Condition::Is(key::head(id), state.head_bytes.clone())],
        newest_id: Some(change.id),
        applied: Some(Box::new(move || states.put_written(after))),
    };
    Ok((Some(Arc::new(message)), Some(write)))
}

/// The rows of a conversation's pins.
pub(in crate::store::embedded) fn rows(
    view: &View<'_>,
    conversation: ConversationId,
) -> Result<Vec<(MessageId, Pin)>> {
    view.scan(key::pins(conversation), Direction::Forward)
        .map(|row| {
            let (key, value) = row?;
            let message = key::pinned_of(&key).ok_or_else(|| corrupt(TABLE, MalformedKey))?;
            let pin = record::decode(&value).map_err(|error| corrupt(TABLE, error))?;
            Ok((message, pin))
        })
        .collect()
}
