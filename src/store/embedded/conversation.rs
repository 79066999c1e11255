//! Conversations in the embedded store, and who takes part in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::inbox;
use super::read_context::ReadContext;
use crate::model::{
    AppKey, AppKeyClaim, Conversation, ConversationId, Membership, OutboxEvent, Role, UserId,
};
use crate::store::embedded::cache::state::{ConversationState, People};
use crate::store::embedded::engine::committer::{Condition, Op, Write};
use crate::store::embedded::engine::db::{MissingRow, View, corrupt};
use crate::store::embedded::engine::key::{self, Cell};
use crate::store::embedded::engine::record::{
    self, ConversationRecord, HeadRecord, LoggedChangeKind, RosterRecord,
};
use crate::store::rules::pair;
use crate::store::rules::succession::Succession;
use crate::store::{NewConversation, Participation, Result};

fn pair_of(new: &NewConversation) -> Option<key::Key> {
    pair::of_new(new).map(|(one, other)| key::pair(one, other))
}

/// Plans the creation of a conversation, on the condition that its id and its pair are free.
pub(super) fn create(context: &ReadContext, new: &NewConversation) -> Write {
    let id = new.conversation.id;
    let is_large = new
        .conversation
        .is_large_with(new.participants.len() as u64);
    let conversation = Conversation {
        is_large,
        ..new.conversation.clone()
    };
    let mut head = HeadRecord::new(conversation.created_at, None);
    head.participant_count = new.participants.len() as u64;
    head.newest_change = Some(new.change);
    let head_bytes = record::encode(&head);
    let owner_count = new
        .participants
        .iter()
        .filter(|(_, role)| *role == Role::Owner)
        .count() as u64;
    let roster = RosterRecord {
        version: Some(new.change),
        owner_count,
    };

    let mut ops = vec![
        Op::Put(
            key::conversation(id),
            ConversationRecord::encode(&conversation),
        ),
        Op::Put(key::head(id), head_bytes.clone()),
        Op::Put(key::roster(id), record::encode(&roster)),
    ];
    if !new.profile.is_empty() {
        let key = key::conversation_profile(id);
        ops.push(Op::Put(key, record::encode(&new.profile)));
    }
    let mut conditions = vec![Condition::Absent(key::conversation(id))];
    if let Some(pair) = pair_of(new) {
        ops.push(Op::Put(pair.clone(), record::encode(&id)));
        conditions.push(Condition::Absent(pair));
    }
    for (user, role) in &new.participants {
        ops.push(Op::Put(
            key::participant(id, user, Cell::Membership),
            record::encode_membership(&Membership::joined(*role)),
        ));
        if !user.is_agent() {
            let listed = key::listed(user, id, head.listing(is_large));
            ops.push(Op::Put(listed, Vec::new()));
        }
        ops.extend(inbox::change(
            user,
            id,
            new.change,
            LoggedChangeKind::ConversationMade,
        ));
    }
    let memberships: BTreeMap<_, _> = new
        .participants
        .iter()
        .map(|(user, role)| (user.clone(), Membership::joined(*role)))
        .collect();
    let heir = Succession::of(conversation.kind, &memberships).heir();
    let people = (!is_large).then(|| Arc::new(People::new(memberships)));
    let state = Arc::new(ConversationState {
        conversation: Arc::new(conversation),
        head,
        head_bytes,
        people,
        roster,
        heir,
    });
    let created = || vec![OutboxEvent::conversation_created(new.change)];
    ops.extend(context.outbox.put(id, created));
    let states = context.states.clone();
    Write {
        ops,
        conditions,
        newest_id: Some(new.change),
        applied: Some(Box::new(move || states.put_written(id, state))),
    }
}

/// Reads the conversation that took the id or the pair.
pub(super) fn in_the_way(
    context: &ReadContext,
    new: &NewConversation,
) -> Result<Arc<Conversation>> {
    if let Some(state) = context.state(new.conversation.id)? {
        return Ok(state.conversation.clone());
    }
    let pair = pair_of(new).ok_or_else(|| corrupt("conversations", MissingRow))?;
    let id: ConversationId = context
        .view()
        .record(&pair)?
        .ok_or_else(|| corrupt("direct_by_pair", MissingRow))?;
    Ok(context
        .state(id)?
        .ok_or_else(|| corrupt("conversations", MissingRow))?
        .conversation
        .clone())
}

