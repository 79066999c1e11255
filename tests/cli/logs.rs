//! The log: one line for each request, and nothing in it that is somebody's.

use serde_json::{Value, json};

use super::Program;
use super::serve::get;
use crate::support::client::{Socket, try_socket};
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
        "{{\"query\": \"mutation Say {{ sendMessage(input: {{conversationId: \\\"x\\\", body: \\\"{SECRET}\\\"}}) {{ __typename }} }}\"}}"
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

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The log of a server to which every request is slow.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_request_is_a_warning_with_its_trace_cost_and_store_time() {
    let program = Program::new();
    let options = ["--demo", "--log-format", "json", "--slow-request", "0s"];
    let server = Server::start(&program, &options);
    let token = program.token("alice");
    get(
        &server.url,
        &format!(
            "GET /graphql?query=query%20Mine%7Binbox(first:3)%7Bedges%7Bcursor%7D%7D%7D HTTP/1.1\r\nAuthorization: Bearer {token}\r\ntraceparent: {TRACEPARENT}"
        ),
    );
    let address = server.url.trim_start_matches("http://").parse().unwrap();
    let socket = try_socket(address, Some("graphql-transport-ws")).await;
    let mut socket = Socket(socket.unwrap());
    let payload = json!({ "Authorization": format!("Bearer {token}"), "traceparent": TRACEPARENT });
    socket
        .say(&json!({ "type": "connection_init", "payload": payload }))
        .await;
    assert_eq!(socket.hear().await["type"], "connection_ack");
    socket
        .subscribe("1", "query Again { inbox(first: 3) { edges { cursor } } }")
        .await;
    assert_eq!(socket.hear().await["type"], "next");
    assert_eq!(socket.hear().await["type"], "complete");
    socket
        .subscribe("2", "subscription Live { inboxUpdated { cursor } }")
        .await;
    // The first payload has a cursor and no event.
    assert_eq!(socket.hear().await["id"], "2");
    server.signal("-TERM");
    socket.gone().await;
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let named = |name: &str| {
        let mut lines = lines.iter().filter(|line| line["operation.name"] == name);
        let line = lines.next().unwrap_or_else(|| panic!("{name}: {log}"));
        assert!(lines.next().is_none(), "{name} is logged once: {log}");
        assert_eq!(line["trace.id"], TRACEPARENT[3..35], "{line}");
        assert_eq!(line["trace.parent_id"], TRACEPARENT[36..52], "{line}");
        line
    };
    for name in ["Mine", "Again"] {
        let line = named(name);
        assert_eq!(
            [&line["message"], &line["level"]],
            ["slow request", "WARN"],
            "{line}"
        );
        let [took, store] = ["duration_ms", "store_ms"].map(|key| line[key].as_f64().unwrap());
        assert!(store > 0.0 && store <= took, "{line}");
        assert!(line["cost.fields"].as_u64() >= Some(3), "{line}");
        assert_eq!(line["cost.roots"], 1, "{line}");
    }
    // A subscription is not slow: it lasts as long as its client wants it.
    assert_eq!(named("Live")["message"], "request");
}

#[test]
fn a_proxy_that_is_not_named_is_one_warning() {
    for (proxies, warnings) in [("none", 1), ("127.0.0.0/8", 0)] {
        let program = Program::new();
        let server = Server::start(&program, &["--trusted-proxies", proxies]);
        for _ in 0..5 {
            get(
                &server.url,
                "GET /graphql?query=%7Bviewer%7Busername%7D%7D HTTP/1.1\r\nX-Forwarded-For: 192.0.2.1",
            );
        }
        server.signal("-TERM");
        let (code, _, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        let line = "Name the proxy in --trusted-proxies";
        assert_eq!(log.matches(line).count(), warnings, "{log}");
        assert!(!log.contains("192.0.2.1"), "{log}");
    }
}

#[test]
fn refused_requests_that_repeat_are_counted_and_lines_are_a_choice() {
    /// A minute may end among them: more than 60 still lie in one.
    const REQUESTS: usize = 200;
    let requests = |log: &str| log.matches(" request ").count();
    let run = |arguments: &[&str]| {
        let program = Program::new();
        let server = Server::start(&program, arguments);
        for _ in 0..REQUESTS {
            get(
                &server.url,
                "GET /graphql?query=%7Bviewer%7Busername%7D%7D HTTP/1.1",
            );
        }
        server.signal("-TERM");
        let (code, _, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        log
    };
    let log = run(&["--rates", "off"]);
    let left_out = "the log left out further lines of requests with this code";
    let counted = log.lines().filter(|line| line.contains(left_out));
    let counts: Vec<usize> = counted
        .map(|line| {
            assert!(line.contains("code=\"UNAUTHENTICATED\""), "{line}");
            let (_, count) = line.split_once("lines=").unwrap();
            let end = count.find(|char: char| !char.is_ascii_digit());
            count[..end.unwrap_or(count.len())].parse().unwrap()
        })
        .collect();
    assert!(!counts.is_empty(), "{log}");
    let all = requests(&log) + counts.iter().sum::<usize>();
    assert_eq!(all, REQUESTS, "{log}");
    for which in ["slow", "off"] {
        let log = run(&["--rates", "off", "--log-requests", which]);
        assert!(requests(&log) == 0 && !log.contains(left_out), "{log}");
    }
    Program::new()
        .run(&["check-config", "--log-requests", "some"])
        .failed(2, "--log-requests: must be all, slow or off");
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
