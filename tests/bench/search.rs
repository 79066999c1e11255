//! Search: pages by a frequent and by a rare word, the size of the index, and its share of a send.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use serde_json::{Value, json};
use wideroom::model::UserId;

use crate::Size;
use crate::asker::{self, Asker, in_turns};
use crate::measure::{Spread, idle};
use crate::operations::{Ask as _, first_in_inbox, text};
use crate::report::{self, Verdicts};
use crate::server::Server;
use crate::throughput::SENDERS;
use crate::world::{Shape, World, body};

/// Sends of each of the [`SENDERS`] in one round: as many as become a segment.
const SENDS_EACH: usize = 64;

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
    verdicts.at_most("bytes of index a message", bytes, 80.0);
    idle().await;
    report::heading("Pages of 20 matches, ms");
    let long = &world.places[0];
    let viewer = &long.people[0];
    let conversation = first_in_inbox(&mut (&world, viewer)).await;
    let rare = (size.messages / 3).to_string();
    for (what, query) in [("frequent word", "harbour"), ("rare word", rare.as_str())] {
        let variables = json!({"c": conversation, "q": query});
        let spread = timed(size, &world, viewer, WITHIN, &variables).await;
        print(&format!("{what}, one conversation"), &spread);
        verdicts.at_most(&format!("page by a {what}, ms"), spread.median(), 5.0);
    }
    let many = &world.places[1].people[0];
    let word = body(777);
    let word = word.split(':').next().unwrap();
    let spread = timed(size, &world, many, ACROSS, &json!({"q": word})).await;
    print("rare word, 1,000 conversations", &spread);
    let what = "page by a rare word across 1,000, ms";
    verdicts.at_most(what, spread.median(), 60.0);
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

/// Creates a conversation for each sender, and returns their global ids.
async fn conversations(server: &Server) -> Vec<String> {
    let mut clients = server.clients((0..SENDERS).map(sender));
    let mut conversations = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        let made = client.ask(START, json!({"u": format!("reader{number}")}));
        let id = &made.await["startDirectConversation"]["conversation"]["id"];
        conversations.push(text(id));
    }
    conversations
}

fn sender(number: usize) -> String {
    format!("sender{number}")
}

/// Sends through the door with the index, the work in the background included, and without it.
async fn sends(size: &Size, verdicts: &mut Verdicts) {
    let servers = [Server::empty(&["--search", "off"]), Server::empty(&[])];
    let made = [
        conversations(&servers[0]).await,
        conversations(&servers[1]).await,
    ];
    let serial = AtomicU64::new(0);
    let [mut without, mut with] = [0, 1].map(|index| {
        let (server, clients) = (
            &servers[index],
            servers[index].clients((0..SENDERS).map(sender)),
        );
        Asker::new(server, clients, asker::sends(&made[index], &serial)).with_background()
    });
    in_turns(
        &mut [&mut without, &mut with],
        size.throughput_rounds,
        SENDS_EACH,
    )
    .await;
    report::heading(
        "Sends of 64 at once by HTTP, µs of each on the server's processor, the background included",
    );
    let askers = [("without an index", &without), ("with an index", &with)];
    for ((what, asker), server) in askers.into_iter().zip(&servers) {
        let [p50, p99] = report::p50_p99(&asker.latencies);
        let (cost, mib) = (report::spread(&asker.cost), server.resident_mib());
        println!("  {what:<18}{cost}   p50 {p50:.1} ms, p99 {p99:.1} ms   {mib:.1} MiB resident");
    }
    let ratio = with.cost.median() / without.cost.median();
    verdicts.at_most("send with an index, to one without", ratio, 1.08);
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
