//! Search: pages by a frequent and by a rare word, the size of the index, and its share of a send.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;

use crate::Size;
use crate::measure::{Spread, idle, quantile};
use crate::operations::{Ask as _, SEND};
use crate::report::{self, Verdicts};
use crate::server::{Client, Server};
use crate::throughput::SENDERS;
use crate::world::{Shape, World, body, client_key, user};

const PAGE_AIM_MS: f64 = 5.0;
const ACROSS_AIM_MS: f64 = 60.0;
const BYTES_AIM: f64 = 80.0;
const SEND_AIM: f64 = 1.08;
/// Sends of each of the [`SENDERS`] in one round: as many as become a segment.
const SENDS_EACH: usize = 64;
const TOKEN_LIFE: Duration = Duration::from_secs(36_000);
/// Interval in which a server that works less than this is at rest.
const LOOK: Duration = Duration::from_millis(250);
const QUIET_MICROS: f64 = 5_000.0;

const WITHIN: &str = "query($c: ID!, $q: String!) { conversation(id: $c) { searchMessages(query: $q, first: 20) {
    edges { cursor node { id body sender { username } } snippet { text isMatch } } pageInfo { hasNextPage endCursor } } } }";
const ACROSS: &str = "query($q: String!) { searchMessages(query: $q, first: 20) {
    edges { cursor node { id body conversation { id } } snippet { text isMatch } } pageInfo { hasNextPage endCursor } } }";
const START: &str = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }";

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    pages(size, &mut verdicts).await;
    sends(size, &mut verdicts).await;
    verdicts.print();
}

async fn pages(size: &Size, verdicts: &mut Verdicts) {
    let shapes = [
        Shape {
            messages: size.messages,
            conversations: 1,
        },
        Shape {
            messages: 1_000,
            conversations: 1_000,
        },
    ];
    let world = World::load(&shapes).await;
    world.store().compact().await.unwrap();
    let before = bytes_in(world.folder());
    let began = Instant::now();
    let mut after = None;
    loop {
        let piece = world.chat.index.conversations(after).await.unwrap();
        for id in &piece.conversations {
            world.chat.index.rebuild(*id).await.unwrap();
        }
        after = piece.conversations.last().copied();
        if !piece.has_next {
            break;
        }
    }
    let took = began.elapsed();
    world.store().compact().await.unwrap();
    let messages = world.message_count() as f64;
    let bytes = bytes_in(world.folder()).saturating_sub(before) as f64 / messages;
    report::heading("The index");
    println!(
        "  {messages} messages indexed in {took:.1?}, {:.1} µs each; {bytes:.0} bytes each on the disk",
        took.as_micros() as f64 / messages
    );
    verdicts.push(
        "bytes of index a message",
        bytes,
        "at most 80",
        bytes <= BYTES_AIM,
    );
    idle().await;
    report::heading("Pages of 20 matches, ms");
    let long = &world.places[0];
    let viewer = &long.people[0];
    let conversation = world.first_in_inbox(viewer).await;
    let rare = (size.messages / 3).to_string();
    for (what, query) in [("frequent word", "harbour"), ("rare word", rare.as_str())] {
        let variables = json!({"c": conversation, "q": query});
        let spread = timed(size, &world, viewer, WITHIN, &variables).await;
        print(&format!("{what}, one conversation"), &spread);
        let median = spread.median();
        let is_met = median <= PAGE_AIM_MS;
        verdicts.push(
            &format!("page by a {what}, ms"),
            median,
            "at most 5",
            is_met,
        );
    }
    let many = &world.places[1].people[0];
    let word = body(777);
    let word = word.split(':').next().unwrap();
    let spread = timed(size, &world, many, ACROSS, &json!({"q": word})).await;
    print("rare word, 1,000 conversations", &spread);
    let median = spread.median();
    let is_met = median <= ACROSS_AIM_MS;
    verdicts.push(
        "page by a rare word across 1,000, ms",
        median,
        "at most 60",
        is_met,
    );
    world.close().await;
}

async fn timed(
    size: &Size,
    world: &World,
    viewer: &UserId,
    document: &str,
    variables: &Value,
) -> Spread {
    let mut spread = Spread::default();
    for round in 0..=size.rounds {
        let began = Instant::now();
        let data = world.data(viewer, document, variables.clone()).await;
        let took = began.elapsed().as_secs_f64() * 1_000.0;
        assert!(data.to_string().contains("edges"), "{data}");
        if round > 0 {
            spread.push(took);
        }
    }
    spread
}

