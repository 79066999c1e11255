//! Optimistic read-modify-write (compare-and-set, retried) of a conversation or of one small record.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{ConversationId, TimeUuid};
use crate::store::Result;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::db::InTable;
use crate::store::embedded::engine::key::{self, Key};
use crate::store::embedded::engine::record::{self, RecordCodec};
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::{Embedded, TRIES_MAX, contended};

/// Result of a change, with its write. `None`: nothing to write.
pub(crate) type Plan<T> = (T, Option<Write>);

impl Condition {
    /// The value of a key is the one that was seen, or is absent as it was then.
    pub(crate) fn unchanged(key: Key, seen: Option<Vec<u8>>) -> Self {
        match seen {
            Some(bytes) => Self::Is(key, bytes),
            None => Self::Absent(key),
        }
    }
}

impl Write {
    /// Sets the value of a key, on the condition that it is still the one that was seen.
    pub(crate) fn swap(key: Key, seen: Option<Vec<u8>>, to: Vec<u8>) -> Self {
        Self {
            conditions: vec![Condition::unchanged(key.clone(), seen)],
            ops: vec![Op::Put(key, to)],
            ..Self::default()
        }
    }
}

/// Write of operations with the state after them, on the condition that the head is still that of the state before.
pub(crate) fn state_write(
    context: &ReadContext,
    before: &ConversationState,
    after: ConversationState,
    mut ops: Vec<Op>,
    newest_id: impl Into<Option<TimeUuid>>,
) -> Write {
    let id = before.conversation.id;
    let head = key::head(id);
    ops.push(Op::Put(head.clone(), after.head_bytes.clone()));
    let (states, after) = (Arc::clone(&context.states), Arc::new(after));
    Write {
        ops,
        conditions: vec![Condition::Is(head, before.head_bytes.clone())],
        newest_id: newest_id.into(),
        applied: Some(Box::new(move || states.put_written(id, after))),
    }
}

impl Embedded {
    /// Plans a change on the conversation's state and commits it. A lost race plans it again.
    pub(in crate::store::embedded) async fn carry_out<T: Send + 'static>(
        &self,
        id: ConversationId,
        plan: impl Fn(&ReadContext, &ConversationState) -> Result<Plan<T>> + Clone + Send + 'static,
    ) -> Result<T> {
        for _ in 0..TRIES_MAX {
            let (state, plan) = (self.state(id).await?, plan.clone());
            let (outcome, write) = self.read(move |context| plan(context, &state)).await?;
            let is_done = match write {
                Some(write) => self.write(write).await? == CommitOutcome::Done,
                None => true,
            };
            if is_done {
                return Ok(outcome);
            }
            self.states().forget(&id);
        }
        Err(contended())
    }

    /// Applies a change to a record and commits it with the rows of `beside`. Returns the new record, or `None` if
    /// nothing changed. A missing record counts as the default one.
    pub(in crate::store::embedded) async fn change<T>(
        &self,
        key: Key,
        apply: impl Fn(T) -> T + Sync,
        beside: impl Fn() -> Write + Sync,
    ) -> Result<Option<T>>
    where
        T: Clone + Default + PartialEq + Serialize + DeserializeOwned + Send,
    {
        self.change_coded(
            key,
            (record::decode, |record| record::encode(record)),
            apply,
            beside,
        )
        .await
    }

    /// The same, for a record with an encoding of its own.
    pub(in crate::store::embedded) async fn change_coded<T>(
        &self,
        key: Key,
        (decode, encode): RecordCodec<T>,
        apply: impl Fn(T) -> T + Sync,
        beside: impl Fn() -> Write + Sync,
    ) -> Result<Option<T>>
    where
        T: Clone + Default + PartialEq + Send,
    {
        for _ in 0..TRIES_MAX {
            let at = key.clone();
            let bytes = self
                .read(move |context| Ok(context.view().get(&at)?.map(|bytes| bytes.to_vec())))
                .await?;
            let decoded = bytes.as_deref().map(decode).transpose();
            let before: T = decoded.in_table(key.table_name())?.unwrap_or_default();
            let after = apply(before.clone());
            if after == before {
                return Ok(None);
            }
            let mut write = beside();
            write.ops.push(Op::Put(key.clone(), encode(&after)));
            let condition = Condition::unchanged(key.clone(), bytes);
            write.conditions.push(condition);
            if self.write(write).await? == CommitOutcome::Done {
                return Ok(Some(after));
            }
        }
        Err(contended())
    }
}
