//! Erasure of users in the embedded store, and its jobs.
//!
//! The membership cell of each conversation tells whether a user was ever in it, so the conversations of a
//! user are found by one key lookup for each conversation of the store.

use std::sync::Arc;

use crate::model::{
    Ban, ChangeId, Conversation, ConversationId, ConversationKind, Direction, IdempotencyKey, Job,
    JobId, Message, MessageId, OrderKey, OutboxEvent, Profile, Report, TimeUuid, Timestamp, UserId,
};
use crate::store::embedded::cache::state::{ConversationState, People, memberships};
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, Cell, EntryCell, Key, Span, Table};
use crate::store::embedded::engine::record::{self, ConversationRecord, MessageRecord};
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::write::compare_and_set::{Plan, state_write};
use crate::store::embedded::write::pin::PinListChange;
use crate::store::embedded::{Embedded, ban};
use crate::store::rules::pair;
use crate::store::rules::pin_list::PinList;
use crate::store::{
    ConversationsPiece, ErasureStore, Result, StoreFuture, erasure_operations, rules,
};

/// Conversations of the store that one piece looks at.
const ROWS_READ_MAX: usize = 10_000;
/// Rows that one write deletes.
const DELETED_AT_ONCE: usize = 1_000;

impl ErasureStore for Embedded {
    erasure_operations! { reads {
        conversations_of: conversations_of,
        jobs: jobs,
        running_jobs: running_jobs,
    } }

    erasure_operations! { plans {
        erase_messages: plan_messages,
    } }

    fn erase_participant<'a>(
        &'a self,
        conversation: ConversationId,
        user: &'a UserId,
        change: ChangeId,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let all = (OrderKey::MIN, OrderKey::MAX);
            self.delete_all(key::mentions(user, conversation, all))
                .await?;
            let user = user.clone();
            self.carry_out(conversation, move |context, state| {
                plan_participant(context, state, &user, change)
            })
            .await
        })
    }

    fn erase_user<'a>(&'a self, user: &'a UserId, _at: Timestamp) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            for span in [
                key::mentions_of_user(user),
                key::blocks(user),
                key::activities(user),
                key::busy(user),
                key::larges(user),
                key::entries(user),
                key::changes_of_user_after(user, OrderKey::MIN),
            ] {
                self.delete_all(span).await?;
            }
            let empty = record::encode_profile(&Profile::default());
            let ops = vec![Op::Put(key::user(user), empty)];
            self.write_ops(ops, None).await
        })
    }

    fn add_user_erased<'a>(
        &'a self,
        user: &'a UserId,
        event: TimeUuid,
        _logged_as: TimeUuid,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let outbox = &self.inner.context.outbox;
            let events = || vec![OutboxEvent::user_erased(event, user.clone())];
            let row = outbox.put(Report::NO_CONVERSATION, events);
            self.write_ops(row.into_iter().collect(), Some(event)).await
        })
    }

    fn swap_job<'a>(&'a self, seen: Option<&'a Job>, to: &'a Job) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            if to.finished_at.is_some() {
                // The erased texts are still in files of every table.
                self.inner.note_removal(Table::ALL).await?;
            }
            let (running, ended) = (key::job(to.id), key::ended_job(to.id));
            let seen = seen.map(rules::job::encode);
            let condition = Condition::unchanged(running.clone(), seen);
            let bytes = rules::job::encode(to);
            let ops = match to.finished_at {
                None => vec![Op::Put(running, bytes), Op::Delete(ended)],
                Some(finished_at) => {
                    let expires_at = finished_at.plus_micros(Job::ENDED_LIFETIME_MICROS);
                    let expiry = key::expiry(&ended, expires_at);
                    vec![
                        Op::Delete(running),
                        Op::Put(ended, bytes),
                        Op::Put(expiry, Vec::new()),
                    ]
                }
            };
            let write = Write {
                ops,
                conditions: vec![condition],
                ..Write::default()
            };
            Ok(self.write(write).await? == CommitOutcome::Done)
        })
    }
}

impl Embedded {
    /// Deletes the rows of a range, some at once. Those that are added meanwhile stay.
    async fn delete_all(&self, mut span: Span) -> Result<()> {
        loop {
            let rest = span.clone();
            let keys: Vec<Key> = self
                .read(move |context| {
                    let table = rest.table;
                    let rows = context.view();
                    let rows = rows.scan(rest, Direction::Forward).take(DELETED_AT_ONCE);
                    let keys = rows.map(|row| {
                        let bytes = row?.0.to_vec();
                        Ok(Key { table, bytes })
                    });
                    keys.collect()
                })
                .await?;
            let is_last = keys.len() < DELETED_AT_ONCE;
            let last = keys.last().map(|key| key.bytes.clone());
            if !keys.is_empty() {
                let ops = keys.into_iter().map(Op::Delete).collect();
                self.write_ops(ops, None).await?;
            }
            if is_last {
                return Ok(());
            }
            // Past the tombstones that were just written.
            span = key::behind(span, last);
        }
    }
}

fn conversations_of(
    context: &ReadContext,
    user: &UserId,
    after: Option<ConversationId>,
    limit: usize,
) -> Result<ConversationsPiece> {
    let view = context.view();
    let mut found = Vec::new();
    let rows = view.scan(key::conversations_after(after), Direction::Forward);
    for (rows_read, row) in rows.enumerate() {
        let id = key::conversation_of(&row?.0).in_table("conversations")?;
        if view.has(&key::participant(id, user, Cell::Membership))? {
            found.push(id);
        }
        if found.len() == limit || rows_read + 1 == ROWS_READ_MAX {
            let next = Some(id);
            return Ok(ConversationsPiece { found, next });
        }
    }
    Ok(ConversationsPiece { found, next: None })
}

