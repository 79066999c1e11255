//! Bans of a conversation: who banned a user, and why. The membership of the user decides.
//!
//! A ban is written where the change of the membership is settled, with the microsecond of its version, so
//! that of two changes the later one stays. Reads leave out bans that have ended; their rows expire a
//! minute later, so that no list reads many of them.

use std::sync::Arc;

use futures_util::future::try_join;

use crate::clock::Clock;
use crate::model::{
    Ban, ConversationId, Direction, Page, PageRequest, TimeUuid, Timestamp, UserId,
};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::{Executor, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, row_limit, user, values};
use crate::store::rules::former_runs::{NameRange, successor};
use crate::store::{BanChange, Result, rules};

const TABLE: &str = "bans_by_conversation";
/// Rows of one read.
const ROWS_MAX: usize = 1_000;
/// Rows of one write.
const REPLACED_AT_ONCE: usize = 64;
/// Lifetime of the row of a ban that has ended, in seconds: clocks differ by less.
const ENDED_SECONDS: i64 = 60;
/// The longest TTL of CQL: twenty years, in seconds. A ban that ends later has none.
const TTL_MAX: i64 = 630_720_000;

statements! {
    SELECT_BAN: Read "SELECT state FROM bans_by_conversation WHERE conversation_id = ? AND user_id = ?";
    SELECT_BANS_ASC: Read "SELECT user_id, state FROM bans_by_conversation WHERE conversation_id = ? AND user_id >= ? AND user_id < ? ORDER BY user_id ASC LIMIT ?";
    SELECT_BANS_DESC: Read "SELECT user_id, state FROM bans_by_conversation WHERE conversation_id = ? AND user_id >= ? AND user_id < ? ORDER BY user_id DESC LIMIT ?";
    UPDATE_BAN: Write "UPDATE bans_by_conversation USING TIMESTAMP ? AND TTL ? SET state = ? WHERE conversation_id = ? AND user_id = ?";
    DELETE_BAN: Write "DELETE FROM bans_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND user_id = ?";
}

type BanColumns = (String, Option<Vec<u8>>);

/// Bans, without a cache.
pub(crate) struct BanTable {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
}

/// `None` for a ban that a later version wrote.
fn decode(name: &str, bytes: &[u8]) -> Result<Option<Ban>> {
    rules::ban::decode(user(TABLE, name)?, bytes)
}

impl BanTable {
    pub(crate) fn new(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        Self { executor, clock }
    }

