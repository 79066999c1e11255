//! Operations over any transport: identification, execution with a deadline, subscriptions, and the log line.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_graphql::parser::types::OperationType;
use async_graphql::{Name, Variables};
use axum::http::{Extensions, HeaderMap, StatusCode};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::admission::{
    AddressPermit, Caller, ClientAddress, Peer, TooManyConnections, is_forwarded,
};
use super::answer::{Answer, Code, Delivery, EventText, ExecutionResult, Problem};
use super::chunks::ChunkedText;
use super::connection::ConnectionState;
use super::context::Server;
use super::metrics::{OpenSubscription, ServerMetrics};
use super::request_log::RequestLog;
use super::trace_context::TraceContext;
use crate::graphql::{
    AnswerAccount, AnswerBudget, CoercedVariables, EventContent, EventResponse, ExecutionLimits,
    HeldBytes, OperationCost, Prepared, RequestError,
};
use crate::metrics::with_store_time;
use crate::model::{UserId, Viewer};

/// Pause between two warnings of a proxy that is not named.
const PROXY_WARNING_PAUSE: Duration = Duration::from_secs(3_600);

/// Most characters of an operation's name in the log: the client chooses it.
const NAME_CHARS_MAX: usize = 64;

impl Server {
    /// Client address of a request.
    pub(super) fn address(&self, extensions: &Extensions, headers: &HeaderMap) -> ClientAddress {
        // A test of the router alone has no connection.
        let peer = extensions
            .get::<Arc<ConnectionState>>()
            .map_or(Peer(Ipv4Addr::UNSPECIFIED.into()), |phase| phase.peer());
        if is_forwarded(headers) && !self.bounds.proxies.trust(peer.0.to_canonical()) {
            self.warn_of_proxy();
        }
        ClientAddress::of(peer, headers, &self.bounds.proxies)
    }

    /// Warns of a proxy that the operator has not named, at most once an hour. It may also be a client that forges the header,
    /// so the address is not logged.
    fn warn_of_proxy(&self) {
        let (mut warned_at, now) = (self.proxy_warned_at.lock(), Instant::now());
        if warned_at.is_some_and(|at| now < at + PROXY_WARNING_PAUSE) {
            return;
        }
        *warned_at = Some(now);
        tracing::warn!(
            "requests carry X-Forwarded-For from a peer that is no trusted proxy: its clients share the bounds of one address. Name the proxy in --trusted-proxies"
        );
    }

    /// Acquires a connection permit of a peer. A trusted proxy needs none.
    pub(super) fn connection_permit(
        &self,
        peer: IpAddr,
    ) -> Result<Option<AddressPermit>, TooManyConnections> {
        if self.bounds.proxies.trust(peer.to_canonical()) {
            Ok(None)
        } else {
            self.admission
                .connection_at(ClientAddress::from(peer.to_canonical()))
        }
    }

    /// Executes a query or a mutation, at most until the deadline.
    pub(super) async fn execute(
        &self,
        prepared: &Prepared,
        variables: Variables,
        viewer: Option<Viewer>,
        deadline: Instant,
        budget: Arc<AnswerBudget>,
    ) -> ExecutionResult {
        let (operation, spent_before) = (prepared.operation, budget.spent());
        // Boxed: each wrapper around the execution copies its response.
        let execution = self
            .executor
            .execute(prepared, variables, viewer, Arc::clone(&budget))
            .map(Box::new);
        let execution = AssertUnwindSafe(execution).catch_unwind();
        let (executed, store_time) = with_store_time(timeout_at(deadline, execution)).await;
        let answer = match executed {
            Ok(Ok(response)) => (*response).into(),
            Ok(Err(panic)) => panicked(panic.as_ref()),
            Err(_) => overdue(operation, self.bounds.request),
        };
        ExecutionResult {
            answer,
            operation,
            budget,
            spent_before,
            store_time,
        }
    }

