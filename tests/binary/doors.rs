//! Errors over HTTP: each refused request gets the code of the contract and a sentence that helps its author.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;

use crate::support::client::{Caller, http};
use crate::support::program::Program;
use crate::support::server::Server;

/// The sample, served; and all that a bad request may name, under short names.
pub(super) struct Sample {
    pub(super) program: Program,
    pub(super) server: Option<Server>,
    pub(super) address: SocketAddr,
    pub(super) named: Value,
}

impl Sample {
    pub(super) async fn serve() -> Self {
        let program = Program::new();
        let server = Server::start(&program, &["--demo", "--log", "warn"]);
        let mut sample = Self {
            program,
            address: server.address(),
            server: Some(server),
            named: Value::Null,
        };
        let document = "{ inbox { updatesCursor edges { cursor node { conversation { id kind eventsCursor
            messages(first: 2) { edges { cursor node { id } } } participants { edges { cursor } } } } } } }";
        let data = sample
            .caller("alice")
            .await
            .data(document, &Value::Null)
            .await
            .unwrap();
        let edges = data["inbox"]["edges"].as_array().unwrap();
        let of_kind = |kind: &str| {
            &edges
                .iter()
                .find(|edge| edge["node"]["conversation"]["kind"] == kind)
                .unwrap()["node"]["conversation"]
        };
        let (direct, group) = (of_kind("DIRECT"), of_kind("GROUP"));
        let bobs = sample
            .caller("bob")
            .await
            .data("{ inbox { updatesCursor edges { cursor } } }", &Value::Null)
            .await
            .unwrap();
        let updates = &data["inbox"]["updatesCursor"];
        sample.named = json!({
            "direct": direct["id"], "group": group["id"], "nowhere": direct["id"].as_str().unwrap().replace('A', "B"),
            "message": direct["messages"]["edges"][0]["node"]["id"], "other": group["messages"]["edges"][0]["node"]["id"],
            "cursor": direct["messages"]["edges"][0]["cursor"], "otherCursor": group["messages"]["edges"][0]["cursor"],
            "seat": direct["participants"]["edges"][0]["cursor"], "events": direct["eventsCursor"], "otherEvents": group["eventsCursor"],
            "entry": data["inbox"]["edges"][0]["cursor"], "bobsEntry": bobs["inbox"]["edges"][0]["cursor"],
            "updates": updates, "bobsUpdates": bobs["inbox"]["updatesCursor"], "ancient": ancient(updates.as_str().unwrap()),
            "long": "é".repeat(8 * 1024) + "x", "huge": "x".repeat(600), "nobodys": "x".repeat(129), "many": vec!["bob"; 51],
            "pictures": vec![json!({ "url": "https://example.org/a.png", "mimeType": "image/png" }); 11],
            "script": [{ "url": "javascript:1", "mimeType": "a/b" }], "untyped": [{ "url": "https://a", "mimeType": "png" }],
            "narrow": [{ "url": "https://a", "mimeType": "a/b", "width": -1 }], "messageAsCursor": direct["messages"]["edges"][0]["node"]["id"],
            "heap": json!({ "heap": "x".repeat(2 * 1024) }), "ids": vec![direct["id"].clone(); 101],
        });
        sample
    }

    pub(super) async fn caller(&self, name: &str) -> Caller {
        Caller::connect(self.address, &self.program.token(name))
            .await
            .unwrap()
    }
}

