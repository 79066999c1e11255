//! Sends of many at once, beside the engine's own group commit in the same run.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::load::OperationStats;
use wideroom::model::UserId;

use crate::Size;
use crate::bare::{Bare, Sender};
use crate::measure::{Spread, cpu_micros};
use crate::operations::{SEND, first_in_inbox, inbox_page};
use crate::report::{self, Verdicts, number};
use crate::world::{Loader, World, body, client_key, user};

pub const SENDERS: usize = 64;
/// The second participant of each of the many conversations.
const HUB: &str = "hub";
const INBOX_PAGES: usize = 20;
const INBOX_ROUNDS: usize = 7;

pub type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One way to send, tried in rounds.
pub struct Way {
    pub name: &'static str,
    /// So many at once.
    senders: usize,
    /// Sends message `number` as sender `sender`.
    send: Arc<dyn Fn(usize, u64) -> Sending + Send + Sync>,
    pub rate: Spread,
    pub cpu: Spread,
    latencies: OperationStats,
}

impl Way {
    pub fn new(
        name: &'static str,
        senders: usize,
        send: impl Fn(usize, u64) -> Sending + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            senders,
            send: Arc::new(send),
            rate: Spread::default(),
            cpu: Spread::default(),
            latencies: OperationStats::default(),
        }
    }

    pub async fn round(&mut self, length: Duration, serial: &Arc<AtomicU64>, is_counted: bool) {
        let (start, before) = (Instant::now(), cpu_micros());
        let tasks: Vec<_> = (0..self.senders)
            .map(|sender| {
                let (send, serial) = (Arc::clone(&self.send), Arc::clone(serial));
                tokio::spawn(async move {
                    let mut latencies = OperationStats::default();
                    while start.elapsed() < length {
                        let began = Instant::now();
                        send(sender, serial.fetch_add(1, Ordering::Relaxed)).await;
                        latencies.record(began.elapsed());
                    }
                    latencies
                })
            })
            .collect();
        let mut latencies = OperationStats::default();
        for task in tasks {
            latencies.add(task.await.unwrap());
        }
        if is_counted {
            let sends = latencies.count() as f64;
            self.rate.push(sends / start.elapsed().as_secs_f64());
            self.cpu.push((cpu_micros() - before) / sends);
            self.latencies.add(latencies);
        }
    }

    fn print(&self) {
        let [half, nearly_all] = report::p50_p99(&self.latencies);
        println!(
            "  {:<30} {}  {half:>7.1}  {nearly_all:>7.1}  {}",
            self.name,
            report::spread(&self.rate),
            report::spread(&self.cpu)
        );
    }
}

pub async fn measure(size: &Size, verdicts: &mut Verdicts) {
    let world = Arc::new(World::empty().await);
    let mut of_two = Vec::with_capacity(SENDERS);
    for sender in 0..SENDERS {
        let people = [format!("two{sender}"), HUB.to_owned()];
        of_two.push((user(&people[0]), conversation(&world, &people).await));
    }
    let of_32 = of_many(&world, "of", 32).await;
    let of_64 = of_many(&world, "all", SENDERS).await;
    let hub = user(HUB);
    let quiet = inbox_cost(&world, &hub).await;
    let mut busy = Spread::default();
    let mut ways = [
        bare(),
        ours("64 conversations of two", SENDERS, &world, of_two, true),
        ours("one conversation of 32", SENDERS, &world, of_32, true),
        ours("one conversation of 64", SENDERS, &world, of_64, true),
    ];
    let serial = Arc::new(AtomicU64::new(1));
    for round in 0..=size.throughput_rounds {
        for way in &mut ways {
            // The first round warms up.
            way.round(size.throughput_round, &serial, round > 0).await;
        }
        busy.push(inbox_cost(&world, &hub).await.median());
    }
    print("Sends of 64 at once", &ways);
    let [bare, ours @ ..] = &ways;
    for way in ours {
        let ratio = way.rate.median() / bare.rate.median();
        let what = format!("sends/s, {}, to those of the engine alone", way.name);
        verdicts.at_least(&what, ratio, 0.3);
    }
    let sends = number(ways[1].latencies.count() as f64);
    report::heading(
        "First inbox page of the one who is in all 64 conversations of two, in µs on the processor",
    );
    println!("  {:<30} {}", "before", report::spread(&quiet));
    println!(
        "  {:<30} {}",
        format!("during some {sends} sends"),
        report::spread(&busy)
    );
    let ratio = busy.max() / quiet.median();
    let what = "inbox, first page: at its most during these sends, to before";
    verdicts.at_most(what, ratio, 1.3);
}

