//! Blocks of users, with the log by which the servers hear of changes.
//!
//! One partition holds the blocks of a user. A block is a register: the id of its last change and
//! whether it is on, written with the microsecond of that id. The end of a block expires.

use std::sync::Arc;

use crate::clock::Clock;
use crate::model::{Block, ChangeId, OrderKey, Timestamp, UserId};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::Executor;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, user, values};
use crate::store::cql::participant::profile::ENSURE_USER;
use crate::store::cql::participant::restriction::put_log;

const TABLE: &str = "blocks_by_user";
/// Rows of one read: more than a chat lets a user have.
const ROWS_MAX: i32 = 5_000;
/// TTL of the end of a block, in seconds. A block that is on has none.
const END_SECONDS: i32 = (Block::END_LIFETIME_MICROS / 1_000_000) as i32;

statements! {
    SELECT_BLOCKS: Read "SELECT blocked_id, state FROM blocks_by_user WHERE user_id = ? LIMIT ?";
    SELECT_BLOCK: Read "SELECT state FROM blocks_by_user WHERE user_id = ? AND blocked_id = ?";
    DELETE_BLOCKS: Write "DELETE FROM blocks_by_user USING TIMESTAMP ? WHERE user_id = ?";
    UPDATE_BLOCK: Write "UPDATE blocks_by_user USING TIMESTAMP ? AND TTL ? SET state = ? WHERE user_id = ? AND blocked_id = ?";
}

/// Blocks, without a cache: a chat holds them in memory.
pub(crate) struct BlockTable {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
}

fn encode(block: &Block) -> Vec<u8> {
    [
        block.change.order_key().0.as_slice(),
        &[u8::from(block.is_on)],
    ]
    .concat()
}

fn decode(blocked: &str, bytes: &[u8]) -> Result<Block> {
    let broken = || corrupt(TABLE, "a block is the order key of its change and a flag");
    let (change, is_on) = bytes.split_first_chunk::<16>().ok_or_else(broken)?;
    let is_on = match is_on {
        [is_on @ (0 | 1)] => *is_on == 1,
        _ => return Err(broken()),
    };
    Ok(Block {
        blocked: user(TABLE, blocked)?,
        is_on,
        change: ChangeId::from_order_key(OrderKey(*change)).ok_or_else(broken)?,
    })
}

impl BlockTable {
    pub(crate) fn new(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        Self { executor, clock }
    }

    pub(crate) async fn of_user(&self, user: &UserId) -> Result<Vec<Block>> {
        let rows: Vec<(String, Option<Vec<u8>>)> = self
            .executor
            .read(&SELECT_BLOCKS, values![user, ROWS_MAX])
            .await?;
        let now = self.clock.now();
        let mut blocks: Vec<_> = rows
            .into_iter()
            .filter_map(|(blocked, state)| Some((blocked, state?)))
            .map(|(blocked, state)| decode(&blocked, &state))
            .collect::<Result<_>>()?;
        blocks.retain(|block| !block.has_expired(now));
        Ok(blocks)
    }

    pub(crate) async fn set(&self, user: &UserId, block: &Block) -> Result<()> {
        let mut writes = Writes::logged();
        put(&mut writes, user, block);
        // A user with blocks is in exports, with a profile or without.
        let values = values![user, REGISTER_TIMESTAMP];
        writes.push(&ENSURE_USER, values);
        put_log(&mut writes, self.clock.now(), user.as_str());
        self.executor.write_all(writes).await
    }

    /// Deletes all blocks of a user.
    pub(crate) async fn erase(&self, user: &UserId, at: Timestamp) -> Result<()> {
        self.executor.write(&DELETE_BLOCKS, values![at, user]).await
    }

    /// Whether the store has a block of this pair, or the end of one.
    pub(crate) async fn has(&self, user: &UserId, blocked: &UserId) -> Result<bool> {
        let values = values![user, blocked];
        let state: Option<Vec<u8>> = self.executor.read_cell(&SELECT_BLOCK, values).await?;
        Ok(state.is_some())
    }

    /// Writes an imported block.
    pub(crate) async fn import(
        &self,
        user: &UserId,
        blocked: &UserId,
        since: Timestamp,
    ) -> Result<()> {
        let block = Block {
            blocked: blocked.clone(),
            is_on: true,
            change: ChangeId::new(since, [0; 8]),
        };
        let mut writes = Writes::logged();
        put(&mut writes, user, &block);
        put_log(&mut writes, self.clock.now(), user.as_str());
        self.executor.write_all(writes).await
    }
}

fn put(writes: &mut Writes, user: &UserId, block: &Block) {
    let ttl = if block.is_on { 0 } else { END_SECONDS };
    let (at, state) = (block.change.moment(), encode(block));
    writes.push(&UPDATE_BLOCK, values![at, ttl, state, user, &block.blocked]);
}
