//! Those who send all the time, whatever breaks: each send that has a key until it is acknowledged, on another server where theirs is gone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::binary::Dice;
use crate::binary::ledger::{Attempt, Kept, Ledger, Mark};
use crate::binary::read;
use crate::binary::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage, name};
use crate::support::client::{Caller, Cut};
use crate::support::world::PATIENCE;

const MARK_READ: &str = "mutation($c: ID!) { markRead(input: {conversationId: $c}) { inboxEntry { readUpTo { uuid } } } }";

/// How long people think between two messages. With less, ten of them take the processor from the nodes that start again.
const THINK: Duration = Duration::from_millis(150);
/// After one of so many sends, the sender marks a conversation as read.
const MARK_ONE_OF: u64 = 8;
/// How soon they try again.
pub(super) const TRY_AGAIN_AFTER: Duration = Duration::from_millis(200);

const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { uuid body } } } }";

/// One request and what came of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Try {
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Kept,
    NotDone,
    Unknown,
    /// The server was gone.
    Cut,
}

/// The servers that run: where one's own is gone, one goes to the next.
pub(super) type Places = watch::Receiver<Vec<SocketAddr>>;

pub(super) struct Crowd {
    senders: Vec<JoinHandle<(Ledger, Vec<Try>)>>,
    is_over: watch::Sender<bool>,
    count: watch::Receiver<Count>,
}

/// Which sends have an idempotency key, with which they are tried until they are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    ThreeOfFour,
    None,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    kept: usize,
    refused: usize,
}

impl Crowd {
    /// So many users, each with a task of its own. `word` makes their bodies like no others.
    pub(super) fn gather(
        stage: &Arc<Stage>,
        word: &'static str,
        users: usize,
        keys: Keys,
        places: &Places,
    ) -> Self {
        let (is_over, over) = watch::channel(false);
        let (count, counted) = watch::channel(Count::default());
        let count = Arc::new(count);
        let sender = |user| {
            let (stage, places, over, count) = (
                Arc::clone(stage),
                places.clone(),
                over.clone(),
                Arc::clone(&count),
            );
            let sender = Sender {
                stage,
                word,
                user,
                keys,
                places,
                over,
                count,
                dice: Dice::new(),
                number: 0,
                ledger: Ledger::default(),
                tries: Vec::new(),
            };
            tokio::spawn(sender.run())
        };
        Self {
            senders: (0..users).map(sender).collect(),
            is_over,
            count: counted,
        }
    }

    /// Waits until so many more were acknowledged. How long that took.
    pub(super) async fn keeps(&mut self, more: usize) -> Duration {
        let wanted = self.count.borrow().kept + more;
        self.counts(|count| count.kept >= wanted).await
    }

    /// Waits until so many more tries were refused.
    pub(super) async fn is_refused(&mut self, more: usize) -> Duration {
        let wanted = self.count.borrow().refused + more;
        self.counts(|count| count.refused >= wanted).await
    }

    async fn counts(&mut self, enough: impl Fn(&Count) -> bool) -> Duration {
        let began = Instant::now();
        let waited = tokio::time::timeout(PATIENCE, self.count.wait_for(enough))
            .await
            .map(drop);
        assert!(
            waited.is_ok(),
            "it does not go on: {:?}",
            *self.count.borrow()
        );
        began.elapsed()
    }

    /// Nobody begins anything new; what was begun is tried until it is acknowledged.
    pub(super) async fn end(self, ledger: &mut Ledger) -> Vec<Try> {
        self.is_over.send_replace(true);
        let mut tries = Vec::new();
        for sender in self.senders {
            let (of_one, more) = tokio::time::timeout(PATIENCE, sender)
                .await
                .expect("everything is acknowledged in time")
                .unwrap();
            ledger.attempts.extend(of_one.attempts);
            ledger.marks.extend(of_one.marks);
            tries.extend(more);
        }
        tries
    }
}

struct Sender {
    stage: Arc<Stage>,
    word: &'static str,
    user: usize,
    keys: Keys,
    places: Places,
    over: watch::Receiver<bool>,
    count: Arc<watch::Sender<Count>>,
    dice: Dice,
    /// Number of the last message.
    number: usize,
    ledger: Ledger,
    tries: Vec<Try>,
}