/// In turns, so that what else the machine does falls on all of them.
pub async fn in_turns(size: &Size, what: &str, ways: &mut [Way]) {
    let serial = Arc::new(AtomicU64::new(1));
    for round in 0..=size.throughput_rounds {
        for way in &mut *ways {
            // The first round warms up.
            way.round(size.throughput_round, &serial, round > 0).await;
        }
    }
    print(what, ways);
}

/// Prints the measurements of each way.
fn print(what: &str, ways: &[Way]) {
    report::heading(&format!(
        "{what}: by the clock per second, ms until kept (p50, p99), and µs of each on the processor"
    ));
    println!(
        "  {:<30} {:>26}  {:>7}  {:>7}  {:>26}",
        "", "sends/s", "p50", "p99", "µs/send"
    );
    ways.iter().for_each(Way::print);
}

/// Senders, each with the global id of its conversation.
pub type Senders = Vec<(UserId, String)>;

/// A new conversation, the only one of the first of its people.
async fn conversation(world: &World, people: &[String]) -> String {
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    let mut loader = Loader {
        store: &**world.store(),
        rows: Vec::new(),
    };
    loader
        .conversation(
            "Some of us",
            &people,
            SystemClock.now().plus_micros(-60_000_000),
            10,
        )
        .await;
    loader.flush().await;
    first_in_inbox(&mut (world, &user(people[0]))).await
}

/// Senders that each have a conversation with another user. No other measurement has users of this salt.
pub async fn of_two(world: &World, salt: &str, count: usize) -> Senders {
    let mut senders = Vec::with_capacity(count);
    for sender in 0..count {
        let people = [format!("two{salt}{sender}"), format!("peer{salt}{sender}")];
        senders.push((user(&people[0]), conversation(world, &people).await));
    }
    senders
}

/// Senders in one conversation. No other measurement has users of this salt.
pub async fn of_many(world: &World, salt: &str, count: usize) -> Senders {
    let people: Vec<String> = (0..count).map(|one| format!("{salt}{one}")).collect();
    let conversation = conversation(world, &people).await;
    people
        .iter()
        .map(|one| (user(one), conversation.clone()))
        .collect()
}

pub fn bare() -> Way {
    let bare = Arc::new(Bare::start());
    let senders: Arc<[Sender]> = (0..SENDERS).map(Sender::new).collect();
    Way::new("the engine alone", SENDERS, move |sender, serial| {
        let (bare, rows) = (Arc::clone(&bare), senders[sender].rows(serial));
        Box::pin(async move { bare.send(rows).await })
    })
}

/// Sends through the API, of so many at once.
pub fn ours(
    name: &'static str,
    at_once: usize,
    world: &Arc<World>,
    senders: Senders,
    is_keyed: bool,
) -> Way {
    let (world, senders) = (Arc::clone(world), Arc::new(senders));
    Way::new(name, at_once, move |sender, serial| {
        let (world, senders) = (Arc::clone(&world), Arc::clone(&senders));
        Box::pin(async move {
            let (viewer, conversation) = &senders[sender % senders.len()];
            let variables = json!({"c": conversation, "b": body(serial), "k": is_keyed.then(|| client_key(serial))});
            assert!(!world.ask(viewer, SEND, variables).await.is_empty());
        })
    })
}

async fn inbox_cost(world: &World, viewer: &UserId) -> Spread {
    let mut spread = Spread::default();
    for round in 0..=INBOX_ROUNDS {
        let before = cpu_micros();
        for _ in 0..INBOX_PAGES {
            assert!(inbox_page(world, viewer).await > 0);
        }
        if round > 0 {
            spread.push((cpu_micros() - before) / INBOX_PAGES as f64);
        }
    }
    spread
}
