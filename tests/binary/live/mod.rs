//! Live messages through kills: of servers and of agents in turn, with lines that lose answers, agents that are on another server
//! with each request, and viewers who are cut many times within one answer. The promises:
//!
//! - What a viewer has of a writer is always a beginning of that writer's text.
//! - What was acknowledged is in it, and in the message of a writer who was lost.
//! - A key has at most one message, and exactly one in the end. It is of one writer.

mod agent;
mod ledger;
mod line;
mod viewer;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use self::agent::Agent;
use self::ledger::{AnswerEnd, AnswerLedger};
use self::line::LossyLine;
use self::viewer::{ChaosViewer, LIVES, Screen};
use super::Dice;
use crate::cluster::place::migrated;
use crate::support::cassandra::shared;
use crate::support::client::{Caller, Socket};
use crate::support::faketime::FakeClock;
use crate::support::program::Program;
use crate::support::server::Server;
use crate::support::size::sized;
use crate::support::world::PATIENCE;

const AGENT: &str = "agent:helper";
/// Each has a conversation with the agent. The answer in the first one lasts as long as the run.
const ASKERS: usize = 6;
const OPTIONS: [&str; 4] = ["--log", "warn", "--rates", "off"];
/// Pause between two writes of the longest answer, for each round: a body has room for them.
const ENDLESS_PAUSE: Duration = Duration::from_millis(10);
/// Cuts of the viewer of the longest answer.
const CUTS_MIN: usize = 50;
/// Rounds in which some answer is lost for certain.
const ROUNDS_WITH_LOSS: usize = 8;
/// Time of the servers at which every writer has fallen silent.
const SILENT: &str = "+200";

/// How it is played.
#[derive(Clone, Copy)]
struct Pace {
    rounds: usize,
    /// Something is killed within this time.
    writing_ms: u64,
}

