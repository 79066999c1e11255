//! Pager: reads the rows of a conversation's participants in pieces, in either direction of usernames.

use std::collections::BTreeMap;

use scylla::deserialize::row::DeserializeRow;

use super::roster::TABLE;
use super::{Participants, ROWS_MAX};
use crate::model::{ConversationId, Direction, Membership, UserId};
use crate::store::Result;
use crate::store::cql::driver::statement::{Statement, statements};
use crate::store::cql::driver::value::{row_limit, user, values};
use crate::store::cql::message::membership::decode_membership;
use crate::store::rules::former_runs::{CachedRuns, NameRange, successor};

statements! {
    SELECT_ALL_MEMBERSHIPS: Read "SELECT user_id, membership FROM participants_by_conversation WHERE conversation_id = ? AND user_id >= ? AND user_id < ? ORDER BY user_id ASC LIMIT ?";
}

/// A row of the partition, by its username.
pub(super) trait Named: for<'frame> DeserializeRow<'frame, 'frame> {
    fn name(&self) -> &str;
}

pub(super) struct Pager<'a> {
    participants: &'a Participants,
    conversation: ConversationId,
    statement: &'static Statement,
    range: NameRange,
    direction: Direction,
    /// Rows of the next read. It grows, as rows of users who have left may be skipped.
    piece: usize,
    is_done: bool,
}

impl<'a> Pager<'a> {
    /// The statement takes the conversation, both bounds of the range and a limit, and returns rows in this direction.
    pub(super) fn new(
        participants: &'a Participants,
        conversation: ConversationId,
        statement: &'static Statement,
        range: NameRange,
        direction: Direction,
        wanted: usize,
    ) -> Self {
        Self {
            participants,
            conversation,
            statement,
            range,
            direction,
            piece: wanted.clamp(1, ROWS_MAX),
            is_done: false,
        }
    }

    /// Moves the next read past the runs of former participants that it would begin in. Returns whether it moved.
    pub(super) fn skip(&mut self, known: &CachedRuns) -> bool {
        known.skip(&mut self.range, self.direction)
    }

    /// The range that was not read yet. `None` after the last rows.
    pub(super) fn rest(&self) -> Option<&NameRange> {
        Some(&self.range).filter(|range| !self.is_done && range.from < range.before)
    }

    /// The next rows. `None` after the last ones.
    pub(super) async fn next<R: Named>(&mut self) -> Result<Option<Vec<R>>> {
        if self.is_done || self.range.from >= self.range.before {
            return Ok(None);
        }
        let values = values![
            self.conversation,
            self.range.from.as_str(),
            self.range.before.as_str(),
            row_limit(self.piece)
        ];
        let rows: Vec<R> = self
            .participants
            .executor
            .read(self.statement, values)
            .await?;
        self.is_done = rows.len() < self.piece;
        if let Some(last) = rows.last() {
            match self.direction {
                Direction::Forward => self.range.from = successor(last.name()),
                Direction::Backward => last.name().clone_into(&mut self.range.before),
            }
        }
        self.piece = (self.piece * 4).min(ROWS_MAX);
        Ok(Some(rows))
    }
}

type MembershipColumns = (String, Option<Vec<u8>>);

impl Named for MembershipColumns {
    fn name(&self) -> &str {
        &self.0
    }
}

impl Participants {
    /// All stored memberships of a conversation, those of users who have left included. Roles are as stored, without succession.
    pub(crate) async fn memberships(
        &self,
        conversation: ConversationId,
    ) -> Result<BTreeMap<UserId, Membership>> {
        let mut found = BTreeMap::new();
        let mut pager = Pager::new(
            self,
            conversation,
            &SELECT_ALL_MEMBERSHIPS,
            NameRange::all(),
            Direction::Forward,
            ROWS_MAX,
        );
        while let Some(rows) = pager.next::<MembershipColumns>().await? {
            for (name, membership) in rows {
                if let Some(membership) = membership {
                    found.insert(user(TABLE, &name)?, decode_membership(TABLE, &membership)?);
                }
            }
        }
        Ok(found)
    }
}
