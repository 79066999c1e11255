//! HTTP responses: status, headers and body of an answer.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use std::sync::Arc;

use super::compression;
use super::negotiation::{AcceptedMedia, Media};
use super::stream_format::StreamFormat;
use crate::graphql::AnswerBudget;
use crate::server::answer::{Answer, ExecutionResult, Problem};
use crate::server::chunks::{CHUNK_BYTES, ChunkedText};
use crate::server::operation::LogLine;

/// Response to a well-formed request, in chunks.
pub(super) fn answered(
    outcome: Result<ExecutionResult, Answer>,
    accepted: AcceptedMedia,
    line: &mut LogLine,
) -> Response {
    let format = accepted.stream_of_one();
    if let (Some(format), answer) = (
        format,
        outcome
            .as_ref()
            .map_or_else(|answer| answer, |result| &result.answer),
    ) && answer.is_refusal()
    {
        line.end(answer.code());
        return respond_in(
            format,
            Body::from([format.start(), &format.next(answer), format.complete()].concat()),
        );
    }
    let (bytes_max, spent) = outcome.as_ref().map_or((0, 0), |result| {
        (result.budget.bytes_max(), result.budget.spent())
    });
    let mut text = ChunkedText::new(CHUNK_BYTES, bytes_max, spent);
    if let Some(format) = format {
        text.push_framing(format.start());
        text.push_framing(format.envelope().0);
    }
    let (answer, budget) = match outcome {
        Ok(result) => {
            let budget = Arc::clone(&result.budget);
            (result.write(&mut text), Some(budget))
        }
        Err(answer) => {
            text.push_framing(&answer.json());
            (answer, None)
        }
    };
    line.end(answer.code());
    if let Some(format) = format {
        // Always 200: `graphql-sse` ignores the body of any other status and retries for ever. Its protocol asks for 200
        // also for documents that are refused.
        text.push_framing(format.envelope().1);
        text.push_framing(format.complete());
        return respond_in(format, text.into_body(budget));
    }
    let mut response = whole(text, budget, accepted);
    let is_json = accepted.media.is_none_or(|media| media == Media::Json);
    // With `application/json` every well-formed request is 200, whatever GraphQL answers.
    *response.status_mut() = if is_json && !answer.status.is_server_error() {
        StatusCode::OK
    } else {
        answer.status
    };
    response
}

/// Response with a complete text, compressed if it is large and the client accepts that.
pub(super) fn whole(
    text: ChunkedText,
    budget: Option<Arc<AnswerBudget>>,
    accepted: AcceptedMedia,
) -> Response {
    let media = accepted.media.unwrap_or(Media::Json);
    if !accepted.is_gzip || text.bytes() < compression::BYTES_MIN {
        return response(text.into_body(budget), media.name(), "no-store");
    }
    let mut response = response(compression::gzip(text, budget), media.name(), "no-store");
    response
        .headers_mut()
        .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response
}

/// Response to a request that is not GraphQL.
pub(in crate::server) fn refuse(mut problem: Problem) -> Response {
    let header = problem.header.take();
    let answer = Answer::from(problem);
    respond(&answer, answer.status, Media::Json, header)
}

pub(super) fn respond(
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

pub(super) fn respond_in(format: StreamFormat, body: Body) -> Response {
    // A proxy that compresses holds events back until its buffer is full. `no-transform` forbids it to.
    let mut response = response(body, format.content_type(), "no-cache, no-transform");
    // nginx, and proxies like it, otherwise buffer the stream.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

pub(super) fn response(
    body: Body,
    content_type: &'static str,
    cache_control: &'static str,
) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static(cache_control),
    );
    headers.insert(
        header::VARY,
        HeaderValue::from_static("accept, accept-encoding, authorization"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}
