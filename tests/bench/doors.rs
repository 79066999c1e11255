//! Cost of operations at the server, requested over HTTP from the real program in its own process.
//!
//! Each is beside what cannot be done without: HTTP that answers the same bytes, rows that are read from the same engine and written as
//! the same JSON, the engine's own group commit. And beside the library's own handlers over the same API and a copy of the store.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;

use crate::Size;
use crate::library::copy_folder;
use crate::measure::{Spread, idle};
use crate::operations::{Ask as _, HISTORY, INBOX, MARK_READ, SEND, oldest_ids};
use crate::report::{self, Verdicts};
use crate::rows::Rows;
use crate::server::{Client, Server, body};
use crate::throughput::{SENDERS, bare};
use crate::world::{Loader, Place, Shape, World, client_key, user};

/// Messages that each of many readers has not read yet.
const TO_READ: u64 = 1_000;
const PAGES: usize = 96;
/// Pages of 50 that the server has in memory at most.
const PAGES_IN_MEMORY: usize = 3;
/// Concurrent readers. A single reader would find the processors asleep, and waking them costs more than the page; a busy server
/// does not pay for it.
const READERS: usize = 16;
const ALONE: usize = 50;
/// Sends of each of the [`SENDERS`] in one round.
const TOGETHER: usize = 20;
const TOKEN_LIFE: std::time::Duration = std::time::Duration::from_secs(36_000);

const PAGE_AIM: f64 = 1.8;
const DEEP_AIM: f64 = 1.1;
const SEND_AIM: f64 = 1.6;
const INBOX_AIM_MICROS: f64 = 160.0;
const MARK_AIM_MICROS: f64 = 60.0;
const IDLE_AIM_MIB: f64 = 60.0;
/// Aims of a page that is read alone.
const ALONE_AIM_MICROS: f64 = 200.0;
const ALONE_AIM_MILLIS: f64 = 0.35;

/// One who asks, and what they ask.
struct Asker<'a> {
    server: &'a Server,
    clients: Vec<Client>,
    /// The next request of this client.
    next: Box<dyn FnMut(usize) -> String + 'a>,
    cost: Spread,
    millis: Vec<f64>,
}

impl<'a> Asker<'a> {
    fn new(
        server: &'a Server,
        clients: Vec<Client>,
        next: impl FnMut(usize) -> String + 'a,
    ) -> Self {
        Self {
            server,
            clients,
            next: Box::new(next),
            cost: Spread::default(),
            millis: Vec::new(),
        }
    }

    /// All clients at once, each so often and one after the other.
    async fn round(&mut self, times: usize, is_counted: bool) {
        let requests: Vec<Vec<String>> = (0..self.clients.len())
            .map(|who| (0..times).map(|_| (self.next)(who)).collect())
            .collect();
        let before = self.server.cpu_micros();
        let millis = join_all(self.clients.iter_mut().zip(requests).map(
            |(client, requests)| async {
                let mut millis = Vec::with_capacity(times);
                for request in requests {
                    let start = Instant::now();
                    let answer = client.post(request).await;
                    millis.push(start.elapsed().as_secs_f64() * 1e3);
                    // A refused request is cheap and would falsify the figure.
                    assert!(!answer.starts_with(b"{\"errors\""), "{answer:?}");
                }
                millis
            },
        ))
        .await;
        if is_counted {
            self.cost
                .push((self.server.cpu_micros() - before) / (times * self.clients.len()) as f64);
            self.millis.extend(millis.into_iter().flatten());
        }
    }
}

