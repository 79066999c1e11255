//! Executor: sends statements to the cluster and reads their rows, each request with a permit, a
//! deadline and, where it may run twice, a hedge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{ExecutionError, PrepareError};
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::value::MaybeUnset;
use tokio::sync::SemaphorePermit;
use uuid::Uuid;

use super::error::{corrupt, is_logged_once, of_decision, of_read, of_write, unknown};
use super::next_version;
use super::nodes::clocks::SELECT_NOW;
use super::nodes::table::{Attempt, NodeTable};
use super::nodes::watch::{NodeWatch, PROBE_NODE};
use super::request::batch_log::BatchLog;
use super::request::hedging::{Hedging, RequestKind};
use super::request::metrics::RequestMetrics;
use super::request::permits::{RequestPermit, RequestPermits};
use super::request::range_limiter::RangeLimiter;
use super::statement::{ExecutionProfiles, Kind, PreparedStatements, Statement};
use super::value::{Value, Values};
use crate::metrics::Metrics;
use crate::store::{Error, Result};

/// Partitions that one read names in an `IN`. Its coordinator reads them concurrently, so a list of small rows costs one statement for many.
pub(crate) const PARTITIONS_MAX: usize = 16;
/// Requests that one answer sends concurrently.
const CONCURRENCY: usize = 32;

pub(crate) struct Executor {
    session: Arc<Session>,
    profiles: ExecutionProfiles,
    prepared: PreparedStatements,
    permits: RequestPermits,
    ranges: RangeLimiter,
    hedging: Hedging,
    batch_log: BatchLog,
    nodes: Arc<NodeTable>,
    metrics: Arc<RequestMetrics>,
    /// Statements sent, by which tests and benchmarks measure the cost of an operation. A batch is
    /// one, and a hedge none.
    sent: AtomicU64,
    _watch: NodeWatch,
}

