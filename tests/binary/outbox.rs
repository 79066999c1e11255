//! The outbox of the real program: the command that switches it, and a server that is killed again
//! and again. The union of the delivered events is the log of the acknowledged writes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::Dice;
use super::read;
use super::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage, name, serve};
use crate::support::client::{Caller, Cut, Socket, soon};
use crate::support::program::Program;
use crate::support::server::Server;

const ROUNDS: usize = 12;
const SENDERS: usize = 8;
/// A server is killed within this time of as many acknowledgements as there are senders.
const SENDING: Duration = Duration::from_millis(500);

const OUTBOX: &str = "outbox(after: AFTER) { cursor id conversation { id } event { __typename } }";
const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { id uuid } } } }";
const EDIT: &str = "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"edited\"}) { message { uuid } } }";

#[test]
fn the_command_switches_the_outbox_and_says_whether_it_is_on() {
    let program = Program::new();
    let status = |program: &Program| program.run(&["outbox", "status"]).succeeded().to_owned();
    let missing = program.run(&["outbox", "status"]);
    let folder = program.data();
    missing.failed(1, &format!("there is no store in {}", folder.display()));
    let on = program.run(&["outbox", "on"]).succeeded().to_owned();
    assert!(
        on.starts_with("the outbox is on: it has the events since 20"),
        "{on}"
    );
    assert_eq!(status(&program), on);
    assert_eq!(
        program.run(&["outbox", "on"]).succeeded(),
        on,
        "it stays as it is"
    );
    for _ in 0..2 {
        assert_eq!(
            program.run(&["outbox", "off"]).succeeded(),
            "the outbox is off\n"
        );
    }
    assert_eq!(status(&program), "the outbox is off\n");
    assert_eq!(program.run(&["outbox", "maybe"]).code, Some(2));
    let server = Server::start(&program, &["--log", "warn"]);
    let refused = program.run(&["outbox", "on"]);
    assert_eq!(refused.code, Some(4));
    assert!(
        refused.stderr.contains("is in use by another wideroom"),
        "{}",
        refused.stderr
    );
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// Reader that resumes after each crash with the last cursor.
#[derive(Default)]
struct Reader {
    cursor: Option<String>,
    /// Each event as it first came, by its conversation.
    events: BTreeMap<String, Vec<(String, String)>>,
    seen: BTreeSet<String>,
    repeated: usize,
}

impl Reader {
    fn has_all(&self, ids: &BTreeSet<String>) -> bool {
        ids.is_subset(&self.seen)
    }

    fn take(&mut self, payload: &Value) {
        let payload = &payload["outbox"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.cursor = text(&payload["cursor"]);
        let Some(id) = text(&payload["id"]) else {
            return;
        };
        if !self.seen.insert(id.clone()) {
            self.repeated += 1;
            return;
        }
        let kind = text(&payload["event"]["__typename"]).unwrap();
        let conversation = text(&payload["conversation"]["id"]).unwrap();
        self.events
            .entry(conversation)
            .or_default()
            .push((id, kind));
    }

    /// Subscribes after the last cursor.
    async fn subscribe(this: &Mutex<Self>, address: SocketAddr, token: &str) -> Socket {
        let after = this.lock().unwrap().cursor.clone();
        let after = after.map_or("null".to_owned(), |cursor| format!("\"{cursor}\""));
        let query = format!("subscription {{ {} }}", OUTBOX.replace("AFTER", &after));
        let mut socket = Socket::connect(address, token).await;
        socket.subscribe("1", &query).await;
        socket
    }

    /// Reads until all of these events have come, or the server is gone.
    async fn read(this: &Mutex<Self>, mut socket: Socket, until: Option<&BTreeSet<String>>) {
        while let Some(heard) = socket.hear_or_close().await {
            match heard["type"].as_str() {
                Some("next") => {
                    assert!(heard["payload"].get("errors").is_none(), "{heard}");
                    this.lock().unwrap().take(&heard["payload"]["data"]);
                }
                _ => panic!("{heard}"),
            }
            if until.is_some_and(|ids| this.lock().unwrap().has_all(ids)) {
                return;
            }
        }
    }
}

/// One who sends and edits until the connection is cut. Adds a permit for each acknowledged message.
/// Returns the ids of those messages, and of the ones that were edited.
async fn write(
    stage: Arc<Stage>,
    address: SocketAddr,
    task: usize,
    round: usize,
    acknowledged: Arc<Semaphore>,
) -> (Vec<String>, Vec<String>) {
    let (mut sent, mut edited) = (Vec::new(), Vec::new());
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
            acknowledged.add_permits(1);
            if number % 4 == 0 {
                caller.data(EDIT, &json!({"m": node["id"]})).await?;
                edited.push(node["uuid"].as_str().unwrap().to_owned());
            }
        }
        Ok::<_, Cut>(())
    };
    let _ = write.await;
    (sent, edited)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: killed and started again and again"]
async fn the_events_of_the_outbox_are_the_log_after_every_crash() {
    let program = Program::new();
    program.run(&["outbox", "on"]).succeeded();
    let stage = Arc::new(Stage::set_up(program).await);
    let token = stage
        .program
        .run(&["token", "--service", "push", "--scope", "outbox"]);
    let token = token.succeeded().trim().to_owned();
    let reader = Arc::new(Mutex::new(Reader::default()));
    let mut dice = Dice::new();
    let mut acknowledged = BTreeSet::new();
    let mut edits = 0;
    for round in 0..ROUNDS {
        let server = serve(&stage.program);
        let address = server.address();
        let reading = {
            let socket = Reader::subscribe(&reader, address, &token).await;
            let reader = Arc::clone(&reader);
            tokio::spawn(async move { Reader::read(&reader, socket, None).await })
        };
        let permits = Arc::new(Semaphore::new(0));
        let writers: Vec<_> = (0..SENDERS)
            .map(|task| {
                let permits = Arc::clone(&permits);
                tokio::spawn(write(Arc::clone(&stage), address, task, round, permits))
            })
            .collect();
        let some = permits.acquire_many(u32::try_from(SENDERS).unwrap());
        soon(some).await.unwrap().forget();
        // Not to wait for anything: when it is killed is left to chance.
        let micros = u64::try_from(SENDING.as_micros()).unwrap();
        tokio::time::sleep(Duration::from_micros(dice.roll(micros))).await;
        let log = server.kill();
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
        for outcome in join_all(writers).await {
            let (sent, edited) = outcome.unwrap();
            acknowledged.extend(sent);
            edits += edited.len();
        }
        soon(reading).await.unwrap();
    }
    let server = serve(&stage.program);
    let address = server.address();
    // One more, which comes after all others in its conversation.
    let mut caller = stage.caller(address, 0).await;
    for conversation in &stage.conversations {
        if conversation.participants.contains(&0) {
            let variables = json!({"c": conversation.id, "b": "the last"});
            let data = caller.data(SEND, &variables).await.unwrap();
            let node = &data["sendMessage"]["messageEdge"]["node"];
            acknowledged.insert(node["uuid"].as_str().unwrap().to_owned());
        }
    }
    let socket = Reader::subscribe(&reader, address, &token).await;
    Reader::read(&reader, socket, Some(&acknowledged)).await;
    let reader = std::mem::take(&mut *reader.lock().unwrap());
    let mut delivered_edits = 0;
    for conversation in &stage.conversations {
        let participant = *conversation.participants.last().unwrap();
        let history = read::history(
            &mut stage.caller(address, participant).await,
            &conversation.id,
        )
        .await;
        let history: Vec<_> = history
            .messages
            .iter()
            .map(|message| message.id.to_string())
            .collect();
        let events = reader
            .events
            .get(&conversation.id)
            .cloned()
            .unwrap_or_default();
        let of = |kind: &str| {
            let kind = kind.to_owned();
            let events = events.clone().into_iter();
            events.filter(move |(_, of)| *of == kind).map(|(id, _)| id)
        };
        // An unacknowledged message may be in the history: then it is in the outbox too, in its place.
        let added: Vec<_> = of("MessageAddedEvent").collect();
        if conversation.participants.contains(&0) {
            assert_eq!(
                added, history,
                "the outbox is the history of {}",
                conversation.id
            );
        } else {
            assert_eq!(added, history[..added.len()]);
        }
        delivered_edits += of("MessageEditedEvent").count();
    }
    assert!(
        delivered_edits >= edits,
        "{delivered_edits} of {edits} edits"
    );
    println!(
        "{ROUNDS} crashes, {} messages and {edits} edits acknowledged, {delivered_edits} edits delivered, {} events repeated",
        acknowledged.len(),
        reader.repeated
    );
    assert!(acknowledged.len() >= ROUNDS * SENDERS);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}
