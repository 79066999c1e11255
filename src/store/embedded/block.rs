//! Blocks in the embedded store: one maximum register for each pair of users.
//!
//! The end of a block is kept for streams that resume. A later change of the same user drops those
//! that no stream asks for any more.

use super::Embedded;
use super::read_context::ReadContext;
use super::{TRIES_MAX, contended};
use crate::model::{Block, ChangeId, Direction, Profile, Timestamp, UserId};
use crate::store::Result;
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, Key};
use crate::store::embedded::engine::record;

/// A stored block with its key and value.
struct BlockRow {
    key: Key,
    value: Vec<u8>,
    block: Block,
}

impl Embedded {
    pub(super) async fn block_set(&self, user: &UserId, block: &Block) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let (user, block) = (user.clone(), block.clone());
            let write = self
                .read(move |context| plan(context, &user, &block))
                .await?;
            if self.write(write).await? == CommitOutcome::Done {
                return Ok(());
            }
        }
        Err(contended())
    }
}

pub(super) fn of_user(context: &ReadContext, user: &UserId) -> Result<Vec<Block>> {
    let now = context.clock.now();
    let all = rows(&context.view(), user)?.into_iter();
    Ok(all
        .map(|row| row.block)
        .filter(|block| !block.has_expired(now))
        .collect())
}

/// Row of an imported block.
pub(super) fn imported(user: &UserId, blocked: &UserId, since: Timestamp) -> (Key, Vec<u8>) {
    let change = ChangeId::new(since, [0; 8]);
    (
        key::block(user, blocked),
        record::encode_block(change, true),
    )
}

fn plan(context: &ReadContext, user: &UserId, block: &Block) -> Result<Write> {
    let (view, now) = (context.view(), context.clock.now());
    let mut write = Write {
        newest_id: Some(block.change),
        ..Write::default()
    };
    let user_key = key::user(user);
    if !view.has(&user_key)? {
        // A user with blocks is in exports, with a profile or without.
        let profile = record::encode_profile(&Profile::default());
        write.conditions.push(Condition::Absent(user_key.clone()));
        write.ops.push(Op::Put(user_key, profile));
    }
    for row in rows(&view, user)? {
        if row.block.has_expired(now) && row.block.blocked != block.blocked {
            write
                .conditions
                .push(Condition::Is(row.key.clone(), row.value));
            write.ops.push(Op::Delete(row.key));
        }
    }
    let value = record::encode_block(block.change, block.is_on);
    write
        .ops
        .push(Op::Max(key::block(user, &block.blocked), value));
    Ok(write)
}

fn rows(view: &View<'_>, user: &UserId) -> Result<Vec<BlockRow>> {
    let decoded = |row: Result<(fjall::Slice, fjall::Slice)>| {
        let (bytes, value) = row?;
        let key = Key::of_row(&bytes);
        let blocked = key::blocked_of(&key.bytes).in_table(key.table_name())?;
        let value = value.to_vec();
        let (change, is_on) = record::decode_block(&value).in_table(key.table_name())?;
        let block = Block {
            blocked,
            is_on,
            change,
        };
        Ok(BlockRow { key, value, block })
    };
    view.scan(key::blocks(user), Direction::Forward)
        .map(decoded)
        .collect()
}
