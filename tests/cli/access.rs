//! Access options of the command line: issuer keys, token audiences, pages, introspection and rate limits.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Program;
use crate::auth::files::{Folder, Pair, jwks};
use crate::support::client::{self, Reply, Socket};
use crate::support::server::Server;
use crate::support::world::PATIENCE;

const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) async fn ask(address: SocketAddr, token: &str, query: &str) -> Reply {
    let authorization = format!("Bearer {token}");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", authorization.as_str()),
    ];
    client::http(
        address,
        "POST",
        "/graphql",
        &headers,
        json!({ "query": query }).to_string().as_bytes(),
    )
    .await
}

pub(super) fn end(server: Server) -> String {
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    log
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_an_issuer_open_the_doors_and_are_changed_while_it_serves() {
    let (program, folder) = (Program::new(), Folder::new());
    let (old, new) = (Pair::ec(), Pair::ed());
    let path = folder.write("keys.json", jwks(&[old.jwk("old")]));
    let server = Server::start(&program, &["--token-keys-file", path.to_str().unwrap()]);
    let address = server.address();
    assert_eq!(
        ask(address, &old.token(Some("old")), "{ viewer { username } }")
            .await
            .body["data"]["viewer"]["username"],
        "alice"
    );
    let own = program.run(&["token", "--user", "alice"]).stdout;
    assert_eq!(
        ask(address, own.trim(), "{ viewer { username } }")
            .await
            .status,
        401
    );
    let _socket = Socket::connect(address, &old.token(Some("old"))).await;

    folder.write("keys.json", "broken");
    server.logs("uses the previous ones");
    assert_eq!(
        ask(address, &old.token(Some("old")), "{ viewer { username } }")
            .await
            .status,
        200
    );
    folder.write("keys.json", jwks(&[new.jwk("new")]));
    let deadline = Instant::now() + PATIENCE;
    while ask(address, &new.token(Some("new")), "{ viewer { username } }")
        .await
        .status
        != 200
    {
        assert!(Instant::now() < deadline, "the keys are not read again");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    assert_eq!(
        ask(address, &old.token(Some("old")), "{ viewer { username } }")
            .await
            .status,
        401
    );
    let log = end(server);
    assert_eq!(
        log.matches("uses the previous ones").count(),
        1,
        "said once: {log}"
    );
}

#[test]
fn keys_that_cannot_be_used_are_one_clear_line() {
    let (program, folder) = (Program::new(), Folder::new());
    let path = folder.write("secret", "short");
    let line = format!(
        "{} cannot be used for tokens: a secret has at least 32 bytes",
        path.display()
    );
    program
        .run(&["--token-secret-file", path.to_str().unwrap()])
        .failed(1, &line);
    let line = "--demo signs its people in with the key of the data folder: leave --token-keys-file, --jwks-url and --token-secret-file out";
    program
        .run(&["--demo", "--token-secret-file", path.to_str().unwrap()])
        .failed(1, line);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_printed_token_is_for_the_audience_of_its_server() {
    let program = Program::new();
    let rules = ["--token-audience", "chat", "--token-issuer", "here"];
    let server = Server::start(&program, &rules);
    let plain = program
        .run(&["token", "--user", "alice", "--token-issuer", "here"])
        .stdout;
    let meant = program
        .run(&[&["token", "--user", "alice"][..], &rules].concat())
        .stdout;
    let refused = ask(server.address(), plain.trim(), "{ viewer { username } }").await;
    assert_eq!(
        (refused.status, refused.message()),
        (401, "The token is for another audience.")
    );
    assert_eq!(
        ask(server.address(), meant.trim(), "{ viewer { username } }")
            .await
            .status,
        200
    );
    end(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_introspection_can_be_switched_off() {
    let program = Program::new();
    let token = program.run(&["token", "--user", "alice"]).stdout;
    let server = Server::start(&program, &["--pages", "off", "--introspection", "off"]);
    let refused = ask(
        server.address(),
        token.trim(),
        "{ __schema { types { name } } }",
    )
    .await;
    assert_eq!(
        (refused.status, refused.message()),
        (422, "Introspection is switched off here.")
    );
    assert_eq!(
        ask(
            server.address(),
            token.trim(),
            "{ __typename viewer { __typename } }"
        )
        .await
        .status,
        200
    );
    assert!(get(&server.url, "/").starts_with("HTTP/1.1 404"));
    // The client is no page: an app of another origin imports it.
    assert!(get(&server.url, "/client/index.js").starts_with("HTTP/1.1 200"));
    server.signal("-TERM");
    let (code, stdout, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!stdout.contains("open"), "{stdout}");
}

#[test]
fn pages_stay_on_this_machine_unless_they_are_asked_for() {
    let program = Program::new();
    for (arguments, is_served) in [
        (&[][..], false),
        (&["--pages", "auto"], false),
        (&["--pages", "on"], true),
    ] {
        let server = Server::start_on("0.0.0.0:0", &program, arguments);
        let url = server.url.replace("0.0.0.0", "127.0.0.1");
        for path in ["/", "/demo"] {
            assert_eq!(
                get(&url, path).starts_with("HTTP/1.1 200"),
                is_served,
                "{arguments:?} {path}"
            );
        }
        server.signal("-TERM");
        let (_, stdout, log) = server.end();
        assert_eq!(stdout.contains("  open  "), is_served, "{stdout}");
        assert_eq!(
            log.contains("set --pages on to serve them"),
            !is_served,
            "{log}"
        );
    }
}

#[test]
fn pages_are_shielded() {
    let program = Program::new();
    let server = Server::start(&program, &[]);
    let page = get(&server.url, "/");
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "x-frame-options: DENY",
        "referrer-policy: no-referrer",
        "cross-origin-opener-policy: same-origin",
        "cross-origin-resource-policy: same-origin",
        "permissions-policy: ",
    ] {
        assert!(page.contains(header), "{header}: {page}");
    }
    let missing = get(&server.url, "/assets/none.js");
    assert!(
        missing.starts_with("HTTP/1.1 404")
            && missing.contains("content-security-policy: default-src 'none'; base-uri"),
        "{missing}"
    );
    assert!(!get(&server.url, "/graphql?query=%7B__typename%7D").contains("x-frame-options"));
    end(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_hold_unless_they_are_off() {
    let program = Program::new();
    let token = program.run(&["token", "--user", "alice"]).stdout;
    for (switch, has_rates) in [("on", true), ("off", false)] {
        let server = Server::start(
            &program,
            &["--rates", switch, "--query-rate", "1", "--query-burst", "2"],
        );
        let mut refused = 0;
        for _ in 0..12 {
            let reply = ask(server.address(), token.trim(), "{ viewer { username } }").await;
            refused += usize::from((reply.status, reply.code()) == (429, "RATE_LIMITED"));
        }
        assert_eq!(refused > 0, has_rates);
        end(server);
    }
}

/// One request over a plain connection, and the whole answer.
fn get(url: &str, path: &str) -> String {
    super::serve::get(url, &format!("GET {path} HTTP/1.1"))
}