/// Measures all of them in turns, so that what else the machine does falls on each.
async fn in_turns(askers: &mut [&mut Asker<'_>], rounds: usize, times: usize) {
    for round in 0..=rounds {
        for asker in &mut *askers {
            asker.round(times, round > 0).await;
        }
    }
}

/// The real program over what was loaded, and the library's own handlers over a copy of it.
struct Ours {
    server: Server,
    library: Server,
    auth: Auth,
    places: Vec<Place>,
    folder: TempDir,
    _copy: TempDir,
}

impl Ours {
    async fn client(&self, who: &UserId) -> Client {
        self.client_at(&self.server, who).await
    }

    async fn client_at(&self, server: &Server, who: &UserId) -> Client {
        let token = self.auth.issue(who, TOKEN_LIFE, SystemClock.now());
        Client::connect(server, &token).await
    }

    async fn clients(&self, who: impl Iterator<Item = UserId>) -> Vec<Client> {
        self.clients_at(&self.server, who).await
    }

    async fn clients_at(&self, server: &Server, who: impl Iterator<Item = UserId>) -> Vec<Client> {
        let mut clients = Vec::new();
        for who in who {
            clients.push(self.client_at(server, &who).await);
        }
        clients
    }
}

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    let long = Shape {
        messages: size.messages,
        conversations: 20,
    };
    let wide = Shape {
        messages: 1_000,
        conversations: size.conversations,
    };
    let world = World::load(&[long, wide]).await;
    let mut loader = Loader {
        store: &**world.store(),
        rows: Vec::new(),
    };
    for pair in 0..SENDERS {
        loader
            .conversation(
                "Two",
                &[&sender(pair), &reader(pair)],
                SystemClock.now(),
                TO_READ,
            )
            .await;
    }
    loader.flush().await;
    idle().await;
    let (places, folder) = world.close().await.into_parts();
    let rows = Rows::open(folder.path()).measure(places[0].conversation, size.rounds);
    let auth = Auth::open(folder.path()).unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), copy.path());
    let ours = Ours {
        server: Server::wideroom(folder.path(), &[]),
        library: Server::library(copy.path()),
        auth,
        places,
        folder,
        _copy: copy,
    };
    memory(&ours, &mut verdicts).await;
    report::heading(
        "Through the door, by HTTP over connections that stay: µs of each on the server's processor",
    );
    pages(&ours, &rows, size, &mut verdicts).await;
    inbox(&ours, size, &mut verdicts).await;
    sends(&ours, size, &mut verdicts).await;
    marks(&ours, size, &mut verdicts).await;
    println!(
        "  {:<44} {:>8.1} MiB of resident memory",
        "after all this",
        ours.server.resident_kib() / 1024.0
    );
    verdicts.print();
}

fn sender(pair: usize) -> String {
    format!("sender{pair}")
}

fn reader(pair: usize) -> String {
    format!("reader{pair}")
}

fn print(what: &str, cost: &Spread, ratio: Option<f64>) {
    println!(
        "  {what:<44} {}{}",
        report::spread(cost),
        ratio
            .map(|ratio| format!("  {ratio:>5.2}"))
            .unwrap_or_default()
    );
}

/// Prints the cost of the library's handlers, and notes the ratio of ours to it.
fn beside_library(what: &str, ours: &Spread, library: &Spread, verdicts: &mut Verdicts) {
    let ratio = ours.median() / library.median();
    print(
        "  the library's handlers, and ours to them",
        library,
        Some(ratio),
    );
    verdicts.push(
        &format!("{what}, to the library's handlers"),
        ratio,
        "at most 1",
        ratio <= 1.0,
    );
}

async fn memory(ours: &Ours, verdicts: &mut Verdicts) {
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let mib = ours.server.resident_kib() / 1024.0;
    report::heading("The server at rest, all of it on disk");
    println!("  {mib:.1} MiB of resident memory");
    verdicts.push(
        "resident memory at rest, to 60 MiB",
        mib / IDLE_AIM_MIB,
        "below 1",
        mib < IDLE_AIM_MIB,
    );
}

/// A server that answers with what ours has just answered.
async fn fixed(folder: &Path, client: &mut Client, request: &str) -> Server {
    let answer = client.post(request.to_owned()).await;
    let mut file = tempfile::Builder::new().tempfile_in(folder).unwrap();
    file.write_all(&answer).unwrap();
    Server::bare(&[crate::BARE_HTTP, file.path().to_str().unwrap()])
}