    /// Runs a subscription until the stream is dropped. A panic ends it with an error.
    pub(super) fn subscribe(
        &self,
        prepared: Prepared,
        ready: CoercedVariables,
        caller: &Caller,
    ) -> SubscriptionDeliveries {
        let (executor, viewer) = (Arc::clone(&self.executor), caller.viewer.clone());
        let (account, budget) = (self.quotas.account(caller), self.quotas.event_budget());
        let limits = ExecutionLimits {
            budget: Arc::clone(&budget),
            pace: self.admission.pace(viewer.as_ref(), ready.cost),
        };
        let opening = async move {
            executor
                .subscribe(&prepared, ready.variables, viewer, limits)
                .await
        };
        SubscriptionDeliveries {
            phase: SubscriptionPhase::Opening(opening.boxed()),
            account,
            budget,
            open: OpenSubscription::new(&self.metrics),
        }
    }
}

/// Stream of the deliveries of one subscription.
pub(super) struct SubscriptionDeliveries {
    phase: SubscriptionPhase,
    account: Option<Arc<AnswerAccount>>,
    /// Budget of each event in turn.
    budget: Arc<AnswerBudget>,
    open: OpenSubscription,
}

/// State of a subscription. The future of its opening is dropped once it is open.
enum SubscriptionPhase {
    Opening(BoxFuture<'static, BoxStream<'static, EventResponse>>),
    Open(BoxStream<'static, EventResponse>),
    Over,
}

impl SubscriptionPhase {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<EventResponse>> {
        if let Self::Opening(opening) = self {
            *self = Self::Open(ready!(opening.poll_unpin(cx)));
        }
        if let Self::Open(responses) = self {
            responses.poll_next_unpin(cx)
        } else {
            Poll::Ready(None)
        }
    }
}

impl SubscriptionDeliveries {
    /// Account in which the bytes of events count until they are written.
    pub(super) fn account(&self) -> Option<&Arc<AnswerAccount>> {
        self.account.as_ref()
    }

    /// Counts the bytes of a delivery that waits to be written.
    pub(super) fn hold(&self, bytes: usize) -> Option<HeldBytes> {
        self.account.as_ref().map(|account| account.hold(bytes))
    }

    /// Renders an event.
    fn delivery(&self, response: EventResponse) -> Delivery {
        let EventResponse { content, has_more } = response;
        let text = match content {
            EventContent::Shared(payload) => EventText::Shared(payload),
            EventContent::Own(response) => {
                let answer = Answer::from(*response);
                if self.budget.exceeded().is_none() && answer.is_refusal() {
                    return Delivery::Refused(answer);
                }
                EventText::Own(self.text(&answer))
            }
        };
        self.budget.rewind(0);
        Delivery::Event { text, has_more }
    }

    fn text(&self, answer: &Answer) -> String {
        let mut chunks = ChunkedText::new(usize::MAX, self.budget.bytes_max(), self.budget.spent());
        let is_whole = self.budget.exceeded().is_none() && answer.write(&mut chunks).is_ok();
        if is_whole {
            chunks.into_text()
        } else {
            Answer::event_exceeded(&self.budget).json()
        }
    }
}

impl Stream for SubscriptionDeliveries {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        // Backpressure: while a user reads no answers, the stream waits. Later it reads the missed events from the store.
        if self
            .account
            .as_ref()
            .is_some_and(|account| !account.has_room(cx.waker()))
        {
            return Poll::Pending;
        }
        let delivery = match catch_unwind(AssertUnwindSafe(|| self.phase.poll_next(cx))) {
            Ok(response) => ready!(response).map(|response| self.delivery(response)),
            Err(panic) => {
                self.phase = SubscriptionPhase::Over;
                Some(Delivery::Refused(panicked(panic.as_ref())))
            }
        };
        if delivery.is_some() {
            self.open.record_delivery();
        }
        Poll::Ready(delivery)
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Answer {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(
        panic = said.unwrap_or("no message"),
        "a GraphQL operation panicked; the client got INTERNAL. Report this as a bug"
    );
    Answer::internal()
}

fn overdue(operation: OperationType, after: Duration) -> Answer {
    let sentence = format!(
        "The operation took longer than {} ms; try again.",
        after.as_millis()
    );
    let answer = Answer::from(Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        Code::Unavailable,
        sentence,
    ));
    // The store may still complete a mutation after the deadline.
    if operation == OperationType::Mutation {
        answer.with_extension("outcome", "UNKNOWN")
    } else {
        answer
    }
}

/// Log line and metrics of one operation. The line holds no bodies, variables or tokens.
///
/// A line that is dropped before its end belongs to a client that disconnected.
pub(super) struct LogLine {
    metrics: Arc<ServerMetrics>,
    log: Arc<RequestLog>,
    started: Instant,
    transport: &'static str,
    kind: Option<OperationType>,
    operation: Option<String>,
    viewer: Option<Viewer>,
    trace: Option<TraceContext>,
    cost: OperationCost,
    store_time: Duration,
    slow_over: Option<Duration>,
    is_ended: bool,
}

impl LogLine {
    pub(super) fn start(server: &Server, transport: &'static str) -> Self {
        let metrics = Arc::clone(&server.metrics);
        Self {
            metrics,
            log: Arc::clone(&server.request_log),
            started: Instant::now(),
            transport,
            kind: None,
            operation: None,
            viewer: None,
            trace: None,
            cost: OperationCost::default(),
            store_time: Duration::ZERO,
            slow_over: server.bounds.slow_request,
            is_ended: false,
        }
    }

