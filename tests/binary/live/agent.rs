//! Agent that answers in one conversation, one answer after the other, until it is killed.
//!
//! A kill drops its connection and all that it knows. The next process of the agent finds the answer that is open, as an app finds a job
//! in its queue, and takes it over under a new name and with a new text.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::ledger::{AnswerEnd, AnswerLedger, AnswerWriter};
use crate::binary::Dice;
use crate::support::client::Cut;

const WRITE: &str = "mutation($i: WriteLiveMessageInput!) { done: writeLiveMessage(input: $i) { nextPosition liveMessage { id state } } }";
const SEND: &str = "mutation($i: SendMessageInput!) { done: sendMessage(input: $i) { messageEdge { node { id } } } }";
const SENT: &str = "query($c: ID!) { done: conversation(id: $c) { messages(first: 20) { edges { node { clientKey } } } } }";
const AGAIN_AFTER: Duration = Duration::from_millis(10);
/// An agent waits so long for an answer, and asks again.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Answers that agents of one conversation leave to the server.
const ABANDONED_MAX: usize = 2;
/// Parts of a text that ends only with the run, within the bound of a body.
const ENDLESS_PARTS: usize = 850;

pub(super) struct Agent {
    /// Number of the conversation, and its global id.
    pub(super) at: usize,
    pub(super) conversation: String,
    pub(super) token: String,
    /// Lines to the servers. Each request takes the next one.
    pub(super) lines: Vec<SocketAddr>,
    pub(super) turn: usize,
    pub(super) ledger: Arc<Mutex<AnswerLedger>>,
    pub(super) dice: Dice,
    /// Pause after each write of an answer that ends only with the run.
    pub(super) endless: Option<Duration>,
    pub(super) may_abandon: bool,
    pub(super) ends: watch::Receiver<bool>,
}

/// Outcome of a request.
enum Outcome {
    Done(Value),
    Conflict,
    /// Nobody knows, or not now.
    Again,
}

impl Agent {
    pub(super) async fn run(mut self) {
        let mut found = self.ledger.lock().open_in(self.at);
        if let Some(answer) = found {
            let mut ledger = self.ledger.lock();
            let may_abandon = self.may_abandon && ledger.abandoned_in(self.at) < ABANDONED_MAX;
            if may_abandon && self.dice.roll(4) == 0 {
                ledger.answers[answer].end = AnswerEnd::Abandoned;
                found = None;
            }
        }
        loop {
            let answer = match found.take() {
                Some(answer) => answer,
                None if *self.ends.borrow() => return,
                None => self.ledger.lock().begin(self.at),
            };
            while !self.answer(answer).await {}
            self.ledger.lock().answers[answer].end = AnswerEnd::Sent;
        }
    }

    /// Writes an answer and sends it. False if a late write of an earlier process has taken it over.
    async fn answer(&mut self, answer: usize) -> bool {
        let parts = match self.endless {
            Some(_) => ENDLESS_PARTS,
            None => 2 + number(self.dice.roll(5)),
        };
        let is_endless = self.endless.is_some();
        let (key, name, text, writer) = {
            let mut ledger = self.ledger.lock();
            let writer = ledger.add_writer(answer, parts);
            let answer = &ledger.answers[answer];
            let AnswerWriter { name, text, .. } = &answer.writers[writer];
            (answer.key.clone(), name.clone(), text.clone(), writer)
        };
        let (mut position, mut wanted) = (0, 0);
        loop {
            // After a failure the same text is written again, or more.
            let is_new = wanted == position;
            // A write that is not acknowledged may be shown.
            let is_last = is_endless && *self.ends.borrow() && position > 0;
            if position == text.len() || (is_new && is_last) {
                break;
            }
            let more = self.dice.roll(if is_endless { 1 } else { 3 });
            for _ in 0..more + u64::from(is_new) {
                wanted = text[wanted..]
                    .find(" «")
                    .map_or(text.len(), |end| wanted + end + 1);
            }
            let input = json!({"conversationId": self.conversation, "key": key, "writer": name,
                "position": position, "text": text[position..wanted]});
            match self.ask(WRITE, &json!({ "i": input })).await {
                Outcome::Done(written) => {
                    assert_eq!(written["nextPosition"], wanted, "{written}");
                    self.ledger.lock().acknowledge(answer, writer, &written);
                    position = wanted;
                    sleep(self.endless.unwrap_or_default()).await;
                }
                Outcome::Conflict => return self.is_sent(&key).await,
                Outcome::Again => {}
            }
        }
        let body = text[..position].to_owned();
        let input =
            json!({"conversationId": self.conversation, "body": body, "idempotencyKey": key});
        self.ledger.lock().answers[answer].bodies.push(body);
        loop {
            match self.ask(SEND, &json!({ "i": input })).await {
                Outcome::Done(_) => return true,
                Outcome::Conflict => return self.is_sent(&key).await,
                Outcome::Again => {}
            }
        }
    }

    /// Whether the conversation has a message of a key.
    async fn is_sent(&mut self, key: &str) -> bool {
        loop {
            let variables = json!({ "c": self.conversation });
            if let Outcome::Done(found) = self.ask(SENT, &variables).await {
                let edges = found["messages"]["edges"].as_array().unwrap();
                return edges.iter().any(|edge| edge["node"]["clientKey"] == key);
            }
        }
    }

    /// Asks through the next line, as through a load balancer, on a connection of its own.
    async fn ask(&mut self, document: &str, variables: &Value) -> Outcome {
        let line = self.lines[self.turn % self.lines.len()];
        self.turn += 1;
        let body = json!({"query": document, "variables": variables}).to_string();
        let mut reply = match timeout(ANSWER_MAX, post(line, &self.token, &body)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => return self.again().await,
            Err(_) => {
                self.ledger.lock().late.push(body);
                return self.again().await;
            }
        };
        let error = &reply["errors"][0]["extensions"]["code"];
        match error.as_str().unwrap_or_default() {
            "" => Outcome::Done(reply["data"]["done"].take()),
            "CONFLICT" => Outcome::Conflict,
            "UNAVAILABLE" | "RATE_LIMITED" => self.again().await,
            _ => panic!("{reply} for {variables}"),
        }
    }

    async fn again(&mut self) -> Outcome {
        sleep(AGAIN_AFTER).await;
        Outcome::Again
    }
}

/// One request whose answer ends with the connection. A part of an answer is none.
async fn post(line: SocketAddr, token: &str, body: &str) -> Result<Value, Cut> {
    let mut stream = TcpStream::connect(line).await.map_err(|_| Cut)?;
    let length = body.len();
    let request = format!(
        "POST /graphql HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\naccept: application/json\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map_err(|_| Cut)?;
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.map_err(|_| Cut)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(Cut)?;
    let mut lines = head.lines().map(str::to_ascii_lowercase);
    let length = lines.find_map(|line| Some(line.strip_prefix("content-length: ")?.to_owned()));
    match length.is_some_and(|length| length == body.len().to_string()) {
        true => Ok(serde_json::from_str(body).unwrap()),
        false => Err(Cut),
    }
}

fn number(rolled: u64) -> usize {
    usize::try_from(rolled).unwrap()
}
