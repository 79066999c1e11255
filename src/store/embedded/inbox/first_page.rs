//! First pages of an inbox from memory: its cached index, with the heads and the entries of its conversations.

use super::{indexed, row};
use crate::model::{ConversationId, Direction, InboxKey, InboxRow, Page, PageRequest, UserId};
use crate::store::Result;
use crate::store::embedded::cache::inbox_index::InboxIndex;
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record::HeadRecord;
use crate::store::embedded::read_context::{ReadContext, ReadSnapshot};

/// Caches the index that a first page was read from, with so many active conversations.
pub(super) fn keep_index(
    snapshot: &ReadSnapshot<'_>,
    user: &UserId,
    by_heads: &[(InboxKey, HeadRecord)],
    limit: usize,
) -> Result<()> {
    let active = indexed(&snapshot.view, key::activities(user), Direction::Forward);
    let active: Vec<_> = active.take(limit).collect::<Result<_>>()?;
    let index = InboxIndex {
        is_whole: active.len() < limit,
        active,
        merged: by_heads.iter().map(|(key, _)| key.conversation).collect(),
    };
    let indexes = &snapshot.context.rows.indexes;
    indexes.put_index(snapshot.marks.indexes, user, index);
    Ok(())
}

/// A page of the inbox from memory alone. `None` if not all of it is there.
pub(crate) fn inbox_in_memory(
    context: &ReadContext,
    user: &UserId,
    request: &PageRequest<InboxKey>,
) -> Option<Page<InboxRow>> {
    if request.direction == Direction::Backward || request.before.is_some() {
        return None;
    }
    let index = context.rows.indexes.get(user)?;
    let by_head = |id: &ConversationId| {
        let head = context.states.get(id)?.head;
        let key = InboxKey {
            activity: head.last_activity,
            conversation: *id,
        };
        Some((key, head))
    };
    let mut by_heads: Vec<_> = index.merged.iter().map(by_head).collect::<Option<_>>()?;
    by_heads.sort_unstable_by_key(|(key, _)| *key);
    let mut keys: Vec<_> = by_heads.iter().map(|(key, _)| *key).collect();
    if !index.is_whole {
        let last = index.active.last()?;
        keys.retain(|key| key <= last);
    }
    keys.extend(&index.active);
    keys.sort_unstable();
    let page = Page::of_sorted(&keys, request);
    if !page.has_next && !index.is_whole {
        return None;
    }
    let row_at = |key: &InboxKey| {
        let entry = context.rows.entry_in_memory(user, key.conversation)?;
        let head = match by_heads.binary_search_by_key(key, |(key, _)| *key) {
            Ok(place) => by_heads[place].1,
            Err(_) => context.states.get(&key.conversation)?.head,
        };
        // A head that is younger than the index has another place.
        (head.last_activity == key.activity).then(|| row(key.conversation, &head, entry))
    };
    let items = page.items.iter().map(row_at).collect::<Option<_>>()?;
    Some(Page {
        items,
        has_previous: page.has_previous,
        has_next: page.has_next,
    })
}
