//! Change log of an inbox: its rows, and the entries that have changed after a position.

use std::collections::{HashMap, hash_map};

use super::{head, indexed, listed, row_if_joined};
use crate::model::{ChangeId, ConversationId, Direction, OrderKey, TimeUuid, UserId};
use crate::store::embedded::engine::committer::Op;
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record::{self, ChangeRecord, LoggedChangeKind};
use crate::store::embedded::read_context::ReadContext;
use crate::store::{CHANGE_LIFETIME_MICROS, ChangedRow, Result};

/// Bound of changes read for one answer.
const CHANGES_MAX: usize = 10_000;

/// Operations that log a change of a user's inbox, with its expiry. None for an agent.
pub(crate) fn change(
    user: &UserId,
    conversation: ConversationId,
    id: ChangeId,
    kind: LoggedChangeKind,
) -> impl Iterator<Item = Op> + use<> {
    let logged = (!user.is_agent()).then(|| {
        let key = key::change_of_user(user, id.order_key());
        let expiry = key::expiry(&key, id.moment().plus_micros(CHANGE_LIFETIME_MICROS));
        [
            Op::Put(key, record::encode(&ChangeRecord { conversation, kind })),
            Op::Put(expiry, Vec::new()),
        ]
    });
    logged.into_iter().flatten()
}

/// NewestChanges change of each conversation, up to a bound.
struct NewestChanges {
    by_conversation: HashMap<ConversationId, TimeUuid>,
    limit: usize,
}

impl NewestChanges {
    /// Notes a change. False once the bound is reached.
    fn note(&mut self, conversation: ConversationId, change: TimeUuid) -> bool {
        match self.by_conversation.entry(conversation) {
            hash_map::Entry::Occupied(mut entry) => {
                let newest = (*entry.get()).max(change);
                entry.insert(newest);
            }
            hash_map::Entry::Vacant(entry) => {
                entry.insert(change);
            }
        }
        self.by_conversation.len() <= self.limit
    }
}

pub(crate) fn changes(
    context: &ReadContext,
    user: &UserId,
    after: OrderKey,
    limit: usize,
) -> Result<Option<Vec<ChangedRow>>> {
    if user.is_agent() {
        return Ok(Some(Vec::new()));
    }
    let snapshot = context.snapshot();
    let Some(newest) = newest_changes(&snapshot.view, user, after, limit)? else {
        return Ok(None);
    };
    let mut rows = Vec::with_capacity(newest.len());
    for (conversation, newest_change) in newest {
        rows.push(ChangedRow {
            newest_change,
            conversation,
            row: row_if_joined(&snapshot, user, conversation)?,
        });
    }
    rows.sort_unstable_by_key(|changed| changed.newest_change);
    Ok(Some(rows))
}

fn newest_changes(
    view: &View<'_>,
    user: &UserId,
    after: OrderKey,
    limit: usize,
) -> Result<Option<HashMap<ConversationId, TimeUuid>>> {
    let mut newest = NewestChanges {
        by_conversation: HashMap::new(),
        limit,
    };
    // An activity is never earlier than the last message, so entries below the position's time have none after it.
    let recent = indexed(view, key::activities(user), Direction::Forward)
        .take_while(|key| {
            key.as_ref()
                .map_or(true, |key| key.activity >= after.moment())
        })
        .map(|key| Ok((key?.conversation, false)));
    let busy = listed(view, key::busy(user)).map(|conversation| Ok((conversation?, false)));
    let large = listed(view, key::larges(user)).map(|conversation| Ok((conversation?, true)));
    for entry in recent.chain(busy).chain(large) {
        let (conversation, is_large) = entry?;
        let head = head(view, conversation)?;
        // Changes of a large conversation are not logged per participant: its head holds the newest one.
        let last = if is_large {
            head.last_message.max(head.newest_change)
        } else {
            head.last_message
        };
        if last
            .filter(|last| last.order_key() > after)
            .is_some_and(|last| !newest.note(conversation, last))
        {
            return Ok(None);
        }
    }
    for (looked_at, row) in view
        .scan(key::changes_of_user_after(user, after), Direction::Forward)
        .enumerate()
    {
        let (key, value) = row?;
        let change = key::change_id(&key).in_table("changes")?;
        let record: ChangeRecord = record::decode(&value).in_table("changes")?;
        if !newest.note(record.conversation, change) || looked_at == CHANGES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(newest.by_conversation))
}
