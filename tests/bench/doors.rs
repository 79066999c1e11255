//! Cost of operations at the server, requested over HTTP from the real program in its own process.
//!
//! Each is beside what cannot be done without: HTTP that answers the same bytes, rows that are read from the same engine and written as
//! the same JSON, the engine's own group commit. And beside the library's own handlers over the same API and a copy of the store.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use axum::body::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::load::{HttpClient, OperationStats};
use wideroom::model::UserId;

use crate::Size;
use crate::asker::{self, Asker, in_turns};
use crate::library::copy_folder;
use crate::measure::{Spread, idle};
use crate::operations::{Ask as _, HISTORY, INBOX, MARK_READ, first_in_inbox, oldest_ids};
use crate::report::{self, Verdicts};
use crate::rows::Rows;
use crate::server::{Server, body};
use crate::throughput::{SENDERS, bare};
use crate::world::{Loader, Place, Shape, World};

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

const INBOX_AIM_MICROS: f64 = 160.0;
const MARK_AIM_MICROS: f64 = 60.0;
const IDLE_AIM_MIB: f64 = 60.0;
/// Aims of a page that is read alone.
const ALONE_AIM_MICROS: f64 = 200.0;
const ALONE_AIM_MILLIS: f64 = 0.35;

/// The real program over what was loaded, and the library's own handlers over a copy of it.
struct Ours {
    server: Server,
    library: Server,
    places: Vec<Place>,
    folder: TempDir,
    _copy: TempDir,
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
    let copy = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), copy.path());
    let ours = Ours {
        server: Server::wideroom(folder.path(), &[]),
        library: Server::library(copy.path()),
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
        ours.server.resident_mib()
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
    verdicts.at_most(&format!("{what}, to the library's handlers"), ratio, 1.0);
}

async fn memory(ours: &Ours, verdicts: &mut Verdicts) {
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let mib = ours.server.resident_mib();
    report::heading("The server at rest, all of it on disk");
    println!("  {mib:.1} MiB of resident memory");
    let what = "resident memory at rest, to 60 MiB";
    verdicts.at_most(what, mib / IDLE_AIM_MIB, 1.0);
}

/// A server that answers with what ours has just answered.
async fn fixed(folder: &Path, client: &mut HttpClient, request: Bytes) -> Server {
    let answer = client.post(request).await.unwrap();
    let mut file = tempfile::Builder::new().tempfile_in(folder).unwrap();
    file.write_all(&answer).unwrap();
    Server::bare(&[crate::BARE_HTTP, file.path().to_str().unwrap()], folder)
}

/// Readers who all ask the same of a server.
fn readers<'a>(server: &'a Server, viewer: &UserId, request: &'a Bytes) -> Asker<'a> {
    let clients = server.clients([viewer.as_str(); READERS]);
    Asker::new(server, clients, |_| request.clone())
}

async fn pages(ours: &Ours, rows: &Spread, size: &Size, verdicts: &mut Verdicts) {
    let place = &ours.places[0];
    let viewer = &place.people[0];
    let mut client = HttpClient::new(&ours.server.target, viewer.as_str());
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
    let fixed = fixed(ours.folder.path(), &mut client, newest.clone()).await;
    let mut bare = readers(&fixed, viewer, &newest);
    let mut first = readers(&ours.server, viewer, &newest);
    let mut behind = readers(&ours.server, viewer, &near);
    let mut inside = readers(&ours.server, viewer, &deep);
    let mut library = readers(&ours.library, viewer, &newest);
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
    let what = "the newest page of 50, to the bare answer and the bare rows";
    verdicts.at_most(what, ratio, 1.8);
    beside_library("a page of 50", &first.cost, &library.cost, verdicts);
    let ratio = behind.cost.median() / (bare.cost.median() + rows.median());
    print(
        "a page of 50 from disk, and to these two",
        &behind.cost,
        Some(ratio),
    );
    let what = "a page of 50 from disk, to the bare answer and the bare rows";
    verdicts.at_most(what, ratio, 1.8);
    let ratio = inside.cost.median() / behind.cost.median();
    print(
        "a page of 50 deep inside, and to the one before",
        &inside.cost,
        Some(ratio),
    );
    verdicts.at_most("a page deep inside, to one near the newest", ratio, 1.1);
    let [micros, millis] = alone_beside([bare, first], size).await;
    let [cost, time] = [micros / ALONE_AIM_MICROS, millis / ALONE_AIM_MILLIS];
    verdicts.at_most("a page alone, to 200 µs", cost, 1.0);
    verdicts.at_most("a page alone by the clock, p50, to 0.35 ms", time, 1.0);
}

