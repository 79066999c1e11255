//! Admin listener: metrics, health and readiness, on an address of its own.

use std::net::TcpListener;

use super::Program;
use super::serve::get;
use crate::support::admin::Admin;
use crate::support::server::Server;

#[test]
fn operations_are_counted() {
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &["--demo"]);
    let token = program.token("alice");
    let ask = |query: &str, token: &str| {
        get(
            &server.url,
            &format!("GET /graphql?query={query} HTTP/1.1\r\nAuthorization: Bearer {token}"),
        )
    };
    for _ in 0..3 {
        assert!(
            ask("%7Binbox%7Bedges%7Bnode%7BunreadCount%7D%7D%7D%7D", &token)
                .contains("unreadCount")
        );
    }
    assert!(ask("%7Bviewer%7Busername%7D%7D", "x").contains("UNAUTHENTICATED"));
    for (series, value) in [
        (
            "wideroom_requests_total{code=\"OK\",kind=\"query\",transport=\"http\"}",
            3.0,
        ),
        (
            "wideroom_requests_total{code=\"UNAUTHENTICATED\",kind=\"none\",transport=\"http\"}",
            1.0,
        ),
        ("wideroom_request_seconds_count{kind=\"query\"}", 3.0),
        ("wideroom_cache_hits_total{cache=\"documents\"}", 2.0),
        ("wideroom_cache_misses_total{cache=\"documents\"}", 1.0),
        ("wideroom_store_writable", 1.0),
        ("wideroom_ready", 1.0),
        ("wideroom_key_file_broken", 0.0),
        ("wideroom_sockets", 0.0),
        ("wideroom_draining", 0.0),
    ] {
        assert_eq!(
            admin.series(series),
            Some(value),
            "{series}\n{}",
            admin.get("/metrics").1
        );
    }
    for series in [
        "wideroom_commit_seconds_count",
        "wideroom_disk_free_bytes",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
    ] {
        assert!(
            admin.series(series).is_some_and(|value| value > 0.0),
            "{series}"
        );
    }
    let (_, text) = admin.get("/metrics");
    assert!(!text.contains("alice"), "no label is a client's");
    assert!(
        get(&server.url, "GET /metrics HTTP/1.1").starts_with("HTTP/1.1 404"),
        "not on the public listener"
    );
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn rate_limited_requests_are_counted() {
    let program = Program::new();
    let (server, admin) =
        Server::start_with_admin(&program, &["--query-rate", "1", "--query-burst", "1"]);
    let request = format!(
        "GET /graphql?query=%7Bviewer%7Busername%7D%7D HTTP/1.1\r\nAuthorization: Bearer {}",
        program.token("alice")
    );
    assert!(get(&server.url, &request).starts_with("HTTP/1.1 200"));
    assert!(get(&server.url, &request).starts_with("HTTP/1.1 429"));
    assert_eq!(
        admin.series("wideroom_rate_refusals_total{rate=\"queries\"}"),
        Some(1.0)
    );
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// A request whose body never ends keeps the drain waiting.
#[test]
fn a_server_that_drains_is_alive_and_not_ready() {
    use std::io::{Read as _, Write as _};
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &["--drain", "1h"]);
    assert_eq!(admin.get("/healthz"), (200, "alive\n".to_owned()));
    assert_eq!(admin.get("/readyz"), (200, "ready\n".to_owned()));
    let mut stream =
        std::net::TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST /graphql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}",
        program.token("alice")
    );
    write!(stream, "{head}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    server.signal("-TERM");
    assert_eq!(admin.wait_for("/readyz", 503), "the server is stopping\n");
    assert_eq!(admin.get("/healthz").0, 200);
    // It leaves the load balancer first, and drains after the delay.
    admin.wait_until("/metrics", |text| text.contains("\nwideroom_draining 1\n"));
    drop(stream);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn an_address_that_somebody_asked_for_must_be_free() {
    let program = Program::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = program.run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        &address,
        "--log",
        "error",
    ]);
    assert_eq!(ended.code, Some(1));
    let line =
        format!("wideroom: --admin-listen: cannot listen on {address}: Address already in use");
    assert!(
        ended.stderr.starts_with(&line)
            && ended.stderr.ends_with("name another address, or `off`\n"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 1);
    program.run(&["serve", "--admin-listen", "here"]).failed(
        2,
        "--admin-listen: must be an IP address with a port, as 127.0.0.1:9090, or `off`",
    );
}

