//! Membership in the embedded store: the plans of their changes, and the reads they are decided on.
//!
//! A membership change also sends its SYSTEM message. Like every send it holds only while the conversation's head is
//! unchanged (compare-and-set). So changes and sends are serial: a newcomer misses no send, and no send a newcomer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::compare_and_set::{Plan, state_write};
use super::{removal, revision};
use crate::model::{
    Change, Conversation, ConversationId, Membership, Message, OutboxEvent, ReadMarker, Role,
    TimeUuid, UserId,
};
use crate::store::embedded::cache::state::{ConversationState, People, memberships};
use crate::store::embedded::engine::committer::Op;
use crate::store::embedded::engine::db::View;
use crate::store::embedded::engine::key::{self, Cell, EntryCell, Listing};
use crate::store::embedded::engine::record::{
    self, ConversationRecord, HeadRecord, LoggedChangeKind, RosterRecord,
};
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::{inbox, message};
use crate::store::rules::succession::Succession;
use crate::store::{
    Audience, BanChange, MembershipChange, MembershipSnapshot, MembershipTransition, Result,
    TransitionKind, rules,
};

pub(crate) fn membership_snapshot(
    context: &ReadContext,
    id: ConversationId,
    users: &[UserId],
) -> Result<Option<MembershipSnapshot>> {
    let Some(state) = context.state(id)? else {
        return Ok(None);
    };
    let view = context.view();
    let given = users
        .iter()
        .map(|user| state.given(&view, user))
        .collect::<Result<Vec<_>>>()?;
    let successor = match &state.people {
        Some(people) => successor(&state, &people.memberships, users),
        None if state.roster.owner_count > owners(given.iter().flatten()) => None,
        None => successor(&state, &memberships(&view, id)?, users),
    };
    let counting = |(user, given): (&UserId, Option<Membership>)| {
        given.map(|given| state.effective(user, given))
    };
    Ok(Some(MembershipSnapshot {
        conversation: state.conversation.clone(),
        version: state.roster.version,
        participant_count: state.head.participant_count,
        memberships: users.iter().zip(given).map(counting).collect(),
        successor,
    }))
}

fn successor(
    state: &ConversationState,
    memberships: &BTreeMap<UserId, Membership>,
    without: &[UserId],
) -> Option<(UserId, Membership)> {
    let others = memberships
        .iter()
        .filter(|(user, _)| !without.contains(user));
    Succession::of(state.conversation.kind, others).successor
}

/// Number of current participants with the stored role OWNER.
fn owners<'a>(memberships: impl Iterator<Item = &'a Membership>) -> u64 {
    memberships
        .filter(|membership| membership.is_joined() && membership.role == Role::Owner)
        .count() as u64
}

pub(crate) fn plan(
    context: &ReadContext,
    state: &ConversationState,
    id: ConversationId,
    change: &MembershipChange,
) -> Result<Plan<Option<Audience>>> {
    let is_told = change.message.is_some() || change.raises_history_unannounced();
    if state.roster.version == Some(change.version) {
        let told = if is_told { state.audience() } else { nobody() };
        return Ok((Some(told), None));
    }
    if state.roster.version != change.seen {
        return Ok((None, None));
    }
    let view = context.view();
    let mut head = state.head;
    let (participant_count, roster) = counts_after(&view, state, change)?;
    head.participant_count = participant_count;
    let is_large = state.conversation.is_large_with(head.participant_count);
    let conversation = Arc::new(Conversation {
        is_large,
        history: change.history.unwrap_or(state.conversation.history),
        ..(*state.conversation).clone()
    });

    let mut ops = match &change.message {
        Some(message) => kept_with(state, &mut head, is_large, message, &change.changes),
        None => logged(state, &mut head, &change.changes),
    };
    // Every change of the membership is a change of the head, on which the next one depends.
    head.newest_change = head.newest_change.max(Some(change.version));
    let message = change.message.as_deref();
    let ids = message.map(|message| message.id);
    ops.extend(removal::due(context, state, ids));
    ops.extend(outbox_row(context, id, message, &change.changes));
    ops.extend(change.bans.iter().map(|ban| ban_op(id, ban)));
    ops.push(Op::Put(key::roster(id), record::encode(&roster)));
    if conversation != state.conversation {
        ops.push(Op::Put(
            key::conversation(id),
            ConversationRecord::encode(&conversation),
        ));
    }
    let (from, to) = (
        state.head.listing(state.conversation.is_large),
        head.listing(is_large),
    );
    ops.extend(moved_entries(state, change, from, to));
    let (people, heir) = people_after(&view, state, &conversation, roster, &change.transitions)?;
    let told = if is_told {
        let people = state.people.as_ref().and(people.as_ref());
        Audience {
            users: people.map(|people| people.joined.clone()),
        }
    } else {
        nobody()
    };
    if change.raises_history_unannounced()
        && let Some(people) = &people
    {
        let raised = |user| {
            let kind = LoggedChangeKind::MessageChanged;
            inbox::change(user, id, change.version, kind)
        };
        ops.extend(people.joined.iter().flat_map(raised));
    }
    let people = people.filter(|_| !is_large);
    let after = ConversationState {
        conversation,
        people,
        roster,
        heir,
        ..state.with_head(head)
    };
    Ok((
        Some(told),
        Some(state_write(context, state, after, ops, change.version)),
    ))
}

