//! A backup of a running server: a server on the copy gives the same answers, whatever went on meanwhile, and half a copy is none.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::read::{self, History};
use super::stage::{GROUP_AT, Stage, name};
use crate::support::admin::Admin;
use crate::support::client::{Caller, soon};
use crate::support::program::{Ended, Program, Running};
use crate::support::server::Server;

const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { uuid } } } }";
const QUIET: [&str; 4] = ["--log", "info,wideroom::server=warn", "--rates", "off"];

fn backup(program: &Program, admin: &Admin, dir: &Path) -> Ended {
    program.run(&[
        "backup",
        dir.to_str().unwrap(),
        "--admin-listen",
        &admin.address.to_string(),
    ])
}

fn serve_copy(program: &Program, dir: &Path) -> Server {
    Server::spawn(
        program
            .command(&[
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--log",
                "warn",
                "--rates",
                "off",
            ])
            .env("WIDEROOM_DATA", dir),
    )
}

async fn history(stage: &Stage, address: SocketAddr, conversation: usize) -> History {
    let of = &stage.conversations[conversation];
    read::history(&mut stage.caller(address, of.participants[0]).await, &of.id).await
}

fn bodies(history: &History) -> Vec<String> {
    history
        .messages
        .iter()
        .filter_map(|read| read.body.clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_the_copy_gives_the_same_answers() {
    let stage = Stage::set_up(Program::new()).await;
    let (server, admin) = Server::start_with_admin(&stage.program, &QUIET);
    for (at, conversation) in stage.conversations.iter().enumerate() {
        let mut caller = stage
            .caller(server.address(), conversation.participants[0])
            .await;
        for number in 0..3 {
            caller
                .data(
                    SEND,
                    &json!({ "c": conversation.id, "b": format!("{at}/{number}") }),
                )
                .await
                .unwrap();
        }
    }
    let dir = stage.program.dir.path().join("copy");
    let ended = backup(&stage.program, &admin, &dir);
    assert!(
        ended.succeeded().ends_with(&format!(
            "to serve them: wideroom serve --data {}\n",
            dir.display()
        )),
        "{}",
        ended.stdout
    );
    let again = backup(&stage.program, &admin, &dir);
    again.failed(
        1,
        &format!(
            "{} is not empty: name a folder that is not there yet, or delete what is in it",
            dir.display()
        ),
    );
    let copy = serve_copy(&stage.program, &dir);
    for at in 0..stage.conversations.len() {
        let (one, other) = (
            history(&stage, server.address(), at).await,
            history(&stage, copy.address(), at).await,
        );
        assert_eq!(one, other);
    }
    for user in [0, 9, 30] {
        let inbox = async |address| {
            read::inbox(&mut stage.caller(address, user).await)
                .await
                .entries
        };
        assert_eq!(
            inbox(server.address()).await,
            inbox(copy.address()).await,
            "{}",
            name(user)
        );
    }
    // It goes on from there, with the same tokens.
    for conversation in &stage.conversations {
        let mut caller = stage
            .caller(copy.address(), conversation.participants[0])
            .await;
        caller
            .data(SEND, &json!({ "c": conversation.id, "b": "on the copy" }))
            .await
            .unwrap();
    }
    for server in [server, copy] {
        server.signal("-TERM");
        let (code, _, log) = server.end();
        assert!(code == Some(0) && !log.contains("ERROR"), "{log}");
    }
}

/// Sends one after the other until it is told to stop. What was acknowledged, and when.
async fn send_on(
    mut caller: Caller,
    conversation: String,
    task: usize,
    stop: Arc<AtomicBool>,
) -> Vec<(String, Instant)> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let body = format!("{task}/{}", acknowledged.len());
        caller
            .data(SEND, &json!({ "c": conversation, "b": body }))
            .await
            .unwrap();
        acknowledged.push((body, Instant::now()));
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_taken_while_many_send_holds_what_was_acknowledged_before() {
    let stage = Stage::set_up(Program::new()).await;
    let (server, admin) = Server::start_with_admin(&stage.program, &QUIET);
    let stop = Arc::new(AtomicBool::new(false));
    let group = &stage.conversations[GROUP_AT];
    let mut senders = Vec::new();
    for task in 0..4 {
        let caller = stage
            .caller(server.address(), group.participants[task])
            .await;
        senders.push(tokio::spawn(send_on(
            caller,
            group.id.clone(),
            task,
            stop.clone(),
        )));
    }
    let mut copies = Vec::new();
    for number in 0..2 {
        let dir = stage.program.dir.path().join(format!("copy-{number}"));
        let began = Instant::now();
        tokio::task::block_in_place(|| backup(&stage.program, &admin, &dir)).succeeded();
        copies.push((dir, began));
    }
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for sender in senders {
        acknowledged.push(soon(sender).await.unwrap());
    }
    for (dir, began) in copies {
        let copy = serve_copy(&stage.program, &dir);
        let there = bodies(&history(&stage, copy.address(), GROUP_AT).await);
        for (task, sent) in acknowledged.iter().enumerate() {
            let before = sent.iter().filter(|(_, at)| *at < began).count();
            let kept: Vec<_> = there
                .iter()
                .filter(|body| body.starts_with(&format!("{task}/")))
                .collect();
            assert!(kept.len() >= before, "{} of {before} are there", kept.len());
            // One moment: of each sender the first messages, and no hole.
            assert!(
                kept.iter()
                    .enumerate()
                    .all(|(number, body)| **body == format!("{task}/{number}")),
                "{kept:?}"
            );
        }
        copy.signal("-TERM");
        assert_eq!(copy.end().0, Some(0));
    }
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// Messages in the store of the next test: a copy takes long enough to be killed.
const BULK: usize = 5_000;

#[test]
fn half_a_copy_never_looks_whole() {
    let program = Program::new();
    let conversation = "00000000-0000-4000-8000-000000000001";
    let mut lines = format!(
        "{{\"type\":\"conversation\",\"id\":\"{conversation}\",\"kind\":\"DIRECT\",\"participants\":[{{\"username\":\"ann\"}},{{\"username\":\"ben\"}}]}}\n"
    );
    for number in 0..BULK {
        // The time in it is in 2023.
        let id = format!("{number:08x}-8a00-11ee-8000-000000000001");
        lines += &format!(
            "{{\"type\":\"message\",\"conversationId\":\"{conversation}\",\"id\":\"{id}\",\"sender\":\"ann\",\"body\":\"{number} {}\"}}\n",
            "x".repeat(2_000)
        );
    }
    let file = program.write("bulk.jsonl", &lines);
    program.run(&["import", &file]).succeeded();
    let (server, admin) = Server::start_with_admin(&program, &["--log", "info"]);
    let address = admin.address.to_string();
    let mut halves = 0;
    for delay in [0, 20, 40, 80, 120, 200, 300] {
        let dir = program.dir.path().join(format!("half-{delay}"));
        let mut command =
            program.command(&["backup", dir.to_str().unwrap(), "--admin-listen", &address]);
        let mut process = Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        // One that comes while the server still reads for the one before is refused, and gone at once.
        wait_for(|| {
            dir.join("unfinished-backup").exists() || process.child.try_wait().unwrap().is_some()
        });
        // Not to wait for anything: how far it is when it is killed is left to chance.
        std::thread::sleep(Duration::from_millis(delay));
        let _ = process.child.kill();
        process.child.wait().unwrap();
        if !dir.join("unfinished-backup").exists() {
            continue;
        }
        halves += 1;
        let line = format!(
            "{} is an unfinished backup: delete it, and use another backup",
            dir.display()
        );
        let ended: Ended = program
            .command(&["serve", "--listen", "127.0.0.1:0"])
            .env("WIDEROOM_DATA", &dir)
            .output()
            .unwrap()
            .into();
        assert_eq!(
            (ended.code, ended.stderr.lines().last()),
            (Some(3), Some(format!("wideroom: {line}").as_str()))
        );
        backup(&program, &admin, &dir).failed(
            1,
            &format!(
                "{} is not empty: name a folder that is not there yet, or delete what is in it",
                dir.display()
            ),
        );
    }
    assert!(halves > 0, "none was killed in the middle");
    // The server is none the worse for it, and another copy is whole.
    let whole = program.dir.path().join("whole");
    wait_for(|| backup(&program, &admin, &whole).code == Some(0));
    let copy = serve_copy(&program, &whole);
    let query = format!(
        "%7Bconversation(id:%22{}%22)%7BmessageCount%7D%7D",
        conversation_id(&program, &copy)
    );
    let answer = crate::cli::get(
        &copy.url,
        &format!(
            "GET /graphql?query={query} HTTP/1.1\r\nAuthorization: Bearer {}",
            program.token("ann")
        ),
    );
    assert!(
        answer.contains(&format!("\"messageCount\":{BULK}")),
        "{answer}"
    );
    for server in [server, copy] {
        server.signal("-TERM");
        assert_eq!(server.end().0, Some(0));
    }
}

fn conversation_id(program: &Program, server: &Server) -> String {
    let query = "%7Binbox%7Bedges%7Bnode%7Bconversation%7Bid%7D%7D%7D%7D%7D";
    let answer = crate::cli::get(
        &server.url,
        &format!(
            "GET /graphql?query={query} HTTP/1.1\r\nAuthorization: Bearer {}",
            program.token("ann")
        ),
    );
    answer
        .split("\"id\":\"")
        .nth(1)
        .unwrap_or_else(|| panic!("{answer}"))
        .split('"')
        .next()
        .unwrap()
        .to_owned()
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dated_copies_are_kept_up_to_a_number() {
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &QUIET);
    let root = program.dir.path().join("copies");
    let address = admin.address.to_string();
    let back_up = || {
        let arguments = ["backup", root.to_str().unwrap(), "--keep", "2"];
        program.run(&[&arguments[..], &["--admin-listen", &address]].concat())
    };
    let copies = || {
        let entries = std::fs::read_dir(&root).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        names
    };
    for _ in 0..2 {
        back_up().succeeded();
    }
    let before = copies();
    assert_eq!(before.len(), 2);
    let ended = back_up();
    assert!(
        ended
            .succeeded()
            .ends_with("1 older copies deleted, 2 stay\n"),
        "{}",
        ended.stdout
    );
    let after = copies();
    assert_eq!((after.len(), &after[0]), (2, &before[1]));
    let newest = root.join(&after[1]);
    program
        .run(&["verify", "--data", newest.to_str().unwrap()])
        .succeeded();
    drop(server);
    // A backup that fails leaves no folder, and deletes none.
    assert_eq!(back_up().code, Some(1));
    assert_eq!(copies(), after);
}
