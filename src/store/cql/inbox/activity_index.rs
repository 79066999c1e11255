//! Activity index: hints of the hours in which the conversations of a user were active, by which an inbox is paged.
//!
//! The row in `inbox_by_user` is the truth about an entry. Every write of that row also writes a hint of the same moment, so the hint of the
//! entry's own hour always finds it. A page skips the hints of earlier hours, and deletes those that it met.
//!
//! A hint goes with the batch by which its user leaves. The tombstone is older than that change, so a hint that a later joining writes is
//! newer: it follows the change. A hint that a send wrote meanwhile stays, and a page that meets it deletes it.

use std::collections::HashMap;

use uuid::Uuid;

use super::Inboxes;
use super::row::PIECE;
use super::writes::{latest_by_hint, slot_of};
use crate::model::{ConversationId, Cut, Direction, InboxKey, Timestamp, UserId};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, values};
use crate::store::cql::message::count::SETTLED_MICROS;
use crate::store::cql::message::membership::decode_membership;

/// Rows of one read.
const READ_MAX: i32 = 1_000;
/// Extra rows of the first read: a page ends inside an hour, and that hour must be read whole.
const SPARE: i32 = 32;
/// A scan that goes on reads so many times as much.
const LIMIT_GROWTH: i32 = 4;
/// Stale hints that one page deletes, so that the batch stays small.
const STALE_MAX: usize = 50;
/// Hints of conversations that the user has left, which one page deletes.
const LEFT_MAX: usize = 200;

statements! {
    SELECT_OLDER: Read "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot <= ? AND slot >= ? ORDER BY slot DESC, conversation_id DESC LIMIT ?";
    SELECT_OLDER_THAN: Read "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND (slot, conversation_id) < (?, ?) AND (slot) >= (?) ORDER BY slot DESC, conversation_id DESC LIMIT ?";
    SELECT_NEWER: Read "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot >= ? AND slot <= ? ORDER BY slot ASC, conversation_id ASC LIMIT ?";
    SELECT_LEFT: Read "SELECT conversation_id, membership, WRITETIME(membership) FROM inbox_by_user WHERE user_id = ? AND conversation_id IN ?";
    SELECT_NEWER_THAN: Read "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND (slot, conversation_id) > (?, ?) AND (slot) <= (?) ORDER BY slot ASC, conversation_id ASC LIMIT ?";
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ActivityHint {
    pub(crate) slot: i32,
    /// The position of the entry when the hint was written. It may be a little later in that hour now.
    pub(crate) key: InboxKey,
}

impl ActivityHint {
    /// The first position of the list that the entry can have, unless it has another hint.
    pub(crate) fn first(&self) -> InboxKey {
        InboxKey {
            activity: latest_by_hint(self.slot, self.key.activity),
            ..self.key
        }
    }
}

/// Hints of whole hours.
pub(crate) struct ActivityRun {
    pub(crate) hints: Vec<ActivityHint>,
    /// The last hour of the run. `None` if there are no more hours.
    pub(crate) reached: Option<i32>,
}

#[derive(Debug, Clone, Copy)]
enum At {
    Start,
    After(i32, ConversationId),
    End,
}

/// Scan of a user's hints in the hours that a part of the list touches, in one direction.
///
/// A page needs its last hour whole. The rest of that hour is read by itself: a read that went on into the hours behind it would pass all the
/// hints that sends have deleted there.
pub(crate) struct ActivityScan<'a> {
    inboxes: &'a Inboxes,
    user: &'a UserId,
    direction: Direction,
    newest: i32,
    oldest: i32,
    at: At,
    limit: i32,
    /// Hints of the hour in which the last read ended.
    rest: Vec<ActivityHint>,
}

