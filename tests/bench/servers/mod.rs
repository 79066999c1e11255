//! The law of the cluster, measured: what a message costs with 1 to 200 servers, and what a server costs at rest.
//!
//! The servers (chat, bus and caches of each) are in this process, over one counting store; their users all have an inbox stream, which
//! asks for what an app shows. Then the same on a real Cassandra, with servers in processes of their own, by its own counters.

mod counting;
mod directory;
mod fleet;
mod processes;
mod scale;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wideroom::bus::Bus;
use wideroom::chat::{Chat, GroupInput};
use wideroom::clock::SystemClock;
use wideroom::model::{ConversationId, UserId};
use wideroom::store::Store;
use wideroom::store::embedded::Embedded;

use self::counting::Cost;
use self::fleet::Fleet;
use self::scale::{Dice, NEIGHBOURS, Scale, Spread};
use crate::Size;
use crate::report::{self, Verdicts, number};
use crate::world::{open_store, user, without_rates};

const SERVERS: [usize; 5] = [1, 3, 10, 50, 200];
/// The number of servers that the others are compared with.
const COMPARED_WITH: usize = 3;
/// Longer than a poll and everything that it causes.
const SETTLE: Duration = Duration::from_secs(6);
/// Between two messages, so that no two of them share a poll by chance alone.
const PAUSE: Duration = Duration::from_millis(50);

/// Conversations of each kind, with their participants.
type Conversations = [Vec<(ConversationId, Vec<usize>)>; 4];

/// Costs with one number of servers: at rest for each second and server, and of a message of each kind.
struct Row {
    servers: usize,
    at_rest: Cost,
    kinds: Vec<(Cost, f64)>,
}

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    let scale = Scale::of(size);
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(folder.path()).await;
    let conversations = converse(&store, &scale).await;
    report::heading(&format!(
        "{} users who are online, each on one server, {NEIGHBOURS} of them on the first \
         {COMPARED_WITH}; statements and rows (the counting store)",
        scale.users + NEIGHBOURS
    ));
    println!(
        "  {:>7}  {:>16}  {}",
        "servers",
        "at rest, a second",
        scale
            .kinds
            .each_ref()
            .map(|kind| format!("{:>28}", kind.name))
            .join("  ")
    );
    let mut rows = Vec::new();
    for servers in SERVERS {
        let row = with_servers(servers, &store, &conversations, &scale).await;
        print(&row);
        rows.push(row);
    }
    judge(&rows, &scale, &mut verdicts);
    verdicts.print();
    processes::measure(size).await;
}

fn print(row: &Row) {
    let kind = |(cost, delivered): &(Cost, f64)| {
        format!(
            "{:>6} {:>7} {:>6} streams",
            number(cost.statements),
            number(cost.rows),
            number(*delivered)
        )
    };
    let kinds: Vec<_> = row.kinds.iter().map(kind).collect();
    println!(
        "  {:>7}  {:>8} {:>8}  {}",
        row.servers,
        number(row.at_rest.statements),
        number(row.at_rest.rows),
        kinds.join("  ")
    );
}

fn judge(rows: &[Row], scale: &Scale, verdicts: &mut Verdicts) {
    let compared = rows
        .iter()
        .find(|row| row.servers == COMPARED_WITH)
        .unwrap();
    let last = rows.last().unwrap();
    for (index, kind) in scale.kinds.iter().enumerate() {
        let statements = |row: &Row| match kind.spread() {
            // The law counts the servers with readers of the conversation, and all have some.
            Spread::WithServers => row.kinds[index].0.statements / row.servers as f64,
            Spread::Bounded => row.kinds[index].0.statements,
        };
        let ratio = statements(last) / statements(compared);
        let what = format!(
            "statements of a message {}{}, with {} servers to {COMPARED_WITH}",
            kind.name,
            match kind.spread() {
                Spread::WithServers => ", for each server with readers",
                Spread::Bounded => "",
            },
            last.servers
        );
        verdicts.at_most(&what, ratio, 1.2);
    }
    let sum = |row: &Row| -> f64 {
        let weighed = row.kinds.iter().zip(&scale.kinds);
        let bounded = weighed.filter(|(_, kind)| kind.spread() == Spread::Bounded);
        bounded
            .map(|((cost, _), kind)| cost.statements * kind.messages as f64)
            .sum()
    };
    let ratio = sum(last) / sum(compared);
    let what = "statements of all messages whose readers are on a bounded number of servers";
    verdicts.at_most(what, ratio, 1.2);
    let most = rows
        .iter()
        .map(|row| row.at_rest.statements)
        .fold(0.0, f64::max);
    let what = "statements a second of a server at rest, the most";
    verdicts.at_most(what, most, 8.0);
}

