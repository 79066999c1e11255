//! Hints: where in a user's list a conversation was in some hour. A walk reads them from either end, a read of so many at a time.
//!
//! Where a conversation stands now is said by its row in `inbox_by_user`; whoever writes that writes a hint for the same moment beside it.
//! So each entry is found by the hint of its own hour, and a hint of an earlier one is passed over, and taken away when it was met.

use std::collections::HashMap;

use super::writes::{latest_by_hint, slot_of};
use crate::model::{ConversationId, Cut, Direction, InboxKey, Timestamp, UserId};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::cells;

/// Rows of one read, at most.
const READ_MAX: i32 = 1_000;
/// The first read asks for so many more than are wanted: a page ends inside an hour, which must be read whole.
const SPARE: i32 = 32;
/// Hints that are taken away at once: a batch of them stays small.
const FORGET_MAX: usize = 50;

statements! {
    /// The statements of this file.
    Statements {
        down: Read "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot <= ? AND slot >= ? ORDER BY slot DESC, conversation_id DESC LIMIT ?";
        down_from: Read "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND (slot, conversation_id) < (?, ?) AND (slot) >= (?) ORDER BY slot DESC, conversation_id DESC LIMIT ?";
        up: Read "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot >= ? AND slot <= ? ORDER BY slot ASC, conversation_id ASC LIMIT ?";
        up_from: Read "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND (slot, conversation_id) > (?, ?) AND (slot) <= (?) ORDER BY slot ASC, conversation_id ASC LIMIT ?";
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Hint {
    pub(crate) slot: i32,
    /// Where the entry stood. It may stand a little later in that hour now.
    pub(crate) key: InboxKey,
}

impl Hint {
    /// The first place of the list at which the entry may stand, unless it has another hint.
    pub(crate) fn first(&self) -> InboxKey {
        InboxKey { activity: latest_by_hint(self.slot, self.key.activity), ..self.key }
    }
}

/// Hints of whole hours.
pub(crate) struct Run {
    pub(crate) hints: Vec<Hint>,
    /// The last hour that was read whole. `None` when there are no more.
    pub(crate) reached: Option<i32>,
}

#[derive(Debug, Clone, Copy)]
enum At {
    Start,
    Behind(i32, ConversationId),
    End,
}

/// A walk through a user's hints, of the hours that a cut of the list touches.
pub(crate) struct Walk<'a> {
    inner: &'a Inner,
    user: &'a UserId,
    direction: Direction,
    newest: i32,
    oldest: i32,
    at: At,
    limit: i32,
    /// Of the hour in which the last read broke off.
    rest: Vec<Hint>,
}

impl<'a> Walk<'a> {
    /// A walk from which about so many are wanted.
    pub(crate) fn new(inner: &'a Inner, user: &'a UserId, cut: &Cut<InboxKey>, direction: Direction, wanted: usize) -> Self {
        let slot = |bound: &std::ops::Bound<InboxKey>| match bound {
            std::ops::Bound::Included(key) | std::ops::Bound::Excluded(key) => Some(slot_of(key.activity)),
            std::ops::Bound::Unbounded => None,
        };
        let wanted = i32::try_from(wanted.saturating_mul(2)).unwrap_or(READ_MAX);
        Self {
            inner,
            user,
            direction,
            newest: slot(&cut.start).unwrap_or(i32::MAX),
            oldest: slot(&cut.end).unwrap_or(0),
            at: At::Start,
            limit: wanted.saturating_add(SPARE).min(READ_MAX),
            rest: Vec::new(),
        }
    }

    /// The hints of the next hours. `None` behind the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Run>> {
        if matches!(self.at, At::End) {
            return Ok(None);
        }
        let mut hints = std::mem::take(&mut self.rest);
        loop {
            let read = self.read().await?;
            let is_last = read.len() < usize::try_from(self.limit).expect("a limit is positive");
            self.limit = READ_MAX;
            self.at = match read.last() {
                Some(last) if !is_last => At::Behind(last.slot, last.key.conversation),
                Some(_) | None => At::End,
            };
            hints.extend(read);
            let Some(last) = hints.last().filter(|_| !is_last).map(|hint| hint.slot) else {
                return Ok(Some(Run { hints, reached: None }));
            };
            let whole = hints.partition_point(|hint| hint.slot != last);
            if whole > 0 {
                self.rest = hints.split_off(whole);
                let reached = hints.last().map(|hint| hint.slot);
                return Ok(Some(Run { hints, reached }));
            }
        }
    }

    async fn read(&self) -> Result<Vec<Hint>> {
        let statements = &self.inner.statements.hint;
        let Self { user, newest, oldest, limit, .. } = *self;
        let (statement, values) = match (self.direction, self.at) {
            (Direction::Forward, At::Behind(slot, conversation)) => {
                (&statements.down_from, cells![user, slot, conversation, oldest, limit])
            }
            (Direction::Forward, At::Start | At::End) => (&statements.down, cells![user, newest, oldest, limit]),
            (Direction::Backward, At::Behind(slot, conversation)) => (&statements.up_from, cells![user, slot, conversation, newest, limit]),
            (Direction::Backward, At::Start | At::End) => (&statements.up, cells![user, oldest, newest, limit]),
        };
        let rows: Vec<(i32, uuid::Uuid, i64)> = self.inner.cluster.read(statement, values).await?;
        let hint = |(slot, conversation, activity)| Hint {
            slot,
            key: InboxKey { activity: Timestamp::from_micros(activity), conversation: ConversationId(conversation) },
        };
        Ok(rows.into_iter().map(hint).collect())
    }
}

/// What a page met that is not true any more.
#[derive(Default)]
pub(crate) struct Stale {
    hints: Vec<Hint>,
    /// Where those entries stand, unless their conversations alone say it.
    places: HashMap<ConversationId, Timestamp>,
}

impl Stale {
    /// Notes a hint whose entry stands in another hour now. `is_listed`: by hints.
    pub(crate) fn note(&mut self, hint: Hint, activity: Timestamp, is_listed: bool) {
        if self.hints.len() < FORGET_MAX && slot_of(activity) > hint.slot {
            self.hints.push(hint);
            if is_listed {
                self.places.insert(hint.key.conversation, activity);
            }
        }
    }
}

impl Inner {
    /// Takes away hints that are not true any more, and puts the true ones beside that, in case the write that owes them is still under way.
    /// Each as of its own activity, so that no later hint goes with it. Nothing depends on it: the next page that meets them tries again.
    pub(crate) async fn forget_stale(&self, user: &UserId, stale: Stale) {
        let mut writes = Writes::of_one_partition();
        for (conversation, activity) in stale.places {
            self.hint(&mut writes, user, conversation, activity);
        }
        for hint in stale.hints {
            self.forget_hint(&mut writes, user, hint.key.conversation, hint.slot, hint.key.activity);
        }
        if let Err(error) = self.cluster.write_all(writes).await {
            tracing::debug!(%error, "the store failed to delete stale rows of the activity index; the next page deletes them");
        }
    }
}
