//! Inboxes in the embedded store: an exact activity index, merged with busy and large conversations at read time.

mod change_log;
mod first_page;

use std::collections::HashMap;

pub(super) use self::change_log::{change, changes};
pub(super) use self::first_page::inbox_in_memory;
use self::first_page::keep_index;
use super::conversation;
use super::read_context::{ReadContext, ReadSnapshot};
use crate::model::{
    ActPosition, Conversation, ConversationId, Direction, Floor, InboxKey, InboxRow,
    NotificationLevel, OrderKey, Page, PageRequest, ReadMarker, Timestamp, UserId, hidden_larges,
};
use crate::store::embedded::cache::row::Entry;
use crate::store::embedded::engine::committer::{Op, Write};
use crate::store::embedded::engine::db::{InTable, MissingRow, View, corrupt};
use crate::store::embedded::engine::key::{self, Cell, EntryCell, Key, Listing, Span};
use crate::store::embedded::engine::page::read_page;
use crate::store::embedded::engine::record::{self, HeadRecord, LoggedChangeKind};
use crate::store::{FlagsChange, MarkerMove, Result};

/// A conversation becomes busy when a message comes within this time of the last one. Moving its entries with each
/// send would leave tombstones at the top of every inbox, which each page would step over.
pub(super) const BUSY_WITHIN_MICROS: i64 = 3_600 * 1_000_000;
/// A conversation without activity for this time is no longer busy.
pub(super) const QUIET_AFTER_MICROS: i64 = 2 * 3_600 * 1_000_000;

/// Moves a conversation to another list in the inboxes of its participants who have one.
pub(super) fn relist(users: &[UserId], id: ConversationId, from: Listing, to: Listing) -> Vec<Op> {
    if from == to {
        return Vec::new();
    }
    users
        .iter()
        .filter(|user| !user.is_agent())
        .flat_map(|user| {
            [
                Op::Delete(key::listed(user, id, from)),
                Op::Put(key::listed(user, id, to), Vec::new()),
            ]
        })
        .collect()
}

/// Marks a conversation busy if its activity is recent, and schedules the check that ends it.
pub(super) fn keep_busy(
    head: &mut HeadRecord,
    before: &HeadRecord,
    id: ConversationId,
) -> Option<Op> {
    let became_active = head.last_activity > before.last_activity;
    let is_soon = head.last_activity < before.last_activity.plus_micros(BUSY_WITHIN_MICROS);
    if !became_active || !is_soon || head.is_busy {
        return None;
    }
    head.is_busy = true;
    Some(Op::Put(look_again(id, head.last_activity), Vec::new()))
}

/// Schedules the check of a busy conversation.
pub(super) fn look_again(id: ConversationId, activity: Timestamp) -> Key {
    key::expiry(
        &key::busy_conversation(id),
        activity.plus_micros(QUIET_AFTER_MICROS),
    )
}

pub(super) fn move_marker(user: &UserId, to: &MarkerMove) -> Vec<Op> {
    let mut ops = vec![Op::Max(
        key::entry(user, to.conversation, EntryCell::Marker),
        record::encode_marker(to.marker),
    )];
    if let Some(up_to) = to.read_up_to {
        let act = ActPosition {
            up_to,
            is_by_service: to.is_by_service,
        };
        ops.push(Op::Max(
            key::participant(to.conversation, user, Cell::ReadUpTo),
            record::encode_act(act),
        ));
    }
    ops.extend(change(
        user,
        to.conversation,
        to.change,
        LoggedChangeKind::MarkerMoved,
    ));
    ops
}

pub(super) fn mark_delivered(
    user: &UserId,
    conversation: ConversationId,
    up_to: OrderKey,
) -> Vec<Op> {
    vec![Op::Max(
        key::participant(conversation, user, Cell::DeliveredUpTo),
        record::encode_position(up_to),
    )]
}

/// Rows written beside changed flags.
pub(super) fn flags_set(user: &UserId, to: &FlagsChange) -> Write {
    let mut ops: Vec<_> =
        change(user, to.conversation, to.change, LoggedChangeKind::FlagsSet).collect();
    if let Some(level) = to.level {
        let key = key::notify_all(to.conversation, user);
        ops.push(match level {
            Some(NotificationLevel::All) => Op::Put(key, Vec::new()),
            Some(NotificationLevel::Mentions | NotificationLevel::None) | None => Op::Delete(key),
        });
    }
    Write {
        ops,
        newest_id: Some(to.change),
        ..Write::default()
    }
}