impl<'a> ActivityScan<'a> {
    /// A scan whose reader wants about so many entries.
    pub(crate) fn new(
        inboxes: &'a Inboxes,
        user: &'a UserId,
        cut: &Cut<InboxKey>,
        direction: Direction,
        wanted: usize,
    ) -> Self {
        let slot = |bound: &std::ops::Bound<InboxKey>| match bound {
            std::ops::Bound::Included(key) | std::ops::Bound::Excluded(key) => {
                Some(slot_of(key.activity))
            }
            std::ops::Bound::Unbounded => None,
        };
        let wanted = i32::try_from(wanted.saturating_mul(2)).unwrap_or(READ_MAX);
        Self {
            inboxes,
            user,
            direction,
            newest: slot(&cut.start).unwrap_or(i32::MAX),
            oldest: slot(&cut.end).unwrap_or(0),
            at: At::Start,
            limit: wanted.saturating_add(SPARE).min(READ_MAX),
            rest: Vec::new(),
        }
    }

    /// The hints of the next hours. `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<ActivityRun>> {
        if !self.rest.is_empty() {
            return self.rest_of_hour().await.map(Some);
        }
        if matches!(self.at, At::End) {
            return Ok(None);
        }
        let mut hints = self.read(self.newest, self.oldest, self.limit).await?;
        let last = hints.last().map(|hint| (hint.slot, hint.key.conversation));
        let is_end = hints.len() < usize::try_from(self.limit).expect("a limit is positive");
        self.limit = self.limit.saturating_mul(LIMIT_GROWTH).min(READ_MAX);
        let Some((slot, conversation)) = last.filter(|_| !is_end) else {
            self.at = At::End;
            return Ok(Some(ActivityRun {
                hints,
                reached: None,
            }));
        };
        self.at = At::After(slot, conversation);
        self.rest = hints.split_off(hints.partition_point(|hint| hint.slot != slot));
        match hints.last().map(|hint| hint.slot) {
            None => self.rest_of_hour().await.map(Some),
            reached => Ok(Some(ActivityRun { hints, reached })),
        }
    }

    /// Reads the hour in which the last read ended to its end, and goes on behind it.
    async fn rest_of_hour(&mut self) -> Result<ActivityRun> {
        let mut hints = std::mem::take(&mut self.rest);
        let slot = hints.last().expect("the hour has a hint").slot;
        loop {
            let read = self.read(slot, slot, READ_MAX).await?;
            let is_end = read.len() < usize::try_from(READ_MAX).expect("it is positive");
            hints.extend(read);
            if let Some(last) = hints.last().filter(|_| !is_end) {
                self.at = At::After(slot, last.key.conversation);
                continue;
            }
            let is_last = match self.direction {
                Direction::Forward => {
                    self.newest = slot - 1;
                    self.newest < self.oldest
                }
                Direction::Backward => {
                    self.oldest = slot + 1;
                    self.oldest > self.newest
                }
            };
            self.at = if is_last { At::End } else { At::Start };
            return Ok(ActivityRun {
                hints,
                reached: Some(slot).filter(|_| !is_last),
            });
        }
    }

    /// Reads on between two hours.
    async fn read(&self, newest: i32, oldest: i32, limit: i32) -> Result<Vec<ActivityHint>> {
        let user = self.user;
        let (statement, values) = match (self.direction, self.at) {
            (Direction::Forward, At::After(slot, conversation)) => (
                &SELECT_OLDER_THAN,
                values![user, slot, conversation, oldest, limit],
            ),
            (Direction::Forward, At::Start | At::End) => {
                (&SELECT_OLDER, values![user, newest, oldest, limit])
            }
            (Direction::Backward, At::After(slot, conversation)) => (
                &SELECT_NEWER_THAN,
                values![user, slot, conversation, newest, limit],
            ),
            (Direction::Backward, At::Start | At::End) => {
                (&SELECT_NEWER, values![user, oldest, newest, limit])
            }
        };
        let rows: Vec<(i32, Uuid, i64)> = self.inboxes.executor.read(statement, values).await?;
        let hint = |(slot, conversation, activity)| ActivityHint {
            slot,
            key: InboxKey {
                activity: Timestamp::from_micros(activity),
                conversation: ConversationId(conversation),
            },
        };
        Ok(rows.into_iter().map(hint).collect())
    }
}

