//! Subscriptions over HTTP: as Server-Sent Events, by the protocol of `graphql-sse`, and in parts, by Apollo's.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::world::{World, soon};

pub(super) const EVENTS: &str = "text/event-stream";
pub(super) const PARTS: &str =
    "multipart/mixed;boundary=\"graphql\";subscriptionSpec=\"1.0\", application/json";

/// An answer that is read as it comes.
pub(super) struct Reading {
    response: Response<Incoming>,
    text: String,
}

impl Reading {
    pub(super) async fn of(world: &World, accept: &str, query: &str) -> Self {
        Self::with(world, &[("accept", accept)], query).await
    }

    pub(super) async fn with(world: &World, headers: &[(&str, &str)], query: &str) -> Self {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        let body = json!({ "query": query }).to_string();
        Self {
            response: world
                .ask("POST", "/graphql", &headers, body.as_bytes())
                .await,
            text: String::new(),
        }
    }

    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    fn header(&self, name: &str) -> &str {
        self.response
            .headers()
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Reads until the text ends like this.
    pub(super) async fn until(&mut self, end: &str) {
        while !self.text.ends_with(end) {
            let frame = soon(self.response.frame())
                .await
                .unwrap_or_else(|| panic!("it ended as {:?}", self.text))
                .unwrap();
            self.text
                .push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// Whether nothing more came, though everything that could run has run.
    pub(super) async fn is_quiet(&mut self) -> bool {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        futures_util::FutureExt::now_or_never(self.response.frame()).is_none()
    }

    /// All of it, to a proper end.
    pub(super) async fn whole(mut self) -> String {
        while let Some(frame) = soon(self.response.frame()).await {
            self.text
                .push_str(std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
        }
        self.text
    }
}

async fn all(world: &World, accept: &str, query: &str) -> String {
    let reading = Reading::of(world, accept, query).await;
    assert_eq!(reading.status(), 200);
    reading.whole().await
}

/// One part of a multipart stream, with the boundary that ends it.
pub(super) fn part(json: &str) -> String {
    let length = json.len();
    format!(
        "\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{json}\r\n--graphql"
    )
}

/// Payloads of a multipart stream, up to its closing boundary.
fn payloads(text: &str) -> Vec<Value> {
    let parts = text
        .strip_prefix("\r\n--graphql")
        .and_then(|text| text.strip_suffix("\r\n--graphql--\r\n"))
        .unwrap();
    parts
        .split("\r\n--graphql")
        .map(|part| {
            let (head, json) = part.split_once("\r\n\r\n").unwrap();
            let length = head.split_once("\r\ncontent-length: ");
            // One answer alone ends with its body.
            assert!(
                length.is_none_or(|(_, length)| length == json.len().to_string()),
                "{part}"
            );
            serde_json::from_str(json).unwrap()
        })
        .collect()
}

#[tokio::test]
async fn a_subscription_comes_as_events() {
    let world = World::start().await;
    let reading = Reading::of(&world, EVENTS, "subscription { count(to: 2) }").await;
    assert_eq!(
        (reading.status(), reading.header("content-type")),
        (200, "text/event-stream; charset=utf-8")
    );
    assert_eq!(
        (
            reading.header("cache-control"),
            reading.header("x-accel-buffering")
        ),
        ("no-cache, no-transform", "no")
    );
    let said = ":\n\nevent: next\ndata: {\"data\":{\"count\":0}}\n\nevent: next\ndata: {\"data\":{\"count\":1}}\n\nevent: complete\ndata:\n\n";
    assert_eq!(reading.whole().await, said);
    // So a browser's own EventSource asks.
    let path =
        "/graphql?query=subscription(%24n:Int!)%7Bcount(to:%24n)%7D&variables=%7B%22n%22:2%7D";
    let response = world.ask("GET", path, &[("accept", EVENTS)], b"").await;
    assert_eq!(
        Reading {
            response,
            text: String::new()
        }
        .whole()
        .await,
        said
    );
}

#[tokio::test]
async fn a_subscription_comes_in_parts() {
    let world = World::start().await;
    let reading = Reading::of(&world, PARTS, "subscription { count(to: 2) }").await;
    assert_eq!(reading.status(), 200);
    assert_eq!(
        reading.header("content-type"),
        "multipart/mixed;boundary=graphql;subscriptionSpec=1.0"
    );
    assert_eq!(
        (
            reading.header("cache-control"),
            reading.header("x-accel-buffering")
        ),
        ("no-cache, no-transform", "no")
    );
    let counted = |number: i32| json!({ "payload": { "data": { "count": number } } });
    assert_eq!(payloads(&reading.whole().await), [counted(0), counted(1)]);
}

#[tokio::test]
async fn events_are_sent_whole_and_at_once() {
    let world = World::start().await;
    let mut events = Reading::of(&world, EVENTS, "subscription { forever }").await;
    events
        .until(":\n\nevent: next\ndata: {\"data\":{\"forever\":0}}\n\n")
        .await;
    let mut parts = Reading::of(&world, PARTS, "subscription { forever }").await;
    // With the boundary behind it, and nothing is yet to come.
    let first = part(r#"{"payload":{"data":{"forever":0}}}"#);
    parts.until(&format!("\r\n--graphql{first}")).await;
    world.alive(2).await;
}

#[tokio::test]
async fn queries_and_mutations_are_answered_as_events_too() {
    let world = World::start().await;
    for (query, data) in [
        ("{ number(n: 7) }", "{\"number\":7}"),
        ("mutation { say(text: \"a\\nb\") }", "{\"say\":\"a\\nb\"}"),
    ] {
        let reading = Reading::of(&world, EVENTS, query).await;
        assert_eq!(
            (reading.status(), reading.header("cache-control")),
            (200, "no-cache, no-transform")
        );
        assert_eq!(
            reading.whole().await,
            format!(":\n\nevent: next\ndata: {{\"data\":{data}}}\n\nevent: complete\ndata:\n\n")
        );
    }
    let part = all(
        &world,
        "multipart/mixed;subscriptionSpec=1.0",
        "{ number(n: 7) }",
    )
    .await;
    assert_eq!(
        payloads(&part),
        [json!({ "payload": { "data": { "number": 7 } } })]
    );
    let reading = Reading::of(&world, PARTS, "{ number(n: 7) }").await;
    assert_eq!(
        reading.header("content-type"),
        "application/json; charset=utf-8"
    );
    assert_eq!(reading.whole().await, "{\"data\":{\"number\":7}}");
}

#[tokio::test]
async fn a_refused_document_is_an_event_and_to_apollo_an_answer() {
    let world = World::start().await;
    for query in [
        "subscription {",
        "subscription { nothing }",
        "subscription($n: Int!) { count(to: $n) }",
    ] {
        let said = all(&world, EVENTS, query).await;
        let data = said
            .strip_prefix(":\n\nevent: next\ndata: ")
            .and_then(|said| said.strip_suffix("\n\nevent: complete\ndata:\n\n"));
        let result: Value = serde_json::from_str(data.unwrap()).unwrap();
        assert_eq!(
            result["errors"][0]["extensions"]["code"], "BAD_USER_INPUT",
            "{result}"
        );
    }
    let reading = Reading::of(
        &world,
        &PARTS.replace("json", "graphql-response+json"),
        "subscription {",
    )
    .await;
    assert_eq!(
        (reading.status(), reading.header("content-type")),
        (400, "application/graphql-response+json; charset=utf-8")
    );
}

#[tokio::test]
async fn an_invalid_request_is_an_http_error() {
    let world = World::start().await;
    let json = ("content-type", "application/json");
    for accept in [EVENTS, PARTS] {
        let accept = ("accept", accept);
        let forged = format!("Bearer {}", world.forged());
        let body = br#"{"query":"subscription { forever }"}"#.as_slice();
        for (method, path, headers, body, status) in [
            ("POST", "/graphql", vec![accept, json], b"{".as_slice(), 400),
            ("POST", "/graphql", vec![accept, json], b"{}", 422),
            ("POST", "/graphql", vec![accept], body, 415),
            (
                "POST",
                "/graphql",
                vec![accept, json, ("authorization", &forged)],
                body,
                401,
            ),
            (
                "GET",
                "/graphql?query=mutation%7Bsay(text:%22a%22)%7D",
                vec![accept],
                b"",
                405,
            ),
            ("PUT", "/graphql", vec![accept, json], body, 405),
        ] {
            let reply = world.http(method, path, &headers, body).await;
            assert_eq!(
                (reply.status, reply.header("content-type")),
                (status, "application/json; charset=utf-8")
            );
            assert!(!reply.code().is_empty());
        }
    }
    world.alive(0).await;
}

#[tokio::test]
async fn a_viewer_listens_as_who_the_token_names() {
    let world = World::start().await;
    let authorization = format!("Bearer {}", world.token("alice", Duration::from_secs(60)));
    let reading = Reading::with(
        &world,
        &[("accept", EVENTS), ("authorization", &authorization)],
        "{ me }",
    )
    .await;
    assert_eq!(
        reading.whole().await,
        ":\n\nevent: next\ndata: {\"data\":{\"me\":\"alice\"}}\n\nevent: complete\ndata:\n\n"
    );
}

#[tokio::test]
async fn a_resolver_error_is_sent_as_a_payload() {
    let world = World::start().await;
    for (query, code) in [
        ("subscription { broken { fault } }", "UNAVAILABLE"),
        ("subscription { refused }", "NOT_FOUND"),
    ] {
        let said = all(&world, EVENTS, query).await;
        let data = said
            .strip_prefix(":\n\nevent: next\ndata: ")
            .and_then(|said| said.strip_suffix("\n\nevent: complete\ndata:\n\n"));
        let result: Value = serde_json::from_str(data.unwrap()).unwrap();
        assert_eq!(result["errors"][0]["extensions"]["code"], code, "{result}");
        // Errors of the subscription, not of the transport, for which Apollo's client would ask again.
        assert_eq!(
            payloads(&all(&world, PARTS, query).await),
            [json!({ "payload": result })]
        );
    }
}

#[tokio::test]
async fn a_panic_is_the_last_word_and_fatal() {
    let world = World::start().await;
    let said = all(&world, EVENTS, "subscription { panic }").await;
    assert!(
        said.contains("{\"panic\":0}")
            && said.contains("INTERNAL")
            && said.ends_with("\n\nevent: complete\ndata:\n\n"),
        "{said}"
    );
    let parts = payloads(&all(&world, PARTS, "subscription { panic }").await);
    assert_eq!(
        (
            parts.len(),
            &parts[1]["payload"],
            &parts[1]["errors"][0]["extensions"]["code"]
        ),
        (2, &Value::Null, &json!("INTERNAL"))
    );
}
