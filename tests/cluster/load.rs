//! Steady load: clients that send and read at a fixed rate, whatever the answers, and the figures
//! of what they got.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::place::p99;
use crate::binary::ledger::{Attempt, Kept, Ledger};
use crate::binary::read;
use crate::binary::stage::{Stage, USERS, name};
use crate::support::cassandra::say;
use crate::support::client::{Caller, Cut};

const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { uuid body } } } }";
const PAGE: &str = "query($c: ID!) { conversation(id: $c) { messages(last: 20) { edges { node { uuid body sender { username } } } } } }";
const INBOX: &str = "{ inbox(first: 20) { edges { node { conversation { id } lastMessage { uuid } unreadCount } } } }";
/// Each client begins a request per second, if its last one was answered.
const EVERY: Duration = Duration::from_secs(1);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Page,
}

/// One request and its outcome.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) kind: Kind,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) is_ok: bool,
}

/// Clients of one server, until they are ended.
pub(super) struct Load {
    clients: Vec<JoinHandle<(Ledger, Vec<Sample>)>>,
    is_over: watch::Sender<bool>,
}

impl Load {
    /// So many requests per second, half of them keyed sends and half pages. `word` makes their
    /// bodies like no others. `conversations`: those that they use.
    pub(super) fn start(
        stage: &Arc<Stage>,
        server: SocketAddr,
        word: &'static str,
        per_second: u32,
        conversations: &[usize],
    ) -> Self {
        let (is_over, over) = watch::channel(false);
        let client = |number: u32| {
            let conversation = conversations[number as usize % conversations.len()];
            let participants = &stage.conversations[conversation].participants;
            let client = Client {
                stage: Arc::clone(stage),
                server,
                word,
                number: number as usize,
                conversation,
                user: participants[number as usize % participants.len()],
                kind: if number.is_multiple_of(2) {
                    Kind::Send
                } else {
                    Kind::Page
                },
                over: over.clone(),
            };
            tokio::spawn(client.run(EVERY * number / per_second))
        };
        Self {
            clients: (0..per_second).map(client).collect(),
            is_over,
        }
    }

    /// Ends after the requests in flight. The ledger takes over what was sent.
    pub(super) async fn end(self, ledger: &mut Ledger) -> Vec<Sample> {
        self.is_over.send_replace(true);
        let mut samples = Vec::new();
        for client in self.clients {
            let (of_one, more) = client.await.unwrap();
            ledger.attempts.extend(of_one.attempts);
            samples.extend(more);
        }
        samples
    }
}

struct Client {
    stage: Arc<Stage>,
    server: SocketAddr,
    word: &'static str,
    number: usize,
    conversation: usize,
    user: usize,
    kind: Kind,
    over: watch::Receiver<bool>,
}

impl Client {
    async fn run(mut self, offset: Duration) -> (Ledger, Vec<Sample>) {
        assert!(self.user < USERS);
        let mut caller = self.stage.caller(self.server, self.user).await;
        let (mut ledger, mut samples) = (Ledger::default(), Vec::new());
        let mut next = tokio::time::interval_at((Instant::now() + offset).into(), EVERY);
        next.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for round in 0.. {
            tokio::select! {
                _ = self.over.wait_for(|is_over| *is_over) => break,
                _ = next.tick() => {}
            }
            let began = Instant::now();
            let is_ok = match self.kind {
                Kind::Send => self.send(&mut caller, round, &mut ledger).await,
                Kind::Page => self.read(&mut caller, round).await,
            };
            samples.push(Sample {
                kind: self.kind,
                began,
                took: began.elapsed(),
                is_ok,
            });
        }
        (ledger, samples)
    }