/// Stale hints that a page has met.
#[derive(Default)]
pub(crate) struct StaleHints {
    hints: Vec<ActivityHint>,
    /// Those without an entry.
    left: Vec<ActivityHint>,
    /// The activities of those entries that the index lists.
    activities: HashMap<ConversationId, Timestamp>,
}

impl StaleHints {
    /// Notes a hint whose entry is in a later hour now. `is_listed`: whether hints list the entry, as they do unless it is large.
    pub(crate) fn note(&mut self, hint: ActivityHint, activity: Timestamp, is_listed: bool) {
        if self.hints.len() < STALE_MAX && slot_of(activity) > hint.slot {
            self.hints.push(hint);
            if is_listed {
                self.activities.insert(hint.key.conversation, activity);
            }
        }
    }
}

impl StaleHints {
    /// Notes a hint whose user has no entry.
    pub(crate) fn note_left(&mut self, hint: ActivityHint) {
        if self.left.len() < LEFT_MAX {
            self.left.push(hint);
        }
    }
}

/// The timestamp of a tombstone that ends the hint of a conversation which a user left at `left_at`. `None` if a hint of a later joining
/// might not be newer.
fn end_of_hint(activity: Timestamp, left_at: Timestamp) -> Option<Timestamp> {
    let end = activity.plus_micros(1);
    (end < left_at).then_some(end)
}

impl Inboxes {
    /// Deletes hints of conversations that the user has left. A hint from after that change came with a send that did not know of it yet:
    /// once it is settled, every later joining is newer.
    async fn delete_left(&self, user: &UserId, hints: &[ActivityHint]) -> Result<()> {
        type Columns = (Uuid, Option<Vec<u8>>, Option<i64>);
        let settled = self.clock.now().plus_micros(-SETTLED_MICROS);
        let pieces = hints.chunks(PIECE).map(async |piece| {
            let ids = list(piece.iter().map(|hint| hint.key.conversation));
            let rows: Vec<Columns> = self.executor.read(&SELECT_LEFT, values![user, ids]).await?;
            let mut left_at = HashMap::with_capacity(rows.len());
            for (id, membership, written_at) in rows {
                let (Some(membership), Some(written_at)) = (membership, written_at) else {
                    continue;
                };
                if !decode_membership("inbox_by_user", &membership)?.is_joined() {
                    left_at.insert(ConversationId(id), Timestamp::from_micros(written_at));
                }
            }
            let mut writes = Writes::of_one_partition();
            for ActivityHint { slot, key } in piece {
                let Some(left_at) = left_at.get(&key.conversation) else {
                    continue;
                };
                let after_settling = || (key.activity < settled).then_some(key.activity);
                let end = end_of_hint(key.activity, *left_at).or_else(after_settling);
                if let Some(end) = end {
                    writes.delete_hint(user, key.conversation, *slot, end);
                }
            }
            self.executor.write_all(writes).await
        });
        concurrently(pieces).await.map(drop)
    }

    /// Deletes stale hints, and restores the true ones in case the send that owes them is still in flight. Each write has the timestamp of
    /// its own activity, so no later hint is lost. A failure does no harm: the next page that meets them tries again.
    pub(super) async fn delete_stale(&self, user: &UserId, stale: StaleHints) {
        if let Err(error) = self.delete_left(user, &stale.left).await {
            tracing::debug!(%error, "the store failed to delete rows of left conversations from the activity index; the next page deletes them");
        }
        let mut writes = Writes::of_one_partition();
        for (conversation, activity) in stale.activities {
            writes.put_hint(user, conversation, activity);
        }
        for hint in stale.hints {
            writes.delete_hint(user, hint.key.conversation, hint.slot, hint.key.activity);
        }
        if let Err(error) = self.executor.write_all(writes).await {
            tracing::debug!(%error, "the store failed to delete stale rows of the activity index; the next page deletes them");
        }
    }
}

impl Writes {
    /// Adds the tombstone of a hint to the batch by which its user leaves.
    pub(crate) fn end_hint(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        activity: Timestamp,
        left_at: Timestamp,
    ) {
        if let Some(end) = end_of_hint(activity, left_at) {
            self.delete_hint(user, conversation, slot_of(activity), end);
        }
    }
}
