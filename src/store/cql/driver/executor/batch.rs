//! Batches: the writes of one, and its way to the cluster. A logged one passes over the batch log while a silent node holds it up.

use futures_util::FutureExt as _;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::value::MaybeUnset;

use super::Executor;
use crate::store::cql::driver::error::{is_logged_once, of_write};
use crate::store::cql::driver::next_version;
use crate::store::cql::driver::nodes::table::Attempt;
use crate::store::cql::driver::request::metrics::RequestKind;
use crate::store::cql::driver::statement::{ExecutionProfiles, Kind, Statement};
use crate::store::cql::driver::value::{Value, Values};
use crate::store::{Error, Result};

/// Writes of one batch. Those to one partition are a single mutation; others go through the cluster's batch log.
#[derive(Clone)]
pub(crate) struct Writes {
    pub(super) kind: BatchType,
    pub(super) statements: Vec<&'static Statement>,
    pub(super) values: Vec<Values>,
}

impl Writes {
    /// To any partitions: all or nothing, as the cluster itself completes a logged batch.
    pub(crate) fn logged() -> Self {
        Self::of(BatchType::Logged)
    }

    /// To one partition.
    pub(crate) fn of_one_partition() -> Self {
        Self::of(BatchType::Unlogged)
    }

    fn of(kind: BatchType) -> Self {
        Self {
            kind,
            statements: Vec::new(),
            values: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, statement: &'static Statement, values: Values) {
        if let Some(further) = next_version::further_row(statement.name, &values) {
            self.statements.push(statement);
            self.values.push(further);
        }
        self.statements.push(statement);
        self.values.push(values);
    }

    /// Adds a write unless the batch has the same one already.
    pub(crate) fn push_once(&mut self, statement: &'static Statement, values: Values) {
        let is_same = |other: &Values| {
            other
                .iter()
                .zip(&values)
                .all(|(one, other)| is_same_value(one, other))
        };
        let mut present = self.statements.iter().zip(&self.values);
        if !present.any(|(other, others)| std::ptr::eq(*other, statement) && is_same(others)) {
            self.push(statement, values);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (MaybeUnset::Set(one), MaybeUnset::Set(other)) => one == other,
        (MaybeUnset::Unset, MaybeUnset::Unset) => true,
        (MaybeUnset::Set(_), MaybeUnset::Unset) | (MaybeUnset::Unset, MaybeUnset::Set(_)) => false,
    }
}

impl Executor {
    /// Writes a batch: all of it or nothing.
    pub(crate) async fn write_all(&self, mut writes: Writes) -> Result<()> {
        match writes.values.len() {
            0 => Ok(()),
            1 => {
                let only = writes.values.remove(0);
                self.write(writes.statements[0], only).await
            }
            _ if writes.kind == BatchType::Logged => {
                let _permit = self.write_permit(Kind::Write).await?;
                let range = self.admit(&writes.statements, &writes.values)?;
                range.settle(self.write_logged(writes).await)
            }
            _ => {
                let _permit = self.write_permit(Kind::Write).await?;
                let range = self.admit(&writes.statements, &writes.values)?;
                let (batch, values) = &self.prepared_batch(writes);
                let attempt = Attempt::first();
                let first = attempt.run(self.send_batch(batch, values)).boxed();
                let second = || {
                    let beside = Attempt::beside(&attempt);
                    async move { beside.run(self.send_batch(batch, values)).await }.boxed()
                };
                let kind = RequestKind::Write;
                range.settle(self.hedging.run(kind, &attempt, first, second).await)
            }
        }
    }

    /// Writes a batch by the batch log, by which the cluster completes it even if this server dies.
    ///
    /// While the log waits for a silent node, batches pass over it. The coordinator then sends all
    /// writes to all live replicas at once, and hints those that it misses, also if this server
    /// dies; and this server repeats the batch with the same cells and timestamps until it knows
    /// that it is written. Only the loss of that coordinator and of this server in the same
    /// instant, beside a node that hangs, could leave a part.
    async fn write_logged(&self, writes: Writes) -> Result<()> {
        let (batch, values) = &self.prepared_batch(writes);
        let attempt = Attempt::first();
        if !self.batch_log.admits_batch() {
            let first = attempt.run(self.send_unlogged(batch, values)).boxed();
            let second = || {
                let beside = Attempt::beside(&attempt);
                async move { beside.run(self.send_unlogged(batch, values)).await }.boxed()
            };
            let kind = RequestKind::Batch;
            return self.hedging.run(kind, &attempt, first, second).await;
        }
        let first = attempt.run(self.send_logged(batch, values)).boxed();
        let second = || self.after_log(&attempt, batch, values).boxed();
        let kind = RequestKind::Batch;
        self.hedging.run(kind, &attempt, first, second).await
    }

    /// The second attempt of a logged batch. If its coordinator answers other requests, it has the
    /// batch and waits for the log, which a live node has written and replays: the batch is
    /// repeated without the log. Otherwise the batch may be logged nowhere, and another coordinator
    /// logs it.
    async fn after_log(&self, first: &Attempt, batch: &Batch, values: &[Values]) -> Result<()> {
        let beside = Attempt::beside(first);
        if self.connection.nodes.is_partly_silent() && !self.connection.nodes.is_silent_for(first) {
            self.batch_log.note_stuck();
            return beside.run(self.send_unlogged(batch, values)).await;
        }
        let logged = beside.run(self.send_logged(batch, values)).boxed();
        let third = || {
            let third = Attempt::beside(&beside);
            async move {
                if !self.connection.nodes.is_partly_silent() {
                    return third.run(self.send_logged(batch, values)).await;
                }
                self.batch_log.note_stuck();
                third.run(self.send_unlogged(batch, values)).await
            }
            .boxed()
        };
        let kind = RequestKind::SecondBatch;
        self.hedging.race(kind, &beside, logged, third).await
    }

    async fn send_logged(&self, batch: &Batch, values: &[Values]) -> Result<()> {
        match self.connection.session.batch(batch, values).await {
            Ok(_) => {
                self.batch_log.note_answer();
                Ok(())
            }
            // One node has logged the whole batch and replays it even if this server dies, so
            // atomicity holds. The writes themselves can then be sent without a log.
            Err(error) if is_logged_once(&error) => {
                self.batch_log.note_stuck();
                self.send_unlogged(batch, values).await
            }
            Err(error) => Err(of_write(error)),
        }
    }

    /// Sends the writes of a logged batch without the log. A coordinator may refuse some of them
    /// after it has sent others, so that no error says that nothing was written.
    async fn send_unlogged(&self, logged: &Batch, values: &[Values]) -> Result<()> {
        self.metrics.unlogged_batches.inc();
        let statements = logged.statements.clone();
        let unlogged = batch_of(BatchType::Unlogged, statements, &self.connection.profiles);
        self.send_batch(&unlogged, values)
            .await
            .map_err(Error::after_write)
    }

    async fn send_batch(&self, batch: &Batch, values: &[Values]) -> Result<()> {
        let answer = self.connection.session.batch(batch, values).await;
        answer.map(drop).map_err(of_write)
    }

    pub(super) fn prepared_batch(&self, writes: Writes) -> (Batch, Vec<Values>) {
        let statements = writes
            .statements
            .into_iter()
            .map(|statement| self.connection.prepared.get(statement).clone().into())
            .collect();
        (
            batch_of(writes.kind, statements, &self.connection.profiles),
            writes.values,
        )
    }
}

fn batch_of(
    kind: BatchType,
    statements: Vec<BatchStatement>,
    profiles: &ExecutionProfiles,
) -> Batch {
    let mut batch = Batch::new_with_statements(kind, statements);
    batch.set_is_idempotent(true);
    batch.set_execution_profile_handle(Some(profiles.write.clone()));
    batch
}