fn name(number: usize) -> UserId {
    user(&format!("user{number:05}"))
}

/// Conversations of random users, who are on random servers therefore.
async fn converse(store: &Arc<Embedded>, scale: &Scale) -> Conversations {
    let chat = Chat::open(
        Arc::clone(store) as Arc<dyn Store>,
        Bus::default(),
        Arc::new(SystemClock),
        without_rates(),
    )
    .await
    .unwrap();
    let mut dice = Dice(7);
    let mut made: Conversations = Default::default();
    for (kind, made) in scale.kinds.iter().zip(&mut made) {
        for _ in 0..kind.conversations {
            let people = dice.some(kind.participants, scale.numbers(kind.readers));
            let names: Vec<_> = people[1..]
                .iter()
                .map(|one| name(*one).as_str().to_owned())
                .collect();
            // A call names at most 50.
            let (first, rest) = names.split_at(names.len().min(50));
            let owner = name(people[0]);
            let group = GroupInput {
                name: "a group".to_owned(),
                usernames: first.to_vec(),
                ..GroupInput::default()
            };
            let group = chat.writes.create_group(&owner, group).await.unwrap();
            let id = group.id;
            for some in rest.chunks(50) {
                let added = chat.writes.add_participants(&owner, id, some, None);
                added.await.unwrap();
            }
            made.push((id, people));
        }
    }
    chat.finish().await;
    made
}

async fn with_servers(
    servers: usize,
    store: &Arc<Embedded>,
    conversations: &Conversations,
    scale: &Scale,
) -> Row {
    let mut fleet = Fleet::open(servers, store, conversations, scale).await;
    fleet.read(scale.users + NEIGHBOURS).await;
    // Every server and every stream has met each conversation once.
    for (kind, of_kind) in scale.kinds.iter().zip(conversations) {
        for conversation in of_kind.iter().take(kind.messages) {
            fleet.send(conversation, 0).await;
        }
    }
    tokio::time::sleep(2 * SETTLE).await;
    let (before, began) = (fleet.meter.read_resting(), Instant::now());
    let others = fleet.meter.read();
    tokio::time::sleep(scale.rest).await;
    let resting = fleet.meter.read_resting().since(before);
    let others = fleet.meter.read().since(others);
    let other_a_second = others.per(began.elapsed().as_secs_f64());
    let a_second = resting.per(began.elapsed().as_secs_f64());
    let mut kinds = Vec::new();
    for (kind, of_kind) in scale.kinds.iter().zip(conversations) {
        let (before, began) = (fleet.meter.read(), Instant::now());
        let delivered = fleet.delivered.load(Ordering::Relaxed);
        for number in 0..kind.messages {
            let conversation = &of_kind[number % of_kind.len()];
            fleet.send(conversation, 1 + number / of_kind.len()).await;
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(SETTLE).await;
        let spent = fleet.meter.read().since(before);
        // Reads of restrictions, which are few and steady.
        let spent = spent.less(other_a_second, began.elapsed().as_secs_f64());
        let delivered = fleet.delivered.load(Ordering::Relaxed) - delivered;
        let messages = kind.messages as f64;
        kinds.push((spent.per(messages), delivered as f64 / messages));
    }
    fleet.readers.iter().for_each(|reader| reader.abort());
    for (chat, _) in &fleet.servers {
        chat.finish().await;
    }
    Row {
        servers,
        at_rest: a_second.less(other_a_second, -1.0).per(servers as f64),
        kinds,
    }
}