pub(super) fn direct(
    context: &ReadContext,
    one: &UserId,
    other: &UserId,
) -> Result<Option<ConversationId>> {
    context.view().record(&key::pair(one, other))
}

pub(super) fn app_key_claim(context: &ReadContext, key: &AppKey) -> Result<Option<AppKeyClaim>> {
    context.view().record(&key::app_key(key))
}

/// Plans the claim of an app key, on the condition that it is free.
pub(super) fn claim_app_key(key: &AppKey, claim: AppKeyClaim) -> Write {
    Write::swap(key::app_key(key), None, record::encode(&claim))
}

/// Conversations, whoever takes part in them.
pub(super) fn read(
    context: &ReadContext,
    conversations: &[ConversationId],
) -> Result<Vec<Option<Arc<Conversation>>>> {
    let each = |id: &ConversationId| {
        let state = context.state(*id)?;
        Ok(state.map(|state| state.conversation.clone()))
    };
    conversations.iter().map(each).collect()
}

/// The same, where memory has all of them.
pub(super) fn in_memory(
    context: &ReadContext,
    conversations: &[ConversationId],
) -> Option<Vec<Option<Arc<Conversation>>>> {
    let each = |id: &ConversationId| Some(Some(context.states.get(id)?.conversation.clone()));
    conversations.iter().map(each).collect()
}

/// The viewer's own membership is read first: for a stranger that is all the work, whether the conversation exists or not.
pub(super) fn participations(
    context: &ReadContext,
    viewer: &UserId,
    conversations: &[ConversationId],
) -> Result<Vec<Option<Participation>>> {
    let view = context.view();
    let each = |id: &ConversationId| {
        let found = cached_or_read(context, &view, viewer, *id)?;
        Ok(found.map(|(state, given)| participation(&state, viewer, given)))
    };
    conversations.iter().map(each).collect()
}

/// A conversation that a user is in, or was, with their membership as it was given.
pub(super) fn cached_or_read(
    context: &ReadContext,
    view: &View<'_>,
    user: &UserId,
    id: ConversationId,
) -> Result<Option<(Arc<ConversationState>, Membership)>> {
    if let Some(cached) = context.states.get_with(id, user) {
        return Ok(Some(cached));
    }
    let cell = key::participant(id, user, Cell::Membership);
    let Some(read) = view.decoded(&cell, record::decode_membership)? else {
        return Ok(None);
    };
    let Some(state) = context.state(id)? else {
        return Ok(None);
    };
    let people = state.people.as_ref();
    let given = match people.map(|people| people.memberships.get(user)) {
        Some(Some(present)) => Some(*present),
        // The cached state may be younger than the view: the user has left since.
        Some(None) if read.is_joined() => {
            context.view().decoded(&cell, record::decode_membership)?
        }
        Some(None) | None => Some(read),
    };
    Ok(given.map(|given| (state, given)))
}

fn participation(state: &ConversationState, viewer: &UserId, given: Membership) -> Participation {
    Participation {
        conversation: state.conversation.clone(),
        membership: state.effective(viewer, given),
    }
}

/// The same, where memory has all of it and the viewer is in all of them, or was.
pub(super) fn participations_in_memory(
    context: &ReadContext,
    viewer: &UserId,
    conversations: &[ConversationId],
) -> Option<Vec<Option<Participation>>> {
    let each = |id: &ConversationId| {
        let (state, given) = context.states.get_with(*id, viewer)?;
        Some(Some(participation(&state, viewer, given)))
    };
    conversations.iter().map(each).collect()
}

/// Projects each conversation's head.
pub(super) fn heads<T>(
    context: &ReadContext,
    conversations: &[ConversationId],
    of: impl Fn(Option<&HeadRecord>) -> T,
) -> Result<Vec<T>> {
    conversations
        .iter()
        .map(|id| Ok(of(context.state(*id)?.map(|state| state.head).as_ref())))
        .collect()
}

/// Answers the same from the caches alone. `None` on a miss.
pub(super) fn heads_in_memory<T>(
    context: &ReadContext,
    conversations: &[ConversationId],
    of: impl Fn(Option<&HeadRecord>) -> T,
) -> Option<Vec<T>> {
    conversations
        .iter()
        .map(|id| Some(of(Some(&context.states.get(id)?.head))))
        .collect()
}
