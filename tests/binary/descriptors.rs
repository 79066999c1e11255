//! Few descriptors: what strangers hold, and what the store needs.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;

use super::disk::{conversation, count, send};
use crate::support::admin::Admin;
use crate::support::client::{Caller, Reply};
use crate::support::program::Program;
use crate::support::server::Server;

/// So many sends of this size fill a buffer of the store, which it then writes to new files.
const SENDS: i64 = 700;
const BODY_BYTES: usize = 16_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: thousands of connections"]
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

/// A server without descriptors, which refuses writes.
struct Starved {
    server: Server,
    admin: Admin,
    ann: Caller,
    conversation: Value,
    acknowledged: i64,
    limit: Rlimit,
}

impl Starved {
    async fn start(program: &Program) -> Self {
        let (server, admin) = Server::start_with_admin(program, &["--rates", "off"]);
        let mut ann = Caller::connect(server.address(), &program.token("ann"))
            .await
            .unwrap();
        let conversation = conversation(&mut ann).await;
        let mut starved = Self {
            server,
            admin,
            ann,
            conversation,
            acknowledged: 0,
            limit: getrlimit(Resource::Nofile),
        };
        starved.limit = starved.set_limit(starved.limit);
        // The lowest number that is free: none below it can be opened.
        let open: Vec<u64> = fs::read_dir(format!("/proc/{}/fd", starved.server.id()))
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
        starved.set_limit(Rlimit {
            current: (0..).find(|number| !open.contains(number)),
            ..starved.limit
        });
        let refused = loop {
            let reply = starved.send(starved.acknowledged).await;
            if reply.body.get("errors").is_some() {
                break reply;
            }
            starved.acknowledged += 1;
            assert!(starved.acknowledged < 4 * SENDS, "the store needs no files");
        };
        // The engine had refused it before it wrote anything.
        assert_eq!(
            (refused.code(), refused.outcome()),
            ("UNAVAILABLE", "NOT_DONE")
        );
        starved
    }

    async fn send(&mut self, number: i64) -> Reply {
        let body = format!("{number:08}{}", "x".repeat(BODY_BYTES));
        send(&mut self.ann, &self.conversation, &body).await
    }

    async fn count(&mut self) -> i64 {
        count(&mut self.ann, &self.conversation).await
    }

    /// Sets the limit of open files. Answers with the one before.
    fn set_limit(&self, limit: Rlimit) -> Rlimit {
        let process = Pid::from_raw(i32::try_from(self.server.id()).unwrap());
        prlimit(process, Resource::Nofile, limit).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lack_of_descriptors_ends_and_nothing_that_was_acknowledged_is_lost() {
    let program = Program::new();
    let mut starved = Starved::start(&program).await;
    let acknowledged = starved.acknowledged;
    assert_eq!(starved.count().await, acknowledged, "reads go on");
    starved.set_limit(starved.limit);
    starved.admin.wait_for("/readyz", 200);
    assert_eq!(starved.count().await, acknowledged);
    for number in [acknowledged, acknowledged + 1] {
        let reply = starved.send(number).await;
        assert!(reply.body.get("errors").is_none(), "{}", reply.body);
    }
    assert_eq!(starved.count().await, acknowledged + 2);
    starved.server.signal("-TERM");
    let (code, _, log) = starved.server.end();
    assert!(
        code == Some(0) && log.contains("reopened its engine"),
        "{log}"
    );
}

/// One line however often the server tries, and one when it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: waits for its log"]
async fn a_server_without_descriptors_says_once_that_it_cannot_accept() {
    let program = Program::new();
    let starved = Starved::start(&program).await;
    // The engine may have closed some files since.
    let _waiting: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(starved.server.address()).unwrap())
        .collect();
    starved.server.logs("the server cannot accept connections");
    // Not to wait for anything: it tries five times a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    starved.set_limit(starved.limit);
    starved.server.logs("the server accepts connections again");
    starved.admin.wait_for("/readyz", 200);
    starved.server.signal("-TERM");
    let (code, _, log) = starved.server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("cannot accept connections").count(), 1, "{log}");
}

/// A supervisor then does not start the server again, but an operator is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_is_found_while_the_store_opens_itself_again_ends_the_server_with_a_code_of_its_own()
 {
    let program = Program::new();
    let starved = Starved::start(&program).await;
    let journals: Vec<_> = fs::read_dir(program.data().join("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "jnl"))
        .collect();
    assert!(!journals.is_empty());
    for journal in journals {
        fs::File::options()
            .write(true)
            .open(journal)
            .unwrap()
            .set_len(0)
            .unwrap();
    }
    starved.set_limit(starved.limit);
    let (code, _, log) = starved.server.end();
    assert_eq!(code, Some(3), "{log}");
    assert!(
        log.contains("a retry cannot help: the server ends"),
        "{log}"
    );
    let reason = log.lines().last().unwrap().to_owned();
    assert!(
        reason.starts_with("wideroom: ") && reason.ends_with("(--accept-loss)"),
        "{reason}"
    );
    // Nor does a restart mend it.
    let again = program.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(again.code, Some(3), "{}", again.stderr);
    assert_eq!(again.stderr.lines().last(), Some(reason.as_str()));
}
