//! Viewer of one conversation, who is cut again and again, and resumes from the last cursor on any server.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;

use super::ledger::AnswerLedger;
use crate::binary::Dice;
use crate::support::client::{Cut, soon, try_socket};
use crate::support::world::PATIENCE;

pub(super) const LIVES: &str = "subscription($c: ID!, $a: String) { liveMessages(conversationId: $c, after: $a) { cursor text isWhole liveMessage { id state } } }";
const AGAIN_AFTER: Duration = Duration::from_millis(10);
/// A stream is cut within this time of its first payload, or after so many payloads.
const CUT_WITHIN_MS: u64 = 60;
const PAYLOADS_MAX: u64 = 5;

/// Live messages as a client shows them.
#[derive(Default)]
pub(super) struct Screen {
    /// Texts by the ids of their live messages.
    pub(super) bubbles: HashMap<String, String>,
    cursor: Option<String>,
    /// Text of all payloads, payloads, and those that were whole.
    pub(super) bytes: usize,
    pub(super) payloads: usize,
    pub(super) wholes: usize,
    /// Streams that were cut.
    pub(super) cuts: usize,
}

impl Screen {
    /// Takes a payload. Whatever it has afterwards is a beginning of one writer's text.
    fn take(&mut self, payload: &Value, at: usize, ledger: &Mutex<AnswerLedger>) {
        self.cursor = Some(payload["cursor"].as_str().unwrap().to_owned());
        let live = &payload["liveMessage"];
        if live.is_null() {
            return;
        }
        let (id, text) = (
            live["id"].as_str().unwrap(),
            payload["text"].as_str().unwrap(),
        );
        self.payloads += 1;
        self.bytes += text.len();
        if payload["isWhole"] == true {
            self.wholes += 1;
            self.bubbles.insert(id.to_owned(), text.to_owned());
        } else {
            let bubble = self.bubbles.get_mut(id);
            let bubble =
                bubble.unwrap_or_else(|| panic!("the first text of it is whole: {payload}"));
            bubble.push_str(text);
        }
        ledger.lock().assert_beginning(at, &self.bubbles[id]);
        if live["state"] != "WRITING" {
            self.bubbles.remove(id);
        }
    }
}

pub(super) struct ChaosViewer {
    pub(super) at: usize,
    pub(super) conversation: String,
    pub(super) token: String,
    /// Servers that run.
    pub(super) servers: watch::Receiver<Vec<SocketAddr>>,
    pub(super) ledger: Arc<Mutex<AnswerLedger>>,
    pub(super) screen: Arc<Mutex<Screen>>,
    pub(super) dice: Dice,
}

impl ChaosViewer {
    pub(super) async fn run(mut self) {
        loop {
            let servers = self.servers.borrow().clone();
            if !servers.is_empty() {
                let server = *self.dice.pick(&servers);
                let within = Duration::from_millis(5 + self.dice.roll(CUT_WITHIN_MS));
                let payloads = self.dice.roll(PAYLOADS_MAX);
                // The socket is dropped without a close.
                let _ = timeout(PATIENCE, self.view(server, within, payloads)).await;
                self.screen.lock().cuts += 1;
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    /// Takes so many payloads of a new stream, and no more, within a time of the first one.
    async fn view(&self, server: SocketAddr, within: Duration, payloads: u64) -> Result<(), Cut> {
        let after = self.screen.lock().cursor.clone();
        let subscribe = json!({"type": "subscribe", "id": "1", "payload": {
            "query": LIVES, "variables": {"c": self.conversation, "a": after}}});
        let init = json!({"type": "connection_init",
            "payload": {"Authorization": format!("Bearer {}", self.token)}});
        let socket = try_socket(server, Some("graphql-transport-ws")).await;
        let mut socket = socket.map_err(|_| Cut)?;
        for message in [init, subscribe] {
            let said = soon(socket.send(Message::text(message.to_string()))).await;
            said.map_err(|_| Cut)?;
        }
        let (mut taken, mut cut_at) = (0, None);
        while taken <= payloads {
            let next = timeout_at(cut_at.unwrap_or_else(far), socket.next());
            let text = match next.await.map_err(|_| Cut)? {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Ping(_))) => continue,
                _ => return Err(Cut),
            };
            let heard: Value = serde_json::from_str(&text).unwrap();
            let errors = match heard["type"].as_str().unwrap() {
                "connection_ack" => continue,
                "error" => &heard["payload"],
                "next" => &heard["payload"]["errors"],
                _ => panic!("{heard}"),
            };
            if !errors.is_null() {
                // The store was away.
                assert_eq!(errors[0]["extensions"]["code"], "UNAVAILABLE", "{heard}");
                return Err(Cut);
            }
            let payload = &heard["payload"]["data"]["liveMessages"];
            if taken == 0 {
                assert!(payload["liveMessage"].is_null(), "the first is a position");
                assert!(after.is_none() || payload["cursor"].as_str() == after.as_deref());
            }
            taken += 1;
            cut_at.get_or_insert_with(|| Instant::now() + within);
            self.screen.lock().take(payload, self.at, &self.ledger);
        }
        Ok(())
    }
}

fn far() -> Instant {
    Instant::now() + PATIENCE
}
