//! Settings of conversations in the embedded store: the plans that change a name, a slow mode or a profile.

use std::sync::Arc;

use super::compare_and_set::{Plan, state_write};
use super::membership::{kept_with, logged, outbox_row};
use super::removal;
use crate::model::{Change, Conversation, ConversationId, ConversationProfile};
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::Op;
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record::{self, ConversationRecord, LoggedChangeKind};
use crate::store::embedded::inbox;
use crate::store::embedded::read_context::ReadContext;
use crate::store::{Audience, ConversationProfileChange, Renaming, Result};

pub(crate) fn rename(
    context: &ReadContext,
    state: &ConversationState,
    id: ConversationId,
    to: &Renaming,
) -> Result<Plan<Audience>> {
    if context
        .view()
        .has(&key::message(id, to.message.id.order_key()))?
    {
        return Ok((state.audience(), None));
    }
    let is_large = state.conversation.is_large;
    let conversation = Arc::new(Conversation {
        name: Some(to.name.clone()),
        ..(*state.conversation).clone()
    });
    let mut head = state.head;
    let changes = std::slice::from_ref(&to.change);
    let mut ops = kept_with(state, &mut head, is_large, &to.message, changes);
    ops.extend(removal::due(context, state, [to.message.id]));
    ops.extend(outbox_row(context, id, Some(&to.message), changes));
    ops.push(Op::Put(
        key::conversation(id),
        ConversationRecord::encode(&conversation),
    ));
    if let Some(people) = &state.people {
        let (from, to) = (state.head.listing(is_large), head.listing(is_large));
        ops.extend(inbox::relist(&people.joined, id, from, to));
    }
    let after = ConversationState {
        conversation,
        ..state.with_head(head)
    };
    let write = state_write(context, state, after, ops, to.message.id);
    Ok((state.audience(), Some(write)))
}

pub(crate) fn slow_mode(
    context: &ReadContext,
    state: &ConversationState,
    id: ConversationId,
    seconds: u32,
    change: &Change,
) -> Result<Plan<()>> {
    if state.head.newest_change >= Some(change.id) {
        return Ok(((), None));
    }
    let conversation = Arc::new(Conversation {
        slow_mode_seconds: seconds,
        ..(*state.conversation).clone()
    });
    let mut head = state.head;
    let changes = std::slice::from_ref(change);
    let mut ops = logged(state, &mut head, changes);
    ops.extend(context.outbox.put_changes(id, changes));
    ops.push(Op::Put(
        key::conversation(id),
        ConversationRecord::encode(&conversation),
    ));
    let after = ConversationState {
        conversation,
        ..state.with_head(head)
    };
    let write = state_write(context, state, after, ops, change.id);
    Ok(((), Some(write)))
}

pub(crate) fn profiles(
    context: &ReadContext,
    ids: &[ConversationId],
) -> Result<Vec<ConversationProfile>> {
    let view = context.view();
    let profile = |id: &ConversationId| view.record(&key::conversation_profile(*id));
    ids.iter()
        .map(|id| Ok(profile(id)?.unwrap_or_default()))
        .collect()
}

pub(crate) fn profile(
    context: &ReadContext,
    state: &ConversationState,
    id: ConversationId,
    to: &ConversationProfileChange,
    change: &Change,
) -> Result<Plan<Audience>> {
    if state.head.newest_change >= Some(change.id) {
        return Ok((state.audience(), None));
    }
    let key = key::conversation_profile(id);
    let before: Option<ConversationProfile> = context.view().record(&key)?;
    let profile = to.apply(before.unwrap_or_default());
    let mut head = state.head;
    let changes = std::slice::from_ref(change);
    let mut ops = logged(state, &mut head, changes);
    ops.extend(context.outbox.put_changes(id, changes));
    ops.push(Op::Put(key, record::encode(&profile)));
    let users = state.people.iter().flat_map(|people| people.joined.iter());
    ops.extend(
        users.flat_map(|user| inbox::change(user, id, change.id, LoggedChangeKind::MessageChanged)),
    );
    let after = state.with_head(head);
    let write = state_write(context, state, after, ops, change.id);
    Ok((state.audience(), Some(write)))
}