async fn pages(ours: &Ours, rows: &Spread, size: &Size, verdicts: &mut Verdicts) {
    let place = &ours.places[0];
    let viewer = &place.people[0];
    let mut client = ours.client(viewer).await;
    let c = first_in_inbox(&mut client).await;
    let newest = body(HISTORY, json!({"c": c}));
    // Behind the messages that the server has in memory.
    let mut near = Value::Null;
    for _ in 0..PAGES_IN_MEMORY {
        near = end_cursor(&mut client, json!({"c": c, "after": near})).await;
    }
    let near = body(HISTORY, json!({"c": c, "after": near}));
    let until = place.middle().to_string();
    let middle = end_cursor(&mut client, json!({"c": c, "until": until})).await;
    let deep = body(HISTORY, json!({"c": c, "after": middle}));
    let fixed = fixed(ours.folder.path(), &mut client, &newest).await;
    let viewers = || std::iter::repeat_n(viewer.clone(), READERS);
    let mut bare = Asker::new(&fixed, strangers(&fixed, READERS).await, |_| newest.clone());
    let mut first = Asker::new(&ours.server, ours.clients(viewers()).await, |_| {
        newest.clone()
    });
    let mut behind = Asker::new(&ours.server, ours.clients(viewers()).await, |_| {
        near.clone()
    });
    let mut inside = Asker::new(&ours.server, ours.clients(viewers()).await, |_| {
        deep.clone()
    });
    let readers = ours.clients_at(&ours.library, viewers()).await;
    let mut library = Asker::new(&ours.library, readers, |_| newest.clone());
    in_turns(
        &mut [
            &mut bare,
            &mut first,
            &mut behind,
            &mut inside,
            &mut library,
        ],
        size.rounds,
        PAGES / READERS,
    )
    .await;
    print(
        "16 at once, axum answering as a page of 50 is",
        &bare.cost,
        None,
    );
    print("the rows of it, from the engine to JSON", rows, None);
    let ratio = first.cost.median() / (bare.cost.median() + rows.median());
    print(
        "the newest page of 50 at 16 readers, and to these two",
        &first.cost,
        Some(ratio),
    );
    verdicts.push(
        "the newest page of 50, to the bare answer and the bare rows",
        ratio,
        "at most 1.8",
        ratio <= PAGE_AIM,
    );
    beside_library("a page of 50", &first.cost, &library.cost, verdicts);
    let ratio = behind.cost.median() / (bare.cost.median() + rows.median());
    print(
        "a page of 50 from disk, and to these two",
        &behind.cost,
        Some(ratio),
    );
    verdicts.push(
        "a page of 50 from disk, to the bare answer and the bare rows",
        ratio,
        "at most 1.8",
        ratio <= PAGE_AIM,
    );
    let ratio = inside.cost.median() / behind.cost.median();
    print(
        "a page of 50 deep inside, and to the one before",
        &inside.cost,
        Some(ratio),
    );
    verdicts.push(
        "a page deep inside, to one near the newest",
        ratio,
        "at most 1.1",
        ratio <= DEEP_AIM,
    );
    let [micros, millis] = alone_beside([bare, first], size).await;
    let [cost, time] = [micros / ALONE_AIM_MICROS, millis / ALONE_AIM_MILLIS];
    verdicts.push("a page alone, to 200 µs", cost, "at most 1", cost <= 1.0);
    verdicts.push(
        "a page alone by the clock, p50, to 0.35 ms",
        time,
        "at most 1",
        time <= 1.0,
    );
}

async fn end_cursor(client: &mut Client, variables: Value) -> Value {
    let data = client.ask(HISTORY, variables).await;
    data["conversation"]["messages"]["pageInfo"]["endCursor"].clone()
}