/// Users of a conversation who chose the level ALL, after one of them.
pub(super) fn notified_of_all(
    context: &ReadContext,
    conversation: ConversationId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<UserId>> {
    let span = key::notify_all_after(conversation, after);
    let user = |row: Result<_>| {
        let (bytes, _) = row?;
        key::notify_all_of(AsRef::<[u8]>::as_ref(&bytes)).in_table("notify_all_by_conversation")
    };
    let view = context.view();
    let users = view.scan(span, Direction::Forward).take(limit).map(user);
    users.collect()
}

pub(super) fn head(view: &View<'_>, conversation: ConversationId) -> Result<HeadRecord> {
    view.record(&key::head(conversation))?
        .ok_or_else(|| corrupt("heads", MissingRow))
}

/// Reads a head through the cache.
fn cached_head(context: &ReadContext, conversation: ConversationId) -> Result<HeadRecord> {
    context
        .state(conversation)?
        .map(|state| state.head)
        .ok_or_else(|| corrupt("heads", MissingRow))
}

/// Reads the head for an index position of the snapshot. A cached head may be younger and at another position.
fn head_at(context: &ReadContext, view: &View<'_>, key: &InboxKey) -> Result<HeadRecord> {
    let cached = cached_head(context, key.conversation)?;
    if cached.last_activity == key.activity {
        Ok(cached)
    } else {
        head(view, key.conversation)
    }
}

pub(super) fn row(conversation: ConversationId, head: &HeadRecord, entry: Entry) -> InboxRow {
    InboxRow {
        conversation,
        last_activity: head.last_activity,
        last_message: head.last_message,
        marker: entry.marker,
        sent_up_to: entry.sent_up_to,
        is_sent_by_service: entry.is_sent_by_service,
        flags: entry.flags,
        floor: Floor::NONE,
    }
}

/// Entry of an agent, which has none: everything is read.
fn entry_of_agent(head: &HeadRecord) -> Entry {
    Entry {
        marker: ReadMarker::up_to_newest(head.last_message),
        ..Entry::default()
    }
}

pub(super) fn large_conversations(
    context: &ReadContext,
    user: &UserId,
) -> Result<Vec<ConversationId>> {
    large_in(&context.view(), user)
}

fn large_in(view: &View<'_>, user: &UserId) -> Result<Vec<ConversationId>> {
    if user.is_agent() {
        return Ok(Vec::new());
    }
    listed(view, key::larges(user))
        .take(Conversation::LARGE_LISTED_MAX)
        .collect()
}

pub(super) fn conversation_count(
    context: &ReadContext,
    user: &UserId,
    limit: usize,
) -> Result<usize> {
    if user.is_agent() {
        return Ok(0);
    }
    let view = context.view();
    let spans = [key::activities(user), key::busy(user), key::larges(user)];
    let mut keys = spans
        .into_iter()
        .flat_map(|span| view.scan(span, Direction::Forward))
        .take(limit);
    keys.try_fold(0, |count, key| key.map(|_| count + 1))
}

/// The user's large conversations that their inbox shows.
fn shown_larges(snapshot: &ReadSnapshot<'_>, user: &UserId) -> Result<Vec<ConversationId>> {
    let mut larges = large_in(&snapshot.view, user)?;
    if larges.len() > Conversation::LARGE_MERGED_MAX {
        let each = |id: &ConversationId| {
            Ok(row(
                *id,
                &cached_head(snapshot.context, *id)?,
                snapshot.entry(user, *id)?,
            ))
        };
        let hidden = hidden_larges(larges.iter().map(each).collect::<Result<Vec<_>>>()?);
        larges.retain(|conversation| !hidden.contains(conversation));
    }
    Ok(larges)
}

fn listed(view: &View<'_>, span: Span) -> impl Iterator<Item = Result<ConversationId>> {
    view.scan(span, Direction::Forward).map(|row| {
        let (key, _) = row?;
        key::listed_id(&key).in_table("conversations_by_user")
    })
}

/// Reads the user's busy and large conversations, sorted by the activity of their heads.
fn by_heads(snapshot: &ReadSnapshot<'_>, user: &UserId) -> Result<Vec<(InboxKey, HeadRecord)>> {
    let each = |conversation: Result<ConversationId>| {
        let conversation = conversation?;
        let head = cached_head(snapshot.context, conversation)?;
        let activity = head.last_activity;
        let key = InboxKey {
            activity,
            conversation,
        };
        Ok((key, head))
    };
    let mut keys: Vec<_> = shown_larges(snapshot, user)?
        .into_iter()
        .map(Ok)
        .chain(listed(&snapshot.view, key::busy(user)))
        .map(each)
        .collect::<Result<_>>()?;
    keys.sort_unstable_by_key(|(key, _)| *key);
    Ok(keys)
}

fn indexed(
    view: &View<'_>,
    span: Span,
    direction: Direction,
) -> impl Iterator<Item = Result<InboxKey>> {
    view.scan(span, direction)
        .map(|row| key::inbox_key(&row?.0).in_table("activity"))
}

pub(super) fn inbox(
    context: &ReadContext,
    user: &UserId,
    request: &PageRequest<InboxKey>,
) -> Result<Page<InboxRow>> {
    if user.is_agent() {
        return Ok(Page::empty());
    }
    let snapshot = context.snapshot();
    let view = &snapshot.view;
    let by_heads = by_heads(&snapshot, user)?;
    let read = |span: Span, direction: Direction, limit: usize| {
        let in_span = by_heads.iter().map(|(key, _)| *key).filter(|key| {
            let bytes = key::activity(user, key).bytes;
            span.start <= bytes && bytes < span.end
        });
        let mut keys: Vec<InboxKey> = in_span.collect();
        for key in indexed(view, span.clone(), direction).take(limit) {
            keys.push(key?);
        }
        keys.sort_unstable();
        if direction == Direction::Backward {
            keys.reverse();
        }
        keys.truncate(limit);
        Ok(keys)
    };
    let page = read_page(
        &key::activities(user),
        request,
        |key| key::activity_place(user, key),
        |key| {
            Ok(by_heads.binary_search_by_key(key, |(key, _)| *key).is_ok()
                || view.has(&key::activity(user, key))?)
        },
        read,
    )?;
    let heads: HashMap<_, _> = by_heads
        .iter()
        .map(|(key, head)| (key.conversation, head))
        .collect();
    let row_at = |key: &InboxKey| {
        let entry = snapshot.entry(user, key.conversation)?;
        Ok(match heads.get(&key.conversation) {
            Some(head) => row(key.conversation, head, entry),
            None => row(key.conversation, &head_at(context, view, key)?, entry),
        })
    };
    let items = page.items.iter().map(row_at).collect::<Result<_>>()?;
    if request.direction == Direction::Forward && request.after.is_none() {
        keep_index(&snapshot, user, &by_heads, request.overread())?;
    }
    Ok(Page {
        items,
        has_previous: page.has_previous,
        has_next: page.has_next,
    })
}

fn row_if_joined(
    snapshot: &ReadSnapshot<'_>,
    user: &UserId,
    conversation: ConversationId,
) -> Result<Option<InboxRow>> {
    match conversation::cached_or_read(snapshot.context, &snapshot.view, user, conversation)? {
        Some((state, given)) if given.is_joined() => {
            let entry = match user.is_agent() {
                true => entry_of_agent(&state.head),
                false => snapshot.entry(user, conversation)?,
            };
            Ok(Some(row(conversation, &state.head, entry)))
        }
        Some(_) | None => Ok(None),
    }
}

pub(super) fn rows(
    context: &ReadContext,
    user: &UserId,
    conversations: &[ConversationId],
) -> Result<Vec<Option<InboxRow>>> {
    let snapshot = context.snapshot();
    conversations
        .iter()
        .map(|conversation| row_if_joined(&snapshot, user, *conversation))
        .collect()
}

/// The same, where memory has all of it and the user is in all of them, or was.
pub(super) fn rows_in_memory(
    context: &ReadContext,
    user: &UserId,
    conversations: &[ConversationId],
) -> Option<Vec<Option<InboxRow>>> {
    let each = |id: &ConversationId| {
        let (state, given) = context.states.get_with(*id, user)?;
        if !given.is_joined() {
            return Some(None);
        }
        let entry = match user.is_agent() {
            true => entry_of_agent(&state.head),
            false => context.rows.entry_in_memory(user, *id)?,
        };
        Some(Some(row(*id, &state.head, entry)))
    };
    conversations.iter().map(each).collect()
}

#[cfg(test)]
#[path = "inbox/agent_test.rs"]
mod tests;