async fn end_cursor(client: &mut HttpClient, variables: Value) -> Value {
    let data = client.ask(HISTORY, variables).await;
    data["conversation"]["messages"]["pageInfo"]["endCursor"].clone()
}

/// The same for one who reads alone. Returns the µs of an answer of ours, and its ms by the clock.
async fn alone_beside(askers: [Asker<'_>; 2], size: &Size) -> [f64; 2] {
    let [mut bare, mut ours] = askers.map(Asker::alone);
    in_turns(&mut [&mut bare, &mut ours], size.rounds, PAGES).await;
    print("alone, axum answering the same bytes", &bare.cost, None);
    print(
        "alone",
        &ours.cost,
        Some(ours.cost.median() / bare.cost.median()),
    );
    let [millis, _] = report::p50_p99(&ours.latencies);
    println!("  {:<44} {millis:>8.2} ms by the clock (p50)", "");
    [ours.cost.median(), millis]
}

async fn inbox(ours: &Ours, size: &Size, verdicts: &mut Verdicts) {
    let request = body(INBOX, json!({}));
    let viewer = &ours.places[1].people[0];
    let mut client = HttpClient::new(&ours.server.target, viewer.as_str());
    let fixed = fixed(ours.folder.path(), &mut client, request.clone()).await;
    let mut bare = readers(&fixed, viewer, &request);
    let mut first = readers(&ours.server, viewer, &request);
    let mut library = readers(&ours.library, viewer, &request);
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
    verdicts.at_most("an inbox of 20 with unread counts, to 160 µs", ratio, 1.0);
    alone_beside([bare, first], size).await;
}

async fn sends(ours: &Ours, size: &Size, verdicts: &mut Verdicts) {
    let senders = (0..SENDERS).map(sender);
    let mut clients = ours.server.clients(senders.clone());
    let mut conversations = Vec::new();
    for client in &mut clients {
        conversations.push(first_in_inbox(client).await);
    }
    let serial = AtomicU64::new(0);
    let next = asker::sends(&conversations, &serial);
    let fixed = fixed(ours.folder.path(), &mut clients[0], next(0)).await;
    let mut answers = Asker::new(&fixed, fixed.clients(senders.clone()), next);
    let mut sends = Asker::new(&ours.server, clients, next);
    let mut library = Asker::new(&ours.library, ours.library.clients(senders), next);
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
    let what = "a send at 64 senders, to the bare answer and the bare commit";
    verdicts.at_most(what, ratio, 1.6);
    beside_library("a send", &sends.cost, &library.cost, verdicts);
    alone(ours, sends.alone(), size, verdicts).await;
}

/// Wall-clock time of a single sender, nearly all of it spent by the disk.
async fn alone(ours: &Ours, mut alone: Asker<'_>, size: &Size, verdicts: &mut Verdicts) {
    let mut syncs = OperationStats::default();
    let mut file = tempfile::tempfile_in(ours.folder.path()).unwrap();
    for round in 0..=size.throughput_rounds {
        alone.round(ALONE, round > 0).await;
        for _ in 0..ALONE {
            let start = Instant::now();
            file.write_all(&[7; 700]).unwrap();
            file.sync_data().unwrap();
            syncs.record(start.elapsed());
        }
    }
    print("a send alone", &alone.cost, None);
    let [send, sync] = [&alone.latencies, &syncs].map(|times| report::p50_p99(times)[0]);
    println!(
        "  {:<44} {send:>8.2} ms by the clock (p50), beside {sync:.2} ms of a fdatasync",
        ""
    );
    let ratio = send / (2.0 * sync + 0.2);
    let what = "a send alone by the clock, p50, to 2 × fdatasync + 0.2 ms";
    verdicts.at_most(what, ratio, 1.0);
}

/// Readers of many conversations, each of whom moves their marker message by message.
async fn markers(server: &Server) -> Asker<'_> {
    let mut clients = server.clients((0..SENDERS).map(reader));
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
    let mut marks = markers(&ours.server).await;
    let mut library = markers(&ours.library).await;
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
    let mut marks = marks.alone();
    in_turns(&mut [&mut marks], size.throughput_rounds, ALONE).await;
    print("markRead alone", &marks.cost, None);
    verdicts.at_most("markRead of 64 at once, to 60 µs", ratio, 1.0);
}