/// The same for one who reads alone. Returns the µs of an answer of ours, and its ms by the clock.
async fn alone_beside([mut bare, mut ours]: [Asker<'_>; 2], size: &Size) -> [f64; 2] {
    for asker in [&mut bare, &mut ours] {
        asker.clients.truncate(1);
        asker.cost = Spread::default();
        asker.millis.clear();
    }
    in_turns(&mut [&mut bare, &mut ours], size.rounds, PAGES).await;
    print("alone, axum answering the same bytes", &bare.cost, None);
    print(
        "alone",
        &ours.cost,
        Some(ours.cost.median() / bare.cost.median()),
    );
    ours.millis.sort_unstable_by(f64::total_cmp);
    let millis = crate::measure::quantile(&ours.millis, 0.5);
    println!("  {:<44} {millis:>8.2} ms by the clock (p50)", "");
    [ours.cost.median(), millis]
}

/// Connections to a server that asks nobody who they are.
async fn strangers(server: &Server, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(Client::connect(server, "nobody").await);
    }
    clients
}

async fn inbox(ours: &Ours, size: &Size, verdicts: &mut Verdicts) {
    let request = body(INBOX, json!({}));
    let viewer = &ours.places[1].people[0];
    let mut clients = ours
        .clients(std::iter::repeat_n(viewer.clone(), READERS))
        .await;
    let fixed = fixed(ours.folder.path(), &mut clients[0], &request).await;
    let mut bare = Asker::new(&fixed, strangers(&fixed, READERS).await, |_| {
        request.clone()
    });
    let mut first = Asker::new(&ours.server, clients, |_| request.clone());
    let readers = std::iter::repeat_n(viewer.clone(), READERS);
    let readers = ours.clients_at(&ours.library, readers).await;
    let mut library = Asker::new(&ours.library, readers, |_| request.clone());
    in_turns(
        &mut [&mut bare, &mut first, &mut library],
        size.rounds,
        PAGES / READERS,
    )
    .await;
    print(
        "16 at once, axum answering as an inbox of 20 is",
        &bare.cost,
        None,
    );
    print(
        "an inbox of 20 with unread counts",
        &first.cost,
        Some(first.cost.median() / bare.cost.median()),
    );
    beside_library("an inbox of 20", &first.cost, &library.cost, verdicts);
    let ratio = first.cost.median() / INBOX_AIM_MICROS;
    verdicts.push(
        "an inbox of 20 with unread counts, to 160 µs",
        ratio,
        "at most 1",
        ratio <= 1.0,
    );
    alone_beside([bare, first], size).await;
}

async fn sends(ours: &Ours, size: &Size, verdicts: &mut Verdicts) {
    let mut clients = ours
        .clients((0..SENDERS).map(|pair| user(&sender(pair))))
        .await;
    let mut conversations = Vec::new();
    for client in &mut clients {
        conversations.push(first_in_inbox(client).await);
    }
    let serial = AtomicU64::new(0);
    let next = |who: usize| {
        let serial = serial.fetch_add(1, Ordering::Relaxed);
        let variables = json!({"c": conversations[who], "b": crate::world::body(serial), "k": client_key(serial)});
        body(SEND, variables)
    };
    let fixed = fixed(ours.folder.path(), &mut clients[0], &next(0)).await;
    let mut answers = Asker::new(&fixed, strangers(&fixed, SENDERS).await, next);
    let mut sends = Asker::new(&ours.server, clients, next);
    let senders = (0..SENDERS).map(|pair| user(&sender(pair)));
    let senders = ours.clients_at(&ours.library, senders).await;
    let mut library = Asker::new(&ours.library, senders, next);
    let mut commits = bare();
    let commit_serial = Arc::new(AtomicU64::new(0));
    for round in 0..=size.throughput_rounds {
        answers.round(TOGETHER, round > 0).await;
        sends.round(TOGETHER, round > 0).await;
        library.round(TOGETHER, round > 0).await;
        commits
            .round(size.throughput_round / 4, &commit_serial, round > 0)
            .await;
    }
    print(
        "64 at once, axum answering as a send is",
        &answers.cost,
        None,
    );
    print(
        "64 at once, the engine's commit of a send",
        &commits.cpu,
        None,
    );
    let ratio = sends.cost.median() / (answers.cost.median() + commits.cpu.median());
    print(
        "a send of 64 at once, and to these two",
        &sends.cost,
        Some(ratio),
    );
    verdicts.push(
        "a send at 64 senders, to the bare answer and the bare commit",
        ratio,
        "at most 1.6",
        ratio <= SEND_AIM,
    );
    beside_library("a send", &sends.cost, &library.cost, verdicts);
    alone(ours, next, size, verdicts).await;
}

