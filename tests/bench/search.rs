//! Search: pages by a frequent and by a rare word, the size of the index, and its share of a send.

use std::path::Path;
use std::time::Instant;

use futures_util::future::join_all;
use serde_json::{Value, json};
use wideroom::chat::Bounds;
use wideroom::model::UserId;

use crate::Size;
use crate::measure::{Spread, cpu_micros, idle};
use crate::report::{self, Verdicts};
use crate::world::{Shape, World, body, user};

const PAGE_AIM_MS: f64 = 5.0;
const ACROSS_AIM_MS: f64 = 60.0;
const BYTES_AIM: f64 = 80.0;
const SEND_AIM: f64 = 1.08;
/// Sends of one measurement, and how many of them are in flight.
const SENDS: usize = 2_048;
const AT_ONCE: usize = 64;

const WITHIN: &str = "query($c: ID!, $q: String!) { conversation(id: $c) { searchMessages(query: $q, first: 20) {
    edges { cursor node { id body sender { username } } snippet { text isMatch } } pageInfo { hasNextPage endCursor } } } }";
const ACROSS: &str = "query($q: String!) { searchMessages(query: $q, first: 20) {
    edges { cursor node { id body conversation { id } } snippet { text isMatch } } pageInfo { hasNextPage endCursor } } }";
const SEND: &str =
    "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) {
    messageEdge { cursor node { id uuid createdAt } } } }";

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

/// Sends with the index, the work in the background included, and without it.
async fn sends(size: &Size, verdicts: &mut Verdicts) {
    let sender = user("sender");
    let mut worlds = Vec::new();
    for is_search_indexed in [false, true] {
        let world = World::empty_with(Bounds {
            is_search_indexed,
            ..Bounds::default()
        });
        let world = world.await;
        let start = "mutation { startDirectConversation(input: {username: \"reader\"}) { conversation { id } } }";
        let made = world.data(&sender, start, json!({})).await;
        let id = &made["startDirectConversation"]["conversation"]["id"];
        let id = id.as_str().unwrap().to_owned();
        worlds.push((world, id, Spread::default()));
    }
    let mut number = 0;
    for round in 0..=size.throughput_rounds {
        for (world, id, spread) in &mut worlds {
            idle().await;
            let before = cpu_micros();
            for _ in 0..SENDS / AT_ONCE {
                let sends = (0..AT_ONCE).map(|_| {
                    number += 1;
                    let variables = json!({"c": id.as_str(), "b": body(number)});
                    world.data(&sender, SEND, variables)
                });
                join_all(sends).await;
            }
            idle().await;
            // The first round warms up.
            if round > 0 {
                spread.push((cpu_micros() - before) / SENDS as f64);
            }
        }
    }
    report::heading("Sends, 64 in flight, µs on the processor, the background included");
    print("without an index", &worlds[0].2);
    print("with an index", &worlds[1].2);
    let ratio = worlds[1].2.median() / worlds[0].2.median();
    let is_met = ratio <= SEND_AIM;
    verdicts.push(
        "send with an index, to one without",
        ratio,
        "at most 1.08",
        is_met,
    );
    for (world, ..) in worlds {
        world.close().await;
    }
}

fn print(what: &str, spread: &Spread) {
    println!("  {what:<32}{}", report::spread(spread));
}

pub fn bytes_in(folder: &Path) -> u64 {
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
