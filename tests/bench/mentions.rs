//! Cost of mentions: a send with ten of them to one without, and an inbox page with mention counts to one without.

use serde_json::json;
use wideroom::model::UserId;

use crate::Size;
use crate::measure::{Spread, cpu_micros, idle};
use crate::report::{self, Verdicts};
use crate::world::{World, user};

const SEND_AIM: f64 = 1.3;
const PAGE_AIM: f64 = 1.05;
const MENTIONED: usize = 10;
const CONVERSATIONS: usize = 20;
/// Operations of one measurement.
const SENDS: usize = 64;
const PAGES: usize = 64;

const SEND: &str = "mutation($c: ID!, $u: [String!]) { sendMessage(input: {conversationId: $c, body: \"A message of a usual length, as people send them.\", mentionedUsernames: $u}) {
    messageEdge { cursor node { id uuid createdAt } } } }";
const PLAIN_PAGE: &str = "{ inbox { edges { cursor node { id unreadCount isMuted conversation { id name } lastMessage { id body sender { username } } } } pageInfo { endCursor } } }";
const COUNTED_PAGE: &str = "{ inbox { edges { cursor node { id unreadCount unreadMentionCount isMuted conversation { id name } lastMessage { id body sender { username } } } } pageInfo { endCursor } } }";

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    let world = World::empty().await;
    let sender = user("sender");
    let people: Vec<_> = (0..2 * MENTIONED).map(|n| format!("reader{n}")).collect();
    let conversation = group(&world, &sender, &people).await;
    idle().await;
    let nobody: Vec<String> = Vec::new();
    let mentioned = &people[..MENTIONED];
    let mut sends = [Spread::default(), Spread::default()];
    for round in 0..=size.rounds {
        for (users, spread) in [&nobody[..], mentioned].into_iter().zip(&mut sends) {
            let variables = json!({"c": conversation, "u": users});
            let cost = cost_of(SENDS, async || {
                world.data(&sender, SEND, variables.clone()).await;
            });
            let cost = cost.await;
            // The first round warms up.
            if round > 0 {
                spread.push(cost);
            }
        }
    }
    report::heading("Sends in a group of 21, µs on the processor");
    print("without mentions", &sends[0]);
    print("with ten mentions", &sends[1]);
    let ratio = sends[1].median() / sends[0].median();
    verdicts.push(
        "send with ten mentions, to one without",
        ratio,
        "at most 1.3",
        ratio <= SEND_AIM,
    );

    let reader = user("quiet");
    for _ in 0..CONVERSATIONS {
        let id = group(&world, &sender, &["quiet".to_owned()]).await;
        world
            .data(&sender, SEND, json!({"c": id, "u": ["quiet"]}))
            .await;
        let read =
            "mutation($c: ID!) { markRead(input: {conversationId: $c}) { inboxEntry { id } } }";
        world.data(&reader, read, json!({ "c": id })).await;
    }
    idle().await;
    let mut pages = [Spread::default(), Spread::default()];
    for round in 0..=size.rounds {
        for (document, spread) in [PLAIN_PAGE, COUNTED_PAGE].into_iter().zip(&mut pages) {
            let cost = cost_of(PAGES, async || {
                world.data(&reader, document, json!({})).await;
            });
            let cost = cost.await;
            if round > 0 {
                spread.push(cost);
            }
        }
    }
    report::heading("Pages of an inbox of 20 entries, none unread, µs on the processor");
    print("without mention counts", &pages[0]);
    print("with mention counts", &pages[1]);
    let ratio = pages[1].median() / pages[0].median();
    verdicts.push(
        "inbox page with mention counts, to one without",
        ratio,
        "at most 1.05",
        ratio <= PAGE_AIM,
    );
    verdicts.print();
    world.close().await;
}

fn print(what: &str, spread: &Spread) {
    println!("  {what:<24}{}", report::spread(spread));
}

async fn cost_of(times: usize, operation: impl AsyncFn()) -> f64 {
    let before = cpu_micros();
    for _ in 0..times {
        operation().await;
    }
    (cpu_micros() - before) / times as f64
}

async fn group(world: &World, owner: &UserId, people: &[String]) -> String {
    let document = "mutation($u: [String!]!) { createGroupConversation(input: {name: \"We\", usernames: $u}) { conversation { id } } }";
    let data = world.data(owner, document, json!({ "u": people })).await;
    let id = &data["createGroupConversation"]["conversation"]["id"];
    id.as_str().unwrap().to_owned()
}
