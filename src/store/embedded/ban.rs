//! Bans in the embedded store: one row for each banned user of a conversation.
//!
//! A change of the membership writes them in its commit. Reads leave out bans that have ended by their time, until a
//! sweep deletes them: a list reads those of the last minutes at most.

use fjall::Slice;

use super::OpenStore;
use super::read_context::ReadContext;
use crate::model::{Ban, ConversationId, Direction, Page, PageRequest, Timestamp, UserId};
use crate::store::embedded::engine::committer::{Condition, Op, Write};
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, Key, Span};
use crate::store::embedded::engine::page::read_page;
use crate::store::{Result, rules};

const TABLE: &str = "bans_by_conversation";
/// Rows of one read of a sweep, and reads of one sweep.
const SWEEP_ROWS_MAX: usize = 2_000;
const SWEEP_READS_MAX: usize = 50;

pub(super) fn of_users(
    context: &ReadContext,
    conversation: ConversationId,
    users: &[UserId],
) -> Result<Vec<Option<Ban>>> {
    let (view, now) = (context.view(), context.clock.now());
    let each = |user: &UserId| one(&view, conversation, user, now);
    users.iter().map(each).collect()
}

pub(super) fn count(
    context: &ReadContext,
    conversation: ConversationId,
    limit: usize,
) -> Result<usize> {
    let (view, now) = (context.view(), context.clock.now());
    let all = key::bans(conversation);
    Ok(listed(&view, all, Direction::Forward, limit, now)?.len())
}

pub(super) fn page(
    context: &ReadContext,
    conversation: ConversationId,
    request: &PageRequest<UserId>,
) -> Result<Page<Ban>> {
    let (view, now) = (context.view(), context.clock.now());
    read_page(
        &key::bans(conversation),
        request,
        |user| key::ban_place(conversation, user),
        |user| Ok(one(&view, conversation, user, now)?.is_some()),
        |span, direction, limit| listed(&view, span, direction, limit, now),
    )
}

/// All bans of a conversation, those that have ended included.
pub(super) fn stored(view: &View<'_>, conversation: ConversationId) -> Result<Vec<Ban>> {
    view.scan(key::bans(conversation), Direction::Forward)
        .filter_map(|row| row.and_then(|row| decode(&row)).transpose())
        .collect()
}

fn one(
    view: &View<'_>,
    conversation: ConversationId,
    user: &UserId,
    now: Timestamp,
) -> Result<Option<Ban>> {
    let Some(value) = view.get(&key::ban(conversation, user))? else {
        return Ok(None);
    };
    let ban = rules::ban::decode(user.clone(), &value)?;
    Ok(ban.filter(|ban| ban.holds_at(now)))
}

fn listed(
    view: &View<'_>,
    span: Span,
    direction: Direction,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Ban>> {
    let mut found = Vec::new();
    for row in view.scan(span, direction) {
        if found.len() == limit {
            break;
        }
        found.extend(decode(&row?)?.filter(|ban| ban.holds_at(now)));
    }
    Ok(found)
}

/// `None` for a ban that a later version wrote.
fn decode((key, value): &(Slice, Slice)) -> Result<Option<Ban>> {
    let user = key::banned_of(key).in_table(TABLE)?;
    rules::ban::decode(user, value)
}

/// Sweeper of bans that have ended, around the bans of all conversations.
#[derive(Default)]
pub(super) struct BanSweep {
    from: Option<Vec<u8>>,
}

impl BanSweep {
    pub(super) async fn run(&mut self, inner: &OpenStore) -> Result<()> {
        for _ in 0..SWEEP_READS_MAX {
            let from = self.from.take();
            let (write, next) = inner.read(move |context| ended(context, from)).await?;
            if !write.ops.is_empty() {
                // A refused write met a ban that has changed meanwhile: the next round deletes the others.
                inner.committer.commit(write).await?;
            }
            self.from = next;
            if self.from.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// Plans the deletion of ended bans behind a key. Returns it with the key after which the next part begins.
fn ended(context: &ReadContext, from: Option<Vec<u8>>) -> Result<(Write, Option<Vec<u8>>)> {
    let (view, now) = (context.view(), context.clock.now());
    let (mut write, mut last, mut count) = (Write::default(), None, 0);
    let span = key::behind(key::all_bans(), from);
    for row in view.scan(span, Direction::Forward).take(SWEEP_ROWS_MAX) {
        let row = row?;
        // A row that cannot be read stays for a verification.
        if matches!(decode(&row), Ok(Some(ban)) if !ban.holds_at(now)) {
            let key = Key::of_row(&row.0);
            let is_same = Condition::Is(key.clone(), row.1.to_vec());
            write.conditions.push(is_same);
            write.ops.push(Op::Delete(key));
        }
        last = Some(row.0.to_vec());
        count += 1;
    }
    Ok((write, last.filter(|_| count == SWEEP_ROWS_MAX)))
}
