//! Executor: sends statements to the cluster and reads their rows, each request with a permit and a deadline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::PrepareError;
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::value::MaybeUnset;
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use super::error::{corrupt, is_logged_once, of_decision, of_read, of_write, unavailable, unknown};
use super::statement::{ExecutionProfiles, PreparedStatements, Statement};
use super::value::{Value, Values};
use crate::store::read_permit::UserReadPermit;
use crate::store::{Error, Result};

/// Requests of this server in flight. The driver itself would accept any number.
const IN_FLIGHT_MAX: usize = 1_024;
/// How long a request waits for its permit.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a read waits for the other reads of its user.
const USER_PERMIT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Partitions that one read names in an `IN`. Its coordinator reads them concurrently, so a list of small rows costs one statement for many.
pub(crate) const PARTITIONS_MAX: usize = 16;
/// Requests that one answer sends concurrently.
const CONCURRENCY: usize = 32;

pub(crate) struct Executor {
    session: Session,
    profiles: ExecutionProfiles,
    prepared: PreparedStatements,
    permits: Semaphore,
    /// Statements sent, by which tests and benchmarks measure the cost of an operation. A batch is one.
    sent: AtomicU64,
}

impl Executor {
    pub(crate) async fn new(
        session: Session,
        profiles: ExecutionProfiles,
        statements: &[&[&'static Statement]],
    ) -> Result<Self, PrepareError> {
        let prepared = PreparedStatements::prepare(&session, &profiles, statements).await?;
        Ok(Self {
            session,
            profiles,
            prepared,
            permits: Semaphore::new(IN_FLIGHT_MAX),
            sent: AtomicU64::new(0),
        })
    }

    /// All rows of a statement, which bounds them by its LIMIT or its keys.
    pub(crate) async fn read<R>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<Vec<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        // The user's own permit comes first: a user with many reads waits for those alone, and takes no request meanwhile.
        let _user_permit = user_permit().await?;
        let _permit = self.permit().await?;
        let answer = self
            .session
            .execute_unpaged(self.prepared.get(statement), values)
            .await
            .map_err(of_read)?;
        rows(statement, answer)
    }

    pub(crate) async fn read_one<R>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<Option<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        Ok(self.read(statement, values).await?.into_iter().next())
    }

    /// The row of a statement, and the node that coordinated it.
    pub(crate) async fn read_one_with_node<R>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<(Option<R>, Uuid)>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let _permit = self.permit().await?;
        let answer = self
            .session
            .execute_unpaged(self.prepared.get(statement), values)
            .await
            .map_err(of_read)?;
        let node = answer.request_coordinator().node().host_id;
        Ok((rows(statement, answer)?.into_iter().next(), node))
    }

    pub(crate) async fn write(&self, statement: &'static Statement, values: Values) -> Result<()> {
        let _permit = self.permit().await?;
        self.session
            .execute_unpaged(self.prepared.get(statement), values)
            .await
            .map_err(of_write)?;
        Ok(())
    }

    /// Writes a batch: all of it or nothing.
    pub(crate) async fn write_all(&self, mut writes: Writes) -> Result<()> {
        match writes.values.len() {
            0 => Ok(()),
            1 => {
                let only = writes.values.remove(0);
                self.write(writes.statements[0], only).await
            }
            _ => {
                let _permit = self.permit().await?;
                let (batch, values) = self.prepared_batch(writes);
                let Err(error) = self.session.batch(&batch, &values).await else {
                    return Ok(());
                };
                if !is_logged_once(&error) {
                    return Err(of_write(error));
                }
                // Until the cluster knows that a node is dead, the batch log waits for it. One node has logged the whole batch and replays it
                // even if this server dies, so atomicity holds. The writes themselves can then be sent without a log.
                let unlogged = batch_of(BatchType::Unlogged, batch.statements, &self.profiles);
                let answer = self.session.batch(&unlogged, &values).await;
                answer.map_err(|error| unknown(of_write(error)))?;
                Ok(())
            }
        }
    }

    /// Compare-and-set by a lightweight transaction. `None` if the condition held; otherwise the present row, in the columns of the answer:
    /// `[applied]`, then the row's own. After `OutcomeUnknown` either may be true.
    pub(crate) async fn write_if<R>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<Option<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let _permit = self.permit().await?;
        let answer = self
            .session
            .execute_unpaged(self.prepared.get(statement), values)
            .await
            .map_err(of_write)?;
        decided(answer)
    }

    /// Compare-and-set of several rows of one partition: all of them or none.
    pub(crate) async fn write_all_if<R>(&self, writes: Writes) -> Result<Option<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let _permit = self.permit().await?;
        let (mut batch, values) = self.prepared_batch(writes);
        batch.set_is_idempotent(false);
        batch.set_execution_profile_handle(Some(self.profiles.conditional.clone()));
        let answer = self
            .session
            .batch(&batch, values)
            .await
            .map_err(of_decision)?;
        decided(answer)
    }

    async fn permit(&self) -> Result<SemaphorePermit<'_>> {
        let permit = tokio::time::timeout(PERMIT_WAIT_MAX, self.permits.acquire()).await;
        let permit = permit
            .map_err(|_| unavailable("too many requests to the cluster are in flight"))?
            .map_err(unavailable)?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(permit)
    }

    fn prepared_batch(&self, writes: Writes) -> (Batch, Vec<Values>) {
        let statements = writes
            .statements
            .into_iter()
            .map(|statement| self.prepared.get(statement).clone().into())
            .collect();
        (
            batch_of(writes.kind, statements, &self.profiles),
            writes.values,
        )
    }

    pub(crate) fn statements_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Refuses every request from now on.
    pub(crate) fn close(&self) {
        self.permits.close();
    }
}

