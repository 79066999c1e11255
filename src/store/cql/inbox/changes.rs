//! Changes of an inbox since a position, for streams that were disconnected.
//!
//! Three things change an entry: a message, which moves its hint to the newest hours; a change in the log `changes_by_user`; and an event of
//! a large conversation, which advances its head.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;

use futures_util::future::{try_join_all, try_join3};
use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use super::Inboxes;
use super::activity_index::ActivityScan;
use super::row::with_head;
use super::writes::CHANGE_DAYS;
use crate::model::{
    ChangeId, ConversationId, Cut, Direction, InboxKey, InboxRow, OrderKey, TimeUuid, UserId,
};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{time_uuid, time_uuid_bound, values};
use crate::store::cql::message::change_log::{DAY_MICROS, day_of};
use crate::store::cql::message::head_cache::HeadSummary;
use crate::store::{CHANGE_LIFETIME_MICROS, ChangedRow, Result};

/// Changes of one day that one answer reads. With more, the stream must start over.
const CHANGES_MAX: usize = 10_000;
/// Days that the log goes back.
const DAYS_KEPT: i32 = (CHANGE_LIFETIME_MICROS / DAY_MICROS) as i32;
const _: () = assert!(DAYS_KEPT < CHANGE_DAYS);
const READ_MAX: i32 = 1_000;
/// Rows read before the limit is checked again.
const STEP: usize = 640;
/// The most that an id can be ahead of this clock: the lead of its own clock, twice the skew.
const AHEAD_MICROS: i64 = 4_000_000;

statements! {
    SELECT_INBOX_CHANGES: Read "SELECT change_id, conversation_id FROM changes_by_user WHERE user_id = ? AND day = ? AND change_id > ? AND change_id < ? LIMIT ?";
}