/// Wall-clock time of a single sender, nearly all of it spent by the disk.
async fn alone(
    ours: &Ours,
    next: impl FnMut(usize) -> String,
    size: &Size,
    verdicts: &mut Verdicts,
) {
    let mut alone = Asker::new(
        &ours.server,
        ours.clients([user(&sender(0))].into_iter()).await,
        next,
    );
    let mut syncs = Vec::new();
    let mut file = tempfile::tempfile_in(ours.folder.path()).unwrap();
    for round in 0..=size.throughput_rounds {
        alone.round(ALONE, round > 0).await;
        for _ in 0..ALONE {
            let start = Instant::now();
            file.write_all(&[7; 700]).unwrap();
            file.sync_data().unwrap();
            syncs.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    print("a send alone", &alone.cost, None);
    let [send, sync] = [alone.millis, syncs].map(|mut millis| {
        millis.sort_unstable_by(f64::total_cmp);
        crate::measure::quantile(&millis, 0.5)
    });
    println!(
        "  {:<44} {send:>8.2} ms by the clock (p50), beside {sync:.2} ms of a fdatasync",
        ""
    );
    let ratio = send / (2.0 * sync + 0.2);
    verdicts.push(
        "a send alone by the clock, p50, to 2 × fdatasync + 0.2 ms",
        ratio,
        "at most 1",
        ratio <= 1.0,
    );
}

/// Readers of many conversations, each of whom moves their marker message by message.
async fn markers<'a>(ours: &Ours, server: &'a Server) -> Asker<'a> {
    let readers = (0..SENDERS).map(|pair| user(&reader(pair)));
    let mut clients = ours.clients_at(server, readers).await;
    let (mut conversations, mut to_read) = (Vec::new(), Vec::new());
    for client in &mut clients {
        let c = first_in_inbox(client).await;
        to_read.push(oldest_ids(client, &c).await);
        conversations.push(c);
    }
    let next = move |who: usize| {
        let message = to_read[who].pop().expect("there are more than are read");
        body(MARK_READ, json!({"c": conversations[who], "m": message}))
    };
    Asker::new(server, clients, next)
}

async fn marks(ours: &Ours, size: &Size, verdicts: &mut Verdicts) {
    let mut marks = markers(ours, &ours.server).await;
    let mut library = markers(ours, &ours.library).await;
    // A round of marks takes a tenth of a second: medians of seven rounds differ by half of themselves.
    in_turns(
        &mut [&mut marks, &mut library],
        3 * size.throughput_rounds,
        TOGETHER,
    )
    .await;
    print("markRead, 64 at once", &marks.cost, None);
    beside_library("markRead", &marks.cost, &library.cost, verdicts);
    let ratio = marks.cost.median() / MARK_AIM_MICROS;
    marks.clients.truncate(1);
    marks.cost = Spread::default();
    in_turns(&mut [&mut marks], size.throughput_rounds, ALONE).await;
    print("markRead alone", &marks.cost, None);
    verdicts.push(
        "markRead of 64 at once, to 60 µs",
        ratio,
        "at most 1",
        ratio <= 1.0,
    );
}

/// The global id of a conversation.
async fn first_in_inbox(client: &mut Client) -> String {
    let data = client
        .ask(
            "{ inbox(first: 1) { edges { node { conversation { id } } } } }",
            json!({}),
        )
        .await;
    data["inbox"]["edges"][0]["node"]["conversation"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}
