//! Cost of mentions: a send with ten of them to one without, and an inbox page with mention counts to one without.

use serde_json::{Value, json};
use wideroom::model::UserId;

use crate::Size;
use crate::measure::{Spread, cpu_micros, idle};
use crate::operations::text;
use crate::report::{self, Verdicts};
use crate::world::{World, user};

const MENTIONED: usize = 10;
const CONVERSATIONS: usize = 20;
/// Operations of one measurement.
const TIMES: usize = 64;

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
    let users = [&[], &people[..MENTIONED]];
    let requests = users.map(|users| (SEND, json!({"c": conversation, "u": users})));
    let sends = costs(size, &world, &sender, requests).await;
    report::heading("Sends in a group of 21, µs on the processor");
    print("without mentions", &sends[0]);
    print("with ten mentions", &sends[1]);
    let ratio = sends[1].median() / sends[0].median();
    verdicts.at_most("send with ten mentions, to one without", ratio, 1.3);

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
    let requests = [PLAIN_PAGE, COUNTED_PAGE].map(|document| (document, json!({})));
    let pages = costs(size, &world, &reader, requests).await;
    report::heading("Pages of an inbox of 20 entries, none unread, µs on the processor");
    print("without mention counts", &pages[0]);
    print("with mention counts", &pages[1]);
    let ratio = pages[1].median() / pages[0].median();
    let what = "inbox page with mention counts, to one without";
    verdicts.at_most(what, ratio, 1.05);
    verdicts.print();
    world.close().await;
}

fn print(what: &str, spread: &Spread) {
    println!("  {what:<24}{}", report::spread(spread));
}

/// CPU time of each of two requests, in turns.
async fn costs(
    size: &Size,
    world: &World,
    viewer: &UserId,
    requests: [(&str, Value); 2],
) -> [Spread; 2] {
    let mut costs = [Spread::default(), Spread::default()];
    for round in 0..=size.rounds {
        for ((document, variables), cost) in requests.iter().zip(&mut costs) {
            let before = cpu_micros();
            for _ in 0..TIMES {
                world.data(viewer, document, variables.clone()).await;
            }
            // The first round warms up.
            if round > 0 {
                cost.push((cpu_micros() - before) / TIMES as f64);
            }
        }
    }
    costs
}

async fn group(world: &World, owner: &UserId, people: &[String]) -> String {
    let document = "mutation($u: [String!]!) { createGroupConversation(input: {name: \"We\", usernames: $u}) { conversation { id } } }";
    let data = world.data(owner, document, json!({ "u": people })).await;
    text(&data["createGroupConversation"]["conversation"]["id"])
}