/// The number of participants and the roster after the change.
fn counts_after(
    view: &View<'_>,
    state: &ConversationState,
    change: &MembershipChange,
) -> Result<(u64, RosterRecord)> {
    let before = change
        .transitions
        .iter()
        .map(|transition| state.given(view, &transition.user))
        .collect::<Result<Vec<_>>>()?;
    let before = || before.iter().flatten();
    let after = || {
        change
            .transitions
            .iter()
            .map(|transition| &transition.membership)
    };
    let joined = |memberships: &mut dyn Iterator<Item = &Membership>| {
        memberships.filter(|one| one.is_joined()).count() as u64
    };
    let participant_count =
        (state.head.participant_count + joined(&mut after())).saturating_sub(joined(&mut before()));
    let owner_count = (state.roster.owner_count + owners(after())).saturating_sub(owners(before()));
    let roster = RosterRecord {
        version: Some(change.version),
        owner_count,
    };
    Ok((participant_count, roster))
}

/// Operations that move the entries of all participants: of those in the change, and of the others.
fn moved_entries(
    state: &ConversationState,
    change: &MembershipChange,
    from: Listing,
    to: Listing,
) -> Vec<Op> {
    let (id, version, transitions) = (state.conversation.id, change.version, &change.transitions);
    let of_change = transitions.iter();
    let of_change = of_change.flat_map(|transition| turned(id, transition, version, (from, to)));
    let mut ops: Vec<_> = of_change.collect();
    if let Some(people) = &state.people {
        let moves = |user: &UserId| {
            let mut all = transitions.iter();
            all.any(|transition| transition.user == *user && transition.kind.moves())
        };
        let staying: Vec<_> = people
            .joined
            .iter()
            .filter(|user| !moves(user))
            .cloned()
            .collect();
        ops.extend(inbox::relist(&staying, id, from, to));
    }
    ops
}

/// Operations for one user of the change.
fn turned(
    id: ConversationId,
    transition: &MembershipTransition,
    version: TimeUuid,
    (from, to): (Listing, Listing),
) -> Vec<Op> {
    let MembershipTransition {
        user,
        kind,
        membership,
    } = transition;
    let mut ops = vec![Op::Put(
        key::participant(id, user, Cell::Membership),
        record::encode_membership(membership),
    )];
    match kind {
        TransitionKind::Joins | TransitionKind::Leaves if user.is_agent() => return ops,
        TransitionKind::Joins => {
            let marker = ReadMarker::at_joining(version);
            ops.push(Op::Max(
                key::entry(user, id, EntryCell::Marker),
                record::encode_marker(marker),
            ));
            ops.push(Op::Put(key::listed(user, id, to), Vec::new()));
        }
        TransitionKind::Leaves => ops.push(Op::Delete(key::listed(user, id, from))),
        TransitionKind::Clears => {}
        TransitionKind::Stays => return ops,
    }
    ops.extend(inbox::change(
        user,
        id,
        version,
        LoggedChangeKind::MembershipChanged,
    ));
    ops
}

/// Participants and effective OWNER after the change, for a conversation that is not large.
fn people_after(
    view: &View<'_>,
    state: &ConversationState,
    conversation: &Conversation,
    roster: RosterRecord,
    transitions: &[MembershipTransition],
) -> Result<(Option<Arc<People>>, Option<UserId>)> {
    let mut all = match &state.people {
        Some(people) => people.memberships.clone(),
        None if roster.owner_count > 0 => return Ok((None, None)),
        None => memberships(view, conversation.id)?,
    };
    all.extend(
        transitions
            .iter()
            .map(|transition| (transition.user.clone(), transition.membership)),
    );
    let heir = Succession::of(conversation.kind, &all).heir();
    Ok((Some(Arc::new(People::new(all))), heir))
}

/// Adds the SYSTEM message and the logged changes, and advances the head.
pub(super) fn kept_with(
    state: &ConversationState,
    head: &mut HeadRecord,
    is_large: bool,
    message: &Message,
    changes: &[Change],
) -> Vec<Op> {
    let id = state.conversation.id;
    head.count(message.id);
    let mut ops = logged(state, head, changes);
    ops.push(message::put(message));
    if !is_large {
        ops.extend(inbox::keep_busy(head, &state.head, id));
    }
    ops
}

/// Adds the logged changes, and advances the newest change of the head.
pub(super) fn logged(
    state: &ConversationState,
    head: &mut HeadRecord,
    changes: &[Change],
) -> Vec<Op> {
    let id = state.conversation.id;
    head.newest_change = head
        .newest_change
        .max(changes.iter().map(|change| change.id).max());
    changes
        .iter()
        .flat_map(|change| revision::log(id, change))
        .collect()
}

/// The changes and the SYSTEM message that announces them, in the order of their ids.
pub(super) fn outbox_row(
    context: &ReadContext,
    conversation: ConversationId,
    message: Option<&Message>,
    changes: &[Change],
) -> Option<Op> {
    context.outbox.put(conversation, || {
        let changes = changes.iter().map(OutboxEvent::of_change);
        let message = message.map(|message| OutboxEvent::message_added(message.id));
        changes.chain(message).collect()
    })
}

fn ban_op(conversation: ConversationId, change: &BanChange) -> Op {
    match change {
        BanChange::Set(ban) => Op::Put(key::ban(conversation, &ban.user), rules::ban::encode(ban)),
        BanChange::Lift(user) => Op::Delete(key::ban(conversation, user)),
    }
}

/// The audience of a change that no message announces.
fn nobody() -> Audience {
    Audience {
        users: Some(Arc::default()),
    }
}