    async fn send(&self, caller: &mut Caller, round: usize, ledger: &mut Ledger) -> bool {
        let body = format!("{} {} {round}", self.word, self.number);
        let mut attempt = Attempt {
            task: self.number,
            conversation: self.conversation,
            user: self.user,
            key: Some(body.replace(' ', "-")),
            body,
            began: Instant::now(),
            kept: None,
        };
        let conversation = &self.stage.conversations[self.conversation].id;
        let variables = json!({ "c": conversation, "b": attempt.body, "k": attempt.key });
        let reply = caller.ask(SEND, &variables).await.expect("the server runs");
        let node = &reply.body["data"]["sendMessage"]["messageEdge"]["node"];
        if node.is_object() {
            attempt.kept = Some(Kept {
                id: read::message_id(node).unwrap(),
                at: Instant::now(),
            });
        } else {
            assert_eq!(reply.code(), "UNAVAILABLE", "{}", reply.body);
        }
        let is_kept = attempt.kept.is_some();
        // A send that was surely not done is in no history.
        if is_kept || reply.outcome() != "NOT_DONE" {
            ledger.attempts.push(attempt);
        }
        is_kept
    }

    async fn read(&self, caller: &mut Caller, round: usize) -> bool {
        let conversation = &self.stage.conversations[self.conversation].id;
        let reply = match round % 2 {
            0 => caller.ask(PAGE, &json!({ "c": conversation })).await,
            _ => caller.ask(INBOX, &Value::Null).await,
        };
        let reply = reply.unwrap_or_else(|Cut| panic!("the server cut off {}", name(self.user)));
        reply.body.get("errors").is_none()
    }
}

/// Figures of one kind of request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) requests: usize,
    pub(super) failed: usize,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

impl Figures {
    /// Those that began in a period, failed ones included.
    pub(super) fn of(samples: &[Sample], kind: Kind, from: Instant, to: Instant) -> Self {
        let between: Vec<_> = samples
            .iter()
            .filter(|one| one.kind == kind && one.began >= from && one.began < to)
            .collect();
        let mut took: Vec<_> = between.iter().map(|one| one.took).collect();
        took.sort_unstable();
        Self {
            requests: between.len(),
            failed: between.iter().filter(|one| !one.is_ok).count(),
            p50: took.get(took.len() / 2).copied().unwrap_or_default(),
            p99: p99(&took),
            max: took.last().copied().unwrap_or_default(),
        }
    }
}

/// Prints the figures of a period, and returns those of sends and of pages.
pub(super) fn tell(what: &str, samples: &[Sample], from: Instant, to: Instant) -> [Figures; 2] {
    let both = [Kind::Send, Kind::Page].map(|kind| Figures::of(samples, kind, from, to));
    for (kind, figures) in ["sends", "pages"].into_iter().zip(&both) {
        let Figures {
            requests,
            failed,
            p50,
            p99,
            max,
        } = figures;
        say(&format!(
            "{what}, {:.0?}: {failed} of {requests} {kind} failed, p50 {p50:.0?}, p99 {p99:.0?}, max {max:.0?}",
            to.duration_since(from)
        ));
    }
    both
}

/// Sends one message to a conversation until it is acknowledged, with one key.
pub(super) async fn send_until_kept(
    stage: &Stage,
    server: SocketAddr,
    word: &str,
    conversation: usize,
) -> Attempt {
    let user = stage.conversations[conversation].participants[0];
    let mut caller = stage.caller(server, user).await;
    let body = format!("healed {word} {conversation}");
    let began = Instant::now();
    let variables = json!({
        "c": stage.conversations[conversation].id,
        "b": body,
        "k": body.replace(' ', "-"),
    });
    loop {
        let reply = caller.ask(SEND, &variables).await.expect("the server runs");
        let node = &reply.body["data"]["sendMessage"]["messageEdge"]["node"];
        if node.is_object() {
            return Attempt {
                task: conversation,
                conversation,
                user,
                key: Some(body.replace(' ', "-")),
                body,
                began,
                kept: Some(Kept {
                    id: read::message_id(node).unwrap(),
                    at: Instant::now(),
                }),
            };
        }
        assert_eq!(reply.code(), "UNAVAILABLE", "{}", reply.body);
        tokio::time::sleep(TRY_AGAIN_AFTER).await;
    }
}
