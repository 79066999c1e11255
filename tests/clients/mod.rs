//! The clients people use, against the real program: Relay, Apollo Client, urql, graphql-ws and graphql-sse, Python's gql, Go's genqlient, Apollo Kotlin,
//! the compilers of Relay and of graphql-codegen, and the public audit of GraphQL over HTTP; and the proxies in front of it.

mod imports;

use std::time::Duration;

use futures_util::future::join_all;
use wideroom::config::parse_duration;
use wideroom::server::ServerBounds;

use crate::support::client::http;
use crate::support::node::Node;
use crate::support::program::Program;
use crate::support::proxy::Proxy;
use crate::support::server::{Server, WARNINGS};
use crate::support::{go, java, python};

/// The proxies' own time of idle connections ends first, so that none closes under a request.
#[test]
fn proxies_close_idle_connections_before_the_server_does() {
    let idle = ServerBounds::default().head.idle;
    for (file, line) in [
        (
            include_str!("../../docker/nginx.conf"),
            "keepalive_timeout ",
        ),
        (include_str!("../../docker/Caddyfile"), "keepalive "),
    ] {
        let mut lines = file.lines().map(str::trim);
        let value = lines.find_map(|one| one.strip_prefix(line)).unwrap();
        let time = parse_duration(value.trim_end_matches(';')).unwrap();
        assert!(time < idle, "{line}: {time:?} of {idle:?}");
    }
}

/// The sample, served; and a token of each who talks.
fn serve(arguments: &[&str]) -> (Program, Server, [String; 2]) {
    let program = Program::new();
    let server = Server::start(
        &program,
        &[&["--demo", "--log", WARNINGS], arguments].concat(),
    );
    let tokens = ["alice", "bob"].map(|name| program.token(name));
    (program, server, tokens)
}

fn graphql(server: &Server) -> String {
    format!("{}/graphql", server.url)
}

#[test]
fn the_public_audit_passes() {
    let Some(node) = Node::installed() else {
        return;
    };
    let (_program, server, _) = serve(&[]);
    node.run("audit.js", &[&graphql(&server)]);
}

#[test]
#[ignore = "gate: thousands of documents in two languages"]
fn documents_are_valid_here_where_they_are_valid_for_graphql_js() {
    let Some(node) = Node::installed() else {
        return;
    };
    let (_program, server, [alice, _]) = serve(&["--rates", "off"]);
    node.run("validation.js", &[&graphql(&server), &alice]);
}

#[test]
fn relay_apollo_and_urql_page_both_ways_send_and_resume() {
    let Some(node) = Node::compiled() else { return };
    // Three clients at once send faster than a person may.
    let (_program, server, [alice, bob]) = serve(&["--rates", "off"]);
    node.run("front.js", &[&graphql(&server), &alice, &bob]);
}

#[test]
fn subscriptions_over_http_resume_where_they_were_cut() {
    let Some(node) = Node::installed() else {
        return;
    };
    let (_program, server, [alice, bob]) = serve(&[]);
    node.run("resumed.js", &[&graphql(&server), &alice, &bob]);
}

#[test]
fn a_backend_makes_the_chat_of_an_order_once() {
    let code = include_str!("order.js");
    let (_, shown) = code.split_once("// In the README as it stands.\n").unwrap();
    let (shown, _) = shown.split_once("// To here.").unwrap();
    assert!(include_str!("README.md").contains(shown));
    let Some(node) = Node::installed() else {
        return;
    };
    let (program, server, _) = serve(&[]);
    let service = program.run(&["token", "--service", "backend"]);
    let token = service.succeeded().trim().to_owned();
    node.run("order.js", &[&graphql(&server), &token]);
}

#[test]
fn only_documents_listed_by_client_compilers_run() {
    let Some(node) = Node::compiled() else { return };
    for list in ["generated/relay.json", "generated/codegen.json"] {
        let list = node.path(list);
        let (_program, server, [alice, _]) =
            serve(&["--trusted-documents", &list, "--rates", "off"]);
        node.run("trusted.js", &[&graphql(&server), &alice, &list]);
        // No document of the list would be refused.
        assert_eq!(server.kill(), "");
    }
}

#[test]
fn persisted_queries_of_urql_and_apollo_fall_back_to_documents() {
    let Some(node) = Node::installed() else {
        return;
    };
    let (_program, server, [alice, _]) = serve(&[]);
    node.run("persisted.js", &[&graphql(&server), &alice]);
}

