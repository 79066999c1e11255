//! The server is killed again and again while many write to it: nothing that it acknowledged is lost, and nothing is half there.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use wideroom::model::MessageId;

use super::Dice;
use super::follower::{Follower, Place};
use super::ledger::{Attempt, Found, Kept, Ledger, Mark};
use super::read;
use super::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage, name, serve};
use crate::support::client::{Caller, Cut, soon};
use crate::support::program::{Program, Running};
use crate::support::server::Server;
use crate::support::size::sized;

const SENDERS: usize = 16;
/// Acknowledged sends that each sender with keys tries again after a crash.
const REPEATS: usize = 2;
/// Indexes of the users whose inbox subscription is resumed after each crash.
const OBSERVED: [usize; 3] = [0, 9, 30];

const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { uuid body } } } }";
const MARK_READ: &str = "mutation($c: ID!) { markRead(input: {conversationId: $c}) { inboxEntry { readUpTo { uuid } } } }";

/// How it is played.
#[derive(Clone, Copy)]
struct Pace {
    /// Rounds are played until this is over, and at least so many.
    played_for: Duration,
    rounds_min: usize,
    /// A server is killed within this time of the first send.
    sending: Duration,
    /// Followers are cut off this often while the server lives, and its memory is looked at.
    cut_every: Duration,
    /// Between two sends of one sender.
    pause: Duration,
}

/// On a machine that has other things to do, a round may end before anything is acknowledged.
const ROUNDS_MAX: usize = 100;

