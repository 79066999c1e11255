//! The log: one line for each request, and nothing in it that is somebody's.

use serde_json::Value;

use super::Program;
use super::serve::get;
use crate::support::server::Server;

const SECRET: &str = "the-body-of-a-message";

/// Log of a server after a query, a refused query, and a mutation with a body.
fn log_of(format: &str) -> (String, String) {
    let program = Program::new();
    let server = Server::start(&program, &["--demo", "--log-format", format]);
    let token = program.token("alice");
    let authorization = format!("Authorization: Bearer {token}");
    get(
        &server.url,
        &format!(
            "GET /graphql?query=query%20Who%7Bviewer%7Busername%7D%7D HTTP/1.1\r\n{authorization}"
        ),
    );
    get(
        &server.url,
        &format!("GET /graphql?query=query%20Deep%7Bnothing%7D HTTP/1.1\r\n{authorization}"),
    );
    let body = format!(
        "{{\"query\": \"mutation Say {{ sendMessage(input: {{conversationId: \\\"x\\\", body: \\\"{SECRET}\\\"}}) {{ clientMutationId }} }}\"}}"
    );
    let head = format!(
        "POST /graphql HTTP/1.1\r\n{authorization}\r\nContent-Type: application/json\r\nContent-Length: {}",
        body.len()
    );
    post(&server.url, &head, &body);
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    (log, token)
}

fn post(url: &str, head: &str, body: &str) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    write!(
        stream,
        "{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    stream.read_to_string(&mut String::new()).unwrap();
}

#[test]
fn each_request_is_one_line_of_json() {
    let (log, token) = log_of("json");
    assert!(!log.contains(SECRET) && !log.contains(&token), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let requests: Vec<_> = lines
        .iter()
        .filter(|line| line["message"] == "request")
        .collect();
    let said: Vec<_> = requests
        .iter()
        .map(|line| {
            [
                &line["operation.name"],
                &line["viewer.id"],
                &line["transport"],
                &line["code"],
            ]
            .map(|value| value.as_str().unwrap_or("-"))
        })
        .collect();
    assert_eq!(
        said,
        [
            ["Who", "alice", "http", "OK"],
            ["Deep", "alice", "http", "BAD_USER_INPUT"],
            ["Say", "alice", "http", "NOT_FOUND"]
        ]
    );
    assert!(
        requests.iter().all(
            |line| line["duration_ms"].as_f64().is_some_and(|took| took > 0.0)
                && line["level"] == "INFO"
        ),
        "{log}"
    );
}

#[test]
fn each_request_is_one_line_of_text() {
    let (log, token) = log_of("text");
    assert!(!log.contains(SECRET) && !log.contains(&token), "{log}");
    let requests: Vec<_> = log
        .lines()
        .filter(|line| line.contains(" request "))
        .collect();
    assert_eq!(requests.len(), 3, "{log}");
    for part in [
        "INFO",
        "transport=\"http\"",
        "operation.name=\"Who\"",
        "viewer.id=\"alice\"",
        "duration_ms=",
        "code=\"OK\"",
    ] {
        assert!(requests[0].contains(part), "{part}: {}", requests[0]);
    }
}

#[test]
fn a_client_that_goes_away_is_logged_too() {
    use std::io::{Read as _, Write as _};
    let program = Program::new();
    let server = Server::start(&program, &[]);
    let mut stream =
        std::net::TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST /graphql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}",
        program.token("alice")
    );
    write!(stream, "{head}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    drop(stream);
    let line = server.logs(" request ");
    // The body broke off, or nobody was there any more: it depends on who looked first.
    assert!(
        line.contains("code=\"GONE\"") || line.contains("code=\"BAD_USER_INPUT\""),
        "{line}"
    );
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