impl Inboxes {
    pub(crate) async fn inbox_changes(
        &self,
        user: &UserId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Option<Vec<ChangedRow>>> {
        if user.is_agent() {
            return Ok(Some(Vec::new()));
        }
        let (logged, heads, short) = try_join3(
            self.logged(user, after),
            self.large_heads(user),
            self.short_inbox(user),
        )
        .await?;
        let Some(logged) = logged else {
            return Ok(None);
        };
        let mut changed = Changed {
            inboxes: self,
            user,
            after,
            limit,
            logged,
            heads,
            examined: HashSet::new(),
            rows: Vec::new(),
        };
        let is_within = match short {
            Some(rows) => changed.take(rows),
            None => changed.find().await?,
        };
        let is_within = is_within && changed.take_left();
        changed.rows.sort_unstable_by_key(|row| row.newest_change);
        Ok(is_within.then_some(changed.rows))
    }

    async fn large_heads(&self, user: &UserId) -> Result<HashMap<ConversationId, HeadSummary>> {
        let large = self.listed_large(user).await?;
        let heads = self.messages.current_heads(&large).await?;
        Ok(large.into_iter().zip(heads).collect())
    }

    /// The newest logged change of each conversation after a position. `None` if there are too many.
    async fn logged(
        &self,
        user: &UserId,
        after: OrderKey,
    ) -> Result<Option<HashMap<ConversationId, ChangeId>>> {
        let Some(log) = self.inbox_log(user, after).await? else {
            return Ok(None);
        };
        let mut newest = HashMap::new();
        for (change, conversation) in log {
            let known = newest.entry(conversation).or_insert(change);
            *known = change.max(*known);
        }
        Ok(Some(newest))
    }

    async fn inbox_log(
        &self,
        user: &UserId,
        after: OrderKey,
    ) -> Result<Option<Vec<(ChangeId, ConversationId)>>> {
        let today = day_of(self.clock.now().plus_micros(AHEAD_MICROS));
        let days = day_of(after.moment()).max(today - DAYS_KEPT)..=today;
        let found = try_join_all(days.map(|day| self.logged_on(user, day, after))).await?;
        let found: Option<Vec<_>> = found.into_iter().collect();
        Ok(found.map(|days| days.concat()))
    }

    async fn logged_on(
        &self,
        user: &UserId,
        day: i32,
        after: OrderKey,
    ) -> Result<Option<Vec<(ChangeId, ConversationId)>>> {
        let mut found = Vec::new();
        let mut before = OrderKey::MAX;
        while found.len() < CHANGES_MAX {
            let values = values![
                user,
                day,
                time_uuid_bound(after),
                time_uuid_bound(before),
                READ_MAX
            ];
            let rows: Vec<(CqlTimeuuid, Uuid)> =
                self.executor.read(&SELECT_INBOX_CHANGES, values).await?;
            let is_last = rows.len() < READ_MAX.unsigned_abs() as usize;
            for (change, conversation) in rows {
                let change = time_uuid("changes_by_user", change)?;
                before = change.order_key();
                found.push((change, ConversationId(conversation)));
            }
            if is_last {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The answer while it is collected.
struct Changed<'a> {
    inboxes: &'a Inboxes,
    user: &'a UserId,
    after: OrderKey,
    limit: usize,
    logged: HashMap<ConversationId, ChangeId>,
    heads: HashMap<ConversationId, HeadSummary>,
    examined: HashSet<ConversationId>,
    rows: Vec<ChangedRow>,
}

impl Changed<'_> {
    /// Examines every conversation that may have changed. False if more have changed than the limit allows.
    async fn find(&mut self) -> Result<bool> {
        let moved = self.heads.iter().filter(|(_, head)| {
            head.newest()
                .is_some_and(|newest| newest.order_key() > self.after)
        });
        let noted = self
            .logged
            .keys()
            .chain(moved.map(|(conversation, _)| conversation))
            .copied()
            .collect();
        if !self.examine(noted).await? {
            return Ok(false);
        }
        // The activity of an entry is never before its last message: entries last active before the position have no later message.
        let last = InboxKey {
            activity: self.after.moment(),
            conversation: ConversationId(Uuid::nil()),
        };
        let cut = Cut {
            start: Bound::Unbounded,
            end: Bound::Included(last),
        };
        let mut scan = ActivityScan::new(
            self.inboxes,
            self.user,
            &cut,
            Direction::Forward,
            self.limit,
        );
        while let Some(run) = scan.next().await? {
            let recent = run
                .hints
                .iter()
                .filter(|hint| hint.first() <= last)
                .map(|hint| hint.key.conversation);
            if !self.examine(recent.collect()).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn examine(&mut self, mut conversations: Vec<ConversationId>) -> Result<bool> {
        conversations.retain(|conversation| self.examined.insert(*conversation));
        for step in conversations.chunks(STEP) {
            if !self.take(self.inboxes.own_rows(self.user, step).await?.into_values()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Collects the rows that have changed. False if they are more than the limit.
    fn take(&mut self, rows: impl IntoIterator<Item = InboxRow>) -> bool {
        for row in rows {
            let head = self.heads.get(&row.conversation);
            let row = head.map_or(row, |head| with_head(row, head));
            let of_head = head.and_then(|head| head.newest_change);
            let newest: Option<TimeUuid> = row
                .last_message
                .max(self.logged.get(&row.conversation).copied())
                .max(of_head);
            if let Some(newest_change) = newest.filter(|newest| newest.order_key() > self.after) {
                self.rows.push(ChangedRow {
                    newest_change,
                    conversation: row.conversation,
                    row: Some(row),
                });
            }
        }
        self.rows.len() <= self.limit
    }

    /// Adds logged changes of conversations that the user has left, without a row.
    fn take_left(&mut self) -> bool {
        let shown: HashSet<_> = self
            .rows
            .iter()
            .map(|changed| changed.conversation)
            .collect();
        let left = self
            .logged
            .iter()
            .filter(|(conversation, _)| !shown.contains(conversation));
        let left = left.map(|(conversation, change)| ChangedRow {
            newest_change: *change,
            conversation: *conversation,
            row: None,
        });
        self.rows.extend(left);
        self.rows.len() <= self.limit
    }
}