/// Waits for a read permit of the user for whom this task reads.
async fn user_permit() -> Result<Option<UserReadPermit>> {
    tokio::time::timeout(USER_PERMIT_WAIT_MAX, UserReadPermit::wait())
        .await
        .map_err(|_| unavailable("too many reads of the user are in flight"))
}

/// Writes of one batch. Those to one partition are a single mutation; others go through the cluster's batch log.
pub(crate) struct Writes {
    kind: BatchType,
    statements: Vec<&'static Statement>,
    values: Vec<Values>,
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

fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (MaybeUnset::Set(one), MaybeUnset::Set(other)) => one == other,
        (MaybeUnset::Unset, MaybeUnset::Unset) => true,
        (MaybeUnset::Set(_), MaybeUnset::Unset) | (MaybeUnset::Unset, MaybeUnset::Set(_)) => false,
    }
}

/// Runs requests concurrently, at most [`CONCURRENCY`] of them, and returns their results in order.
pub(crate) async fn concurrently<T>(
    requests: Vec<impl Future<Output = Result<T>>>,
) -> Result<Vec<T>> {
    stream::iter(requests)
        .buffered(CONCURRENCY)
        .try_collect()
        .await
}

fn rows<R>(statement: &Statement, answer: QueryResult) -> Result<Vec<R>>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let unreadable = |cause: crate::store::Cause| {
        tracing::error!(statement = statement.name, %cause, "the store cannot decode the rows of a statement; run `wideroom verify`");
        corrupt("a table", cause)
    };
    let rows = answer
        .into_rows_result()
        .map_err(|error| unreadable(error.into()))?;
    let rows = rows.rows::<R>().map_err(|error| unreadable(error.into()))?;
    rows.collect::<Result<_, _>>()
        .map_err(|error| unreadable(error.into()))
}

/// Reads `[applied]`, the first column. If it is true, Cassandra sends nothing else, and ScyllaDB the previous row.
fn decided<R>(answer: QueryResult) -> Result<Option<R>>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let unreadable = |cause: crate::store::Cause| Error::OutcomeUnknown(cause);
    let rows = answer
        .into_rows_result()
        .map_err(|error| unreadable(error.into()))?;
    let first = rows
        .rows::<scylla::value::Row>()
        .map_err(|error| unreadable(error.into()))?
        .next();
    let first = first
        .ok_or_else(|| unreadable("a conditional write without an answer".into()))?
        .map_err(|error| unreadable(error.into()))?;
    let is_applied = matches!(
        first.columns.first(),
        Some(Some(scylla::value::CqlValue::Boolean(true)))
    );
    if is_applied {
        return Ok(None);
    }
    rows.first_row::<R>()
        .map(Some)
        .map_err(|error| unreadable(error.into()))
}
