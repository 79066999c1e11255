//! Execution of GraphQL requests that came over HTTP: one, or a batch in order.

use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use axum::http::{Method, StatusCode, header};
use tokio::time::Instant;

use super::negotiation::AcceptedMedia;
use super::stream::SubscriptionResponse;
use super::stream_format::StreamFormat;
use crate::graphql::AnswerBudget;
use crate::server::admission::Caller;
use crate::server::answer::{Answer, Code, ExecutionResult, Problem};
use crate::server::chunks::{CHUNK_BYTES, ChunkedText};
use crate::server::context::Server;
use crate::server::identification::TokenTimes;
use crate::server::operation::LogLine;
use crate::server::request::GraphqlRequest;

/// Result of a well-formed request.
pub(super) enum HttpOutcome {
    /// Nothing was executed.
    Refused(Answer),
    Executed(ExecutionResult),
    /// One answer for each request of a batch, in order, and the code of the first failure.
    Batch(ChunkedText, Arc<AnswerBudget>, String),
    Subscribed(SubscriptionResponse),
}

/// Properties of an HTTP request around its GraphQL: caller, deadline and accepted formats.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) accepted: AcceptedMedia,
    pub(super) caller: Caller,
    pub(super) token: TokenTimes,
    pub(super) method: Method,
    pub(super) deadline: Instant,
    /// Budget that all requests of a batch share.
    pub(super) budget: Option<Arc<AnswerBudget>>,
}

/// Executes the requests of a batch in order, within one deadline and one answer budget.
///
/// A batch therefore has the peak cost of one request, and its mutations happen in order.
pub(super) async fn execute_batch(
    server: &Arc<Server>,
    requests: &[GraphqlRequest<'_>],
    context: &RequestContext,
    line: &mut LogLine,
) -> Result<HttpOutcome, Problem> {
    if context.accepted.media.is_none() {
        let sentence = "A batch is answered as `application/graphql-response+json` or `application/json`, and `Accept` allows neither.";
        return Err(Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            Code::BadUserInput,
            sentence,
        ));
    }
    // A batch cannot hold a subscription.
    let accepted = context.accepted.without_streams();
    let budget = server.quotas.admit(&context.caller)?;
    let mut text = ChunkedText::new(CHUNK_BYTES, budget.bytes_max(), 0);
    let mut code = None;
    for (index, request) in requests.iter().enumerate() {
        text.push_framing(if index == 0 { "[" } else { "," });
        let context = RequestContext {
            accepted,
            budget: Some(Arc::clone(&budget)),
            ..context.clone()
        };
        // The HTTP request itself paid for the first one.
        let entered = if index == 0 {
            Ok(())
        } else {
            server.admission.enter(&context.caller)
        };
        let outcome = match entered {
            Ok(()) => execute(server, request, context, line).await,
            Err(problem) => Err(problem),
        };
        let answer = match outcome {
            Ok(HttpOutcome::Executed(result)) => result.write(&mut text),
            Ok(HttpOutcome::Refused(answer)) => framed(answer, &mut text),
            Ok(HttpOutcome::Batch(..) | HttpOutcome::Subscribed(_)) => {
                framed(Answer::internal(), &mut text)
            }
            Err(problem) => framed(problem.into(), &mut text),
        };
        code = code.or(Some(answer.code())
            .filter(|code| *code != "OK")
            .map(str::to_owned));
    }
    text.push_framing("]");
    Ok(HttpOutcome::Batch(
        text,
        budget,
        code.unwrap_or_else(|| "OK".to_owned()),
    ))
}

/// Writes a refusal, which is small and spends no budget.
fn framed(answer: Answer, text: &mut ChunkedText) -> Answer {
    text.push_framing(&answer.json());
    answer
}

pub(super) async fn execute(
    server: &Arc<Server>,
    request: &GraphqlRequest<'_>,
    context: RequestContext,
    line: &mut LogLine,
) -> Result<HttpOutcome, Problem> {
    let refused = |problem: Problem| Ok(HttpOutcome::Refused(problem.into()));
    let query = match request.document(server.trusted_documents.as_ref()) {
        // A request for a persisted query is well-formed, and so is one whose document is refused.
        Err(problem)
            if matches!(
                problem.code,
                Code::PersistedQueryNotSupported | Code::Forbidden
            ) =>
        {
            return refused(problem);
        }
        query => query?,
    };
    let prepared = match server
        .executor
        .prepare(query, request.operation_name.as_deref())
    {
        Ok(prepared) => prepared,
        Err(reason) => {
            line.refused(&reason);
            return refused(reason.into());
        }
    };
    line.operation(&prepared);
    let format = stream_format(prepared.operation, &context)?;
    let ready = match prepared.coerce(request.variables(server.bounds.variables_bytes)?) {
        Ok(accepted) => accepted,
        Err(reason) => return refused(reason.into()),
    };
    line.cost(ready.cost);
    server
        .admission
        .admit(&context.caller, prepared.operation, ready.cost)?;
    if let Some(format) = format {
        return SubscriptionResponse::open(
            server,
            format,
            prepared,
            ready,
            &context.caller,
            context.token,
        )
        .map(HttpOutcome::Subscribed);
    }
    let budget = match context.budget {
        Some(budget) => budget,
        None => server.quotas.admit_operation(&context.caller, ready.cost)?,
    };
    let result = server
        .execute(
            &prepared,
            ready.variables,
            context.caller.viewer,
            context.deadline,
            budget,
        )
        .await;
    line.store_time(result.store_time);
    Ok(HttpOutcome::Executed(result))
}

/// Format of a subscription's stream; `None` for a query or a mutation. Refuses methods and formats that do not fit.
fn stream_format(
    operation: OperationType,
    context: &RequestContext,
) -> Result<Option<StreamFormat>, Problem> {
    match (operation, context.accepted.stream) {
        (OperationType::Subscription, None) => {
            let sentence = "Subscriptions are served over WebSocket at /graphql/ws (graphql-transport-ws), and here to clients that accept \
                            `text/event-stream` or `multipart/mixed;subscriptionSpec=1.0`.";
            Err(Problem::new(
                StatusCode::BAD_REQUEST,
                Code::BadUserInput,
                sentence,
            ))
        }
        (OperationType::Mutation, _) if context.method == Method::GET => Err(not_allowed(
            "POST",
            "A mutation is sent with POST; GET changes nothing.",
        )),
        (OperationType::Subscription, format) => Ok(format),
        (OperationType::Mutation | OperationType::Query, _) => Ok(None),
    }
}

pub(super) fn not_allowed(allow: &'static str, sentence: &str) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, Code::BadUserInput, sentence)
        .with_header(header::ALLOW, allow)
}
