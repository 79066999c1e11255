//! GraphQL over HTTP, by the draft of 2026: one request, one answer, and a status that tells what became of it.
//! A subscription has many answers, in a body that goes on.
//!
//! Only `application/json` is read, which a foreign page cannot send without asking first. GET executes no mutation.

mod negotiation;
mod stream;
mod wire;

use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use self::negotiation::{Accepted, Media};
use self::stream::Feed;
use self::wire::Wire;
use super::Doors;
use super::answer::{Answer, Code, Executed, Problem};
use super::gate::Caller;
use super::operation::{LogLine, Unidentified};
use super::pieces::{PIECE_BYTES, Pieces};
use super::request::{Asked, GraphqlRequest, Parameters, bad_json, not_a_request};
use crate::auth::Identity;
use crate::graphql::AnswerBudget;
use crate::model::Timestamp;

/// What becomes of a well-formed request.
enum Outcome {
    /// Nothing was executed.
    Refused(Answer),
    Executed(Executed),
    /// One answer for each request of a batch, in its order, and the code of the first that failed.
    Batch(Pieces, Arc<AnswerBudget>, String),
    Subscribed(Feed),
}

pub(super) async fn graphql(State(doors): State<Arc<Doors>>, request: Request) -> Response {
    let mut line = LogLine::start(&doors, "http");
    let accepted = Accepted::by(request.headers());
    let mut problem = match answer(&doors, request, accepted, &mut line).await {
        Ok(Outcome::Subscribed(feed)) => return respond_in(feed.wire, feed.body(line)),
        Ok(Outcome::Batch(pieces, budget, code)) => {
            line.end(&code);
            return response(
                pieces.into_body(Some(budget)),
                accepted.media.unwrap_or(Media::Json).name(),
                "no-store",
            );
        }
        Ok(Outcome::Executed(executed)) => return answered(Ok(executed), accepted, &mut line),
        Ok(Outcome::Refused(answer)) => return answered(Err(answer), accepted, &mut line),
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

/// The answer to a well-formed request, in pieces.
fn answered(outcome: Result<Executed, Answer>, accepted: Accepted, line: &mut LogLine) -> Response {
    let wire = accepted.stream_of_one();
    if let (Some(wire), answer) = (
        wire,
        outcome
            .as_ref()
            .map_or_else(|answer| answer, |executed| &executed.answer),
    ) && answer.is_refusal()
    {
        line.end(answer.code());
        return respond_in(
            wire,
            Body::from([wire.start(), &wire.next(answer), wire.complete()].concat()),
        );
    }
    let (bytes_max, spent) = outcome.as_ref().map_or((0, 0), |executed| {
        (executed.budget.bytes_max(), executed.budget.spent())
    });
    let mut pieces = Pieces::new(PIECE_BYTES, bytes_max, spent);
    if let Some(wire) = wire {
        pieces.frame(wire.start());
        pieces.frame(wire.around().0);
    }
    let (answer, budget) = match outcome {
        Ok(executed) => {
            let budget = Arc::clone(&executed.budget);
            (executed.write(&mut pieces), Some(budget))
        }
        Err(answer) => {
            pieces.frame(&answer.json());
            (answer, None)
        }
    };
    line.end(answer.code());
    if let Some(wire) = wire {
        // A success of HTTP, whatever GraphQL says: `graphql-sse` shows nobody what an answer with another status says, and asks again
        // and again. Its protocol wants that of documents that are refused, too.
        pieces.frame(wire.around().1);
        pieces.frame(wire.complete());
        return respond_in(wire, pieces.into_body(budget));
    }
    let media = accepted.media.unwrap_or(Media::Json);
    let mut response = response(pieces.into_body(budget), media.name(), "no-store");
    // To those who only know plain JSON, whatever GraphQL says of a well-formed request is a success of HTTP.
    *response.status_mut() = if media == Media::Json && !answer.status.is_server_error() {
        StatusCode::OK
    } else {
        answer.status
    };
    response
}

/// Whatever else one asks for below `/graphql`.
pub(super) async fn not_found(
    State(doors): State<Arc<Doors>>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Response {
    let caller = Caller {
        viewer: None,
        address: doors.address(&extensions, &headers),
    };
    if let Err(problem) = doors.gate.enter(&caller) {
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

/// An answer to what is no GraphQL request.
pub(super) fn refuse(mut problem: Problem) -> Response {
    let header = problem.header.take();
    let answer = Answer::from(problem);
    respond(&answer, answer.status, Media::Json, header)
}

fn respond(
    answer: &Answer,
    status: StatusCode,
    media: Media,
    header: Option<Box<(HeaderName, HeaderValue)>>,
) -> Response {
    let mut response = response(Body::from(answer.json()), media.name(), "no-store");
    *response.status_mut() = status;
    response.headers_mut().extend(header.map(|header| *header));
    response
}

fn respond_in(wire: Wire, body: Body) -> Response {
    let mut response = response(body, wire.content_type(), "no-cache");
    // Said to nginx and those who do as it does: pass on at once what comes.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

fn response(body: Body, content_type: &'static str, cache_control: &'static str) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static(cache_control),
    );
    headers.insert(
        header::VARY,
        HeaderValue::from_static("accept, authorization"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// `Ok` is for a well-formed request, `Err` for something else.
async fn answer(
    doors: &Arc<Doors>,
    request: Request,
    accepted: Accepted,
    line: &mut LogLine,
) -> Result<Outcome, Problem> {
    let deadline = Instant::now() + doors.bounds.request;
    let (head, body) = request.into_parts();
    let (caller, expires_at) = enter(doors, &head)?;
    line.viewer(caller.viewer.as_ref());
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
            "GraphQL is asked with GET or POST.",
        ));
    }
    let knock = Knock {
        accepted,
        caller,
        expires_at,
        method: head.method.clone(),
        deadline,
        budget: None,
    };
    if head.method == Method::GET {
        let parameters = parameters(&head.uri)?;
        let request = GraphqlRequest::from_parameters(&parameters)?;
        return execute(doors, &request, knock, line).await;
    }
    if !negotiation::is_json(&head.headers) {
        let sentence = "A POST must be `application/json` in UTF-8.";
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::BadUserInput,
            sentence,
        ));
    }
    let body = match timeout_at(deadline, read(body, doors.bounds.body_bytes)).await {
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
    match Asked::from_json(&body, doors.bounds.batch)? {
        Asked::One(request) => execute(doors, &request, knock, line).await,
        Asked::Batch(requests) => batch(doors, &requests, &knock, line).await,
    }
}

/// One after the other, by one deadline: so a batch costs no more at once than one request does, and what it changes, it changes in order.
///
/// All of its answers are one to the bounds of answers.
async fn batch(
    doors: &Arc<Doors>,
    requests: &[GraphqlRequest<'_>],
    knock: &Knock,
    line: &mut LogLine,
) -> Result<Outcome, Problem> {
    if knock.accepted.media.is_none() {
        let sentence = "A batch is answered as `application/graphql-response+json` or `application/json`, and `Accept` allows neither.";
        return Err(Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            Code::BadUserInput,
            sentence,
        ));
    }
    // A subscription has no place in it.
    let accepted = knock.accepted.without_streams();
    let budget = doors.accounts.admit(&knock.caller)?;
    let mut pieces = Pieces::new(PIECE_BYTES, budget.bytes_max(), 0);
    let mut code = None;
    for (index, request) in requests.iter().enumerate() {
        pieces.frame(if index == 0 { "[" } else { "," });
        let knock = Knock {
            accepted,
            budget: Some(Arc::clone(&budget)),
            ..knock.clone()
        };
        // The first of them was paid for at the door.
        let entered = if index == 0 {
            Ok(())
        } else {
            doors.gate.enter(&knock.caller)
        };
        let outcome = match entered {
            Ok(()) => execute(doors, request, knock, line).await,
            Err(problem) => Err(problem),
        };
        let answer = match outcome {
            Ok(Outcome::Executed(executed)) => executed.write(&mut pieces),
            Ok(Outcome::Refused(answer)) => framed(answer, &mut pieces),
            Ok(Outcome::Batch(..) | Outcome::Subscribed(_)) => {
                framed(Answer::internal(), &mut pieces)
            }
            Err(problem) => framed(problem.into(), &mut pieces),
        };
        code = code.or(Some(answer.code())
            .filter(|code| *code != "OK")
            .map(str::to_owned));
    }
    pieces.frame("]");
    Ok(Outcome::Batch(
        pieces,
        budget,
        code.unwrap_or_else(|| "OK".to_owned()),
    ))
}

/// An answer of our own, which is small.
fn framed(answer: Answer, pieces: &mut Pieces) -> Answer {
    pieces.frame(&answer.json());
    answer
}

/// What stands around a request, and by when it is to be answered.
#[derive(Clone)]
struct Knock {
    accepted: Accepted,
    caller: Caller,
    expires_at: Option<Timestamp>,
    method: Method,
    deadline: Instant,
    /// That of the batch which it is in.
    budget: Option<Arc<AnswerBudget>>,
}

async fn execute(
    doors: &Arc<Doors>,
    request: &GraphqlRequest<'_>,
    knock: Knock,
    line: &mut LogLine,
) -> Result<Outcome, Problem> {
    let refused = |problem: Problem| Ok(Outcome::Refused(problem.into()));
    let query = match request.document(doors.trusted.as_ref()) {
        // Who asks for a persisted query made a well-formed request, and so did who sent a document that is refused.
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
    let prepared = match doors
        .executor
        .prepare(query, request.operation_name.as_deref())
    {
        Ok(prepared) => prepared,
        Err(why) => return refused(why.into()),
    };
    line.operation(&prepared);
    let wire = match (prepared.operation, knock.accepted.stream) {
        (OperationType::Subscription, None) => {
            let sentence = "Subscriptions are served over WebSocket at /graphql/ws (graphql-transport-ws), and here to whoever accepts \
                            `text/event-stream` or `multipart/mixed;subscriptionSpec=1.0`.";
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                Code::BadUserInput,
                sentence,
            ));
        }
        (OperationType::Mutation, _) if knock.method == Method::GET => {
            return Err(not_allowed(
                "POST",
                "A mutation is sent with POST; GET changes nothing.",
            ));
        }
        (OperationType::Subscription, wire) => wire,
        (OperationType::Mutation | OperationType::Query, _) => None,
    };
    let ready = match prepared.accept(request.variables(doors.bounds.variables_bytes)?) {
        Ok(accepted) => accepted,
        Err(why) => return refused(why.into()),
    };
    doors
        .gate
        .admit(&knock.caller, prepared.operation, ready.cost)?;
    if let Some(wire) = wire {
        return Feed::open(
            doors,
            wire,
            prepared,
            ready,
            &knock.caller,
            knock.expires_at,
        )
        .map(Outcome::Subscribed);
    }
    let budget = knock
        .budget
        .map_or_else(|| doors.accounts.admit(&knock.caller), Ok)?;
    Ok(Outcome::Executed(
        doors
            .execute(
                &prepared,
                ready.variables,
                knock.caller.viewer,
                knock.deadline,
                budget,
            )
            .await,
    ))
}

fn not_allowed(allow: &'static str, sentence: &str) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, Code::BadUserInput, sentence)
        .with_header(header::ALLOW, allow)
}

/// Finds the caller and takes the token that each request costs, whatever becomes of it: from the user, or from the address while no user
/// is known. The address also pays before a signature is verified. `None`, without a token: what needs a viewer says so itself.
fn enter(doors: &Doors, head: &Parts) -> Result<(Caller, Option<Timestamp>), Problem> {
    let stranger = Caller {
        viewer: None,
        address: doors.address(&head.extensions, &head.headers),
    };
    let Some(authorization) = head.headers.get(header::AUTHORIZATION) else {
        doors.gate.enter(&stranger)?;
        return Ok((stranger, None));
    };
    let mut is_paid = false;
    // A header that is not text is no token.
    let identified = doors.identify(authorization.to_str().unwrap_or_default(), || {
        is_paid = true;
        doors.gate.enter(&stranger)
    });
    match identified {
        Ok(Identity { user, expires_at }) => {
            let caller = Caller {
                viewer: Some(user),
                ..stranger
            };
            doors.gate.enter(&caller)?;
            Ok((caller, expires_at))
        }
        Err(Unidentified::NotAdmitted(problem)) => Err(problem),
        Err(Unidentified::Token(sentence)) => {
            if !is_paid {
                doors.gate.enter(&stranger)?;
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

/// A body over its bound is refused as soon as that is known. The connection drops the rest, so that its client gets to read why.
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