impl Executor {
    pub(crate) async fn new(
        session: Session,
        profiles: ExecutionProfiles,
        statements: &[&[&'static Statement]],
    ) -> Result<Self, PrepareError> {
        let prepared = PreparedStatements::prepare(&session, &profiles, statements).await?;
        let (session, nodes) = (Arc::new(session), Arc::clone(&profiles.nodes));
        let metrics = Arc::new(RequestMetrics::default());
        let watch = NodeWatch::spawn(
            Arc::clone(&session),
            [&PROBE_NODE, &SELECT_NOW].map(|one| prepared.get(one).clone()),
            Arc::clone(&nodes),
            profiles.data_centre.clone(),
        );
        Ok(Self {
            permits: RequestPermits::new(),
            ranges: RangeLimiter::new(Arc::clone(&session), Arc::clone(&nodes)),
            hedging: Hedging::new(
                Arc::clone(&nodes),
                profiles.attempt_max,
                Arc::clone(&metrics),
            ),
            batch_log: BatchLog::new(Arc::clone(&nodes)),
            session,
            profiles,
            prepared,
            nodes,
            metrics,
            sent: AtomicU64::new(0),
            _watch: watch,
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
        let answer = self.query(statement, &values).await?;
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
        let answer = self.query(statement, &values).await?;
        let node = answer.request_coordinator().node().host_id;
        Ok((rows(statement, answer)?.into_iter().next(), node))
    }

    async fn query(&self, statement: &'static Statement, values: &Values) -> Result<QueryResult> {
        let _permit = self.permits.read(&self.metrics).await?;
        let _range = self.admit(&[statement], std::slice::from_ref(values))?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.execute(RequestKind::Read, statement, values, of_read)
            .await
    }

    pub(crate) async fn write(&self, statement: &'static Statement, values: Values) -> Result<()> {
        if let Some(further) = next_version::further_row(statement, &values) {
            self.execute(RequestKind::Write, statement, &further, of_write)
                .await?;
        }
        let _permit = self.write_permit().await?;
        let _range = self.admit(&[statement], std::slice::from_ref(&values))?;
        self.execute(RequestKind::Write, statement, &values, of_write)
            .await?;
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
            _ if writes.kind == BatchType::Logged => {
                let _permit = self.write_permit().await?;
                let _range = self.admit(&writes.statements, &writes.values)?;
                self.write_logged(writes).await
            }
            _ => {
                let _permit = self.write_permit().await?;
                let _range = self.admit(&writes.statements, &writes.values)?;
                let (batch, values) = &self.prepared_batch(writes);
                let attempt = Attempt::first();
                let first = attempt.run(self.send_batch(batch, values)).boxed();
                let second = || {
                    let beside = Attempt::beside(&attempt);
                    async move { beside.run(self.send_batch(batch, values)).await }.boxed()
                };
                self.hedging
                    .run(RequestKind::Write, &attempt, first, second)
                    .await
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
        if self.nodes.is_partly_silent() && !self.nodes.is_silent_for(first) {
            self.batch_log.note_stuck();
            return beside.run(self.send_unlogged(batch, values)).await;
        }
        let logged = beside.run(self.send_logged(batch, values)).boxed();
        let third = || {
            let third = Attempt::beside(&beside);
            async move {
                if !self.nodes.is_partly_silent() {
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
        match self.session.batch(batch, values).await {
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
        let unlogged = batch_of(BatchType::Unlogged, statements, &self.profiles);
        self.send_batch(&unlogged, values).await.map_err(unknown)
    }

    async fn send_batch(&self, batch: &Batch, values: &[Values]) -> Result<()> {
        let answer = self.session.batch(batch, values).await;
        answer.map(drop).map_err(of_write)
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
        let _permit = self.write_permit().await?;
        let _range = self.admit(&[statement], std::slice::from_ref(&values))?;
        let kind = if statement.kind == Kind::Claim {
            RequestKind::Claim
        } else {
            RequestKind::Conditional
        };
        let answer = self.execute(kind, statement, &values, of_write);
        decided(answer.await?)
    }

    /// Compare-and-set of several rows of one partition: all of them or none.
    pub(crate) async fn write_all_if<R>(&self, writes: Writes) -> Result<Option<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let _permit = self.write_permit().await?;
        let _range = self.admit(&writes.statements, &writes.values)?;
        let (mut batch, values) = self.prepared_batch(writes);
        batch.set_is_idempotent(false);
        batch.set_execution_profile_handle(Some(self.profiles.conditional.clone()));
        let attempt = Attempt::first();
        let first = attempt.run(async {
            let answer = self.session.batch(&batch, &values).await;
            answer.map_err(of_decision)
        });
        let never = || std::future::pending().boxed();
        let kind = RequestKind::Conditional;
        let answer = self.hedging.run(kind, &attempt, first.boxed(), never);
        decided(answer.await?)
    }

    /// Whether any node answers.
    pub(crate) async fn ping(&self) -> Result<()> {
        let answer = self.read_one::<(String,)>(&PROBE_NODE, Values::new());
        answer.await.map(drop)
    }

    async fn execute(
        &self,
        kind: RequestKind,
        statement: &'static Statement,
        values: &Values,
        error_of: fn(ExecutionError) -> Error,
    ) -> Result<QueryResult> {
        let prepared = self.prepared.get(statement);
        let send = |attempt: Arc<Attempt>| {
            let answer = async move {
                let answer = self.session.execute_unpaged(prepared, values);
                attempt.run(answer).await.map_err(error_of)
            };
            answer.boxed()
        };
        let attempt = Attempt::first();
        let first = send(Arc::clone(&attempt));
        let second = || send(Attempt::beside(&attempt));
        self.hedging.run(kind, &attempt, first, second).await
    }

    /// Admission of a request to the ranges of its statements.
    fn admit(
        &self,
        statements: &[&'static Statement],
        values: &[Values],
    ) -> Result<Option<SemaphorePermit<'_>>> {
        let prepared = statements.iter().map(|one| self.prepared.get(one));
        self.ranges.admit(prepared.zip(values), &self.metrics)
    }

    async fn write_permit(&self) -> Result<RequestPermit<'_>> {
        let permit = self.permits.write(&self.metrics).await?;
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

    /// `Err` says in one sentence what is wrong.
    pub(crate) fn health(&self) -> std::result::Result<(), String> {
        self.nodes.health()
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.metrics.register(metrics);
        let read = |name: &str, help: &str, value: fn(&NodeTable) -> usize| {
            let nodes = Arc::downgrade(&self.nodes);
            metrics.read(name, help, move || {
                nodes.upgrade().map_or(0.0, |nodes| value(&nodes) as f64)
            });
        };
        read(
            "wideroom_cql_silent_nodes",
            "Nodes of the cluster that do not answer, so that requests avoid them.",
            |nodes| nodes.silent().len(),
        );
        read(
            "wideroom_cql_wrong_clocks",
            "Nodes of the cluster whose clock disagrees with most others, so that requests avoid them.",
            NodeTable::wrong_clocks,
        );
        read(
            "wideroom_cql_requests_in_flight",
            "Requests to the cluster in flight, hedges included.",
            NodeTable::requests,
        );
    }

    /// Refuses every request from now on.
    pub(crate) fn close(&self) {
        self.permits.close();
    }
}

/// Writes of one batch. Those to one partition are a single mutation; others go through the cluster's batch log.
#[derive(Clone)]
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
        if let Some(further) = next_version::further_row(statement, &values) {
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