    pub(super) fn trace(&mut self, trace: Option<TraceContext>) {
        self.trace = trace;
    }

    /// Adds the price of an operation: a batch has several.
    pub(super) fn cost(&mut self, cost: OperationCost) {
        self.cost.fields += cost.fields;
        self.cost.roots += cost.roots;
    }

    /// Adds the store time of an execution.
    pub(super) fn store_time(&mut self, store_time: Duration) {
        self.store_time += store_time;
    }

    pub(super) fn transport(&mut self, transport: &'static str) {
        self.transport = transport;
    }

    pub(super) fn viewer(&mut self, viewer: Option<&Viewer>) {
        self.viewer = viewer.cloned();
    }

    pub(super) fn operation(&mut self, prepared: &Prepared) {
        self.kind = Some(prepared.operation);
        self.name(prepared.name.as_ref());
    }

    /// Notes which operation of a refused document was chosen.
    pub(super) fn refused(&mut self, reason: &RequestError) {
        self.name(reason.operation.as_ref());
    }

    fn name(&mut self, name: Option<&Name>) {
        self.operation = name.map(|name| name.chars().take(NAME_CHARS_MAX).collect());
    }

    pub(super) fn end(&mut self, code: &str) {
        self.is_ended = true;
        let took = self.started.elapsed();
        self.metrics.record(self.transport, self.kind, code, took);
        // A subscription lasts as long as its client wants it.
        let is_slow = self.kind != Some(OperationType::Subscription)
            && self.slow_over.is_some_and(|over| took >= over);
        if !self.log.admits(code, is_slow) {
            return;
        }
        macro_rules! log {
            ($level:ident, $message:literal $(, $($field:ident).+ = $value:expr)*) => {
                tracing::$level!(
                    transport = self.transport,
                    operation.name = self.operation.as_deref(),
                    viewer.id = self.viewer.as_ref().map(|viewer| viewer.user.as_str()),
                    service.id = self
                        .viewer
                        .as_ref()
                        .and_then(Viewer::service_name)
                        .map(UserId::as_str),
                    trace.id = self.trace.as_ref().map(TraceContext::trace_id),
                    trace.parent_id = self.trace.as_ref().map(TraceContext::parent_id),
                    duration_ms = milliseconds(took),
                    code,
                    $($($field).+ = $value,)*
                    $message
                )
            };
        }
        if is_slow {
            log!(
                warn,
                "slow request",
                store_ms = milliseconds(self.store_time),
                cost.fields = self.cost.fields,
                cost.roots = self.cost.roots
            );
        } else {
            log!(info, "request");
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if !self.is_ended {
            self.end("GONE");
        }
    }
}
