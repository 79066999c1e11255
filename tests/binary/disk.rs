//! A disk that is really full, and one that is read-only: a small file system of its own, in a namespace of its own, so that no root is needed.
//!
//! On a system without unprivileged namespaces these tests are skipped with a message.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::client::{Caller, Reply};
use crate::support::program::Program;
use crate::support::server::Server;

const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { body } } } }";

/// Whether a file system can be mounted here at all.
fn can_mount() -> bool {
    let mut command = Command::new("unshare");
    command
        .args(["-Urm", "sh", "-c", "mount -t tmpfs wideroom /mnt"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let can = command.status().is_ok_and(|status| status.success());
    if !can {
        eprintln!("LEFT OUT: no file system can be mounted here (unshare -Urm)");
        assert!(
            std::env::var_os("CI").is_none(),
            "in a landing no test may be left out"
        );
    }
    can
}

/// The program in a namespace of its own, in which the shell does something first.
fn in_namespace(program: &Program, before: &str, arguments: &[&str]) -> Command {
    let inner = program.command(arguments);
    let mut command = Command::new("unshare");
    command
        .args([
            "-Urm",
            "sh",
            "-c",
            &format!("{before} && exec \"$@\""),
            "sh",
        ])
        .arg(inner.get_program())
        .args(inner.get_args());
    command
        .current_dir(program.dir.path())
        .env_clear()
        .stdin(Stdio::null());
    command.envs(
        inner
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("DATA", program.data());
    command
}

/// The data folder as the server in its namespace sees it.
fn inside(program: &Program, server: &Server) -> PathBuf {
    Path::new(&format!("/proc/{}/root", server.id()))
        .join(program.data().strip_prefix("/").unwrap())
}

/// Takes room until so many bytes are left.
fn fill(folder: &Path, left: u64) {
    let mut file = File::create(folder.join("filler")).unwrap();
    let block = vec![7; 64 * 1024];
    loop {
        let disk = rustix::fs::statvfs(folder).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        if free <= left
            || file
                .write_all(&block[..block.len().min(usize::try_from(free - left).unwrap())])
                .is_err()
        {
            return;
        }
    }
}

pub(super) async fn conversation(caller: &mut Caller) -> Value {
    let document =
        "mutation { startDirectConversation(input: {username: \"ben\"}) { conversation { id } } }";
    caller.data(document, &json!({})).await.unwrap()["startDirectConversation"]["conversation"]["id"].take()
}

pub(super) async fn send(caller: &mut Caller, conversation: &Value, body: &str) -> Reply {
    caller
        .ask(
            SEND,
            &json!({ "c": conversation, "b": body, "k": body.get(..8) }),
        )
        .await
        .unwrap()
}

pub(super) async fn count(caller: &mut Caller, conversation: &Value) -> i64 {
    let document = "query($c: ID!) { conversation(id: $c) { messageCount } }";
    caller
        .data(document, &json!({ "c": conversation }))
        .await
        .unwrap()["conversation"]["messageCount"]
        .as_i64()
        .unwrap()
}

fn start(program: &Program, free_disk_min: &str) -> (Server, Admin) {
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--rates",
        "off",
        "--free-disk-min",
        free_disk_min,
    ];
    // The server's folder is the file system, whose content outlives the namespace nowhere.
    let server = Server::spawn(&mut in_namespace(
        program,
        "mkdir -p \"$DATA\" && mount -t tmpfs -o size=96m wideroom \"$DATA\"",
        &arguments,
    ));
    let line = server.logs("listens for metrics, health and backups");
    let address = line
        .split_once("address")
        .unwrap()
        .1
        .trim_matches(|char: char| !char.is_ascii_digit())
        .parse()
        .unwrap();
    (server, Admin { address })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_up_is_told_of_and_heals_when_there_is_room() {
    if !can_mount() {
        return;
    }
    let program = Program::new();
    let (server, admin) = start(&program, "16MiB");
    let folder = inside(&program, &server);
    let token = fs::read_to_string(folder.join("token.key")).unwrap();
    fs::create_dir_all(program.data()).unwrap();
    fs::write(program.data().join("token.key"), token).unwrap();
    let mut ann = Caller::connect(server.address(), &program.token("ann"))
        .await
        .unwrap();
    let conversation = conversation(&mut ann).await;
    assert!(
        send(&mut ann, &conversation, "before 1")
            .await
            .body
            .get("errors")
            .is_none()
    );
    fill(&folder, 8 << 20);
    let why = admin.wait_for("/readyz", 503);
    assert!(why.contains("bytes of disk are free"), "{why}");
    assert_eq!(admin.get("/healthz").0, 200, "a restart would not heal it");
    let refused = send(&mut ann, &conversation, "meantime").await;
    assert_eq!(
        (refused.code(), refused.outcome()),
        ("UNAVAILABLE", "NOT_DONE")
    );
    assert_eq!(count(&mut ann, &conversation).await, 1, "reads go on");
    assert_eq!(admin.series("wideroom_store_writable"), Some(0.0));
    fs::remove_file(folder.join("filler")).unwrap();
    admin.wait_for("/readyz", 200);
    assert!(
        send(&mut ann, &conversation, "after it")
            .await
            .body
            .get("errors")
            .is_none()
    );
    assert_eq!(count(&mut ann, &conversation).await, 2);
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert!(code == Some(0) && !log.contains("ERROR"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_finds_no_room_is_undone_and_the_store_opens_itself_again() {
    if !can_mount() {
        return;
    }
    let program = Program::new();
    let (server, admin) = start(&program, "0B");
    let folder = inside(&program, &server);
    fs::create_dir_all(program.data()).unwrap();
    fs::copy(folder.join("token.key"), program.data().join("token.key")).unwrap();
    let mut ann = Caller::connect(server.address(), &program.token("ann"))
        .await
        .unwrap();
    let conversation = conversation(&mut ann).await;
    fill(&folder, 256 * 1024);
    let body = "x".repeat(16_000);
    let mut acknowledged = 0;
    let refused = loop {
        let reply = send(&mut ann, &conversation, &format!("{acknowledged:08}{body}")).await;
        if reply.body.get("errors").is_some() {
            break reply;
        }
        acknowledged += 1;
        assert!(acknowledged < 1_000, "the disk has no end");
    };
    assert_eq!(refused.code(), "UNAVAILABLE");
    let why = admin.wait_for("/readyz", 503);
    assert!(why.contains("reopens its engine"), "{why}");
    assert_eq!(admin.get("/healthz").0, 200, "a restart would not heal it");
    assert_eq!(
        count(&mut ann, &conversation).await,
        acknowledged,
        "reads go on"
    );
    let again = send(&mut ann, &conversation, "again 12").await;
    assert_eq!((again.code(), again.outcome()), ("UNAVAILABLE", "NOT_DONE"));
    fs::remove_file(folder.join("filler")).unwrap();
    admin.wait_for("/readyz", 200);
    // The write that failed is gone, so that its outcome is known by now. Its key brings it once.
    assert_eq!(count(&mut ann, &conversation).await, acknowledged);
    for _ in 0..2 {
        let settled = send(&mut ann, &conversation, &format!("{acknowledged:08}{body}")).await;
        assert!(settled.body.get("errors").is_none(), "{}", settled.body);
        assert_eq!(count(&mut ann, &conversation).await, acknowledged + 1);
    }
    // As a restart finds it.
    let rescued = program.dir.path().join("rescued");
    server.signal("-STOP");
    copy_folder(&folder, &rescued);
    let log = server.kill();
    assert!(log.contains("reopened its engine"), "{log}");
    let server = Server::spawn(
        program
            .command(&["serve", "--listen", "127.0.0.1:0", "--log", "warn"])
            .env("WIDEROOM_DATA", &rescued),
    );
    let mut ann = Caller::connect(server.address(), &program.token("ann"))
        .await
        .unwrap();
    assert_eq!(count(&mut ann, &conversation).await, acknowledged + 1);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&from, &to);
        } else if entry.file_name() != "filler" {
            fs::copy(from, to).unwrap();
        }
    }
}

#[test]
fn a_read_only_disk_is_one_clear_line() {
    if !can_mount() {
        return;
    }
    let program = Program::new();
    let server = Server::start(&program, &[]);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let before = "mount --bind \"$DATA\" \"$DATA\" && mount -o remount,ro,bind \"$DATA\"";
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--log", "warn"];
    let output = in_namespace(&program, before, &arguments).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let line = format!(
        "wideroom: {} cannot be read or written: Read-only file system",
        program.data().display()
    );
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.starts_with(&line) && stderr.lines().count() == 1,
        "{stderr}"
    );
    let server = Server::start(&program, &[]);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
