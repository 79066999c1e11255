//! The real program with its sample, for those who want to break it.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::client::{Caller, Reply};
use crate::support::program::Program;
use crate::support::server::{Server, WARNINGS};

const CODES: [&str; 9] = [
    "UNAUTHENTICATED",
    "FORBIDDEN",
    "NOT_FOUND",
    "BAD_USER_INPUT",
    "CONFLICT",
    "RATE_LIMITED",
    "CURSOR_EXPIRED",
    "UNAVAILABLE",
    "PERSISTED_QUERY_NOT_SUPPORTED",
];
const ANSWER_BYTES_MAX: usize = 1 << 20;

pub(super) struct Target {
    program: Program,
    server: Server,
    runtime: tokio::runtime::Runtime,
    pub(super) address: SocketAddr,
    pub(super) token: String,
    /// Ids and cursors of all kinds, as alice sees them.
    pub(super) named: Vec<String>,
}

impl Target {
    pub(super) fn start() -> Self {
        let program = Program::new();
        let server = Server::start(&program, &["--demo", "--log", WARNINGS, "--rates", "off"]);
        let (address, token) = (server.address(), program.token("alice"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mut target = Self {
            program,
            server,
            runtime,
            address,
            token,
            named: Vec::new(),
        };
        let mut caller = target.caller();
        let reply = target.ask(&mut caller, EVERYTHING, &Value::Null);
        collect(&reply.body["data"], &mut target.named);
        assert!(target.named.len() > 20, "{:?}", target.named);
        target
    }

    pub(super) fn token_of(&self, name: &str) -> String {
        self.program.token(name)
    }

    pub(super) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    pub(super) fn caller(&self) -> Caller {
        self.wait(Caller::connect(self.address, &self.token))
            .unwrap()
    }

    /// One answer that is as it should be, whatever was asked.
    pub(super) fn ask(&self, caller: &mut Caller, document: &str, variables: &Value) -> Reply {
        let reply = self
            .wait(caller.ask(document, variables))
            .expect("the connection stays");
        assert_sound(&reply.body);
        reply
    }

    /// It is alive, and its log is empty: no panic, no warning.
    pub(super) fn ends_well(self) {
        let reply = self.ask(&mut self.caller(), "{ viewer { username } }", &Value::Null);
        assert_eq!(
            reply.body,
            json!({ "data": { "viewer": { "username": "alice" } } })
        );
        assert_eq!(self.server.kill(), "");
    }
}

/// An answer of the contract: with data or errors, and errors of the known codes, `INTERNAL` not among them.
#[track_caller]
pub(super) fn assert_sound(answer: &Value) {
    assert!(
        answer.get("data").is_some() || answer.get("errors").is_some(),
        "{answer}"
    );
    assert!(
        answer.to_string().len() < ANSWER_BYTES_MAX,
        "{} bytes",
        answer.to_string().len()
    );
    for error in answer["errors"].as_array().into_iter().flatten() {
        let code = error["extensions"]["code"].as_str().unwrap_or_default();
        assert!(CODES.contains(&code), "{error}");
    }
}

const EVERYTHING: &str = "{ viewer { id } inbox { updatesCursor edges { cursor node { id conversation { id eventsCursor
    participants { edges { cursor node { id user { id } } } } messages(first: 3) { edges { cursor node { id receipts { edges { cursor } } } } } } } } } }";

fn collect(data: &Value, named: &mut Vec<String>) {
    match data {
        Value::String(text) => named.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, named)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, named)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
