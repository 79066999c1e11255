//! Webhooks of the real program: the commands, and a server and a receiver that are killed again and again. The union of the
//! received ids is the log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use super::Dice;
use super::read;
use super::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage, name};
use crate::support::client::{Caller, Cut};
use crate::support::program::Program;
use crate::support::receiver::process::ReceiverProcess;
use crate::support::receiver::{Received, Receiver, SECRET};
use crate::support::server::Server;
use crate::support::world::PATIENCE;

/// Rounds without `WIDEROOM_WEBHOOK_ROUNDS`.
const ROUNDS: usize = 12;
const SENDERS: usize = 6;
/// A server or a receiver is killed within this time of the first send.
const SENDING: Duration = Duration::from_millis(400);

const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { id uuid } } } }";

pub(crate) fn config(program: &Program, address: SocketAddr, more: &str) -> String {
    let secret = program.write("backend.secret", SECRET);
    let webhook = format!(
        "[[webhook]]\nname = \"backend\"\nurl = \"http://{address}/hook\"\nallow_http = true\nsecret_file = \"{secret}\"\n{more}\n"
    );
    program.write("wideroom.toml", &webhook)
}

#[test]
fn the_configuration_is_checked_with_its_document() {
    let program = Program::new();
    let address = "127.0.0.1:9".parse().unwrap();
    let file = config(&program, address, "types = [\"MESSAGE_ADDED\"]");
    let shown = program.run(&["check-config", "--config", &file]);
    let shown = shown.succeeded().to_owned();
    assert!(
        shown.contains("[[webhook]]\nname = \"backend\"\n"),
        "{shown}"
    );
    let file = config(
        &program,
        address,
        "document = \"subscription { outbox { nothing } }\"",
    );
    let refused = program.run(&["check-config", "--config", &file]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused
            .stderr
            .contains("webhook backend: the document is refused:"),
        "{}",
        refused.stderr
    );
    let hook = |secret: &str| {
        format!("[before_send]\nurl = \"https://hook.example/a\"\nsecret_file = \"{secret}\"")
    };
    let secret = program.write("hook.secret", SECRET);
    let file = config(&program, address, &hook(&secret));
    let shown = program.run(&["check-config", "--config", &file]);
    let shown = shown.succeeded().to_owned();
    assert!(shown.contains("[before_send]\nurl = "), "{shown}");
    let file = config(&program, address, &hook("/nowhere"));
    let refused = program.run(&["check-config", "--config", &file]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("before_send: /nowhere"),
        "{}",
        refused.stderr
    );
    let file = config(&program, address, "typos = 1");
    assert_eq!(
        program.run(&["check-config", "--config", &file]).code,
        Some(1)
    );
    // The outbox is off.
    let file = config(&program, address, "");
    let refused = program.run(&["serve", "--listen", "127.0.0.1:0", "--config", &file]);
    assert_eq!(refused.code, Some(1));
    let why = "wideroom: webhooks need the outbox of the deployment, which is off: switch it on with `wideroom outbox on`\n";
    assert!(refused.stderr.ends_with(why), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_list_and_redeliver() {
    let program = Program::new();
    program.run(&["outbox", "on"]).succeeded();
    let receiver = Receiver::start().await;
    let file = config(&program, receiver.address, "");
    let (server, admin) = Server::start_with_admin(&program, &["--config", &file]);
    let address = admin.address.to_string();
    let command = |arguments: &[&str]| {
        let arguments = [arguments, &["--admin-listen", &address]].concat();
        tokio::task::block_in_place(|| program.run(&arguments))
            .succeeded()
            .to_owned()
    };
    let listed = command(&["webhook", "list"]);
    assert!(
        listed.starts_with("backend to http://127.0.0.1:"),
        "{listed}"
    );
    assert!(listed.contains("0 dead letters"), "{listed}");
    let redelivered = command(&["webhook", "redeliver", "backend"]);
    assert_eq!(redelivered, "0 delivered, 0 left\n");
    let arguments = ["webhook", "redeliver", "nobody", "--admin-listen", &address];
    let unknown = tokio::task::block_in_place(|| program.run(&arguments));
    assert!(
        unknown.stderr.contains("no webhook of this name"),
        "{}",
        unknown.stderr
    );
    let stranger = Program::new();
    stranger.token("alice");
    let refused = ["webhook", "list", "--admin-listen", &address];
    let refused = tokio::task::block_in_place(|| stranger.run(&refused));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("token"), "{}", refused.stderr);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// One who sends until the connection is cut. Returns the ids of the acknowledged messages.
async fn write(stage: Arc<Stage>, address: SocketAddr, task: usize, round: usize) -> Vec<String> {
    let mut sent = Vec::new();
    let small = stage.of_user(task).find(|at| *at >= SMALL_AT).unwrap();
    let places = [GROUP_AT, LARGE_AT, small];
    let write = async {
        let mut caller = Caller::connect(address, &stage.program.token(&name(task))).await?;
        for number in 0_usize.. {
            let conversation = &stage.conversations[places[(task + number) % 3]].id;
            let body = format!("{round} {task} {number}");
            let variables = json!({"c": conversation, "b": body});
            let data = caller.data(SEND, &variables).await?;
            let node = &data["sendMessage"]["messageEdge"]["node"];
            sent.push(node["uuid"].as_str().unwrap().to_owned());
            // The receiver would trail further with each round.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, Cut>(())
    };
    let _ = write.await;
    sent
}

/// First deliveries of each conversation, in the order in which they came.
pub(crate) fn by_conversation(received: &[Received]) -> BTreeMap<String, Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut conversations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in received {
        assert!(one.is_signed_by(SECRET));
        if seen.insert(one.id().to_owned()) {
            let conversation = one.json()["data"]["outbox"]["conversation"]["id"].take();
            let conversation = conversation.as_str().unwrap().to_owned();
            let ids = conversations.entry(conversation).or_default();
            ids.push(one.id().to_owned());
        }
    }
    conversations
}

/// The ids of the TEXT messages of each conversation, oldest first: the log.
pub(crate) async fn log(stage: &Stage, address: SocketAddr) -> BTreeMap<String, Vec<String>> {
    let mut log = BTreeMap::new();
    for conversation in &stage.conversations {
        let participant = *conversation.participants.last().unwrap();
        let mut caller = stage.caller(address, participant).await;
        let history = read::history(&mut caller, &conversation.id).await;
        let ids: Vec<_> = history
            .messages
            .iter()
            .filter(|message| message.whole["kind"] == "TEXT")
            .map(|message| message.id.to_string())
            .collect();
        if !ids.is_empty() {
            log.insert(conversation.id.clone(), ids);
        }
    }
    log
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: killed and started again and again"]
async fn a_receiver_has_the_log_after_every_crash() {
    let rounds = std::env::var("WIDEROOM_WEBHOOK_ROUNDS")
        .map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
    let program = Program::new();
    program.run(&["outbox", "on"]).succeeded();
    let stage = Arc::new(Stage::set_up(program).await);
    let mut receiver = ReceiverProcess::start().await;
    let document = "subscription { outbox { id conversation { id } } }";
    let more = format!("types = [\"MESSAGE_ADDED\"]\ndocument = \"{document}\"");
    let file = config(&stage.program, receiver.address, &more);
    let arguments = ["--config", &file, "--log", "error", "--rates", "off"];
    let serve = || Server::start(&stage.program, &arguments);
    let mut dice = Dice::new();
    let mut acknowledged = BTreeSet::new();
    let mut server = serve();
    let began = Instant::now();
    let mut round = 0;
    // On a machine that has other things to do, a round may end before anything is acknowledged.
    while round < rounds || (acknowledged.len() <= rounds * SENDERS && round < 4 * rounds) {
        let address = server.address();
        let writers: Vec<_> = (0..SENDERS)
            .map(|task| tokio::spawn(write(Arc::clone(&stage), address, task, round)))
            .collect();
        let micros = u64::try_from(SENDING.as_micros()).unwrap();
        tokio::time::sleep(Duration::from_micros(dice.roll(micros) + 20_000)).await;
        // Both are killed, one soon after the other.
        let is_receiver_first = dice.roll(2) == 0;
        if is_receiver_first {
            receiver.kill();
            tokio::time::sleep(Duration::from_micros(dice.roll(micros / 2))).await;
        }
        let log = server.kill();
        assert!(!log.contains("panicked"), "{log}");
        for outcome in join_all(writers).await {
            acknowledged.extend(outcome.unwrap());
        }
        // Some requests of the next round are taken and never answered.
        receiver.restart(dice.roll(7) + 2).await;
        server = serve();
        round += 1;
    }
    receiver.restart(0).await;
    let log = log(&stage, server.address()).await;
    let logged: BTreeSet<_> = log.values().flatten().cloned().collect();
    assert!(acknowledged.is_subset(&logged), "a server lost a message");
    let waited = Instant::now();
    loop {
        let received: BTreeSet<_> = receiver.received().iter().map(Received::id).collect();
        if received.len() >= logged.len() {
            break;
        }
        let count = received.len();
        assert!(
            waited.elapsed() < PATIENCE,
            "{count} of {} events",
            logged.len()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let delivered = by_conversation(receiver.received());
    println!(
        "{round} crashes in {:.0?}, {} messages acknowledged, {} in the log, {} requests",
        began.elapsed(),
        acknowledged.len(),
        logged.len(),
        receiver.received().len(),
    );
    assert_eq!(delivered, log, "the log, in order within each conversation");
    assert!(acknowledged.len() > rounds * SENDERS);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
