//! The sample behind a real server, with names for all that a bad request may refer to, and the check of a refusal.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::client::Caller;
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
        let document = "{ inbox { updatesCursor edges { cursor node { conversation { id kind directPeer { username } eventsCursor
            messages(first: 2) { edges { cursor node { id } } } participants { edges { cursor } } } } } } }";
        let data = sample
            .caller("alice")
            .await
            .data(document, &Value::Null)
            .await
            .unwrap();
        let edges = data["inbox"]["edges"].as_array().unwrap();
        let mut conversations = edges.iter().map(|edge| &edge["node"]["conversation"]);
        let group = conversations.clone().find(|one| one["kind"] == "GROUP");
        let group = group.unwrap();
        let direct = conversations.find(|one| one["directPeer"]["username"] == "bob");
        let direct = direct.unwrap();
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
        " { __typename }"
    } else {
        ""
    };
    format!("{word}{declared} {{ {field}{selection} }}")
}