/// A server with clients, each with a conversation of its own.
struct Sending {
    server: Server,
    senders: Vec<(Client, String)>,
    cost: Spread,
    millis: Vec<f64>,
    _folder: TempDir,
}

impl Sending {
    async fn begin(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::wideroom(folder.path(), options);
        let auth = Auth::open(folder.path()).unwrap();
        let mut senders = Vec::new();
        for number in 0..SENDERS {
            let sender = user(&format!("sender{number}"));
            let token = auth.issue(&sender, TOKEN_LIFE, SystemClock.now());
            let mut client = Client::connect(&server, &token).await;
            let made = client.ask(START, json!({"u": format!("reader{number}")}));
            let id = &made.await["startDirectConversation"]["conversation"]["id"];
            senders.push((client, id.as_str().unwrap().to_owned()));
        }
        Self {
            server,
            senders,
            cost: Spread::default(),
            millis: Vec::new(),
            _folder: folder,
        }
    }

    /// All clients at once. The cost includes what the server does afterwards.
    async fn round(&mut self, serial: &AtomicU64, is_counted: bool) {
        let before = self.server.cpu_micros();
        let sends = self.senders.iter_mut().map(async |(client, id)| {
            let mut millis = Vec::with_capacity(SENDS_EACH);
            for _ in 0..SENDS_EACH {
                let serial = serial.fetch_add(1, Ordering::Relaxed);
                let (text, key) = (body(serial), client_key(serial));
                let variables = json!({"c": id.as_str(), "b": text, "k": key});
                let began = Instant::now();
                client.ask(SEND, variables).await;
                millis.push(began.elapsed().as_secs_f64() * 1_000.0);
            }
            millis
        });
        let millis = join_all(sends).await;
        let mut quiet = 0;
        while quiet < 3 {
            let seen = self.server.cpu_micros();
            tokio::time::sleep(LOOK).await;
            let is_quiet = self.server.cpu_micros() - seen < QUIET_MICROS;
            quiet = if is_quiet { quiet + 1 } else { 0 };
        }
        if is_counted {
            let spent = self.server.cpu_micros() - before;
            self.cost.push(spent / (SENDERS * SENDS_EACH) as f64);
            self.millis.extend(millis.into_iter().flatten());
        }
    }

    fn print(&mut self, what: &str) {
        self.millis.sort_unstable_by(f64::total_cmp);
        let [p50, p99] = [0.5, 0.99].map(|share| quantile(&self.millis, share));
        let mib = self.server.resident_kib() / 1_024.0;
        let cost = report::spread(&self.cost);
        println!("  {what:<18}{cost}   p50 {p50:.1} ms, p99 {p99:.1} ms   {mib:.1} MiB resident");
    }
}

/// Sends through the door with the index, the work in the background included, and without it.
async fn sends(size: &Size, verdicts: &mut Verdicts) {
    let mut without = Sending::begin(&["--search", "off"]).await;
    let mut with = Sending::begin(&[]).await;
    let serial = AtomicU64::new(0);
    for round in 0..=size.throughput_rounds {
        // The first round warms up.
        without.round(&serial, round > 0).await;
        with.round(&serial, round > 0).await;
    }
    report::heading(
        "Sends of 64 at once by HTTP, µs of each on the server's processor, the background included",
    );
    without.print("without an index");
    with.print("with an index");
    let ratio = with.cost.median() / without.cost.median();
    let is_met = ratio <= SEND_AIM;
    verdicts.push(
        "send with an index, to one without",
        ratio,
        "at most 1.08",
        is_met,
    );
}

fn print(what: &str, spread: &Spread) {
    println!("  {what:<32}{}", report::spread(spread));
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| {
        let path = entry.path();
        // A journal is no part of it.
        let is_journal = path.extension().is_some_and(|one| one == "jnl");
        match entry.metadata() {
            Ok(data) if data.is_dir() => bytes_in(&path),
            Ok(data) if !is_journal => data.len(),
            Ok(_) | Err(_) => 0,
        }
    });
    sizes.sum()
}