#[test]
fn the_transports_of_pythons_gql_subscribe() {
    let (_program, server, [alice, bob]) = serve(&["--rates", "off"]);
    python::run("gql_transports.py", &[&graphql(&server), &alice, &bob]);
}

/// Runs a test of agents against both programs for them.
fn run_agents(test: &str) {
    let Some(node) = Node::installed() else {
        return;
    };
    // Each conversation of the test is polled.
    let (program, server, [alice, _]) = serve(&["--rates", "off"]);
    let url = graphql(&server);
    std::thread::scope(|scope| {
        for (agent, command) in [
            ("agent:js", &["node", "agent_process.js"][..]),
            ("agent:py", &["python3", "-B", "agent_process.py"]),
        ] {
            let (node, url, alice, token) = (&node, &url, &alice, program.token(agent));
            scope.spawn(move || {
                let arguments = [&[url, alice, &*token, agent], command].concat();
                node.run(test, &arguments);
            });
        }
    });
}

/// Kills, lost answers, a request to stop, and texts of every kind.
#[test]
#[ignore = "gate: programs write for a while"]
fn agents_write_live_messages_whole_and_once() {
    run_agents("agent_test.js");
}

#[test]
#[ignore = "gate: silent for 150 s"]
fn agents_complete_what_the_server_sent_in_their_silence() {
    run_agents("agent_silence.js");
}

/// A reload, a second device, a cut, a request to stop, and an agent that fell silent.
#[test]
fn the_chat_of_the_ai_sdk_shows_answers_while_they_are_written() {
    let Some(node) = Node::installed() else {
        return;
    };
    // Each conversation of the test is polled.
    let (program, server, [alice, _]) = serve(&["--rates", "off"]);
    let token = program.token("agent:helper");
    let arguments = [&graphql(&server), &alice, &token, "agent:helper"];
    node.run("ai_transport_test.js", &arguments);
}

/// Cuts, another writer, and a request to stop.
#[test]
fn the_package_shows_each_byte_of_a_live_message_once() {
    let Some(node) = Node::installed() else {
        return;
    };
    // The conversation is opened again after each cut.
    let (program, server, [alice, _]) = serve(&["--rates", "off"]);
    let token = program.token("agent:helper");
    let arguments = [&graphql(&server), &alice, &token, "agent:helper"];
    node.run("package/live_server.js", &arguments);
}

#[test]
#[ignore = "gate: Go builds a program, which then is quiet"]
fn genqlient_outlives_pings() {
    let (_program, server, [alice, bob]) = serve(&["--socket-ping-every", "50ms"]);
    go::run("genqlient", &[&graphql(&server), &alice, &bob]);
}

/// Longer than the 12 s after which the server pings, and than its wait for an answer.
#[test]
#[ignore = "gate: Maven builds a Kotlin program, which then is quiet for half a minute"]
fn apollo_kotlin_asks_and_outlives_a_quiet_subscription() {
    let (_program, server, [alice, bob]) = serve(&[]);
    java::run("apollo-kotlin", &[&graphql(&server), &alice, &bob, "30000"]);
}

/// A server that believes the proxies before it.
fn serve_behind_proxies() -> (Program, Server, [String; 2]) {
    let program = Program::new();
    let arguments = "--rates off --trusted-proxies 127.0.0.1 --log";
    let arguments: Vec<_> = arguments.split(' ').chain([WARNINGS]).collect();
    let server = Server::start(&program, &arguments);
    let tokens = ["alice", "bob"].map(|name| program.token(name));
    (program, server, tokens)
}

/// Longer than the 60 s after which common balancers close what is idle.
#[test]
#[ignore = "gate: quiet for 80 s"]
fn quiet_sockets_and_events_outlive_dev_servers_and_proxies() {
    let Some(node) = Node::installed() else {
        return;
    };
    let (program, server, [alice, bob]) = serve_behind_proxies();
    let url = graphql(&server);
    let proxies: Vec<_> = [Proxy::nginx, Proxy::caddy]
        .into_iter()
        .filter_map(|start| start(&program, server.address()))
        .collect();
    let held = |url: &str, front: &str| {
        let arguments = [url, &alice, &bob, front, "80000"];
        node.run("proxied.js", &arguments);
    };
    std::thread::scope(|scope| {
        for front in ["express", "vite", "webpack"] {
            let (held, url) = (&held, &url);
            scope.spawn(move || held(url, front));
        }
        for proxy in &proxies {
            let held = &held;
            scope.spawn(move || held(&proxy.url(), ""));
        }
    });
    assert_eq!(server.kill(), "");
}

