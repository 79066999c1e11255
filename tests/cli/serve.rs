//! `wideroom serve` as a process: how it begins, how it ends, and that it is alone.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::Program;
use crate::support::server::Server;
use crate::support::world::PATIENCE;

#[test]
fn serve_prints_its_address_and_the_next_steps() {
    let program = Program::new();
    let server = Server::start(&program, &[]);
    let url = server.url.clone();
    server.signal("-TERM");
    let (code, stdout, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    let data = program.data();
    assert_eq!(
        stdout,
        format!(
            "  open    {url}/\n  token   wideroom token --user NAME --data {}\n",
            data.display()
        )
    );
    assert!(log.contains("shut down cleanly"), "{log}");
}

/// One request over a plain connection, and the whole answer.
pub(crate) fn get(url: &str, path_and_headers: &str) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{path_and_headers}\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_token_of_its_folder_opens_its_doors() {
    let program = Program::new();
    let server = Server::start(&program, &["--demo"]);
    let request = "GET /graphql?query=%7Bviewer%7Busername%7D%7D HTTP/1.1";
    let token = program.run(&["token", "--user", "alice"]).stdout;
    let answer = get(
        &server.url,
        &format!("{request}\r\nAuthorization: Bearer {}", token.trim()),
    );
    assert!(answer.contains(r#""username":"alice""#), "{answer}");
    let forged = get(
        &server.url,
        &format!("{request}\r\nAuthorization: Bearer {}x", token.trim()),
    );
    assert!(forged.contains("UNAUTHENTICATED"), "{forged}");
    assert!(get(&server.url, "GET / HTTP/1.1").starts_with("HTTP/1.1 200"));
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_demo_refuses_what_a_tunnel_forwards() {
    let program = Program::new();
    let server = Server::start(&program, &["--demo"]);
    for path in ["/", "/demo", "/graphql?query=%7B__typename%7D", "/x"] {
        for header in ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1"] {
            let answer = get(&server.url, &format!("GET {path} HTTP/1.1\r\n{header}"));
            assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
        }
    }
    drop(server);
    let server = Server::start(&program, &[]);
    let forwarded = "GET /graphql?query=%7B__typename%7D HTTP/1.1\r\nX-Forwarded-For: 192.0.2.1";
    for _ in 0..2 {
        assert!(get(&server.url, forwarded).starts_with("HTTP/1.1 200"));
    }
    // A proxy that the operator has not named is logged once an hour.
    let log = server.kill();
    assert_eq!(log.matches("--trusted-proxies").count(), 1, "{log}");
}

#[test]
fn a_setting_that_would_pass_in_silence_is_named() {
    let program = Program::new();
    program
        .run(&["check-config", "--log", "warning"])
        .failed(1, "the log filter is invalid: `warning` is no level; write error, warn, info, debug, trace or off");
    let address = [
        "--listen",
        "127.0.0.1:8080",
        "--admin-listen",
        "0.0.0.0:8080",
    ];
    program.run(&[&["check-config"][..], &address].concat()).failed(
        1,
        "--admin-listen and --listen have one port: write another one for --admin-listen, as 127.0.0.1:9090, or `off`",
    );
    let mut command =
        program.command(&["serve", "--listen", "127.0.0.1:0", "--streams-max", "10000"]);
    let server = Server::spawn(command.env("WIDEROOM_LSTEN", "127.0.0.1:1"));
    server.logs("WIDEROOM_LSTEN is no setting; did you mean WIDEROOM_LISTEN?");
    server.logs("write a --streams-max below --connections-max");
}

#[test]
fn both_signals_end_it_in_order() {
    for name in ["-TERM", "-INT"] {
        let program = Program::new();
        let server = Server::start(&program, &[]);
        server.signal(name);
        assert_eq!(server.end().0, Some(0), "{name}");
    }
}

#[test]
fn a_server_that_is_told_to_stop_serves_on_until_balancers_have_noticed() {
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &["--drain-delay", "1h"]);
    let ask = || {
        let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = "GET /graphql?query=%7B__typename%7D HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let count = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    };
    let before = ask();
    server.signal("-TERM");
    assert_eq!(admin.wait_for("/readyz", 503), "the server is stopping\n");
    for (answer, is_closing) in [(before, false), (ask(), true)] {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // A balancer takes the connection out of its pool.
        assert_eq!(answer.contains("connection: close"), is_closing, "{answer}");
    }
    drop(server);
    // A person who presses Ctrl-C waits for no balancer.
    let server = Server::start(&program, &["--drain-delay", "1h"]);
    server.signal("-INT");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_hangup_kills_no_server() {
    let program = Program::new();
    let server = Server::start(&program, &[]);
    server.signal("-HUP");
    server.logs("ignores SIGHUP");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// A request whose body never ends keeps the drain waiting, for longer than the test would.
#[test]
fn a_second_signal_ends_it_at_once() {
    let program = Program::new();
    let token = program.run(&["token", "--user", "alice"]).stdout;
    let server = Server::start(&program, &["--drain", "1h"]);
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST /graphql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}",
        token.trim()
    );
    write!(stream, "{head}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n").unwrap();
    // It asks for the body only once the request is under way.
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    server.signal("-TERM");
    server.logs("stopping");
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(1), "{log}");
    // The request that is left behind may still have its line.
    assert!(
        log.lines()
            .any(|line| line == "wideroom: stopped at once by a second signal"),
        "{log}"
    );
}

#[test]
fn an_address_that_is_taken_is_one_clear_line() {
    let (one, other) = (Program::new(), Program::new());
    let server = Server::start(&one, &[]);
    let address = server.url.trim_start_matches("http://").to_owned();
    let ended = other.run(&["serve", "--listen", &address, "--log", "error"]);
    assert_eq!(ended.code, Some(1));
    let line = format!("wideroom: cannot listen on {address}: Address already in use");
    assert!(
        ended.stderr.starts_with(&line) && ended.stderr.lines().count() == 1,
        "{}",
        ended.stderr
    );
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn the_demo_has_messages_of_today_beside_the_sample() {
    let program = Program::new();
    let server = Server::start(&program, &["--demo"]);
    let token = program.run(&["token", "--user", "alice"]).stdout;
    let query = "%7Binbox%7Bedges%7Bnode%7BunreadCount%20lastActivityAt%20conversation%7Bname%20messageCount%7DlastMessage%7BcreatedAt%7D%7D%7D%7D%7D";
    let answer = get(
        &server.url,
        &format!(
            "GET /graphql?query={query} HTTP/1.1\r\nAuthorization: Bearer {}",
            token.trim()
        ),
    );
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let answer: serde_json::Value = serde_json::from_str(body).unwrap();
    let edges = answer["data"]["inbox"]["edges"].as_array().unwrap();
    let summary = |edge: &serde_json::Value| {
        let node = &edge["node"];
        let conversation = &node["conversation"];
        json!([
            conversation["name"],
            conversation["messageCount"],
            node["unreadCount"]
        ])
    };
    assert_eq!(
        edges.iter().map(summary).collect::<Vec<_>>(),
        [
            json!(["Kitchen", 7, 0]),
            json!([null, 1, 0]),
            json!(["Alice & Bob", 7, 1]),
            json!(["Project Phoenix", 8, 3])
        ]
    );
    // The inbox and the message agree.
    assert_eq!(
        edges[0]["node"]["lastActivityAt"],
        edges[0]["node"]["lastMessage"]["createdAt"]
    );
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn the_demo_loads_the_sample_once() {
    let program = Program::new();
    for says in [
        "the server loaded the sample",
        "the store is not empty; the server does not load the sample",
    ] {
        let server = Server::start(&program, &["--demo", "--log-format", "json"]);
        server.signal("-TERM");
        let (code, stdout, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(stdout.contains("--user alice"), "{stdout}");
        let lines: Vec<serde_json::Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(lines.iter().any(|line| line["message"] == says), "{log}");
    }
    let path = program.write("sample.jsonl", include_str!("../../src/cli/demo.jsonl"));
    let again = program.run(&["import", &path]);
    assert!(
        again.succeeded().contains("messages 0 / 15"),
        "{}",
        again.stdout
    );
}

#[test]
fn a_log_filter_that_is_none_is_one_clear_line() {
    let program = Program::new();
    let ended = program.run(&["serve", "--log", "info,=,"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1));
    assert!(
        ended
            .stderr
            .starts_with("wideroom: the log filter is invalid: "),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_list_of_documents_that_is_none_is_one_clear_line() {
    let program = Program::new();
    let list = program.write("list.json", "{\"a\": 1}");
    let line = |reason: &str| format!("--trusted-documents: {list}: {reason}");
    program
        .run(&["serve", "--listen", "127.0.0.1:0", "--trusted-documents", &list])
        .failed(1, &line("must be a JSON object of documents by their ids: an object of texts, or a manifest with `operations`"));
    program.write("list.json", "{}");
    program
        .run(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--trusted-documents",
            &list,
        ])
        .failed(1, &line("must hold a document"));
}

#[test]
fn a_listed_document_that_would_be_refused_is_named_in_the_log() {
    let program = Program::new();
    let list = program.write(
        "list.json",
        "{\"a\": \"{ viewer { username } }\", \"b\": \"query Old {\"}",
    );
    let server = Server::start(&program, &["--trusted-documents", &list]);
    server.signal("-TERM");
    let (_, _, log) = server.end();
    assert!(
        log.contains("would refuse a trusted document") && log.contains("query Old {"),
        "{log}"
    );
    assert!(
        log.contains("the server runs trusted documents only documents=2"),
        "{log}"
    );
}