const CRASHES: Pace = Pace {
    played_for: Duration::from_secs(8),
    rounds_min: 4,
    sending: Duration::from_millis(500),
    cut_every: Duration::MAX,
    pause: Duration::ZERO,
};
const SOAK: Pace = Pace {
    played_for: Duration::from_secs(1_800),
    rounds_min: 2,
    sending: Duration::from_secs(400),
    cut_every: Duration::from_secs(20),
    pause: Duration::from_millis(100),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_every_crash() {
    let full = Pace {
        played_for: Duration::from_secs(38),
        rounds_min: 12,
        ..CRASHES
    };
    play(sized(CRASHES, full)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: half an hour of it"]
async fn nightly_soak_of_half_an_hour_with_crashes_and_cuts() {
    play(SOAK).await;
}

async fn play(pace: Pace) {
    let stage = Arc::new(Stage::set_up(Program::new()).await);
    let mut play = Play {
        pace,
        ledger: Ledger::default(),
        dice: Dice::new(),
        place: watch::channel(None).0,
        stage,
        cuts: 0,
    };
    let followers = play.follow();
    let began = Instant::now();
    let mut rounds = 0;
    let mut seen = None;
    let is_enough = |play: &Play| play.ledger.kept() > pace.rounds_min * SENDERS;
    while rounds < pace.rounds_min
        || began.elapsed() < pace.played_for
        || (!is_enough(&play) && rounds < ROUNDS_MAX)
    {
        seen = Some(play.round(seen).await);
        rounds += 1;
    }
    let (server, found) = play.settle(seen.unwrap()).await;
    for follower in followers {
        follower.check(&play.stage, &found).await;
    }
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let kept = play.ledger.kept();
    let unknown = play.ledger.attempts.len() - kept;
    let (cuts, marks) = (play.cuts, play.ledger.marks.len());
    println!(
        "{rounds} crashes, {cuts} cuts, {kept} acknowledged, {unknown} of unknown outcome, {marks} marks"
    );
    assert!(is_enough(&play), "{kept}");
}

struct Play {
    pace: Pace,
    stage: Arc<Stage>,
    ledger: Ledger,
    dice: Dice,
    /// Address of the running server.
    place: watch::Sender<Option<Place>>,
    /// How often followers were told that they are cut off, or the server is another one.
    cuts: usize,
}

impl Play {
    /// Those who listen from before the first message to the end, through every crash.
    fn follow(&self) -> Vec<Follower> {
        let mut followers = vec![Follower::of_inbox(&self.stage, 1, self.place.subscribe())];
        for conversation in [GROUP_AT, LARGE_AT, SMALL_AT, SMALL_AT + 20] {
            followers.push(Follower::of_messages(
                &self.stage,
                conversation,
                self.place.subscribe(),
            ));
        }
        followers
    }

    /// Starts the server, looks whether all is well, has everybody send, and kills it.
    async fn round(&mut self, before: Option<Found>) -> Found {
        if self.dice.roll(2) == 0 {
            self.kill_while_starting().await;
        }
        let server = serve(&self.stage.program);
        let address = server.address();
        self.move_to(address);
        let found = self.check(address, before).await;
        let senders = self
            .senders(self.cuts, true)
            .into_iter()
            .map(|sender| tokio::spawn(sender.run(address)))
            .collect::<Vec<_>>();
        // Not to wait for anything: when it is killed is left to chance.
        let micros = u64::try_from(self.pace.sending.as_micros()).unwrap();
        let mut left = Duration::from_micros(self.dice.roll(micros));
        while left > Duration::ZERO {
            let piece = left.min(self.pace.cut_every);
            tokio::time::sleep(piece).await;
            left -= piece;
            if left > Duration::ZERO {
                println!(
                    "cut {}: {} KiB resident",
                    self.cuts,
                    server.resident_bytes() >> 10
                );
                self.move_to(address);
            }
        }
        self.place.send_replace(None);
        let log = server.kill();
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
        for sender in senders {
            self.note(soon(sender).await.unwrap());
        }
        found
    }

    /// Followers go there, or come back there.
    fn move_to(&mut self, address: SocketAddr) {
        self.cuts += 1;
        self.place.send_replace(Some(Place {
            number: self.cuts,
            address,
        }));
    }

    async fn kill_while_starting(&mut self) {
        let mut command = self
            .stage
            .program
            .command(&["serve", "--listen", "127.0.0.1:0"]);
        let starting = Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        tokio::time::sleep(Duration::from_micros(self.dice.roll(150_000))).await;
        starting.kill();
    }

    async fn check(&self, address: SocketAddr, before: Option<Found>) -> Found {
        let found = self.ledger.check(&self.stage, address).await;
        if let Some(before) = before {
            for user in OBSERVED {
                super::follower::check_resumed_inbox(&self.stage, address, user, &before, &found)
                    .await;
            }
        }
        found
    }

    fn senders(&self, round: usize, is_going_on: bool) -> Vec<Sender> {
        (0..SENDERS)
            .map(|task| self.sender(round, task, is_going_on))
            .collect()
    }

    fn sender(&self, round: usize, task: usize, is_going_on: bool) -> Sender {
        let of_task = self
            .ledger
            .attempts
            .iter()
            .enumerate()
            .filter(|(_, attempt)| attempt.task == task && attempt.key.is_some());
        let (kept, unknown): (Vec<_>, Vec<_>) =
            of_task.partition(|(_, attempt)| attempt.kept.is_some());
        let again = unknown
            .into_iter()
            .chain(kept.into_iter().rev().take(REPEATS));
        let again = again
            .map(|(index, attempt)| (index, attempt.clone()))
            .collect();
        let (stage, pause) = (Arc::clone(&self.stage), self.pace.pause);
        Sender {
            stage,
            round,
            task,
            dice: Dice::new(),
            again,
            is_going_on,
            pause,
            told: Told::default(),
        }
    }

    fn note(&mut self, told: Told) {
        for (index, kept) in told.again {
            self.ledger.attempts[index].kept.get_or_insert(kept);
        }
        self.ledger.attempts.extend(told.ledger.attempts);
        self.ledger.marks.extend(told.ledger.marks);
    }

    /// The last start: every send with a key is settled by trying it again, and this server stays.
    async fn settle(&mut self, before: Found) -> (Server, Found) {
        let server = serve(&self.stage.program);
        let address = server.address();
        self.move_to(address);
        self.check(address, Some(before)).await;
        for sender in self.senders(usize::MAX, false) {
            self.note(soon(sender.run(address)).await);
        }
        assert!(
            self.ledger
                .attempts
                .iter()
                .all(|attempt| attempt.key.is_none() || attempt.kept.is_some())
        );
        let found = self.ledger.check(&self.stage, address).await;
        (server, found)
    }
}

/// One who sends, and sends again what has a key, until the connection is cut.
struct Sender {
    stage: Arc<Stage>,
    round: usize,
    task: usize,
    dice: Dice,
    again: Vec<(usize, Attempt)>,
    /// Whether there is more to send than what is sent again.
    is_going_on: bool,
    pause: Duration,
    told: Told,
}

/// Result of one sender in one round.
#[derive(Default)]
struct Told {
    again: Vec<(usize, Kept)>,
    ledger: Ledger,
}

impl Sender {
    async fn run(mut self, address: SocketAddr) -> Told {
        // To be cut off is how it ends.
        let _ = self.send_on(address).await;
        self.told
    }

    async fn send_on(&mut self, address: SocketAddr) -> Result<(), Cut> {
        let mut caller =
            Caller::connect(address, &self.stage.program.token(&name(self.task))).await?;
        for (index, attempt) in std::mem::take(&mut self.again) {
            let kept = send(&mut caller, &self.stage, &attempt).await?;
            assert!(
                attempt.kept.is_none_or(|before| before.id == kept.id),
                "a key has two messages: {kept:?}, {attempt:?}"
            );
            self.told.again.push((index, kept));
        }
        while self.is_going_on {
            let attempt = self.attempt();
            self.told.ledger.attempts.push(attempt.clone());
            let kept = send(&mut caller, &self.stage, &attempt).await?;
            self.told.ledger.attempts.last_mut().unwrap().kept = Some(kept);
            if self.dice.roll(6) == 0 {
                self.mark(&mut caller).await?;
            }
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
        Ok(())
    }

    /// Six write to the busy group, four to the large one, and the others to their small ones. One in four uses keys.
    fn attempt(&mut self) -> Attempt {
        let conversation = match self.task {
            0..=5 => GROUP_AT,
            6..=9 => LARGE_AT,
            _ => *self.dice.pick(
                &self
                    .stage
                    .of_user(self.task)
                    .filter(|at| *at >= SMALL_AT)
                    .collect::<Vec<_>>(),
            ),
        };
        let body = format!(
            "round {} task {} number {}",
            self.round,
            self.task,
            self.told.ledger.attempts.len()
        );
        let key = (self.task % 4 == 3).then(|| body.replace(' ', "-"));
        let filling = if self.dice.roll(16) == 0 {
            self.dice.roll(8_000)
        } else {
            0
        };
        let body = body + &" x".repeat(usize::try_from(filling / 2).unwrap());
        Attempt {
            task: self.task,
            conversation,
            user: self.task,
            body,
            key,
            began: Instant::now(),
            kept: None,
        }
    }

    async fn mark(&mut self, caller: &mut Caller) -> Result<(), Cut> {
        let conversation = *self
            .dice
            .pick(&self.stage.of_user(self.task).collect::<Vec<_>>());
        let data = caller
            .data(
                MARK_READ,
                &json!({ "c": self.stage.conversations[conversation].id }),
            )
            .await?;
        let marked =
            read::message_id(&data["markRead"]["inboxEntry"]["readUpTo"]).map(MessageId::order_key);
        self.told.ledger.marks.extend(marked.map(|up_to| Mark {
            conversation,
            user: self.task,
            up_to,
        }));
        Ok(())
    }
}

async fn send(caller: &mut Caller, stage: &Stage, attempt: &Attempt) -> Result<Kept, Cut> {
    let conversation = &stage.conversations[attempt.conversation].id;
    let data = caller
        .data(
            SEND,
            &json!({ "c": conversation, "b": attempt.body, "k": attempt.key }),
        )
        .await?;
    let node = &data["sendMessage"]["messageEdge"]["node"];
    assert_eq!(node["body"], Value::from(attempt.body.as_str()));
    Ok(Kept {
        id: read::message_id(node).unwrap(),
        at: Instant::now(),
    })
}