    /// The bans of some users that hold now.
    pub(crate) async fn of_users(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Vec<Option<Ban>>> {
        let now = self.clock.now();
        let each = users.iter().map(async |user| {
            let values = values![conversation, user];
            let state: Option<Vec<u8>> = self.executor.read_cell(&SELECT_BAN, values).await?;
            let Some(state) = state else {
                return Ok(None);
            };
            let ban = decode(user.as_str(), &state)?;
            Ok(ban.filter(|ban| ban.holds_at(now)))
        });
        concurrently(each).await
    }

    /// The bans that hold now, counted up to a limit.
    pub(crate) async fn count(&self, conversation: ConversationId, limit: usize) -> Result<usize> {
        let all = self
            .listed(conversation, NameRange::all(), Direction::Forward, limit)
            .await?;
        Ok(all.len())
    }

    /// All bans that hold now.
    pub(crate) async fn all(&self, conversation: ConversationId) -> Result<Vec<Ban>> {
        let (all, forward) = (NameRange::all(), Direction::Forward);
        self.listed(conversation, all, forward, usize::MAX).await
    }

    pub(crate) async fn page(
        &self,
        conversation: ConversationId,
        request: &PageRequest<UserId>,
    ) -> Result<Page<Ban>> {
        let behind = async {
            let Some((range, back)) = NameRange::all().behind_page(request) else {
                return Ok(false);
            };
            Ok(!self.listed(conversation, range, back, 1).await?.is_empty())
        };
        let range = NameRange::all().of_page(request);
        let listed = self.listed(conversation, range, request.direction, request.overread());
        let (bans, has_behind) = try_join(listed, behind).await?;
        Ok(Page::from_overread(request, bans, has_behind))
    }

    /// The first bans of a range that hold now.
    async fn listed(
        &self,
        conversation: ConversationId,
        mut range: NameRange,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<Ban>> {
        let statement = match direction {
            Direction::Forward => &SELECT_BANS_ASC,
            Direction::Backward => &SELECT_BANS_DESC,
        };
        let now = self.clock.now();
        let mut found = Vec::new();
        while found.len() < count && range.from < range.before {
            let piece = (count - found.len()).min(ROWS_MAX);
            let values = values![
                conversation,
                range.from.as_str(),
                range.before.as_str(),
                row_limit(piece)
            ];
            let rows: Vec<BanColumns> = self.executor.read(statement, values).await?;
            let is_last = rows.len() < piece;
            if let Some((last, _)) = rows.last() {
                match direction {
                    Direction::Forward => range.from = successor(last),
                    Direction::Backward => last.clone_into(&mut range.before),
                }
            }
            for (name, state) in rows {
                let Some(state) = state else { continue };
                found.extend(decode(&name, &state)?.filter(|ban| ban.holds_at(now)));
            }
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    /// Writes an imported ban: any later change of it wins. One that has ended needs no row.
    pub(crate) async fn import(&self, conversation: ConversationId, ban: &Ban) -> Result<()> {
        let now = self.clock.now();
        if !ban.holds_at(now) {
            return Ok(());
        }
        let mut writes = Writes::of_one_partition();
        put(&mut writes, conversation, ban, REGISTER_TIMESTAMP, now);
        self.executor.write_all(writes).await
    }

    /// Deletes the ban of a user, and replaces the user's name in the bans of others that hold now.
    pub(crate) async fn erase(
        &self,
        conversation: ConversationId,
        user: &UserId,
        change: TimeUuid,
    ) -> Result<()> {
        let at = change.moment().micros();
        let values = values![at, conversation, user];
        self.executor.write(&DELETE_BAN, values).await?;
        let listed = self.all(conversation).await?;
        let by_user: Vec<_> = listed.into_iter().filter(|ban| ban.by == *user).collect();
        for piece in by_user.chunks(REPLACED_AT_ONCE) {
            let mut writes = Writes::of_one_partition();
            for ban in piece {
                let by = UserId::erased();
                let ban = Ban { by, ..ban.clone() };
                put(&mut writes, conversation, &ban, at, change.moment());
            }
            self.executor.write_all(writes).await?;
        }
        Ok(())
    }

    /// Deletes the ban of a user who is not banned, for a repair.
    pub(crate) async fn remove(&self, conversation: ConversationId, user: &UserId) -> Result<()> {
        let values = values![self.clock.now(), conversation, user];
        self.executor.write(&DELETE_BAN, values).await
    }
}

/// Adds the write of a change that led to this version.
pub(crate) fn put_change(
    writes: &mut Writes,
    conversation: ConversationId,
    change: &BanChange,
    version: TimeUuid,
) {
    let at = version.moment().micros();
    match change {
        BanChange::Set(ban) => put(writes, conversation, ban, at, ban.at),
        BanChange::Lift(user) => writes.push(&DELETE_BAN, values![at, conversation, user]),
    }
}

/// Adds the write of a ban, whose row lasts from `now` on until a minute after its end.
fn put(writes: &mut Writes, conversation: ConversationId, ban: &Ban, at: i64, now: Timestamp) {
    let lasts = ban.until.map(|until| {
        let seconds = (until.micros() - now.micros()) / 1_000_000;
        seconds.max(0).saturating_add(ENDED_SECONDS)
    });
    let ttl = lasts
        .filter(|seconds| *seconds <= TTL_MAX)
        .and_then(|seconds| i32::try_from(seconds).ok())
        .unwrap_or(0);
    let values = values![at, ttl, rules::ban::encode(ban), conversation, &ban.user];
    writes.push(&UPDATE_BAN, values);
}
