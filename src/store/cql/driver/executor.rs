//! The cluster as the rest of the store talks to it: statements in, rows out, each with a turn and a deadline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::MaybeUnset;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::{corrupt, is_logged_once, of_decision, of_read, of_write, unavailable, unknown};
use super::statement::Profiles;
use super::value::{Cell, Cells};
use crate::store::{Error, Result};

/// Requests of this server under way at once. The driver itself would take them without end.
const UNDER_WAY_MAX: usize = 1_024;
/// How long one waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(2);
/// What one question asks at the same time.
const AT_ONCE_MAX: usize = 32;

pub(crate) struct Cluster {
    session: Session,
    profiles: Profiles,
    turns: Semaphore,
    /// How many were sent, by which tests and benchmarks see what a question costs. A batch is one.
    statements: AtomicU64,
}

impl Cluster {
    pub(crate) fn new(session: Session, profiles: Profiles) -> Self {
        Self { session, profiles, turns: Semaphore::new(UNDER_WAY_MAX), statements: AtomicU64::new(0) }
    }

    /// All rows of a statement that bounds them itself.
    pub(crate) async fn read<R>(&self, statement: &PreparedStatement, values: Cells) -> Result<Vec<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let _turn = self.turn().await?;
        let answer = self.session.execute_unpaged(statement, values).await.map_err(of_read)?;
        rows(statement, answer)
    }

    pub(crate) async fn read_one<R>(&self, statement: &PreparedStatement, values: Cells) -> Result<Option<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        Ok(self.read(statement, values).await?.into_iter().next())
    }

    pub(crate) async fn write(&self, statement: &PreparedStatement, values: Cells) -> Result<()> {
        let _turn = self.turn().await?;
        self.session.execute_unpaged(statement, values).await.map_err(of_write)?;
        Ok(())
    }

    /// All of them or none.
    pub(crate) async fn write_all(&self, mut writes: Writes) -> Result<()> {
        match writes.values.len() {
            0 => Ok(()),
            1 => {
                let only = writes.values.remove(0);
                self.write(&writes.statements[0], only).await
            }
            _ => {
                let _turn = self.turn().await?;
                let (batch, values) = writes.into_batch(&self.profiles);
                let Err(error) = self.session.batch(&batch, &values).await else { return Ok(()) };
                if !is_logged_once(&error) {
                    return Err(of_write(error));
                }
                // Until the cluster knows that a node is dead, its batch log waits for it. One node has all of the batch and will see to it
                // whatever becomes of this server: that is what makes it one. So it need not be logged again to be written now.
                let batch = batch_of(BatchType::Unlogged, batch.statements, &self.profiles);
                let answer = self.session.batch(&batch, &values).await;
                answer.map_err(|error| unknown(of_write(error)))?;
                Ok(())
            }
        }
    }

    /// Writes on a condition. `None` where it held; else what is there, as the statement's answer has it: `[applied]` and then the row's
    /// columns. An outcome that is not known may become either.
    pub(crate) async fn write_if<R>(&self, statement: &PreparedStatement, values: Cells) -> Result<Option<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let _turn = self.turn().await?;
        let answer = self.session.execute_unpaged(statement, values).await.map_err(of_write)?;
        decided(answer)
    }

    /// The same for several writes to one partition: all or none.
    pub(crate) async fn write_all_if<R>(&self, writes: Writes) -> Result<Option<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let _turn = self.turn().await?;
        let (mut batch, values) = writes.into_batch(&self.profiles);
        batch.set_is_idempotent(false);
        batch.set_execution_profile_handle(Some(self.profiles.conditional.clone()));
        let answer = self.session.batch(&batch, values).await.map_err(of_decision)?;
        decided(answer)
    }

    async fn turn(&self) -> Result<SemaphorePermit<'_>> {
        let turn = tokio::time::timeout(TURN_MAX, self.turns.acquire()).await;
        let turn = turn.map_err(|_| unavailable("too many requests to the cluster are under way"))?.map_err(unavailable)?;
        self.statements.fetch_add(1, Ordering::Relaxed);
        Ok(turn)
    }

    pub(crate) fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// Nothing is sent any more.
    pub(crate) fn close(&self) {
        self.turns.close();
    }
}

