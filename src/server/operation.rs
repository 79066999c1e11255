//! One operation, whichever door it came through: its viewer, its deadline, its panic, its line in the log.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_graphql::Variables;
use async_graphql::parser::types::OperationType;
use axum::http::{Extensions, HeaderMap, StatusCode};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::admission::{
    AddressPermit, AnswerQuota, Caller, ClientAddress, Peer, TooManyConnections,
};
use super::answer::{Answer, Code, Delivery, EventText, ExecutionResult, Problem};
use super::chunks::ChunkedText;
use super::connection::ConnectionState;
use super::context::Server;
use super::metrics::{OpenSubscription, ServerMetrics};
use crate::auth::{self, Identity};
use crate::graphql::{AnswerBudget, CoercedVariables, EventResponse, ExecutionLimits, Prepared};
use crate::model::UserId;

/// A name in the log is cut to so many characters: a client may choose it.
const NAME_CHARS_MAX: usize = 64;

impl Server {
    /// Whose request this is, as long as no user is known.
    pub(super) fn address(&self, extensions: &Extensions, headers: &HeaderMap) -> ClientAddress {
        // Without a connection there is nobody to tell from others: as in a test of the router alone.
        let peer = extensions
            .get::<Arc<ConnectionState>>()
            .map_or(Peer(Ipv4Addr::UNSPECIFIED.into()), |phase| phase.peer());
        ClientAddress::of(peer, headers, &self.bounds.proxies)
    }

    /// A place for a connection. A proxy may have all of them, for whom it speaks.
    pub(super) fn connection_of(
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

    /// The user whom `Bearer …` names. `admit` is called before a signature is verified.
    pub(super) fn identify(
        &self,
        authorization: &str,
        admit: impl FnOnce() -> Result<(), Problem>,
    ) -> Result<Identity, IdentifyError> {
        let token = match authorization.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => {
                return Err(IdentifyError::Token(
                    "The authorization must be `Bearer` and a token.".to_owned(),
                ));
            }
        };
        self.auth
            .verify_after(token, || admit().map_err(IdentifyError::NotAdmitted))
    }

    /// Executes a query or a mutation. It ends with the deadline, whatever it waits for.
    pub(super) async fn execute(
        &self,
        prepared: &Prepared,
        variables: Variables,
        viewer: Option<UserId>,
        deadline: Instant,
        budget: Arc<AnswerBudget>,
    ) -> ExecutionResult {
        let (operation, spent_before) = (prepared.operation, budget.spent());
        let execution = AssertUnwindSafe(self.executor.execute(
            prepared,
            variables,
            viewer,
            Arc::clone(&budget),
        ))
        .catch_unwind();
        let answer = match timeout_at(deadline, execution).await {
            Ok(Ok(response)) => response.into(),
            Ok(Err(panic)) => panicked(panic.as_ref()),
            Err(_) => overdue(operation, self.bounds.request),
        };
        ExecutionResult {
            answer,
            operation,
            budget,
            spent_before,
        }
    }