/// Without --admin-listen, a second server on the machine runs without an admin listener and logs it.
#[test]
fn the_usual_address_may_be_taken() {
    let program = Program::new();
    let usual = "127.0.0.1:9090";
    // Somebody has it: this test, or whoever else runs here.
    let _taken = TcpListener::bind(usual);
    let mut command = program.command(&["serve", "--listen", "127.0.0.1:0", "--log", "warn"]);
    let server = Server::spawn(command.env_remove("WIDEROOM_ADMIN_LISTEN"));
    let line = server.logs("Set --admin-listen to another address, or to `off`");
    assert!(line.contains(usual), "{line}");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_backup_is_not_for_everybody() {
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &[]);
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for headers in [String::new(), bearer("x"), bearer(&program.token("alice"))] {
        let (status, body) = admin.ask("POST", "/backup", &headers);
        assert!(
            status == 401
                && body.starts_with("the request needs a token of this server's data folder: "),
            "{status} {body}"
        );
    }
    assert_eq!(admin.get("/backup").0, 405);
    let Admin { address } = admin;
    // The key of another folder.
    let other = Program::new();
    other.token("alice");
    let ended = other.run(&["backup", "copy", "--admin-listen", &address.to_string()]);
    let line = format!(
        "the server at {address} refuses the backup: the request needs a token of this server's data folder: the token is not signed by a key of this server"
    );
    ended.failed(1, &line);
    let nowhere = Program::new();
    let data = nowhere.data();
    nowhere
        .run(&["backup", "copy", "--admin-listen", &address.to_string()])
        .failed(
            1,
            &format!(
                "{} holds no key of a server: name the server's data folder with --data",
                data.display()
            ),
        );
    program
        .run(&["backup", "copy"])
        .failed(1, "a backup needs the running server's --admin-listen, which is off; without a server, copy the data folder");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// A page in a browser on this machine may have a name of its own stand for 127.0.0.1 (DNS rebinding).
#[test]
fn on_loopback_only_hosts_of_loopback_are_answered() {
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &[]);
    let port = admin.address.port();
    for path in ["/metrics", "/readyz", "/healthz", "/backup", "/nothing"] {
        for host in [
            "evil.example",
            &format!("evil.example:{port}"),
            "localhost.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "",
        ] {
            let (status, body) = admin.ask_of(host, "GET", path);
            assert_eq!(
                (status, body.contains("loopback")),
                (421, true),
                "{host}{path}: {body}"
            );
        }
    }
    for host in [
        "localhost",
        "LOCALHOST:9090",
        "a.localhost",
        "127.0.0.1",
        "127.1.2.3:1",
        "[::1]:9090",
        &admin.address.to_string(),
    ] {
        assert_eq!(admin.ask_of(host, "GET", "/readyz").0, 200, "{host}");
    }
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn an_address_for_others_answers_to_every_name() {
    let program = Program::new();
    let (server, Admin { address }) =
        Server::start_with(&program, &["--admin-listen", "0.0.0.0:0"]);
    let admin = Admin {
        address: ([127, 0, 0, 1], address.port()).into(),
    };
    assert_eq!(admin.ask_of("metrics.example", "GET", "/readyz").0, 200);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn silent_connections_do_not_starve_a_scrape() {
    use std::io::Write as _;
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &[]);
    let mut silent = Vec::new();
    for number in 0..200 {
        let mut stream = std::net::TcpStream::connect(admin.address).unwrap();
        if number % 2 == 0 {
            write!(stream, "GET /metr").unwrap();
        }
        silent.push(stream);
    }
    assert_eq!(admin.get("/readyz").0, 200);
    assert!(admin.series("wideroom_sockets").is_some());
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
