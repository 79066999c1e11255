//! Errors over HTTP: each refused request gets the code of the contract and a sentence that helps its author.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;

use super::refusals::{BAD, REFUSED};
use super::sample::{Sample, assert_told, whole};
use crate::support::client::{Caller, http};
use crate::support::server::Server;

#[tokio::test]
async fn a_bad_request_is_told_in_a_code_and_a_sentence() {
    let sample = Sample::serve().await;
    let take = "mutation($direct: ID!) { sendMessage(input: {conversationId: $direct, body: \"one\", idempotencyKey: \"taken\"}) { __typename }
        createGroupConversation(input: {name: \"one\", usernames: [], idempotencyKey: \"taken\"}) { __typename } }";
    sample
        .caller("alice")
        .await
        .data(take, &sample.named)
        .await
        .unwrap();
    for (user, document, code, part) in REFUSED {
        let document = whole(document);
        let reply = sample
            .caller(user)
            .await
            .ask(&document, &sample.named)
            .await
            .unwrap();
        assert_told(&reply.body["errors"], code, part, &document);
        assert!(
            reply.status == 200 || reply.body.get("data").is_none(),
            "{}",
            reply.body
        );
    }
}

#[tokio::test]
async fn variables_are_looked_at_each_time_though_their_document_is_known() {
    let sample = Sample::serve().await;
    let document = "mutation($input: SendMessageInput!, $n: Int) {
        sendMessage(input: $input) { messageEdge { node { conversation { messageCount messages(first: $n) { edges { cursor } } } } } } }";
    let mut alice = sample.caller("alice").await;
    let said = |body: Value, n: Value| json!({ "input": { "conversationId": sample.named["direct"], "body": body }, "n": n });
    let count = |data: &Value| {
        data["sendMessage"]["messageEdge"]["node"]["conversation"]["messageCount"]
            .as_u64()
            .unwrap()
    };
    let before = count(
        &alice
            .data(document, &said(json!("one"), json!(1)))
            .await
            .unwrap(),
    );
    for (variables, part) in [
        (json!({}), "`$input` is missing"),
        (json!({ "input": null }), "`$input` must not be null"),
        (
            json!({ "input": { "conversationId": sample.named["direct"] } }),
            "`$input.body` is missing",
        ),
        (
            said(json!(7), json!(1)),
            "`$input.body` must be of the type `String`",
        ),
        (
            said(json!("two"), json!("1")),
            "`$n` must be of the type `Int`",
        ),
        (
            said(json!("two"), json!(4_294_967_296_u64)),
            "`$n` must be of the type `Int`",
        ),
        (
            json!({ "input": { "conversationId": "x", "body": "two", "text": "two" } }),
            "has a field `text`",
        ),
    ] {
        let reply = alice.ask(document, &variables).await.unwrap();
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert_told(&reply.body["errors"], BAD, part, &variables.to_string());
        assert!(reply.body.get("data").is_none(), "{}", reply.body);
    }
    assert_eq!(
        count(
            &alice
                .data(document, &said(json!("three"), Value::Null))
                .await
                .unwrap()
        ),
        before + 1,
        "none of these was sent"
    );
}

#[tokio::test]
async fn an_invisible_conversation_answers_like_a_missing_one() {
    let sample = Sample::serve().await;
    for document in [
        "query($direct: ID!) { it: conversation(id: $direct) { id } }",
        "query($direct: ID!) { it: node(id: $direct) { id } }",
        "query($message: ID!) { it: node(id: $message) { id } }",
        "query($nowhere: ID!) { it: conversation(id: $nowhere) { id } }",
        "query($message: ID!) { it: conversation(id: $message) { id } }",
        "query($huge: ID!) { it: node(id: $huge) { id } }",
        "{ it: conversation(id: \"\") { id } }",
        "{ it: node(id: \"%00\") { id } }",
    ] {
        let data = sample
            .caller("carol")
            .await
            .data(document, &sample.named)
            .await
            .unwrap();
        assert_eq!(data, json!({ "it": null }), "{document}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_request_is_told_so() {
    let sample = Sample::serve().await;
    let large =
        json!({ "query": "{ viewer { id } }", "variables": { "x": "x".repeat(130 * 1024) } })
            .to_string();
    let full = json!({ "query": "{ viewer { id } }", "variables": { "x": "x".repeat(65 * 1024) } })
        .to_string();
    let long =
        json!({ "query": format!("{{ viewer {{ id }} }} #{}", "x".repeat(16 * 1024)) }).to_string();
    let deep = format!(r#"{{"query":"{}"}}"#, "{ a ".repeat(200) + &"}".repeat(200));
    for (body, status, part) in [
        ("", 400, "empty"),
        ("{", 400, "JSON"),
        (r#"{"query": "{ viewer { id } }""#, 400, "JSON"),
        (r#"{"query": "{ viewer { id } }"} x"#, 400, "JSON"),
        ("\u{feff}", 400, "empty"),
        ("\u{feff}{}", 422, "`query`"),
        ("null", 422, "GraphQL request"),
        ("\"{ viewer { id } }\"", 422, "GraphQL request"),
        ("[]", 422, "Batches"),
        ("{}", 422, "`query`"),
        (r#"{"query": ["a"]}"#, 422, "GraphQL request"),
        (
            r#"{"query": "{ viewer { id } }", "variables": "{}"}"#,
            422,
            "`variables`",
        ),
        (large.as_str(), 413, "131072 bytes"),
        (full.as_str(), 413, "65536 bytes"),
        (long.as_str(), 422, "16384"),
        (deep.as_str(), 422, "inside one another"),
    ] {
        let authorization = format!("Bearer {}", sample.program.token("alice"));
        let headers = [
            ("content-type", "application/json"),
            ("authorization", authorization.as_str()),
        ];
        let reply = http(
            sample.address,
            "POST",
            "/graphql",
            &headers,
            body.as_bytes(),
        )
        .await;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(reply.status, status, "{}", reply.body);
        assert_told(&reply.body["errors"], BAD, part, &shown);
    }
}

#[tokio::test]
async fn a_token_that_is_not_in_order_opens_nothing() {
    let sample = Sample::serve().await;
    let alice = UserId::parse("alice").unwrap();
    let (now, past) = (
        SystemClock.now(),
        SystemClock.now().plus_micros(-3_600_000_000),
    );
    let good = sample.program.token("alice");
    let own = Auth::open(&sample.program.data()).unwrap();
    let forged = Auth::with_secret(b"another key of thirty-two bytes.").issue(
        &alice,
        Duration::from_secs(60),
        now,
    );
    let unsigned = format!(
        "{}.{}.",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#),
        good.split('.').nth(1).unwrap()
    );
    for (authorization, part) in [
        (
            format!(
                "Bearer {}",
                own.issue(&alice, Duration::from_secs(60), past)
            ),
            "expired",
        ),
        (
            format!("Bearer {forged}"),
            "not signed by a key of this server",
        ),
        (
            format!("Bearer {}AAAA", &good[..good.len() - 4]),
            "not signed",
        ),
        (format!("Bearer {unsigned}"), "not valid"),
        (
            "Bearer ".to_owned() + &"x".repeat(9_000),
            "longer than 8192",
        ),
        ("Bearer alice".to_owned(), "not valid"),
        ("Bearer".to_owned(), "`Bearer` and a token"),
        (good.clone(), "`Bearer` and a token"),
        ("Basic YWxpY2U6".to_owned(), "`Bearer` and a token"),
    ] {
        let headers = [
            ("content-type", "application/json"),
            ("authorization", authorization.as_str()),
        ];
        let reply = http(
            sample.address,
            "POST",
            "/graphql",
            &headers,
            br#"{"query":"{ viewer { id } }"}"#,
        )
        .await;
        assert_eq!(reply.status, 401);
        assert_told(
            &reply.body["errors"],
            "UNAUTHENTICATED",
            part,
            &authorization[..authorization.len().min(40)],
        );
    }
    for query in [
        "{ viewer { id } }",
        "{ inbox { updatesCursor } }",
        "{ conversation(id: \"x\") { id } }",
        "{ node(id: \"x\") { id } }",
        "mutation { startDirectConversation(input: {username: \"bob\"}) { __typename } }",
    ] {
        let body = json!({ "query": query }).to_string();
        let reply = http(
            sample.address,
            "POST",
            "/graphql",
            &[("content-type", "application/json")],
            body.as_bytes(),
        )
        .await;
        assert_told(
            &reply.body["errors"],
            "UNAUTHENTICATED",
            "a token is needed",
            query,
        );
    }
}

#[tokio::test]
async fn a_full_disk_refuses_sends_and_nothing_else() {
    let mut sample = Sample::serve().await;
    let server = sample.server.take().unwrap();
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let server = Server::start(
        &sample.program,
        &["--free-disk-min", "1000000GiB", "--log", "error"],
    );
    let mut alice = Caller::connect(server.address(), &sample.program.token("alice"))
        .await
        .unwrap();
    let send = "mutation($direct: ID!) { sendMessage(input: {conversationId: $direct, body: \"a\"}) { __typename } }";
    let reply = alice.ask(send, &sample.named).await.unwrap();
    assert_told(
        &reply.body["errors"],
        "UNAVAILABLE",
        "try again later",
        send,
    );
    assert_eq!(reply.body["errors"][0]["extensions"]["outcome"], "NOT_DONE");
    let data = alice
        .data(
            "query($direct: ID!) { conversation(id: $direct) { messageCount } }",
            &sample.named,
        )
        .await
        .unwrap();
    assert_eq!(data, json!({ "conversation": { "messageCount": 7 } }));
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
