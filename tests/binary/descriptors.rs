//! Few descriptors: what strangers hold, and what the store needs.

use std::fs;
use std::net::TcpStream;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::disk::{conversation, count, send};
use crate::support::client::Caller;
use crate::support::program::Program;
use crate::support::server::Server;

/// So many sends of this size fill a buffer of the store, which it then writes to new files.
const SENDS: i64 = 700;
const BODY_BYTES: usize = 16_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_of_a_stranger_leave_the_store_its_descriptors() {
    let program = Program::new();
    let inner = program.command(&["serve", "--listen", "127.0.0.1:0", "--rates", "off"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 256 && exec \"$@\"", "sh"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear()
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let server = Server::spawn(&mut command);
    let line = server.logs("the limit of open files allows");
    assert!(
        line.contains("limit=256") && line.contains("connections=21"),
        "{line}"
    );
    let _strangers: Vec<_> = (0..500)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    let mut ann = Caller::connect(server.address(), &program.token("ann"))
        .await
        .unwrap();
    let conversation = conversation(&mut ann).await;
    let body = "x".repeat(BODY_BYTES);
    for number in 0..SENDS {
        let reply = send(&mut ann, &conversation, &format!("{number:08}{body}")).await;
        assert!(
            reply.body.get("errors").is_none(),
            "{number}: {}",
            reply.body
        );
    }
    let log = server.kill();
    assert!(!log.contains("ERROR"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lack_of_descriptors_ends_and_nothing_that_was_acknowledged_is_lost() {
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &["--rates", "off"]);
    let mut ann = Caller::connect(server.address(), &program.token("ann"))
        .await
        .unwrap();
    let conversation = conversation(&mut ann).await;
    let process = Pid::from_raw(i32::try_from(server.id()).unwrap());
    let before = prlimit(process, Resource::Nofile, getrlimit(Resource::Nofile)).unwrap();
    let limit = |current| prlimit(process, Resource::Nofile, Rlimit { current, ..before });
    // The lowest number that is free: none below it can be opened.
    let open: Vec<u64> = fs::read_dir(format!("/proc/{}/fd", server.id()))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    limit((0..).find(|number| !open.contains(number))).unwrap();
    let body = "x".repeat(BODY_BYTES);
    let mut acknowledged = 0;
    let refused = loop {
        let reply = send(&mut ann, &conversation, &format!("{acknowledged:08}{body}")).await;
        if reply.body.get("errors").is_some() {
            break reply;
        }
        acknowledged += 1;
        assert!(acknowledged < 4 * SENDS, "the store needs no files");
    };
    // The engine had refused it before it wrote anything.
    assert_eq!(
        (refused.code(), refused.outcome()),
        ("UNAVAILABLE", "NOT_DONE")
    );
    assert_eq!(
        count(&mut ann, &conversation).await,
        acknowledged,
        "reads go on"
    );
    limit(before.current).unwrap();
    admin.wait_for("/readyz", 200);
    assert_eq!(count(&mut ann, &conversation).await, acknowledged);
    for number in [acknowledged, acknowledged + 1] {
        let reply = send(&mut ann, &conversation, &format!("{number:08}{body}")).await;
        assert!(reply.body.get("errors").is_none(), "{}", reply.body);
    }
    assert_eq!(count(&mut ann, &conversation).await, acknowledged + 2);
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert!(
        code == Some(0) && log.contains("opened its engine anew"),
        "{log}"
    );
}
