//! GraphQL over HTTP, by the draft of 2026: one request, one answer, and an HTTP status for the outcome.
//! A subscription has many answers, in one streamed body.
//!
//! A POST must be `application/json`: a browser sends that to a foreign origin only after a CORS preflight. GET executes
//! no mutation.

mod compression;
mod execution;
mod negotiation;
mod response;
mod stream;
mod stream_format;

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use self::execution::{HttpOutcome, RequestContext, execute, execute_batch, not_allowed};
use self::negotiation::{AcceptedMedia, Media};
pub(super) use self::response::refuse;
use self::response::{answered, respond, respond_in, whole};
use crate::server::admission::Caller;
use crate::server::answer::{Answer, Code, Problem};
use crate::server::context::Server;
use crate::server::identification::{
    ActedUser, IdentifyError, TokenTimes, authorization, not_a_service, refused,
};
use crate::server::operation::LogLine;
use crate::server::request::{GraphqlRequest, Parameters, ParsedBody, bad_json, not_a_request};
use crate::server::trace_context::{TRACEPARENT, TraceContext};

pub(super) async fn graphql(State(server): State<Arc<Server>>, request: Request) -> Response {
    let mut line = LogLine::start(&server, "http");
    let trace = request.headers().get(TRACEPARENT);
    line.trace(trace.and_then(|value| TraceContext::parse(value.to_str().ok()?)));
    let mut accepted = AcceptedMedia::by(request.headers());
    accepted.is_gzip &= server.bounds.compression;
    let mut problem = match answer(&server, request, accepted, &mut line).await {
        Ok(HttpOutcome::Subscribed(stream)) => {
            return respond_in(stream.format, stream.body(line));
        }
        Ok(HttpOutcome::Batch(text, budget, code)) => {
            line.end(&code);
            return whole(text, Some(budget), accepted);
        }
        Ok(HttpOutcome::Executed(result)) => return answered(Ok(result), accepted, &mut line),
        Ok(HttpOutcome::Refused(answer)) => return answered(Err(answer), accepted, &mut line),
        Err(problem) => problem,
    };
    let (status, header) = (problem.status, problem.header.take());
    let answer = Answer::from(problem);
    line.end(answer.code());
    respond(
        &answer,
        status,
        accepted.media.unwrap_or(Media::Json),
        header,
    )
}

/// Answers every other path.
pub(super) async fn not_found(
    State(server): State<Arc<Server>>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Response {
    let caller = Caller {
        viewer: None,
        address: server.address(&extensions, &headers),
    };
    if let Err(problem) = server.admission.enter(&caller) {
        return refuse(problem);
    }
    let sentence =
        "There is nothing here: GraphQL is served at /graphql, and over WebSocket at /graphql/ws.";
    refuse(Problem::new(
        StatusCode::NOT_FOUND,
        Code::NotFound,
        sentence,
    ))
}

/// Headers that proxies and tunnels add.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "cf-connecting-ip",
];

/// Refuses requests from beyond this machine: a tunnel leads them to a loopback address.
pub(super) async fn refuse_forwarded(request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !FORWARDED.iter().any(|name| headers.contains_key(*name)) {
        return next.run(request).await;
    }
    let sentence = "This server runs with --demo, which gives everybody tokens and is for this machine alone: it refuses requests that a proxy forwards.";
    refuse(Problem::new(
        StatusCode::FORBIDDEN,
        Code::Forbidden,
        sentence,
    ))
}

