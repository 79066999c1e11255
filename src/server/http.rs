//! GraphQL over HTTP, by the draft of 2026: one request, one answer, and a status that tells what became of it.
//!
//! Only `application/json` is read, which a foreign page cannot send without asking first. GET executes queries and nothing else.

mod negotiation;

use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use self::negotiation::Media;
use super::Doors;
use super::answer::{Answer, Code, Problem};
use super::operation::{LogLine, Sentence};
use super::request::{GraphqlRequest, Parameters, bad_json, not_a_request};
use crate::model::UserId;

/// A body over its bound is read on and thrown away up to so many times the bound, so that its sender gets to read why.
const DISCARD_FACTOR: usize = 8;

pub(super) async fn graphql(State(doors): State<Arc<Doors>>, request: Request) -> Response {
    let mut line = LogLine::start("http");
    let media = negotiation::accepted(request.headers());
    let outcome = match media {
        Some(_) => answer(&doors, request, &mut line).await,
        None => {
            let sentence = "Answers are `application/graphql-response+json` or `application/json`, and `Accept` allows neither.";
            Err(Problem::new(StatusCode::NOT_ACCEPTABLE, Code::BadUserInput, sentence))
        }
    };
    let media = media.unwrap_or(Media::Json);
    let (answer, status, header) = match outcome {
        // To those who only know plain JSON, whatever GraphQL says of a well-formed request is a success of HTTP.
        Ok(answer) if media == Media::Json && !answer.status.is_server_error() => (answer, StatusCode::OK, None),
        Ok(answer) => {
            let status = answer.status;
            (answer, status, None)
        }
        Err(mut problem) => {
            let (status, header) = (problem.status, problem.header.take());
            (problem.into(), status, header)
        }
    };
    line.end(answer.code());
    respond(&answer, status, media, header)
}

/// Whatever else one asks for below `/graphql`.
pub(super) async fn not_found() -> Response {
    let sentence = "There is nothing here: GraphQL is served at /graphql, and over WebSocket at /graphql/ws.";
    refuse(Problem::new(StatusCode::NOT_FOUND, Code::NotFound, sentence))
}

/// An answer to what is no GraphQL request.
pub(super) fn refuse(problem: Problem) -> Response {
    let answer = Answer::from(problem);
    respond(&answer, answer.status, Media::Json, None)
}

fn respond(answer: &Answer, status: StatusCode, media: Media, header: Option<(HeaderName, &'static str)>) -> Response {
    let mut response = Response::new(Body::from(answer.json()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media.name()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("accept, authorization"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.extend(header.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

/// `Ok` is an answer to a well-formed request, `Err` one to something else.
async fn answer(doors: &Doors, request: Request, line: &mut LogLine) -> Result<Answer, Problem> {
    let deadline = Instant::now() + doors.bounds.request;
    let (head, body) = request.into_parts();
    if head.method != Method::GET && head.method != Method::POST {
        return Err(not_allowed("GET, POST", "GraphQL is asked with GET or POST."));
    }
    let viewer = viewer(doors, &head.headers)?;
    line.viewer(viewer.as_ref());
    if head.method == Method::GET {
        let parameters = parameters(&head.uri)?;
        let request = GraphqlRequest::from_parameters(&parameters)?;
        return execute(doors, &request, viewer, &head.method, deadline, line).await;
    }
    if !negotiation::is_json(&head.headers) {
        let sentence = "A POST must be `application/json` in UTF-8.";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::BadUserInput, sentence));
    }
    let body = match timeout_at(deadline, read(body, doors.bounds.body_bytes)).await {
        Ok(read) => read?,
        Err(_) => {
            let sentence = "The body did not arrive in time.";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, Code::Unavailable, sentence));
        }
    };
    let request = GraphqlRequest::from_json(&body)?;
    execute(doors, &request, viewer, &head.method, deadline, line).await
}

async fn execute(
    doors: &Doors,
    request: &GraphqlRequest<'_>,
    viewer: Option<UserId>,
    method: &Method,
    deadline: Instant,
    line: &mut LogLine,
) -> Result<Answer, Problem> {
    let query = match request.query() {
        // Who asks for a persisted query made a well-formed request, and so did who sent a document that is refused.
        Err(problem) if problem.code == Code::PersistedQueryNotSupported => return Ok(problem.into()),
        query => query?,
    };
    let prepared = match doors.executor.prepare(query, request.operation_name.as_deref()) {
        Ok(prepared) => prepared,
        Err(refused) => return Ok(Problem::from(refused).into()),
    };
    line.operation(&prepared);
    match prepared.operation {
        OperationType::Subscription => {
            let sentence = "Subscriptions are served over WebSocket at /graphql/ws (graphql-transport-ws), not here.";
            return Err(Problem::new(StatusCode::BAD_REQUEST, Code::BadUserInput, sentence));
        }
        OperationType::Mutation if method == Method::GET => {
            return Err(not_allowed("POST", "A mutation is sent with POST; GET executes queries only."));
        }
        OperationType::Mutation | OperationType::Query => {}
    }
    let variables = request.variables(doors.bounds.variables_bytes)?;
    if let Err(refused) = prepared.check(&variables) {
        return Ok(Problem::from(refused).into());
    }
    Ok(doors.execute(&prepared, variables, viewer, deadline).await)
}

fn not_allowed(allow: &'static str, sentence: &str) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, Code::BadUserInput, sentence).with_header(header::ALLOW, allow)
}

/// Nobody where there is no token: what needs a viewer says so itself.
fn viewer(doors: &Doors, headers: &HeaderMap) -> Result<Option<UserId>, Problem> {
    let Some(authorization) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    // A header that is not text is no token.
    doors.identify(authorization.to_str().unwrap_or_default()).map(|identity| Some(identity.user)).map_err(|Sentence(sentence)| {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, Code::Unauthenticated, sentence);
        problem.with_header(header::WWW_AUTHENTICATE, "Bearer error=\"invalid_token\"")
    })
}

fn parameters(uri: &Uri) -> Result<Parameters, Problem> {
    Query::<Parameters>::try_from_uri(uri).map(|Query(parameters)| parameters).map_err(|error| not_a_request(error.body_text()))
}

async fn read(body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let mut chunks = body.into_data_stream();
    let mut whole = Vec::new();
    let mut seen = 0_usize;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| bad_json("the body broke off"))?;
        seen = seen.saturating_add(chunk.len());
        if seen <= bytes_max {
            whole.extend_from_slice(&chunk);
        } else if seen > bytes_max.saturating_mul(DISCARD_FACTOR) {
            break;
        }
    }
    if seen > bytes_max {
        let sentence = format!("The body has more than {bytes_max} bytes.");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Code::BadUserInput, sentence));
    }
    Ok(whole.into())
}
