//! Floors: pages just above one with a long expired history behind it.

use serde_json::json;

use crate::Size;
use crate::measure::{Spread, cpu_micros, idle};
use crate::report::{self, Verdicts, number};
use crate::world::{Shape, World};

const PAGE_AIM: f64 = 1.1;
/// Expiry of the long conversation, within which some of its messages lie.
const TTL_SECONDS: u32 = 3_600;
/// Pages of one measurement.
const PAGES: usize = 20;

const EXPIRE: &str = "mutation($c: ID!, $t: Int!) { updateConversation(input: {conversationId: $c, messageTtlSeconds: $t})
    { conversation { messageTtlSeconds } } }";
const NEWEST: &str = "query($c: ID!) { conversation(id: $c) { messages(first: 50) {
    edges { cursor node { id body sender { username } } } pageInfo { hasNextPage } } } }";
const OLDEST: &str = "query($c: ID!) { conversation(id: $c) { messages(last: 50) {
    edges { cursor node { id body sender { username } } } pageInfo { hasPreviousPage } } } }";

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    pages(size, &mut verdicts).await;
    verdicts.print();
}

async fn pages(size: &Size, verdicts: &mut Verdicts) {
    let shape = Shape {
        messages: size.messages,
        conversations: 1,
    };
    let world = World::load(&[shape]).await;
    let viewer = &world.places[0].people[0];
    let id = world.first_in_inbox(viewer).await;
    let settings = json!({"c": id, "t": TTL_SECONDS});
    world.data(viewer, EXPIRE, settings).await;
    idle().await;
    let (mut newest, mut oldest) = (Spread::default(), Spread::default());
    for round in 0..=size.rounds {
        for (document, spread) in [(NEWEST, &mut newest), (OLDEST, &mut oldest)] {
            let before = cpu_micros();
            for _ in 0..PAGES {
                let data = world.data(viewer, document, json!({"c": id})).await;
                let edges = &data["conversation"]["messages"]["edges"];
                assert_eq!(edges.as_array().map(Vec::len), Some(50));
            }
            if round > 0 {
                spread.push((cpu_micros() - before) / PAGES as f64);
            }
        }
    }
    let expired = size.messages - u64::from(TTL_SECONDS) / 2;
    let expired = number(expired as f64);
    report::heading(&format!(
        "Pages of 50, µs on the processor, with {expired} expired messages behind"
    ));
    println!("  the newest               {}", report::spread(&newest));
    println!("  just above the floor     {}", report::spread(&oldest));
    let ratio = oldest.median() / newest.median();
    let is_met = ratio <= PAGE_AIM;
    verdicts.push(
        "page above a floor, to a newest one",
        ratio,
        "at most 1.1",
        is_met,
    );
    world.close().await;
}