fn jobs(context: &ReadContext, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
    let view = context.view();
    let each = |id: &JobId| {
        let stored = match view.get(&key::job(*id))? {
            None => view.get(&key::ended_job(*id))?,
            running => running,
        };
        stored.map(|bytes| rules::job::decode(&bytes)).transpose()
    };
    ids.iter().map(each).collect()
}

fn running_jobs(context: &ReadContext, limit: usize) -> Result<Vec<Job>> {
    let view = context.view();
    let rows = view.scan(key::jobs(), Direction::Forward).take(limit);
    rows.map(|row| rules::job::decode(&row?.1)).collect()
}

/// Plans the erasure from some messages, on the condition that the head is that of `state`.
fn plan_messages(
    context: &ReadContext,
    state: &ConversationState,
    id: ConversationId,
    user: &UserId,
    messages: &[MessageId],
    change: ChangeId,
) -> Result<Plan<()>> {
    let view = context.view();
    let mut ops = Vec::new();
    let mut list = PinListChange::begin(&view, id)?;
    let listed = list.pins.clone();
    for message in messages {
        if let Some(present) = view.message(id, *message)? {
            erase_message(&view, user, &present, &mut ops, &mut list.pins)?;
        }
    }
    if ops.is_empty() {
        return Ok(((), None));
    }
    let mut write = state_write(context, state, state.changed(change), ops, change);
    if list.pins != listed {
        list.add_to(&mut write);
    }
    Ok(((), Some(write)))
}

fn erase_message(
    view: &View<'_>,
    user: &UserId,
    message: &Message,
    ops: &mut Vec<Op>,
    pins: &mut PinList,
) -> Result<()> {
    let (id, at) = (message.conversation, message.id.order_key());
    if let Some(key) = &message.client_key
        && message.sender == *user
    {
        let row = key::send_by_key(id, user, key);
        let expires_at = message.id.moment();
        let expires_at = expires_at.plus_micros(IdempotencyKey::LIFETIME_MICROS);
        ops.push(Op::Delete(key::expiry(&row, expires_at)));
        ops.push(Op::Delete(row));
    }
    if message.has_reactions {
        for row in view.scan(key::reactions(id, message.id), Direction::Forward) {
            let (bytes, _) = row?;
            let (_, by) = key::reaction_of(&bytes).in_table("reactions_by_message")?;
            if by == *user {
                ops.push(Op::Delete(Key::of_row(&bytes)));
            }
        }
        let ended = key::ended_reactions_of(id, message.id, user);
        for row in view.scan(ended, Direction::Forward) {
            ops.push(Op::Delete(Key::of_row(&row?.0)));
        }
    }
    let mentions = message.mentions();
    if mentions.is_some_and(|mentions| mentions.users().contains(user)) {
        // The row that expires it is of the whole message.
        ops.push(Op::Delete(key::mention(user, id, at)));
    }
    if let Some(erased) = message.without_name(user) {
        let row = key::message(id, at);
        ops.push(Op::Put(row, MessageRecord::encode(&erased)));
        let by_user = message.current_pin().is_some_and(|pin| pin.by == *user);
        if let Some(pin) = erased.current_pin().filter(|_| by_user) {
            pins.set(message.id, pin);
        }
    }
    Ok(())
}

/// Plans the erasure from all but messages, on the condition that the head is that of `state`.
fn plan_participant(
    context: &ReadContext,
    state: &ConversationState,
    user: &UserId,
    change: ChangeId,
) -> Result<Plan<()>> {
    let (view, id) = (context.view(), state.conversation.id);
    let mut ops = Vec::new();
    for cell in [Cell::Membership, Cell::ReadUpTo, Cell::DeliveredUpTo] {
        ops.push(key::participant(id, user, cell));
    }
    ops.extend(EntryCell::ALL.map(|cell| key::entry(user, id, cell)));
    ops.push(key::notify_all(id, user));
    ops.push(key::ban(id, user));
    ops.extend(pair_key(&view, state)?);
    let mut present = Vec::new();
    for key in ops {
        if view.has(&key)? {
            present.push(Op::Delete(key));
        }
    }
    let mut ops = present;
    for ban in ban::stored(&view, id)? {
        if ban.by == *user && ban.user != *user {
            let by = UserId::erased();
            let ban = Ban { by, ..ban };
            ops.push(Op::Put(key::ban(id, &ban.user), rules::ban::encode(&ban)));
        }
    }
    let mut after = state.clone();
    if state.conversation.created_by.as_ref() == Some(user) {
        after.conversation = Arc::new(Conversation {
            created_by: Some(UserId::erased()),
            ..(*state.conversation).clone()
        });
        let record = ConversationRecord::encode(&after.conversation);
        ops.push(Op::Put(key::conversation(id), record));
    }
    if ops.is_empty() {
        return Ok(((), None));
    }
    if let Some(people) = &state.people {
        let mut all = people.memberships.clone();
        all.remove(user);
        after.people = Some(Arc::new(People::new(all)));
    }
    let write = state_write(context, state, after.changed(change), ops, change);
    Ok(((), Some(write)))
}

/// Key of the pair of a direct conversation, if the pair leads to it.
fn pair_key(view: &View<'_>, state: &ConversationState) -> Result<Option<Key>> {
    let id = state.conversation.id;
    if state.conversation.kind != ConversationKind::Direct {
        return Ok(None);
    }
    let all = memberships(view, id)?;
    let names: Vec<_> = all.keys().collect();
    let Some((one, other)) = pair::of_stored(id, &names) else {
        return Ok(None);
    };
    let key = key::pair(one, other);
    let there = view.record::<ConversationId>(&key)?;
    Ok((there == Some(id)).then_some(key))
}
