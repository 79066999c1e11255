//! Executor: sends statements to the cluster and reads their rows, each request with a permit, a
//! deadline and, where it may run twice, a hedge.

pub(crate) mod batch;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use futures_util::stream::{self, Buffered, Iter, TryCollect};
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use uuid::Uuid;

use self::batch::Writes;
use super::connection::Connection;
use super::error::{corrupt, of_decision, of_read, of_write};
use super::next_version;
use super::nodes::table::{Attempt, NodeTable};
use super::nodes::watch::PROBE_NODE;
use super::request::batch_log::BatchLog;
use super::request::hedging::Hedging;
use super::request::metrics::{RequestKind, RequestMetrics};
use super::request::permits::{RequestPermit, RequestPermits};
use super::request::range_limiter::{RangeLimiter, RangePermit};
use super::statement::{Kind, Statement};
use super::value::{OwnedRow, Values, owned_rows};
use crate::metrics::Metrics;
use crate::store::{Cause, Error, Result};

/// Partitions that one read names in an `IN`. Its coordinator reads them concurrently, so a list of small rows costs one statement for many.
pub(crate) const PARTITIONS_MAX: usize = 16;
/// Slots that [`slot_by_slot`] reads at once.
const SLOTS_AT_ONCE: u32 = 16;
/// Requests that one answer sends concurrently.
const CONCURRENCY: usize = 32;

pub(crate) struct Executor {
    connection: Arc<Connection>,
    permits: RequestPermits,
    ranges: RangeLimiter,
    hedging: Hedging,
    batch_log: BatchLog,
    metrics: Arc<RequestMetrics>,
    /// Statements sent, periodic ones apart, by which tests and benchmarks measure the cost of an
    /// operation. A batch is one, and a hedge none.
    sent: AtomicU64,
    periodic: AtomicU64,
    /// Rows of the answers to reads.
    rows_read: AtomicU64,
}