/// The same cursor, of a time long ago.
fn ancient(cursor: &str) -> String {
    let mut bytes = URL_SAFE_NO_PAD.decode(cursor).unwrap();
    let place = bytes.len() - 16;
    bytes[place..].fill(0);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The code is this one, and the sentence holds this and is for people who write front ends.
#[track_caller]
pub(super) fn assert_told(errors: &Value, code: &str, part: &str, asked: &str) {
    let (said, is) = (
        errors[0]["message"].as_str().unwrap_or_default(),
        &errors[0]["extensions"]["code"],
    );
    assert_eq!(is, code, "{asked}: {errors}");
    assert!(said.contains(part), "{asked}: {said}");
    assert_speaks_plainly(said);
}

/// Nothing of how it is made shows: no type of Rust, no library, no trace.
#[track_caller]
pub(super) fn assert_speaks_plainly(said: &str) {
    assert!(
        said.len() > 10 && said.len() < 300 && !said.contains('\n'),
        "{said}"
    );
    let inside = [
        "::", "Option", "Some(", "None", "Err(", "unwrap", "panick", "Vec<", "&str", "i32", "i64",
        "u8", "usize", "struct", "enum ",
    ];
    let libraries = [
        "serde",
        "async_graphql",
        "async-graphql",
        "fjall",
        "tokio",
        "hyper",
        "axum",
        "jsonwebtoken",
        "base64",
        "/src/",
        ".rs:",
    ];
    for word in inside.into_iter().chain(libraries) {
        assert!(!said.contains(word), "`{word}` in: {said}");
    }
}

/// Types of the variables of [`Sample`].
const TYPES: &[(&str, &str)] = &[
    ("ID!", "direct group nowhere message other"),
    (
        "String!",
        "cursor otherCursor seat events otherEvents entry bobsEntry updates bobsUpdates ancient messageAsCursor long huge nobodys",
    ),
    ("[String!]!", "many"),
    ("[AttachmentInput!]", "pictures script untyped narrow"),
    ("JSON", "heap"),
    ("[ID!]!", "ids"),
];

/// A document with its variables declared, for the rows that are short for one: a word, and a field. Others stay as they are.
pub(super) fn whole(text: &str) -> String {
    let Some((word, field)) = text
        .split_once(' ')
        .filter(|(word, _)| ["query", "mutation", "subscription"].contains(word))
    else {
        return text.to_owned();
    };
    if field.starts_with('{') {
        return text.to_owned();
    }
    let is_used = |name: &&str| {
        field
            .split('$')
            .skip(1)
            .any(|rest| rest.split(|end: char| !end.is_alphanumeric()).next() == Some(*name))
    };
    let of_type = |(kind, names): &(&str, &'static str)| {
        let kind = (*kind).to_owned();
        names
            .split(' ')
            .filter(is_used)
            .map(move |name| format!("${name}: {kind}"))
            .collect::<Vec<_>>()
    };
    let declared = TYPES
        .iter()
        .flat_map(of_type)
        .collect::<Vec<_>>()
        .join(", ");
    let declared = if declared.is_empty() {
        declared
    } else {
        format!("({declared})")
    };
    let selection = if word == "mutation" {
        " { clientMutationId }"
    } else {
        ""
    };
    format!("{word}{declared} {{ {field}{selection} }}")
}

const BAD: &str = "BAD_USER_INPUT";
const GONE: &str = "NOT_FOUND";
const TAKEN: &str = "CONFLICT";

/// User, document, code and sentence of each refusal. The variables are those of [`Sample`].
const REFUSED: &[(&str, &str, &str, &str)] = &[
    // Pages.
    (
        "alice",
        "query conversation(id: $direct) { messages(first: 101) { edges { cursor } } }",
        BAD,
        "`first` is 0 to 100",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(last: -1) { edges { cursor } } }",
        BAD,
        "`last` is 0 to 100",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(first: 1, last: 1) { edges { cursor } } }",
        BAD,
        "not both",
    ),
    (
        "alice",
        "query conversation(id: $direct) { participants(first: 1, last: 1) { edges { cursor } } }",
        BAD,
        "not both",
    ),
    (
        "alice",
        "{ inbox(first: 1, last: 1) { updatesCursor } }",
        BAD,
        "not both",
    ),
    (
        "alice",
        "{ inbox(first: 101) { updatesCursor } }",
        BAD,
        "`first` is 0 to 100",
    ),
    (
        "alice",
        "{ inbox(first: 3000000000) { updatesCursor } }",
        BAD,
        "Int",
    ),
    (
        "alice",
        "{ inbox(first: 1.5) { updatesCursor } }",
        BAD,
        "Int",
    ),
    // Cursors.
    (
        "alice",
        r#"query conversation(id: $direct) { messages(after: "") { edges { cursor } } }"#,
        BAD,
        "`after` is not a cursor",
    ),
    (
        "alice",
        r#"query conversation(id: $direct) { messages(after: "7") { edges { cursor } } }"#,
        BAD,
        "`after` is not a cursor",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(after: $huge) { edges { cursor } } }",
        BAD,
        "not a cursor",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(before: $entry) { edges { cursor } } }",
        BAD,
        "`before`",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(after: $seat) { edges { cursor } } }",
        BAD,
        "not a cursor",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(after: $events) { edges { cursor } } }",
        BAD,
        "cursor",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(after: $otherCursor) { edges { cursor } } }",
        BAD,
        "cursor",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(after: $messageAsCursor) { edges { cursor } } }",
        BAD,
        "cursor",
    ),
    (
        "alice",
        "query conversation(id: $direct) { participants(after: $cursor) { edges { cursor } } }",
        BAD,
        "cursor",
    ),
    (
        "alice",
        "query inbox(after: $cursor) { updatesCursor }",
        BAD,
        "`after` is not a cursor of this list",
    ),
    (
        "alice",
        "query inbox(before: $bobsEntry) { updatesCursor }",
        BAD,
        "`before` is not a cursor of this list",
    ),
    (
        "alice",
        "query inbox(after: $updates) { updatesCursor }",
        BAD,
        "`after` is not a cursor of this list",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(around: $message, after: $cursor) { edges { cursor } } }",
        BAD,
        "`around`",
    ),
    (
        "alice",
        "query conversation(id: $direct) { messages(around: $other) { edges { cursor } } }",
        GONE,
        "message was not found",
    ),
    (
        "alice",
        r#"query conversation(id: $direct) { messages(from: "yesterday") { edges { cursor } } }"#,
        BAD,
        "DateTime",
    ),
    // Documents.
    ("alice", "{ viewer { age } }", BAD, "age"),
    ("alice", "{ viewer(id: 1) { id } }", BAD, "id"),
    ("alice", "{ viewer }", BAD, "viewer"),
    ("alice", "{ viewer { id { id } } }", BAD, "id"),
    ("alice", "{ conversation { id } }", BAD, "id"),
    ("alice", "{ conversation(id: [1]) { id } }", BAD, "id"),
    (
        "alice",
        "{ inbox(filter: {kinds: GROUP}) { updatesCursor } }",
        BAD,
        "kinds",
    ),
    (
        "alice",
        "{ inbox(filter: {kind: BIG}) { updatesCursor } }",
        BAD,
        "one of DIRECT, GROUP",
    ),
    (
        "alice",
        "query nodes(ids: $ids) { id }",
        BAD,
        "at most 100 ids",
    ),
    (
        "alice",
        "query($missing: ID!) { conversation(id: $missing) { id } }",
        BAD,
        "`$missing`",
    ),
    (
        "alice",
        "query($many: Int) { inbox(first: $many) { updatesCursor } }",
        BAD,
        "Int",
    ),
    (
        "alice",
        "query($direct: Nothing!) { conversation(id: $direct) { id } }",
        BAD,
        "Nothing",
    ),
    (
        "alice",
        "{ conversation(id: $direct) { id } }",
        BAD,
        "direct",
    ),
    ("alice", "{ ...F }", BAD, "F"),
    ("alice", "{ ... on Nothing { id } }", BAD, "Nothing"),
    ("alice", "{ viewer { id @nothing } }", BAD, "nothing"),
    ("alice", "{ viewer { id ", BAD, "cannot be parsed"),
    ("alice", "hello", BAD, "cannot be parsed"),
    ("alice", "# nothing", BAD, "cannot be parsed"),
    // Sends.
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: ""})"#,
        BAD,
        "blank",
    ),
    (
        "alice",
        "mutation sendMessage(input: {conversationId: $direct, body: \" \\n\\u2003\"})",
        BAD,
        "blank",
    ),
    (
        "alice",
        "mutation sendMessage(input: {conversationId: $direct, body: $long})",
        BAD,
        "16385 bytes",
    ),
    (
        "alice",
        "mutation sendMessage(input: {conversationId: $direct})",
        BAD,
        "body",
    ),
    (
        "alice",
        "mutation sendMessage(input: {conversationId: $direct, body: 7})",
        BAD,
        "body",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", text: "a"})"#,
        BAD,
        "text",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: "x", body: "a"})"#,
        GONE,
        "conversation was not found",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $nowhere, body: "a"})"#,
        GONE,
        "conversation was",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $message, body: "a"})"#,
        GONE,
        "conversation was",
    ),
    (
        "carol",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a"})"#,
        GONE,
        "conversation was",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", replyToId: $other})"#,
        GONE,
        "message was",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", replyToId: "x"})"#,
        GONE,
        "message was",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", idempotencyKey: ""})"#,
        BAD,
        "idempotencyKey",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", idempotencyKey: "é"})"#,
        BAD,
        "ASCII",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", idempotencyKey: $huge})"#,
        BAD,
        "64",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", clientMutationId: $huge})"#,
        BAD,
        "128",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", metadata: $heap})"#,
        BAD,
        "metadata",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", attachments: $pictures})"#,
        BAD,
        "at most 10",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", attachments: $script})"#,
        BAD,
        "https://",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", attachments: $untyped})"#,
        BAD,
        "image/png",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "a", attachments: $narrow})"#,
        BAD,
        "negative",
    ),
    (
        "alice",
        r#"mutation sendMessage(input: {conversationId: $direct, body: "other", idempotencyKey: "taken"})"#,
        TAKEN,
        "another input",
    ),
    // Conversations and markers.
    (
        "alice",
        r#"mutation startDirectConversation(input: {username: ""})"#,
        BAD,
        "must not be empty",
    ),
    (
        "alice",
        "mutation startDirectConversation(input: {username: \"a\\u0000b\"})",
        BAD,
        "control characters",
    ),
    (
        "alice",
        "mutation startDirectConversation(input: {username: $nobodys})",
        BAD,
        "at most 128 bytes",
    ),
    (
        "alice",
        r#"mutation createGroupConversation(input: {name: " ", usernames: []})"#,
        BAD,
        "blank",
    ),
    (
        "alice",
        "mutation createGroupConversation(input: {name: $huge, usernames: []})",
        BAD,
        "256",
    ),
    (
        "alice",
        r#"mutation createGroupConversation(input: {name: "a", usernames: $many})"#,
        BAD,
        "at most 50",
    ),
    (
        "alice",
        r#"mutation createGroupConversation(input: {name: "a", usernames: [""]})"#,
        BAD,
        "must not be empty",
    ),
    (
        "alice",
        r#"mutation createGroupConversation(input: {name: "other", usernames: [], idempotencyKey: "taken"})"#,
        TAKEN,
        "another input",
    ),
    (
        "alice",
        "mutation markRead(input: {conversationId: $direct, messageId: $other})",
        GONE,
        "message was",
    ),
    (
        "carol",
        "mutation markRead(input: {conversationId: $direct})",
        GONE,
        "conversation was",
    ),
    (
        "alice",
        r#"mutation markUnread(input: {conversationId: $direct, messageId: "x"})"#,
        GONE,
        "message was",
    ),
    ("alice", "mutation viewer", BAD, "viewer"),
];

#[tokio::test]
async fn a_bad_request_is_told_in_a_code_and_a_sentence() {
    let sample = Sample::serve().await;
    let take = "mutation($direct: ID!) { sendMessage(input: {conversationId: $direct, body: \"one\", idempotencyKey: \"taken\"}) { clientMutationId }
        createGroupConversation(input: {name: \"one\", usernames: [], idempotencyKey: \"taken\"}) { clientMutationId } }";
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
        ("\u{feff}{}", 400, "JSON"),
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
        "mutation { startDirectConversation(input: {username: \"bob\"}) { clientMutationId } }",
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
    let send = "mutation($direct: ID!) { sendMessage(input: {conversationId: $direct, body: \"a\"}) { clientMutationId } }";
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