impl Sender {
    async fn run(mut self) -> (Ledger, Vec<Try>) {
        let token = self.stage.program.token(&name(self.user));
        let mut caller = None;
        let mut server = self.user;
        while !*self.over.borrow() {
            let mut attempt = self.attempt();
            while attempt.kept.is_none() {
                if caller.is_none() {
                    let place = {
                        let places = self.places.borrow();
                        places[server % places.len()]
                    };
                    caller = Caller::connect(place, &token).await.ok();
                }
                let end = match &mut caller {
                    Some(caller) => self.send(caller, &mut attempt).await,
                    None => End::Cut,
                };
                if end == End::Cut {
                    (caller, server) = (None, server + 1);
                }
                if end == End::NotDone && attempt.key.is_none() {
                    break;
                }
                if matches!(end, End::Unknown | End::Cut) && attempt.key.is_none() {
                    // There or not: nobody knows.
                    self.ledger.attempts.push(attempt.clone());
                    break;
                }
                if end != End::Kept {
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
            }
            if attempt.kept.is_some() {
                self.ledger.attempts.push(attempt);
                self.count.send_modify(|count| count.kept += 1);
                if self.dice.roll(MARK_ONE_OF) == 0
                    && let Some(connected) = &mut caller
                    && self.mark(connected).await.is_err()
                {
                    (caller, server) = (None, server + 1);
                }
            }
            tokio::time::sleep(THINK).await;
        }
        (self.ledger, self.tries)
    }

    /// Attempts without a key that certainly failed are not recorded, because no history contains them.
    fn attempt(&mut self) -> Attempt {
        let small: Vec<_> = self
            .stage
            .of_user(self.user)
            .filter(|at| *at >= SMALL_AT)
            .collect();
        let conversation = match self.user {
            0..=2 => GROUP_AT,
            3..=4 => LARGE_AT,
            _ if small.is_empty() => LARGE_AT,
            _ => *self.dice.pick(&small),
        };
        self.number += 1;
        let body = format!("{} {} {}", self.word, self.user, self.number);
        let has_key = self.keys == Keys::ThreeOfFour && self.dice.roll(4) > 0;
        let key = has_key.then(|| body.replace(' ', "-"));
        Attempt {
            task: self.user,
            conversation,
            user: self.user,
            body,
            key,
            began: Instant::now(),
            kept: None,
        }
    }

    /// Marks one of the user's conversations as read. A mark that is refused may be done or not.
    async fn mark(&mut self, caller: &mut Caller) -> Result<(), Cut> {
        let all: Vec<_> = self.stage.of_user(self.user).collect();
        let conversation = *self.dice.pick(&all);
        let variables = json!({ "c": self.stage.conversations[conversation].id });
        let reply = caller.ask(MARK_READ, &variables).await?;
        let marked = read::message_id(&reply.body["data"]["markRead"]["inboxEntry"]["readUpTo"]);
        assert!(
            marked.is_some() || ["", "UNAVAILABLE"].contains(&reply.code()),
            "{}",
            reply.body
        );
        self.ledger.marks.extend(marked.map(|id| Mark {
            conversation,
            user: self.user,
            up_to: id.order_key(),
        }));
        Ok(())
    }

    async fn send(&mut self, caller: &mut Caller, attempt: &mut Attempt) -> End {
        let conversation = &self.stage.conversations[attempt.conversation].id;
        let began = Instant::now();
        let reply = caller
            .ask(
                SEND,
                &json!({ "c": conversation, "b": attempt.body, "k": attempt.key }),
            )
            .await;
        let end = match reply {
            Err(Cut) => End::Cut,
            Ok(reply) if reply.code() == "UNAVAILABLE" => match reply.outcome() {
                "NOT_DONE" => End::NotDone,
                "UNKNOWN" => End::Unknown,
                other => panic!("{other}: {}", reply.body),
            },
            Ok(reply) => {
                let node = &reply.body["data"]["sendMessage"]["messageEdge"]["node"];
                assert_eq!(
                    node["body"],
                    Value::from(attempt.body.as_str()),
                    "{}",
                    reply.body
                );
                attempt.kept = Some(Kept {
                    id: read::message_id(node).unwrap(),
                    at: Instant::now(),
                });
                End::Kept
            }
        };
        if matches!(end, End::NotDone | End::Unknown) {
            self.count.send_modify(|count| count.refused += 1);
        }
        self.tries.push(Try {
            began,
            took: began.elapsed(),
            end,
        });
        end
    }
}