#[test]
#[ignore = "gate: proxies and dev servers are started"]
fn events_sockets_and_pools_pass_nginx_caddy_and_dev_servers() {
    let Some(node) = Node::installed() else {
        return;
    };
    let (program, server, [alice, bob]) = serve_behind_proxies();
    let url = graphql(&server);
    for front in ["express", "vite", "webpack"] {
        node.run("proxied.js", &[&url, &alice, &bob, front]);
    }
    for start in [Proxy::nginx, Proxy::caddy] {
        if let Some(proxy) = start(&program, server.address()) {
            node.run("proxied.js", &[&proxy.url(), &alice, &bob]);
        }
    }
    assert_eq!(server.kill(), "");
}

/// The pool of the proxy closes idle connections before the server does, in the ratio of the file for operators, in seconds. Where the server
/// is first, a mutation may meet a connection that closes: nginx must not repeat what it has sent, and answers 502.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: pools of connections are quiet"]
async fn no_mutation_meets_a_connection_of_a_pool_that_closes() {
    const AT_ONCE: usize = 32;
    let program = Program::new();
    let arguments = [
        "--rates",
        "off",
        "--trusted-proxies",
        "127.0.0.1",
        "--idle-wait",
        "2500ms",
    ];
    let server = Server::start(&program, &arguments);
    let Some(nginx) = Proxy::nginx_with_pool(&program, server.address(), "2s") else {
        return;
    };
    let bearer = format!("Bearer {}", program.token("alice"));
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let body = br#"{"query": "mutation { updateProfile(input: {displayName: \"Alice\"}) { user { displayName } } }"}"#;
    let send = async || {
        let reply = http(nginx.address(), "POST", "/graphql", &headers, body).await;
        assert!(reply.body["errors"].is_null(), "{}", reply.body);
        reply.status
    };
    for quiet in (1_900..2_700).step_by(100) {
        let statuses = join_all((0..AT_ONCE).map(|_| send())).await;
        assert_eq!(statuses, [200; AT_ONCE], "{quiet}");
        tokio::time::sleep(Duration::from_millis(quiet)).await;
    }
}

#[test]
fn the_window_of_the_package_is_the_naive_list() {
    let Some(node) = Node::installed() else {
        return;
    };
    node.run("package/window.js", &[]);
}

#[test]
fn the_parts_of_a_body_are_links_mentions_and_code() {
    let Some(node) = Node::installed() else {
        return;
    };
    node.run("package/parts.js", &[]);
}

#[test]
fn the_package_keeps_the_rules_that_it_promises() {
    let Some(node) = Node::installed() else {
        return;
    };
    node.run("package/rules.js", &[]);
    node.run("package/failures.js", &[]);
    node.run("package/conversations.js", &[]);
    node.run("package/live.js", &[]);
}

#[test]
fn the_package_is_small_typed_and_true_to_the_schema() {
    let Some(node) = Node::installed() else {
        return;
    };
    node.run("package/check.js", &[]);
    node.run("package/declared.js", &[]);
}

#[test]
fn the_package_has_the_version_of_the_server() {
    let package = include_str!("../../src/server/pages/client/package.json");
    let version = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(package.contains(&version), "{package}");
}

#[test]
fn the_page_for_front_ends_names_the_code_that_is_tested() {
    let page = include_str!("README.md");
    for name in [
        "app",
        "dev/vite.config.js",
        "dev/webpack.config.js",
        "resume.js",
        "unsent.js",
        "relay.js",
        "apollo.js",
        "urql.js",
        "resumed.js",
        "trusted.js",
        "order.js",
        "agent.js",
        "agent.py",
        "ai-transport.js",
        "webhook.js",
        "webhook.py",
        "imports/slack.py",
        "imports/mattermost.py",
        "imports/matrix.py",
    ] {
        assert!(
            page.contains(&format!("]({name})")),
            "tests/clients/README.md does not link to {name}"
        );
    }
}