/// Reads, admits and executes one HTTP request. `Err` is for a request that is not well-formed GraphQL.
async fn answer(
    server: &Arc<Server>,
    request: Request,
    accepted: AcceptedMedia,
    line: &mut LogLine,
) -> Result<HttpOutcome, Problem> {
    let deadline = Instant::now() + server.bounds.request;
    let (head, body) = request.into_parts();
    let (caller, token) = enter(server, &head, line)?;
    if accepted.is_nothing() {
        let sentence = "Answers are `application/graphql-response+json`, `application/json`, `text/event-stream` or, to subscriptions, \
                        `multipart/mixed;subscriptionSpec=1.0`, and `Accept` allows none of them.";
        return Err(Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            Code::BadUserInput,
            sentence,
        ));
    }
    if head.method != Method::GET && head.method != Method::POST {
        return Err(not_allowed(
            "GET, POST",
            "GraphQL requests use GET or POST.",
        ));
    }
    let context = RequestContext {
        accepted,
        caller,
        token,
        method: head.method.clone(),
        deadline,
        budget: None,
    };
    if head.method == Method::GET {
        let parameters = parameters(&head.uri)?;
        let request = GraphqlRequest::from_parameters(&parameters)?;
        return execute(server, &request, context, line).await;
    }
    if !negotiation::is_json(&head.headers) {
        let sentence = "A POST must be `application/json` in UTF-8.";
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::BadUserInput,
            sentence,
        ));
    }
    let body = match timeout_at(deadline, read(body, server.bounds.body_bytes)).await {
        Ok(read) => read?,
        Err(_) => {
            let sentence = "The body did not arrive in time.";
            return Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                Code::Unavailable,
                sentence,
            ));
        }
    };
    match ParsedBody::from_json(&body, server.bounds.batch)? {
        ParsedBody::One(request) => execute(server, &request, context, line).await,
        ParsedBody::Batch(requests) => execute_batch(server, &requests, &context, line).await,
    }
}

/// Identifies the caller and takes the token that every request costs, whatever its outcome.
///
/// The user pays; while no user is known the address pays, also before the server verifies a signature. The viewer is
/// `None` without a token: an operation that needs a viewer refuses by itself. A service pays for the
/// user in whose name it acts.
fn enter(
    server: &Server,
    head: &Parts,
    line: &mut LogLine,
) -> Result<(Caller, TokenTimes), Problem> {
    let stranger = Caller {
        viewer: None,
        address: server.address(&head.extensions, &head.headers),
    };
    let acted_user = ActedUser::of(&head.headers);
    let Some(authorization) = authorization(&head.headers) else {
        server.admission.enter(&stranger)?;
        return match acted_user {
            Some(_) => Err(not_a_service()),
            None => Ok((stranger, TokenTimes::default())),
        };
    };
    let mut is_paid = false;
    let identified = server.identify(authorization, || {
        is_paid = true;
        server.admission.enter(&stranger)
    });
    match identified {
        Ok(identified) => {
            line.viewer(Some(&identified.viewer));
            let caller = Caller {
                viewer: Some(identified.viewer.clone()),
                ..stranger
            };
            server.admission.enter(&caller)?;
            let identified = match acted_user {
                Some(user) => server.act_as(identified, user)?,
                None => identified,
            };
            line.viewer(Some(&identified.viewer));
            let caller = Caller {
                viewer: Some(identified.viewer),
                ..caller
            };
            Ok((caller, identified.token))
        }
        Err(IdentifyError::NotAdmitted(problem)) => Err(problem),
        Err(IdentifyError::Refused(refusal)) => {
            if !is_paid {
                server.admission.enter(&stranger)?;
            }
            Err(refused(refusal))
        }
        Err(IdentifyError::Token(sentence)) => {
            if !is_paid {
                server.admission.enter(&stranger)?;
            }
            let problem = Problem::new(StatusCode::UNAUTHORIZED, Code::Unauthenticated, sentence);
            Err(problem.with_header(header::WWW_AUTHENTICATE, "Bearer error=\"invalid_token\""))
        }
    }
}

fn parameters(uri: &Uri) -> Result<Parameters, Problem> {
    Query::<Parameters>::try_from_uri(uri)
        .map(|Query(parameters)| parameters)
        .map_err(|error| not_a_request(error.body_text()))
}

/// Reads a body within its bound and refuses a larger one early. The connection drops the rest, so that the client reads
/// the refusal.
async fn read(body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let sentence = format!("The body has more than {bytes_max} bytes.");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Code::BadUserInput, sentence)
    };
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut chunks = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| bad_json("the body broke off"))?;
        if chunk.len() > bytes_max - whole.len() {
            return Err(too_large());
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.into())
}
