//! Change log of a conversation: edits, deletions, reactions and changes of membership, for streams that were disconnected.

use futures_util::future::try_join_all;
use scylla::value::CqlTimeuuid;

use super::Messages;
use crate::model::{Change, ChangeKind, ConversationId, OrderKey, Timestamp};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{row_limit, time_uuid, time_uuid_bound, user, values};

const TABLE: &str = "changes_by_conversation";
/// Days that the log goes back: the lifetime of its rows, and one more, as a day has two edges.
const DAYS_KEPT: i32 = 36;
const DAYS_AT_ONCE: usize = 12;
const ROWS_MAX: usize = 1_000;
pub(crate) const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;

statements! {
    INSERT_CHANGE: Write "INSERT INTO changes_by_conversation (conversation_id, day, change_id, kind, message_id, user_id) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    SELECT_CHANGES: Read "SELECT change_id, kind, message_id, user_id FROM changes_by_conversation WHERE conversation_id = ? AND day = ? AND change_id > ? ORDER BY change_id ASC LIMIT ?";
}

/// The day of a moment, counted from 1970.
pub(crate) fn day_of(moment: Timestamp) -> i32 {
    i32::try_from(moment.micros() / DAY_MICROS).expect("the year 9999 has a day that fits")
}

impl Messages {
    pub(crate) async fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>> {
        let Some(newest) = self.head(conversation).await?.newest_change else {
            return Ok(Vec::new());
        };
        if newest.order_key() <= after {
            return Ok(Vec::new());
        }
        let last = day_of(newest.moment());
        let days: Vec<_> = (day_of(after.moment()).max(last - DAYS_KEPT)..=last).collect();
        let mut changes = Vec::new();
        for some in days.chunks(DAYS_AT_ONCE) {
            let rest = limit - changes.len();
            let found = try_join_all(
                some.iter()
                    .map(|day| self.changes_on(conversation, *day, after, rest)),
            )
            .await?;
            changes.extend(found.into_iter().flatten().take(rest));
            if changes.len() == limit {
                break;
            }
        }
        if let Some(newest) = changes.last() {
            self.observe_change(conversation, newest.id);
        }
        Ok(changes)
    }

    async fn changes_on(
        &self,
        conversation: ConversationId,
        day: i32,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>> {
        type Columns = (CqlTimeuuid, Option<i8>, Option<CqlTimeuuid>, Option<String>);
        let mut changes = Vec::new();
        let mut after = after;
        while changes.len() < limit {
            let count = (limit - changes.len()).min(ROWS_MAX);
            let bound = time_uuid_bound(after);
            let values = values![conversation, day, bound, row_limit(count)];
            let rows: Vec<Columns> = self.executor.read(&SELECT_CHANGES, values).await?;
            let is_last = rows.len() < count;
            for (id, kind, message, name) in rows {
                let id = time_uuid(TABLE, id)?;
                after = id.order_key();
                let (Some(kind), Some(message), Some(name)) = (kind, message, name) else {
                    continue;
                };
                // A change of a kind that a later version writes is passed over.
                let Some(kind) = ChangeKind::from_repr(kind.cast_unsigned()) else {
                    continue;
                };
                changes.push(Change {
                    id,
                    kind,
                    message: time_uuid(TABLE, message)?,
                    user: user(TABLE, &name)?,
                });
            }
            if is_last {
                break;
            }
        }
        Ok(changes)
    }
}

impl Writes {
    /// Logs a change, and advances the newest change of the head.
    pub(crate) fn put_change(&mut self, conversation: ConversationId, change: &Change) {
        let kind = change.kind as i8;
        let values = values![
            conversation,
            day_of(change.id.moment()),
            change.id,
            kind,
            change.message,
            &change.user,
            change.id.moment()
        ];
        self.push(&INSERT_CHANGE, values);
        self.put_head(conversation, None, Some(change.id), None);
    }
}
