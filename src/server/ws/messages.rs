//! Messages of a client: `connection_init`, `subscribe`, `complete`, and the answer to each operation.

use std::sync::Arc;
use std::time::Duration;

use async_graphql::parser::types::OperationType;
use axum::extract::ws::Message;
use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::message_budget;
use super::message_rate::MessageRate;
use super::operations::{EndedOperation, OperationWork};
use super::protocol::{self, Close, Incoming, Outgoing};
use super::socket::{Socket, SocketEnd, SocketSession};
use crate::graphql::{AnswerBudget, CoercedVariables, Prepared};
use crate::server::admission::Caller;
use crate::server::answer::{Answer, Code, ExecutionResult, Problem};
use crate::server::chunks::ChunkedText;
use crate::server::identification::{
    ActError, ActedUser, Identified, IdentifyError, TokenTimes, not_a_service,
};
use crate::server::operation::LogLine;
use crate::server::request::GraphqlRequest;
use crate::server::trace_context::TraceContext;

/// Admitted operation and the budget of its answer; a subscription has a budget for each event instead.
type AdmittedOperation = (Prepared, CoercedVariables, Option<Arc<AnswerBudget>>);

impl Socket {
    pub(super) fn read(
        &mut self,
        frame: Option<Result<Message, axum::Error>>,
        over_for: Duration,
    ) -> Result<(), SocketEnd> {
        if over_for > self.bounds().rate_patience {
            return Err(Close::too_fast(self.bounds().rate_per_second).into());
        }
        self.timers.received();
        if let Some(Ok(message)) = &frame {
            self.permit.read(message);
        }
        match frame {
            None => Err(SocketEnd::Gone),
            Some(Ok(Message::Close(_))) => Err(SocketEnd::Closed),
            // Either the connection is lost, and the close fails too, or the frame was malformed.
            Some(Err(_)) => Err(Close::BROKEN.into()),
            // The library answers pings.
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Binary(_))) => Err(Close::invalid("messages are text").into()),
            Some(Ok(Message::Text(text))) if text.len() > self.bounds().message_bytes => {
                Err(Close::too_big(self.bounds().message_bytes).into())
            }
            Some(Ok(Message::Text(text))) => match Incoming::parse(&text)? {
                Incoming::Init {
                    authorization,
                    acted_user,
                    trace,
                } => self.init(authorization.as_deref(), acted_user.as_deref(), trace),
                Incoming::Ping { payload } => self.send(&Outgoing::Pong { payload }),
                Incoming::Pong => Ok(()),
                Incoming::Subscribe { id, payload } => self.subscribe(&id, payload),
                Incoming::Complete { id } => {
                    self.sources.operations.stop(&id);
                    Ok(())
                }
            },
        }
    }

    fn init(
        &mut self,
        authorization: Option<&str>,
        acted_user: Option<&str>,
        trace: Option<TraceContext>,
    ) -> Result<(), SocketEnd> {
        let handshake = match &self.session {
            SocketSession::Waiting { authorization } => authorization.as_deref(),
            SocketSession::Open { .. } => return Err(Close::TOO_MANY_INITS.into()),
        };
        // The address paid for this verification when the socket was opened.
        let identity = self.identify(authorization.or(handshake), acted_user)?;
        let user_permit = identity
            .as_ref()
            .map(|identity| self.server.admission.socket_of(&identity.viewer))
            .transpose();
        let user_permit = user_permit.map_err(Close::too_many_sockets)?.flatten();
        if identity.is_some() {
            self.permit.admit()?;
            self.eviction = None;
        }
        self.permit.accept(message_budget(self.bounds()));
        let token = identity
            .as_ref()
            .map_or_else(TokenTimes::default, |identity| identity.token);
        self.timers.open(
            &self.server.bounds.sockets,
            identity.is_some(),
            token.expires_at,
            self.server.clock.as_ref(),
            Instant::now(),
        );
        let viewer = identity.map(|identity| identity.viewer);
        if viewer
            .as_ref()
            .is_some_and(|viewer| viewer.service_name().is_some())
        {
            let per_second = self.server.admission.service_live_per_second();
            let rate = MessageRate::new(per_second, per_second, Instant::now());
            self.sources.frames.set_rate(rate);
        }
        let here = viewer
            .as_ref()
            .and_then(|viewer| self.server.executor.arrive(viewer));
        self.session = SocketSession::Open {
            viewer,
            trace,
            token,
            _user_permit: user_permit,
            _here: here,
        };
        self.send(&Outgoing::ConnectionAck)
    }

    fn identify(
        &self,
        authorization: Option<&str>,
        acted_user: Option<&str>,
    ) -> Result<Option<Identified>, Close> {
        let Some(authorization) = authorization else {
            return match acted_user {
                Some(_) => Err(Close::forbidden(&not_a_service().sentence)),
                None => Ok(None),
            };
        };
        let identified = match self.server.identify(authorization, || Ok(())) {
            Ok(identified) => identified,
            Err(IdentifyError::Token(sentence)) => return Err(Close::forbidden(&sentence)),
            Err(IdentifyError::NotAdmitted(problem)) => {
                return Err(Close::forbidden(&problem.sentence));
            }
            Err(IdentifyError::Refused(refusal)) => return Err(refusal.into()),
        };
        let Some(name) = acted_user else {
            return Ok(Some(identified));
        };
        let acting = self.server.act_as(identified, ActedUser::named(name));
        acting.map(Some).map_err(|error| match error {
            ActError::Refused(refusal) => refusal.into(),
            ActError::Bad(problem) if problem.code == Code::BadUserInput => {
                Close::invalid(problem.sentence)
            }
            ActError::Bad(problem) => Close::forbidden(&problem.sentence),
        })
    }

    /// Closes the socket if its viewer is no longer allowed in.
    pub(super) fn check_restrictions(&self) -> Result<(), SocketEnd> {
        match &self.session {
            SocketSession::Open {
                viewer: Some(viewer),
                token,
                ..
            } => Ok(self.server.check(viewer, *token).map_err(Close::from)?),
            SocketSession::Open { viewer: None, .. } | SocketSession::Waiting { .. } => Ok(()),
        }
    }

    fn subscribe(&mut self, id: &str, payload: &RawValue) -> Result<(), SocketEnd> {
        let SocketSession::Open { viewer, trace, .. } = &self.session else {
            return Err(Close::UNAUTHORIZED.into());
        };
        let (viewer, trace) = (viewer.clone(), trace.clone());
        if self.sources.operations.contains(id) {
            return Err(Close::duplicate(id).into());
        }
        if self.timers.is_draining() {
            // The client repeats it on the next server.
            return Ok(());
        }
        let mut line = LogLine::start(&self.server, "ws");
        line.viewer(viewer.as_ref());
        line.trace(trace);
        let caller = Caller {
            viewer,
            address: self.address,
        };
        if let Err(problem) = self.server.admission.enter(&caller) {
            return self.refuse(id, problem, line);
        }
        let request = GraphqlRequest::from_json(payload.get().as_bytes())
            .map_err(|problem| Close::invalid(problem.sentence))?;
        if let Err(problem) = request.document(self.server.trusted_documents.as_ref())
            && problem.code == Code::BadUserInput
        {
            return Err(Close::invalid(problem.sentence).into());
        }
        match self.prepare(&request, &caller, &mut line) {
            Ok((prepared, ready, budget)) => {
                self.start(id, prepared, ready, &caller, budget, line);
                Ok(())
            }
            Err(problem) => self.refuse(id, problem, line),
        }
    }

    /// Refuses an operation before its start.
    fn refuse(&mut self, id: &str, problem: Problem, mut line: LogLine) -> Result<(), SocketEnd> {
        line.end(problem.code.as_str());
        let answer = Answer::from(problem);
        self.send(&Outgoing::Error {
            id,
            payload: &answer.errors,
        })
    }

    fn prepare(
        &self,
        request: &GraphqlRequest<'_>,
        caller: &Caller,
        line: &mut LogLine,
    ) -> Result<AdmittedOperation, Problem> {
        let most = self.bounds().operations;
        if self.sources.operations.len() >= most {
            let sentence = format!("A socket runs at most {most} operations at once.");
            return Err(Problem::too_many(sentence));
        }
        let document = request.document(self.server.trusted_documents.as_ref())?;
        let prepared = self
            .server
            .executor
            .prepare(document, request.operation_name.as_deref());
        let prepared = prepared.map_err(|reason| {
            line.refused(&reason);
            Problem::from(reason)
        })?;
        line.operation(&prepared);
        let variables = request.variables(self.server.bounds.variables_bytes)?;
        let ready = prepared.coerce(variables).map_err(Problem::from)?;
        line.cost(ready.cost);
        self.server
            .admission
            .admit(caller, prepared.operation, ready.cost)?;
        let budget = match prepared.operation {
            OperationType::Subscription => None,
            OperationType::Query | OperationType::Mutation => {
                Some(self.server.quotas.admit_operation(caller, ready.cost)?)
            }
        };
        Ok((prepared, ready, budget))
    }

    fn start(
        &mut self,
        id: &str,
        prepared: Prepared,
        ready: CoercedVariables,
        caller: &Caller,
        budget: Option<Arc<AnswerBudget>>,
        line: LogLine,
    ) {
        let work = match budget {
            None => {
                let deliveries = self.server.subscribe(prepared, ready, caller);
                self.send_queue.charge_events(deliveries.account());
                let head = protocol::next_head(id);
                OperationWork::Subscription { deliveries, head }
            }
            Some(budget) => {
                let (server, viewer) = (Arc::clone(&self.server), caller.viewer.clone());
                let deadline = Instant::now() + self.server.bounds.request;
                let answer = async move {
                    server
                        .execute(&prepared, ready.variables, viewer, deadline, budget)
                        .await
                };
                OperationWork::Request(answer.boxed())
            }
        };
        self.sources.operations.start(id, line, work);
    }

    /// Queues the answer of a query or a mutation.
    pub(super) fn answer(&mut self, mut operation: EndedOperation, result: ExecutionResult) {
        let budget = Arc::clone(&result.budget);
        // One chunk: the library writes a message as one frame.
        let mut text = ChunkedText::new(usize::MAX, budget.bytes_max(), budget.spent());
        text.push_framing(&protocol::next_head(&operation.id));
        operation.line.store_time(result.store_time);
        let answer = result.write(&mut text);
        operation.line.end(answer.code());
        let id = &operation.id;
        if answer.is_refusal() {
            self.send_queue.push_answer(
                Outgoing::Error {
                    id,
                    payload: &answer.errors,
                }
                .json(),
                None,
            );
        } else {
            text.push_framing(protocol::NEXT_TAIL);
            self.send_queue.push_answer(text.into_text(), Some(budget));
            self.send_queue
                .push_answer(Outgoing::Complete { id }.json(), None);
        }
    }
}
