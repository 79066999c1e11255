//! The law: what a message costs depends on its participants and on the servers they are on, not on
//! how many servers there are.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use wideroom::cluster::{Recipients, RemoteEvent, RemoteNotice};
use wideroom::model::{TimeUuid, Timestamp};

use super::world::{Mistakes, Node, World, conversation, user};

const USERS: usize = 1_000;
const MESSAGES: u64 = 200;
/// Participants of a conversation, each on a server of the model's choice.
const PARTICIPANTS: u64 = 4;
const WINDOW: Duration = Duration::from_secs(20);

/// Statements per message beyond what servers do at rest, and statements per second of a server at
/// rest.
async fn cost_with(servers: usize) -> (f64, f64) {
    let world = World::new(5, Mistakes::default());
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    for _ in 0..servers {
        nodes.push(world.start(None).await);
    }
    let mut leases = Vec::new();
    for number in 0..USERS {
        let node = &nodes[number % servers];
        let session = Node::registration_of(&user(number));
        leases.push(node.cluster.lease(&session).await.unwrap());
    }
    sleep(Duration::from_secs(10)).await;
    let all = || nodes.iter().map(|node| node.link.statements()).sum::<u64>();
    let before = all();
    sleep(WINDOW).await;
    let at_rest = all() - before;

    let before = all();
    let began = tokio::time::Instant::now();
    for number in 0..MESSAGES {
        let first = world.dice.below(USERS as u64);
        // Others of the same conversation: on neighbouring servers, as far as there are any.
        let people = (0..PARTICIPANTS).map(|step| user(((first + step) % USERS as u64) as usize));
        let notice = RemoteNotice::Events {
            conversation: conversation(u128::from(first) + 10),
            events: vec![RemoteEvent::Message(TimeUuid::new(
                Timestamp::from_micros(1_000 + i64::try_from(number).unwrap()),
                [0; 8],
            ))],
            users: Vec::new(),
            is_large: false,
        };
        let sender = &nodes[first as usize % servers];
        let recipients = Recipients::Users(people.collect());
        sender.cluster.deliver(&notice, &recipients).await;
    }
    let rest = WINDOW.saturating_sub(began.elapsed());
    sleep(rest).await;
    let span = began.elapsed().as_secs_f64() / WINDOW.as_secs_f64();
    let spent = (all() - before) as f64 - at_rest as f64 * span;
    nodes.iter().for_each(|node| node.kill());
    (
        spent / MESSAGES as f64,
        at_rest as f64 / WINDOW.as_secs_f64() / servers as f64,
    )
}

#[tokio::test(start_paused = true)]
async fn a_message_costs_the_same_with_200_servers_as_with_4() {
    let (few, few_at_rest) = cost_with(4).await;
    let (many, many_at_rest) = cost_with(200).await;
    println!(
        "4 servers: {few:.2} statements a message, {few_at_rest:.2}/s a server at rest; \
         200: {many:.2}, {many_at_rest:.2}/s"
    );
    assert!(many <= 1.2 * few, "{few} and {many}");
    assert!(few_at_rest <= 8.0 && many_at_rest <= 8.0);
}
