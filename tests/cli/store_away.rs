//! A server whose store is away at its start: it waits, says so where operators look, and serves once the store is back.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Program;
use super::fragile_line::FragileLine;
use crate::binary::webhook;
use crate::cluster::place::migrated;
use crate::support::admin::{Admin, ON};
use crate::support::cassandra::shared;
use crate::support::client::Caller;
use crate::support::program::Running;
use crate::support::server::Server;
use crate::support::world::PATIENCE;

/// Admin listener of a server that is not ready yet: its address stands in the data folder.
fn admin_of(program: &Program) -> Admin {
    let began = Instant::now();
    loop {
        let written = std::fs::read_to_string(program.data().join("admin-address"));
        if let Some(address) = written.ok().and_then(|text| text.trim().parse().ok()) {
            return Admin { address };
        }
        assert!(began.elapsed() < PATIENCE, "no address is written");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_waits_for_a_cluster_that_is_away() {
    let program = Program::on("cql://user:hunter2@127.0.0.1:1/chat".to_owned());
    let mut command = program.command(&[&["serve", "--listen", "127.0.0.1:0"], &ON[..]].concat());
    let mut server = Running::spawn(command.stderr(Stdio::piped()));
    let admin = admin_of(&program);
    let waits = "the server waits for its store: cql://127.0.0.1:1/chat does not answer: ";
    let (status, reason) = admin.wait_until("/readyz", |body| body.starts_with(waits));
    assert_eq!(status, 503, "{reason}");
    // A supervisor does not restart it.
    program.run(&["health"]).succeeded();
    server.signal("-TERM");
    let log = server.read_stderr();
    assert_eq!(server.child.wait().unwrap().code(), Some(0), "{log}");
    assert_eq!(
        log.matches("the server waits for its store").count(),
        1,
        "{log}"
    );
    assert!(
        !log.contains("hunter2") && !reason.contains("hunter2"),
        "{log}"
    );
}

/// Passes connections on to a node, until the process ends.
fn forward(from: SocketAddr, to: SocketAddr) {
    let listener = TcpListener::bind(from).unwrap();
    std::thread::spawn(move || {
        for incoming in listener.incoming() {
            let (here, there) = (incoming.unwrap(), TcpStream::connect(to).unwrap());
            for (mut from, mut to) in [
                (here.try_clone().unwrap(), there.try_clone().unwrap()),
                (there, here),
            ] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
}

/// As after a power cut, when servers start sooner than the nodes of their cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_serves_once_its_cluster_is_back() {
    let Some(shared) = shared().await else { return };
    let hosts = shared.authority().rsplit('@').next().unwrap();
    // A cluster that was there already may have several.
    let Ok(node) = hosts.parse::<SocketAddr>() else {
        return;
    };
    let program = migrated(|keyspace| shared.url(keyspace), "1");
    // Nothing listens there yet.
    let front = TcpListener::bind((node.ip(), 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let store = program
        .store()
        .replace(&node.to_string(), &front.to_string());
    let (server, admin) = std::thread::scope(|scope| {
        let starting = scope.spawn(|| Server::start_with_admin(&program, &["--store", &store]).0);
        let admin = admin_of(&program);
        let (status, _) = admin.wait_until("/readyz", |body| {
            body.starts_with("the server waits for its store: ")
        });
        assert_eq!(status, 503);
        forward(front, node);
        (starting.join().unwrap(), admin)
    });
    admin.wait_for("/readyz", 200);
    let mut alice = Caller::connect(server.address(), &program.token("alice"))
        .await
        .unwrap();
    let start =
        "mutation { startDirectConversation(input: {username: \"bob\"}) { conversation { id } } }";
    alice.data(start, &Value::Null).await.unwrap();
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

/// The steps of a start behind the opening of the store, by the first statement of each.
const LATER_STEPS: [&str; 2] = [
    ".servers (server_id, version)",
    ".outbox_positions WHERE reader",
];

/// The cluster has answered, and its store was opened: what follows waits for it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_waits_for_a_cluster_that_goes_away_while_it_starts() {
    let Some(shared) = shared().await else { return };
    let hosts = shared.authority().rsplit('@').next().unwrap();
    let Ok(node) = hosts.parse::<SocketAddr>() else {
        return;
    };
    let deployment = migrated(|keyspace| shared.url(keyspace), "1");
    deployment.run(&["outbox", "on"]).succeeded();
    let receiver = "127.0.0.1:9".parse().unwrap();
    for (step, is_stopped) in LATER_STEPS.into_iter().zip([false, true]) {
        let line = FragileLine::to(node, step);
        let store = deployment.store().replace("timeout=10s", "timeout=2s");
        let through_line = store.replace(&node.to_string(), &line.address.to_string());
        assert_ne!(through_line, store);
        let program = Program::on(through_line);
        let config = webhook::config(&program, receiver, "types = [\"MESSAGE_ADDED\"]");
        let arguments = [
            &["serve", "--listen", "127.0.0.1:0", "--config", &config],
            &ON[..],
        ]
        .concat();
        let waits = |admin: &Admin| {
            line.wait_until_broken();
            let (status, reason) = admin.wait_until("/readyz", |body| {
                body.starts_with("the server waits for its store: ")
            });
            assert_eq!(status, 503, "{reason}");
            program.run(&["health"]).succeeded();
        };
        let (code, log) = if is_stopped {
            let mut server = Running::spawn(program.command(&arguments).stderr(Stdio::piped()));
            waits(&admin_of(&program));
            server.signal("-TERM");
            let log = server.read_stderr();
            (server.child.wait().unwrap().code(), log)
        } else {
            let server = std::thread::scope(|scope| {
                let starting = scope.spawn(|| Server::spawn(&mut program.command(&arguments)));
                waits(&admin_of(&program));
                line.mend();
                starting.join().unwrap()
            });
            admin_of(&program).wait_for("/readyz", 200);
            server.signal("-TERM");
            let (code, _, log) = server.end();
            (code, log)
        };
        assert_eq!(code, Some(0), "{log}");
        let lines = log.matches("the server waits for its store").count();
        assert_eq!(lines, 1, "{log}");
    }
}

/// As when a supervisor starts the next server before the last one has closed its folder.
#[test]
fn a_server_waits_for_the_lock_of_its_folder() {
    let program = Program::new();
    let first = Server::start(&program, &[]);
    let line = format!(
        "{} is in use by another wideroom (serve, import, …): stop it first, or name another folder",
        program.data().display()
    );
    program
        .run_with_input(&["import", "-"], "")
        .failed(4, &line);
    program.run(&["token", "--user", "alice"]).succeeded();
    let second = std::thread::scope(|scope| {
        let starting = scope.spawn(|| Server::start_with_admin(&program, &[]).0);
        let (status, _) = admin_of(&program).wait_until("/readyz", |body| body.contains(&line));
        assert_eq!(status, 503);
        first.signal("-TERM");
        starting.join().unwrap()
    });
    assert_eq!(first.end().0, Some(0));
    assert_eq!(admin_of(&program).get("/readyz").0, 200);
    second.signal("-TERM");
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn health_finds_the_server_of_a_folder() {
    let program = Program::new();
    let none = format!(
        "no server runs on {}, or its admin listener is off (--admin-listen)",
        program.data().display()
    );
    program.run(&["health"]).failed(1, &none);
    let (server, admin) = Server::start_with_admin(&program, &[]);
    assert_eq!(program.run(&["health"]).succeeded(), "alive\n");
    let log = server.kill();
    let ended = program.run(&["health"]);
    assert_eq!(ended.code, Some(1), "{log}");
    let line = format!(
        "wideroom: the server at {} does not answer: ",
        admin.address
    );
    assert!(ended.stderr.starts_with(&line), "{}", ended.stderr);
    let server = Server::start(&program, &["--admin-listen", "off"]);
    program.run(&["health"]).failed(1, &none);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
