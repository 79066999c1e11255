//! Reactions in the embedded store: a row for each user and emoji of a message, and for a while one for each
//! reaction that has ended, in a range of their own.
//!
//! Earlier versions left a row with the value false behind instead.

use std::sync::Arc;

use super::compare_and_set::{Plan, state_write};
use super::revision;
use crate::model::{
    Change, ConversationId, Direction, Emoji, Message, MessageId, Reaction, Timestamp, UserId,
};
use crate::store::Result;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::Op;
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record;
use crate::store::embedded::message;
use crate::store::embedded::read_context::ReadContext;

const TABLE: &str = "reactions_by_message";

/// Plans a reaction, on the condition that the head is that of `state`: no concurrent deletion slips in.
pub(crate) fn plan(
    context: &ReadContext,
    state: &ConversationState,
    id: ConversationId,
    emoji: &Emoji,
    is_on: bool,
    change: &Change,
) -> Result<Plan<Option<Arc<Message>>>> {
    let Some(present) = context.view().message(id, change.message)? else {
        return Ok((None, None));
    };
    if present.deleted_at.is_some() {
        return Ok((Some(Arc::new(present)), None));
    }
    let mut ops = register(context, id, emoji, is_on, change)?;
    ops.extend(revision::log(id, change));
    let is_first = !present.has_reactions;
    let message = Message {
        has_reactions: true,
        ..present
    };
    if is_first {
        ops.push(message::put(&message));
    }
    let changes = std::slice::from_ref(change);
    ops.extend(context.outbox.put_changes(id, changes));
    let write = state_write(context, state, state.changed(change.id), ops, change.id);
    Ok((Some(Arc::new(message)), Some(write)))
}

/// Operations that put a reaction on, or end it.
fn register(
    context: &ReadContext,
    id: ConversationId,
    emoji: &Emoji,
    is_on: bool,
    change: &Change,
) -> Result<Vec<Op>> {
    let row = key::reaction(id, change.message, emoji, &change.user);
    let ended = key::ended_reaction(id, change.message, emoji, &change.user);
    let expires_at = (change.id.moment()).plus_micros(Reaction::END_LIFETIME_MICROS);
    let mut ops = Vec::with_capacity(8);
    let earlier = context.view().record::<Timestamp>(&ended)?;
    if let Some(earlier) = earlier.filter(|earlier| is_on || *earlier != expires_at) {
        ops.push(Op::Delete(key::expiry(&ended, earlier)));
    }
    if is_on {
        ops.push(Op::Put(row, record::encode(&true)));
        ops.extend(earlier.map(|_| Op::Delete(ended)));
    } else {
        ops.push(Op::Delete(row));
        ops.push(Op::Put(key::expiry(&ended, expires_at), Vec::new()));
        ops.push(Op::Put(ended, record::encode(&expires_at)));
    }
    Ok(ops)
}

pub(crate) fn reactions(
    context: &ReadContext,
    viewer: &UserId,
    messages: &[(ConversationId, MessageId)],
) -> Result<Vec<Vec<Reaction>>> {
    let view = context.view();
    messages
        .iter()
        .map(|(conversation, message)| of_message(&view, viewer, *conversation, *message))
        .collect()
}

/// Reads emoji by emoji. If one has more users than the count's cap, the scan seeks past all of them.
fn of_message(
    view: &View<'_>,
    viewer: &UserId,
    conversation: ConversationId,
    message: MessageId,
) -> Result<Vec<Reaction>> {
    let mut found = Vec::new();
    let mut rest = key::reactions(conversation, message);
    while let Some(row) = view.scan(rest.clone(), Direction::Forward).next() {
        let (emoji, _) = key::reaction_of(&row?.0).in_table(TABLE)?;
        let all = key::reactions_of(conversation, message, &emoji);
        rest = rest.behind(&all);
        found.push(of_emoji(view, viewer, (conversation, message), emoji)?);
    }
    Ok(found)
}

fn of_emoji(
    view: &View<'_>,
    viewer: &UserId,
    of: (ConversationId, MessageId),
    emoji: Emoji,
) -> Result<Reaction> {
    let (conversation, message) = of;
    let rows = view.scan(
        key::reactions_of(conversation, message, &emoji),
        Direction::Forward,
    );
    let own = key::reaction(conversation, message, &emoji, viewer);
    let has_viewer = view.record::<bool>(&own)?.unwrap_or(false);
    let mut reaction = Reaction {
        emoji,
        count: 0,
        is_capped: false,
        has_viewer,
        users: Vec::new(),
    };
    for (looked_at, row) in rows.take(Reaction::ROWS_MAX).enumerate() {
        let (key, value) = row?;
        if record::decode(&value).in_table(TABLE)? {
            reaction.count += 1;
            if reaction.users.len() < Reaction::USERS_MAX {
                let (_, user) = key::reaction_of(&key).in_table(TABLE)?;
                reaction.users.push(user);
            }
        }
        if reaction.count == Reaction::COUNT_MAX || looked_at + 1 == Reaction::ROWS_MAX {
            reaction.is_capped = true;
            break;
        }
    }
    Ok(reaction)
}

/// How many kinds of reactions to a message a user took back lately.
pub(crate) fn ended_count(
    context: &ReadContext,
    user: &UserId,
    (conversation, message): (ConversationId, MessageId),
    limit: usize,
) -> Result<usize> {
    let ended = key::ended_reactions_of(conversation, message, user);
    context.view().count(ended, limit)
}