impl Executor {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        let (session, nodes) = (&connection.session, || Arc::clone(&connection.nodes));
        let metrics = Arc::new(RequestMetrics::default());
        let attempt_max = connection.profiles.attempt_max;
        Self {
            permits: RequestPermits::new(),
            ranges: RangeLimiter::new(Arc::clone(session), nodes()),
            hedging: Hedging::new(nodes(), attempt_max, Arc::clone(&metrics)),
            batch_log: BatchLog::new(nodes()),
            connection,
            metrics,
            sent: AtomicU64::new(0),
            periodic: AtomicU64::new(0),
            rows_read: AtomicU64::new(0),
        }
    }

    /// All rows of a statement, which bounds them by its LIMIT or its keys.
    pub(crate) async fn read<R: OwnedRow>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<Vec<R>> {
        let answer = self.query(statement, &values).await?;
        let rows = rows(statement, answer)?;
        self.rows_read
            .fetch_add(rows.len() as u64, Ordering::Relaxed);
        Ok(rows)
    }

    pub(crate) async fn read_one<R: OwnedRow>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<Option<R>> {
        Ok(self.read(statement, values).await?.into_iter().next())
    }

    /// The only column of a statement, where there is such a row with a value in it.
    pub(crate) async fn read_cell<T>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<Option<T>>
    where
        (Option<T>,): OwnedRow,
    {
        let row = self.read_one::<(Option<T>,)>(statement, values).await?;
        Ok(row.and_then(|(value,)| value))
    }

    /// The row of a statement, and the node that coordinated it.
    pub(crate) async fn read_one_with_node<R: OwnedRow>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<(Option<R>, Uuid)> {
        let answer = self.query(statement, &values).await?;
        let node = answer.request_coordinator().node().host_id;
        Ok((rows(statement, answer)?.into_iter().next(), node))
    }

    async fn query(&self, statement: &'static Statement, values: &Values) -> Result<QueryResult> {
        let _permit = self.permits.read(&self.metrics).await?;
        let range = self.admit(&[statement], std::slice::from_ref(values))?;
        self.count(statement.kind);
        let answer = self.execute(RequestKind::Read, statement, values, of_read);
        range.settle(answer.await)
    }

    pub(crate) async fn write(&self, statement: &'static Statement, values: Values) -> Result<()> {
        if let Some(further) = next_version::further_row(statement.name, &values) {
            self.execute(RequestKind::Write, statement, &further, of_write)
                .await?;
        }
        let _permit = self.write_permit(statement.kind).await?;
        let range = self.admit(&[statement], std::slice::from_ref(&values))?;
        let answer = self.execute(RequestKind::Write, statement, &values, of_write);
        range.settle(answer.await).map(drop)
    }

    /// Compare-and-set by a lightweight transaction. `None` if the condition held; otherwise the present row, in the columns of the answer:
    /// `[applied]`, then the row's own. After `OutcomeUnknown` either may be true.
    pub(crate) async fn write_if<R: OwnedRow>(
        &self,
        statement: &'static Statement,
        values: Values,
    ) -> Result<Option<R>> {
        let _permit = self.write_permit(statement.kind).await?;
        let range = self.admit(&[statement], std::slice::from_ref(&values))?;
        // A claim that is done shows nobody anything before the write that follows it.
        let (kind, error_of): (_, fn(ExecutionError) -> Error) = match statement.kind {
            Kind::Claim => (RequestKind::Claim, of_write),
            Kind::Read | Kind::Poll | Kind::Write | Kind::Beat | Kind::Conditional => {
                (RequestKind::Conditional, of_decision)
            }
        };
        let answer = self.execute(kind, statement, &values, error_of);
        decided(range.settle(answer.await)?).map_err(Error::OutcomeUnknown)
    }

    /// Compare-and-set of several rows of one partition: all of them or none.
    pub(crate) async fn write_all_if<R: OwnedRow>(&self, writes: Writes) -> Result<Option<R>> {
        let _permit = self.write_permit(Kind::Conditional).await?;
        let range = self.admit(&writes.statements, &writes.values)?;
        let (mut batch, values) = self.prepared_batch(writes);
        batch.set_is_idempotent(false);
        batch.set_execution_profile_handle(Some(self.connection.profiles.conditional.clone()));
        let attempt = Attempt::first();
        let first = attempt.run(async {
            let answer = self.connection.session.batch(&batch, &values).await;
            answer.map_err(of_decision)
        });
        let never = || std::future::pending().boxed();
        let kind = RequestKind::Conditional;
        let answer = self.hedging.run(kind, &attempt, first.boxed(), never);
        decided(range.settle(answer.await)?).map_err(Error::OutcomeUnknown)
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
        let prepared = self.connection.prepared.get(statement);
        let send = |attempt: Arc<Attempt>| {
            let answer = async move {
                let answer = self.connection.session.execute_unpaged(prepared, values);
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
    ) -> Result<RangePermit<'_>> {
        let prepared = statements
            .iter()
            .map(|one| self.connection.prepared.get(one));
        self.ranges.admit(prepared.zip(values), &self.metrics)
    }

    async fn write_permit(&self, kind: Kind) -> Result<RequestPermit<'_>> {
        let permit = self.permits.write(&self.metrics).await?;
        self.count(kind);
        Ok(permit)
    }

    fn count(&self, kind: Kind) {
        let sent = match kind {
            Kind::Poll | Kind::Beat => &self.periodic,
            Kind::Read | Kind::Write | Kind::Conditional | Kind::Claim => &self.sent,
        };
        sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn statements_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn rows_read(&self) -> u64 {
        self.rows_read.load(Ordering::Relaxed)
    }

    pub(crate) fn periodic_statements_sent(&self) -> u64 {
        self.periodic.load(Ordering::Relaxed)
    }

    /// How often a node was found to have a wrong clock.
    pub(crate) fn clock_faults(&self) -> usize {
        self.connection.nodes.clock_faults()
    }

    /// `Err` says in one sentence what is wrong.
    pub(crate) fn health(&self) -> std::result::Result<(), String> {
        self.connection.nodes.health()
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.metrics.register(metrics);
        let read = |name: &str, help: &str, value: fn(&NodeTable) -> usize| {
            let nodes = Arc::downgrade(&self.connection.nodes);
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

/// Runs requests concurrently, at most [`CONCURRENCY`] of them, and returns their results in order.
pub(crate) fn concurrently<T, F: Future<Output = Result<T>>>(
    requests: impl IntoIterator<Item = F>,
) -> TryCollect<Buffered<Iter<vec::IntoIter<F>>>, Vec<T>> {
    // The requests are made at once, so that a task that awaits them holds no iterator.
    let requests: Vec<F> = requests.into_iter().collect();
    stream::iter(requests).buffered(CONCURRENCY).try_collect()
}

/// Reads a list that is spread over numbered slots, some at once, until it has enough. `read` takes a slot, and how many are missing.
pub(crate) async fn slot_by_slot<T, F: Future<Output = Result<Vec<T>>>>(
    slots: RangeInclusive<u32>,
    limit: usize,
    read: impl Fn(u32, usize) -> F,
) -> Result<Vec<T>> {
    let (mut next, last) = slots.into_inner();
    let mut found = Vec::new();
    while next <= last && found.len() < limit {
        let end = last.min(next.saturating_add(SLOTS_AT_ONCE - 1));
        let left = limit - found.len();
        let read = concurrently((next..=end).map(|slot| read(slot, left)));
        found.extend(read.await?.into_iter().flatten());
        next = end.saturating_add(1);
    }
    found.truncate(limit);
    Ok(found)
}

fn rows<R: OwnedRow>(statement: &Statement, answer: QueryResult) -> Result<Vec<R>> {
    owned_rows(answer).map_err(|cause| {
        tracing::error!(statement = statement.name, %cause, "the store cannot decode the rows of a statement; run `wideroom verify`");
        corrupt("a table", cause)
    })
}

/// Reads `[applied]`, the first column. If it is true, Cassandra sends nothing else, and ScyllaDB the previous row.
fn decided<R: OwnedRow>(answer: QueryResult) -> std::result::Result<Option<R>, Cause> {
    let rows = answer.into_rows_result()?;
    let first = rows.rows::<scylla::value::Row>()?.next();
    let first = first.ok_or("a conditional write without an answer")??;
    let is_applied = matches!(
        first.columns.first(),
        Some(Some(scylla::value::CqlValue::Boolean(true)))
    );
    if is_applied {
        return Ok(None);
    }
    Ok(Some(rows.first_row::<R>()?))
}
