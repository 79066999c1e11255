//! What changed in an inbox since some place, for streams that were away.
//!
//! Three things change an entry: a message, which moves its hint to the newest hours; what is logged in `changes_by_user`; and, in a large
//! conversation, whatever moves its head, which is read as it is now.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;

use futures_util::future::{try_join_all, try_join3};
use scylla::value::{CqlTimeuuid, CqlValue};
use uuid::Uuid;

use super::activity_index::Walk;
use super::page::listed_larges;
use super::row::{few_rows, own_rows, with_head};
use super::writes::day_of;
use crate::model::{ChangeId, ConversationId, Cut, Direction, InboxKey, InboxRow, OrderKey, TimeUuid, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, time_uuid};
use crate::store::cql::message::head_cache::Head;
use crate::store::{ChangedRow, Result};

/// Changes looked at for one day of one answer.
const CHANGES_MAX: usize = 10_000;
/// Changes are forgotten after so many days.
const DAYS_KEPT: i32 = 35;
const READ_MAX: i32 = 1_000;
/// Rows read before the limit is looked at again.
const STEP: usize = 640;
/// An id may be so far ahead of the clock, and this clock behind another one.
const AHEAD_MICROS: i64 = 4_000_000;

statements! {
    /// The statements of this file.
    Statements {
        changes: Read "SELECT change_id, conversation_id FROM changes_by_user WHERE user_id = ? AND day = ? AND change_id > ? AND change_id < ? LIMIT ?";
    }
}

/// The bound of a range of ids: any place, also where no id can be.
fn bound(key: OrderKey) -> CqlValue {
    let (time, rest) = key.0.split_first_chunk::<8>().expect("sixteen bytes");
    let [a, b, c, d, e, f, g, h] = u64::from_be_bytes(*time).min((1 << 60) - 1).to_be_bytes();
    let mut bytes = [e, f, g, h, c, d, a | 0x10, b, 0, 0, 0, 0, 0, 0, 0, 0];
    for (to, from) in bytes[8..].iter_mut().zip(rest) {
        *to = from ^ 0x80;
    }
    CqlValue::Timeuuid(CqlTimeuuid::from(Uuid::from_bytes(bytes)))
}

pub(crate) async fn inbox_changes(inner: &Inner, user: &UserId, after: OrderKey, limit: usize) -> Result<Option<Vec<ChangedRow>>> {
    let (logged, heads, few) = try_join3(logged(inner, user, after), large_heads(inner, user), few_rows(inner, user)).await?;
    let Some(logged) = logged else { return Ok(None) };
    let mut changed = Changed { inner, user, after, limit, logged, heads, looked_at: HashSet::new(), rows: Vec::new() };
    let is_within = match few {
        Some(rows) => changed.take(rows),
        None => changed.find().await?,
    };
    let is_within = is_within && changed.take_left();
    changed.rows.sort_unstable_by_key(|row| row.newest_change);
    Ok(is_within.then_some(changed.rows))
}

async fn large_heads(inner: &Inner, user: &UserId) -> Result<HashMap<ConversationId, Head>> {
    let larges = listed_larges(inner, user).await?;
    let heads = inner.fresh_heads(&larges).await?;
    Ok(larges.into_iter().zip(heads).collect())
}

/// The newest change of each conversation that was logged after the place. `None` where they are more than one looks at.
async fn logged(inner: &Inner, user: &UserId, after: OrderKey) -> Result<Option<HashMap<ConversationId, ChangeId>>> {
    let Some(log) = inbox_log(inner, user, after).await? else { return Ok(None) };
    let mut newest = HashMap::new();
    for (change, conversation) in log {
        let known = newest.entry(conversation).or_insert(change);
        *known = change.max(*known);
    }
    Ok(Some(newest))
}

pub(crate) async fn inbox_log(inner: &Inner, user: &UserId, after: OrderKey) -> Result<Option<Vec<(ChangeId, ConversationId)>>> {
    let today = day_of(inner.clock.now().plus_micros(AHEAD_MICROS));
    let days = day_of(after.moment()).max(today - DAYS_KEPT)..=today;
    let found = try_join_all(days.map(|day| logged_on(inner, user, day, after))).await?;
    let found: Option<Vec<_>> = found.into_iter().collect();
    Ok(found.map(|days| days.concat()))
}

async fn logged_on(inner: &Inner, user: &UserId, day: i32, after: OrderKey) -> Result<Option<Vec<(ChangeId, ConversationId)>>> {
    let mut found = Vec::new();
    let mut before = OrderKey::MAX;
    while found.len() < CHANGES_MAX {
        let values = cells![user, day, bound(after), bound(before), READ_MAX];
        let rows: Vec<(CqlTimeuuid, Uuid)> = inner.cluster.read(&inner.statements.inbox_change.changes, values).await?;
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

/// The answer as it grows.
struct Changed<'a> {
    inner: &'a Inner,
    user: &'a UserId,
    after: OrderKey,
    limit: usize,
    logged: HashMap<ConversationId, ChangeId>,
    heads: HashMap<ConversationId, Head>,
    looked_at: HashSet<ConversationId>,
    rows: Vec<ChangedRow>,
}

impl Changed<'_> {
    /// Looks at whatever may have changed. Whether it is no more than the limit.
    async fn find(&mut self) -> Result<bool> {
        let moved = self.heads.iter().filter(|(_, head)| head.newest().is_some_and(|newest| newest.order_key() > self.after));
        let noted = self.logged.keys().chain(moved.map(|(conversation, _)| conversation)).copied().collect();
        if !self.look_at(noted).await? {
            return Ok(false);
        }
        // An entry's activity is never earlier than its last message: those that were last active before the place have none after it.
        let last = InboxKey { activity: self.after.moment(), conversation: ConversationId(Uuid::nil()) };
        let cut = Cut { start: Bound::Unbounded, end: Bound::Included(last) };
        let mut walk = Walk::new(self.inner, self.user, &cut, Direction::Forward, self.limit);
        while let Some(run) = walk.next().await? {
            let recent = run.hints.iter().filter(|hint| hint.first() <= last).map(|hint| hint.key.conversation);
            if !self.look_at(recent.collect()).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn look_at(&mut self, mut conversations: Vec<ConversationId>) -> Result<bool> {
        conversations.retain(|conversation| self.looked_at.insert(*conversation));
        for step in conversations.chunks(STEP) {
            if !self.take(own_rows(self.inner, self.user, step).await?.into_values()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps those rows that changed. Whether they are no more than the limit.
    fn take(&mut self, rows: impl IntoIterator<Item = InboxRow>) -> bool {
        for row in rows {
            let head = self.heads.get(&row.conversation);
            let row = head.map_or(row, |head| with_head(row, head));
            let of_head = head.and_then(|head| head.newest_change);
            let newest: Option<TimeUuid> = row.last_message.max(self.logged.get(&row.conversation).copied()).max(of_head);
            if let Some(newest_change) = newest.filter(|newest| newest.order_key() > self.after) {
                self.rows.push(ChangedRow { newest_change, conversation: row.conversation, row: Some(row) });
            }
        }
        self.rows.len() <= self.limit
    }

    /// Of conversations that the user is not in any more, what was logged is all that is told.
    fn take_left(&mut self) -> bool {
        let shown: HashSet<_> = self.rows.iter().map(|changed| changed.conversation).collect();
        let left = self.logged.iter().filter(|(conversation, _)| !shown.contains(conversation));
        let left = left.map(|(conversation, change)| ChangedRow { newest_change: *change, conversation: *conversation, row: None });
        self.rows.extend(left);
        self.rows.len() <= self.limit
    }
}