struct LiveChaos {
    program: Program,
    seed: u64,
    dice: Dice,
    pace: Pace,
    servers: Vec<Server>,
    lines: Vec<LossyLine>,
    /// Addresses for viewers.
    doors: watch::Sender<Vec<SocketAddr>>,
    /// Global ids of the conversations.
    conversations: Vec<String>,
    ledger: Arc<Mutex<AnswerLedger>>,
    agents: Vec<AbortOnDropHandle<()>>,
    ends: watch::Sender<bool>,
    screens: Vec<Arc<Mutex<Screen>>>,
    viewers: Vec<AbortOnDropHandle<()>>,
    kills: [usize; 2],
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_text_survives_kills_of_server_and_agent_in_turn() {
    play_in_folder(sized(8, 40)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: two minutes of it"]
async fn nightly_live_text_survives_200_kills_of_server_and_agent() {
    play_in_folder(200).await;
}

/// Each request of an agent goes to another server than the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: servers on a cluster are started again and again"]
async fn live_text_survives_kills_of_two_servers_on_a_cluster() {
    play_on_cluster(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: ten minutes of it"]
async fn nightly_live_text_survives_200_kills_of_two_servers_and_agents_on_a_cluster() {
    play_on_cluster(200).await;
}

async fn play_in_folder(rounds: usize) {
    let pace = Pace {
        rounds,
        writing_ms: 400,
    };
    LiveChaos::begin(Program::in_memory(), 1, pace)
        .await
        .play()
        .await;
}

async fn play_on_cluster(rounds: usize) {
    let Some(shared) = shared().await else { return };
    let pace = Pace {
        rounds,
        writing_ms: 1_500,
    };
    let program = migrated(|keyspace| shared.url(keyspace), "1");
    LiveChaos::begin(program, 2, pace).await.play().await;
}

fn asker(number: usize) -> String {
    format!("asker{number}")
}

fn start(program: &Program) -> Server {
    Server::start(program, &OPTIONS)
}

impl LiveChaos {
    async fn begin(program: Program, servers: usize, pace: Pace) -> Self {
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        println!("seed {seed}");
        let servers: Vec<_> = (0..servers).map(|_| start(&program)).collect();
        let mut lines = Vec::new();
        for number in 0..servers.len() {
            lines.push(LossyLine::open(seed ^ number as u64).await);
        }
        let mut chaos = Self {
            program,
            seed,
            dice: Dice::seeded(seed),
            pace,
            servers,
            lines,
            doors: watch::channel(Vec::new()).0,
            conversations: Vec::new(),
            ledger: Arc::default(),
            agents: Vec::new(),
            ends: watch::channel(false).0,
            screens: Vec::new(),
            viewers: Vec::new(),
            kills: [0; 2],
        };
        for number in 0..ASKERS {
            let conversation = chaos.ask(number).await;
            chaos.conversations.push(conversation);
        }
        chaos.open();
        for at in 0..ASKERS {
            chaos.add_viewer(at);
            let agent = chaos.agent(at);
            chaos.agents.push(agent);
        }
        chaos
    }

    async fn ask(&self, number: usize) -> String {
        let document = "mutation($u: String!) { made: startDirectConversation(input: {username: $u}) { conversation { id } } }";
        let mut caller = self.caller(&asker(number), 0).await;
        let made = caller.data(document, &json!({ "u": AGENT })).await.unwrap();
        made["made"]["conversation"]["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    async fn caller(&self, user: &str, server: usize) -> Caller {
        let address = self.servers[server].address();
        Caller::connect(address, &self.program.token(user))
            .await
            .unwrap()
    }

    fn next_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x1_0000);
        self.seed
    }

    fn add_viewer(&mut self, at: usize) {
        let screen: Arc<Mutex<Screen>> = Arc::default();
        let viewer = ChaosViewer {
            at,
            conversation: self.conversations[at].clone(),
            token: self.program.token(&asker(at)),
            servers: self.doors.subscribe(),
            ledger: Arc::clone(&self.ledger),
            screen: Arc::clone(&screen),
            dice: Dice::seeded(self.next_seed()),
        };
        self.screens.push(screen);
        let task = tokio::spawn(viewer.run());
        self.viewers.push(AbortOnDropHandle::new(task));
    }

    /// A new process of the agent in a conversation.
    fn agent(&mut self, at: usize) -> AbortOnDropHandle<()> {
        let rounds = u32::try_from(self.pace.rounds).unwrap();
        let agent = Agent {
            at,
            conversation: self.conversations[at].clone(),
            token: self.program.token(AGENT),
            lines: self.lines.iter().map(|line| line.address).collect(),
            turn: at,
            ledger: Arc::clone(&self.ledger),
            dice: Dice::seeded(self.next_seed()),
            endless: (at == 0).then(|| ENDLESS_PAUSE * rounds),
            may_abandon: self.servers.len() == 1,
            ends: self.ends.subscribe(),
        };
        AbortOnDropHandle::new(tokio::spawn(agent.run()))
    }

    /// Lets agents and viewers reach every server.
    fn open(&self) {
        let addresses: Vec<_> = self.servers.iter().map(Server::address).collect();
        for (line, address) in self.lines.iter().zip(&addresses) {
            line.to.send_replace(Some(*address));
        }
        self.doors.send_replace(addresses);
    }

    /// Cuts off every agent.
    fn close(&self) {
        for line in &self.lines {
            line.to.send_replace(None);
        }
    }

    async fn play(mut self) {
        for round in 0..self.pace.rounds {
            sleep(Duration::from_millis(self.dice.roll(self.pace.writing_ms))).await;
            if round % 2 == 0 {
                let number = round / 2 % self.servers.len();
                self.kill_server(number);
                self.servers.insert(number, start(&self.program));
            } else {
                self.kill_agents().await;
            }
            self.close();
            // Losses stay: the check after the next kill of a server finds them too.
            if round % 2 == 0 || round % 6 == 1 {
                self.check().await;
            }
            self.open();
            self.assert_goes_on().await;
        }
        self.end().await;
        let ledger = self.ledger.lock();
        let lost: usize = self.lines.iter().map(LossyLine::lost).sum();
        let cuts: usize = self.screens.iter().map(|screen| screen.lock().cuts).sum();
        let [servers, agents] = self.kills;
        println!(
            "{} rounds: {servers} servers and {agents} agents killed, {lost} answers lost, {} live messages of {} writers, {cuts} cuts",
            self.pace.rounds,
            ledger.answers.len(),
            ledger
                .answers
                .iter()
                .map(|answer| answer.writers.len())
                .sum::<usize>(),
        );
        assert!(servers > 0 && agents > 0);
        assert!(lost > 0 || self.pace.rounds < ROUNDS_WITH_LOSS);
        // A busy machine may be slow.
        let late = &ledger.late;
        println!("{} requests had no answer in time: {late:?}", late.len());
    }

    fn kill_server(&mut self, number: usize) {
        self.kills[0] += 1;
        self.lines[number].to.send_replace(None);
        let others = self.servers.iter().enumerate();
        let others = others.filter(|(other, _)| *other != number);
        self.doors
            .send_replace(others.map(|(_, server)| server.address()).collect());
        let log = self.servers.remove(number).kill();
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    }

    /// Kills some agents, never the one of the longest answer, and starts others in their places.
    async fn kill_agents(&mut self) {
        let one = 1 + self.dice.roll(ASKERS as u64 - 1);
        for at in 1..ASKERS {
            if at as u64 == one || self.dice.roll(2) == 0 {
                self.kills[1] += 1;
                self.agents[at].abort();
                let killed = (&mut self.agents[at]).await;
                assert!(killed.is_err_and(|end| end.is_cancelled()), "it failed");
                self.agents[at] = self.agent(at);
            }
        }
    }

    /// A task that ends early has failed.
    async fn assert_goes_on(&mut self) {
        let viewers = self.viewers.iter_mut();
        for task in self.agents.iter_mut().chain(viewers) {
            if task.is_finished() {
                task.await.unwrap();
                panic!("a task has ended too early");
            }
        }
    }

    /// Reads what there is, on each server, as viewers who come anew and as the agent.
    async fn check(&self) {
        for server in 0..self.servers.len() {
            let mut agent = self.caller(AGENT, server).await;
            for (at, conversation) in self.conversations.iter().enumerate() {
                let mut asker = self.caller(&asker(at), server).await;
                self.check_messages(&mut agent, conversation).await;
                self.check_answers(&mut asker, at).await;
            }
            self.check_stream(server).await;
        }
        let mut ledger = self.ledger.lock();
        let ended = ledger.answers.iter_mut();
        for answer in ended.filter(|answer| answer.end == AnswerEnd::Sent) {
            answer.is_checked = true;
        }
    }

    /// None of the newest messages has the key of another one.
    async fn check_messages(&self, agent: &mut Caller, conversation: &str) {
        let document = "query($c: ID!) { conversation(id: $c) { messages(first: 50) { edges { node { clientKey } } } } }";
        let read = agent.data(document, &json!({ "c": conversation })).await;
        let read = read.unwrap();
        let edges = read["conversation"]["messages"]["edges"]
            .as_array()
            .unwrap();
        let mut keys = HashSet::new();
        for key in edges
            .iter()
            .filter_map(|edge| edge["node"]["clientKey"].as_str())
        {
            assert!(keys.insert(key), "{key} has two messages");
        }
    }

    /// Each live message that has not been checked since its end.
    async fn check_answers(&self, asker: &mut Caller, at: usize) {
        let document = "query($id: ID!) { node(id: $id) { ... on LiveMessage { body state message { body isInterrupted } } } }";
        let ids: Vec<_> = {
            let ledger = self.ledger.lock();
            let answers = ledger.answers.iter().enumerate();
            let open = answers.filter(|(_, answer)| answer.at == at && !answer.is_checked);
            open.filter_map(|(number, answer)| Some((number, answer.id.clone()?)))
                .collect()
        };
        for (number, id) in ids {
            let read = asker.data(document, &json!({ "id": id })).await.unwrap();
            self.ledger.lock().answers[number].assert_told(&read["node"]);
        }
    }

    /// A new subscriber is first sent all of the longest answer.
    async fn check_stream(&self, server: usize) {
        let is_shown = {
            let ledger = self.ledger.lock();
            let longest = ledger.answers.iter().rfind(|answer| answer.at == 0);
            // Its message may be stored before the agent knows it.
            longest.is_some_and(|longest| longest.last.is_some() && longest.bodies.is_empty())
        };
        if !is_shown {
            return;
        }
        let address = self.servers[server].address();
        let mut socket = Socket::connect(address, &self.program.token(&asker(0))).await;
        let payload = json!({"query": LIVES, "variables": {"c": self.conversations[0], "a": null}});
        let subscribe = json!({"type": "subscribe", "id": "1", "payload": payload});
        socket.say(&subscribe).await;
        let first = socket.told("1").await;
        assert!(first["liveMessages"]["liveMessage"].is_null());
        let whole = socket.told("1").await["liveMessages"].take();
        assert_eq!(whole["isWhole"], true);
        let ledger = self.ledger.lock();
        let longest = ledger.answers.iter().rfind(|answer| answer.at == 0);
        longest
            .unwrap()
            .assert_whole(whole["text"].as_str().unwrap());
    }

    /// Every agent completes its answer. Then the server sends what the others have left.
    async fn end(&mut self) {
        let screen = Arc::clone(&self.screens[0]);
        let is_cut_within_it = || {
            let screen = screen.lock();
            screen.cuts >= CUTS_MIN && screen.wholes > 0
        };
        let seen = async {
            while !is_cut_within_it() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, seen).await.expect("the viewer sees it");
        self.ends.send_replace(true);
        for agent in self.agents.drain(..) {
            timeout(PATIENCE, agent).await.expect("it ends").unwrap();
        }
        self.check().await;
        if self.servers.len() == 1 && FakeClock::is_available() {
            self.settle_abandoned().await;
        }
        self.check_shown().await;
        let mut agent = self.caller(AGENT, 0).await;
        let mut messages = Vec::new();
        for conversation in &self.conversations {
            messages.push(self.all_messages(&mut agent, conversation).await);
        }
        let ledger = self.ledger.lock();
        for answer in &ledger.answers {
            let of_key = messages[answer.at].iter().filter(|key| **key == answer.key);
            let least = usize::from(answer.end == AnswerEnd::Sent);
            assert!((least..=1).contains(&of_key.count()), "{}", answer.key);
        }
    }

    /// Keys of all messages of a conversation.
    async fn all_messages(&self, agent: &mut Caller, conversation: &str) -> Vec<String> {
        let document = "query($c: ID!, $a: String) { conversation(id: $c) { messages(first: 100, after: $a) { pageInfo { hasNextPage endCursor } edges { node { clientKey } } } } }";
        let (mut keys, mut after) = (Vec::new(), Value::Null);
        loop {
            let read = agent
                .data(document, &json!({"c": conversation, "a": after}))
                .await;
            let page = read.unwrap()["conversation"]["messages"].take();
            let edges = page["edges"].as_array().unwrap();
            let nodes = edges.iter().map(|edge| &edge["node"]["clientKey"]);
            keys.extend(nodes.filter_map(|key| Some(key.as_str()?.to_owned())));
            if page["pageInfo"]["hasNextPage"] != true {
                return keys;
            }
            after = page["pageInfo"]["endCursor"].clone();
        }
    }

    /// Starts the server at a time at which the writers who were lost have fallen silent: it sends what they left.
    async fn settle_abandoned(&mut self) {
        self.kill_server(0);
        let clock = FakeClock::new(self.program.dir.path().join("clock"));
        clock.set(SILENT);
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], &OPTIONS[..]].concat();
        let mut command = self.program.command(&arguments);
        clock.put_before(&mut command);
        self.servers.push(Server::spawn(&mut command));
        let abandoned: Vec<_> = {
            let ledger = self.ledger.lock();
            let answers = ledger.answers.iter().enumerate();
            let left = answers.filter(|(_, answer)| answer.end == AnswerEnd::Abandoned);
            left.filter_map(|(number, answer)| Some((number, answer.at, answer.id.clone()?)))
                .collect()
        };
        let document = "query($id: ID!) { node(id: $id) { ... on LiveMessage { body state message { body isInterrupted } } } }";
        for (number, at, id) in abandoned {
            let mut asker = self.caller(&asker(at), 0).await;
            let is_settled = async {
                loop {
                    let read = asker.data(document, &json!({ "id": id })).await.unwrap();
                    if read["node"]["state"] != "WRITING" {
                        return read;
                    }
                    sleep(Duration::from_millis(200)).await;
                }
            };
            let told = timeout(PATIENCE, is_settled).await.expect("it is settled");
            let ledger = self.ledger.lock();
            ledger.answers[number].assert_told(&told["node"]);
            let is_sent = told["node"]["state"] == "SENT";
            assert!(is_sent || told["node"]["body"] == "", "{told}");
        }
        self.open();
    }

    /// No viewer shows a live message that has ended, and the longest answer was sent to its viewer once.
    async fn check_shown(&self) {
        let ids: Vec<_> = {
            let ledger = self.ledger.lock();
            let sent = ledger.answers.iter();
            let sent = sent.filter(|answer| answer.end == AnswerEnd::Sent);
            sent.filter_map(|answer| answer.id.clone()).collect()
        };
        let has_ghost = |screen: &Arc<Mutex<Screen>>| {
            let screen = screen.lock();
            ids.iter().any(|id| screen.bubbles.contains_key(id))
        };
        let cleared = async {
            while self.screens.iter().any(has_ghost) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, cleared).await.expect("no ghost stays");
        let screen = self.screens[0].lock();
        let ledger = self.ledger.lock();
        let mut longest = ledger.answers.iter().filter(|answer| answer.at == 0);
        let text = &longest.next().unwrap().bodies[0];
        assert_eq!((screen.bytes, screen.wholes), (text.len(), 1));
        assert!(screen.cuts >= CUTS_MIN, "{}", screen.cuts);
    }
}