/// Writes that belong together. Those of one partition are one write to the cluster; others go through its batch log.
pub(crate) struct Writes {
    kind: BatchType,
    statements: Vec<PreparedStatement>,
    values: Vec<Cells>,
}

impl Writes {
    /// To any partitions: the cluster itself finishes what it began.
    pub(crate) fn logged() -> Self {
        Self::of(BatchType::Logged)
    }

    /// To one partition.
    pub(crate) fn of_one_partition() -> Self {
        Self::of(BatchType::Unlogged)
    }

    fn of(kind: BatchType) -> Self {
        Self { kind, statements: Vec::new(), values: Vec::new() }
    }

    pub(crate) fn push(&mut self, statement: &PreparedStatement, values: Cells) {
        self.statements.push(statement.clone());
        self.values.push(values);
    }

    /// Where the same write is in it already, it is not put in again.
    pub(crate) fn push_once(&mut self, statement: &PreparedStatement, values: Cells) {
        let is_same = |other: &Cells| other.iter().zip(&values).all(|(one, other)| is_same_cell(one, other));
        let mut there = self.statements.iter().zip(&self.values);
        if !there.any(|(other, others)| other.get_id() == statement.get_id() && is_same(others)) {
            self.push(statement, values);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn into_batch(self, profiles: &Profiles) -> (Batch, Vec<Cells>) {
        let statements = self.statements.into_iter().map(Into::into).collect();
        (batch_of(self.kind, statements, profiles), self.values)
    }
}

fn batch_of(kind: BatchType, statements: Vec<BatchStatement>, profiles: &Profiles) -> Batch {
    let mut batch = Batch::new_with_statements(kind, statements);
    batch.set_is_idempotent(true);
    batch.set_execution_profile_handle(Some(profiles.write.clone()));
    batch
}

fn is_same_cell(one: &Cell, other: &Cell) -> bool {
    match (one, other) {
        (MaybeUnset::Set(one), MaybeUnset::Set(other)) => one == other,
        (MaybeUnset::Unset, MaybeUnset::Unset) => true,
        (MaybeUnset::Set(_), MaybeUnset::Unset) | (MaybeUnset::Unset, MaybeUnset::Set(_)) => false,
    }
}

/// The answers of several questions, in their order: so many are asked at once, and the next as soon as the first of them is answered.
pub(crate) async fn at_once<T>(questions: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    stream::iter(questions).buffered(AT_ONCE_MAX).try_collect().await
}

fn rows<R>(statement: &PreparedStatement, answer: QueryResult) -> Result<Vec<R>>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let unreadable = |cause: crate::store::Cause| {
        tracing::error!(statement = statement.get_statement(), %cause, "the store cannot decode the rows of a statement; run `wideroom verify`");
        corrupt("a table", cause)
    };
    let rows = answer.into_rows_result().map_err(|error| unreadable(error.into()))?;
    let rows = rows.rows::<R>().map_err(|error| unreadable(error.into()))?;
    rows.collect::<Result<_, _>>().map_err(|error| unreadable(error.into()))
}

/// `[applied]` is the first column. Where it is true Cassandra sends nothing else, and ScyllaDB the row as it was.
fn decided<R>(answer: QueryResult) -> Result<Option<R>>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let unreadable = |cause: crate::store::Cause| Error::OutcomeUnknown(cause);
    let rows = answer.into_rows_result().map_err(|error| unreadable(error.into()))?;
    let first = rows.rows::<scylla::value::Row>().map_err(|error| unreadable(error.into()))?.next();
    let first =
        first.ok_or_else(|| unreadable("a conditional write without an answer".into()))?.map_err(|error| unreadable(error.into()))?;
    let is_applied = matches!(first.columns.first(), Some(Some(scylla::value::CqlValue::Boolean(true))));
    if is_applied {
        return Ok(None);
    }
    rows.first_row::<R>().map(Some).map_err(|error| unreadable(error.into()))
}