    /// Answers a subscription until the stream is dropped. A panic is its last answer.
    pub(super) fn subscribe(
        &self,
        prepared: Prepared,
        ready: CoercedVariables,
        caller: &Caller,
    ) -> SubscriptionDeliveries {
        let (executor, viewer) = (Arc::clone(&self.executor), caller.viewer.clone());
        let (account, budget) = (self.quotas.of(caller), self.quotas.event_budget());
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

/// What one subscription tells.
pub(super) struct SubscriptionDeliveries {
    phase: SubscriptionPhase,
    account: Option<Arc<AnswerQuota>>,
    /// Of one event.
    budget: Arc<AnswerBudget>,
    open: OpenSubscription,
}

/// What opening it needs is given back when it is open.
enum SubscriptionPhase {
    Opening(BoxFuture<'static, BoxStream<'static, EventResponse>>),
    OpenSubscription(BoxStream<'static, EventResponse>),
    Over,
}

impl SubscriptionPhase {
    fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<Option<EventResponse>> {
        if let Self::Opening(opening) = self {
            *self = Self::OpenSubscription(ready!(opening.poll_unpin(cx)));
        }
        if let Self::OpenSubscription(told) = self {
            told.poll_next_unpin(cx)
        } else {
            Poll::Ready(None)
        }
    }
}

impl SubscriptionDeliveries {
    /// Makes the text of an event, and counts it.
    fn delivery(&self, told: EventResponse) -> Delivery {
        let text = match told {
            EventResponse::Shared(payload) => EventText::Shared(payload),
            EventResponse::Own(response) => {
                let answer = Answer::from(response);
                if self.budget.exceeded().is_none() && answer.is_refusal() {
                    return Delivery::Refused(answer);
                }
                EventText::Own(self.text(&answer))
            }
        };
        self.budget.rewind(0);
        let held = self
            .account
            .as_ref()
            .map(|account| account.bytes.hold(text.as_str().len()));
        Delivery::Event(text, held)
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
        // A user whose answers are not read is told nothing more: the stream waits, and reads what it missed from the store.
        if self
            .account
            .as_ref()
            .is_some_and(|account| !account.bytes.has_room(cx.waker()))
        {
            return Poll::Pending;
        }
        let told = match catch_unwind(AssertUnwindSafe(|| self.phase.poll_told(cx))) {
            Ok(told) => ready!(told).map(|told| self.delivery(told)),
            Err(panic) => {
                self.phase = SubscriptionPhase::Over;
                Some(Delivery::Refused(panicked(panic.as_ref())))
            }
        };
        if told.is_some() {
            self.open.told();
        }
        Poll::Ready(told)
    }
}

/// Why an authorization names no user.
pub(super) enum IdentifyError {
    /// The token is not in order: a sentence for its client.
    Token(String),
    /// Its signature was not even verified.
    NotAdmitted(Problem),
}

impl From<auth::Error> for IdentifyError {
    fn from(error: auth::Error) -> Self {
        let said = error.to_string();
        let mut rest = said.chars();
        let first = rest.next().map(|first| first.to_ascii_uppercase());
        Self::Token(first.into_iter().chain(rest).chain(['.']).collect())
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
        "There was no answer within {} ms; try again.",
        after.as_millis()
    );
    let answer = Answer::from(Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        Code::Unavailable,
        sentence,
    ));
    // A mutation that was cut off may have been done all the same.
    if operation == OperationType::Mutation {
        answer.with_extension("outcome", "UNKNOWN")
    } else {
        answer
    }
}

/// The line in the log that each operation gets, and with it its place in the counters. It holds no bodies, no variables and no tokens.
///
/// One that is dropped without an end was left by its client.
pub(super) struct LogLine {
    metrics: Arc<ServerMetrics>,
    started: Instant,
    door: &'static str,
    kind: Option<OperationType>,
    operation: Option<String>,
    viewer: Option<UserId>,
    is_ended: bool,
}

impl LogLine {
    pub(super) fn start(server: &Server, door: &'static str) -> Self {
        let metrics = Arc::clone(&server.metrics);
        Self {
            metrics,
            started: Instant::now(),
            door,
            kind: None,
            operation: None,
            viewer: None,
            is_ended: false,
        }
    }

    pub(super) fn door(&mut self, door: &'static str) {
        self.door = door;
    }

    pub(super) fn viewer(&mut self, viewer: Option<&UserId>) {
        self.viewer = viewer.cloned();
    }

    pub(super) fn operation(&mut self, prepared: &Prepared) {
        self.kind = Some(prepared.operation);
        self.operation = prepared
            .name
            .as_ref()
            .map(|name| name.chars().take(NAME_CHARS_MAX).collect());
    }

    pub(super) fn end(&mut self, code: &str) {
        self.is_ended = true;
        let took = self.started.elapsed();
        self.metrics.ended(self.door, self.kind, code, took);
        tracing::info!(
            door = self.door,
            operation.name = self.operation.as_deref(),
            viewer.id = self.viewer.as_ref().map(UserId::as_str),
            duration_ms = took.as_micros() as f64 / 1e3,
            code,
            "request"
        );
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if !self.is_ended {
            self.end("GONE");
        }
    }
}
