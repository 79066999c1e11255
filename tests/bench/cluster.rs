//! Sends on a cluster, beside the driver alone doing the same statements in the same run.
//!
//! All of it runs on one machine with the node, which has most of its processors: so the ratios tell, and the figures of one run say
//! little about another machine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use wideroom::clock::SystemClock;
use wideroom::store::Store;
use wideroom::store::cql::{Address, Cql, migrate};

use crate::driver::{Driver, Pair};
use crate::measure::{Spread, quantile};
use crate::operations::{Client, Operation};
use crate::report::{self, Verdicts};
use crate::throughput::{SENDERS, Senders, Way, conversation, of_many, ours_at_once, print};
use crate::world::{Loader, World, user};
use crate::{FEW, Size, cassandra};

const AIM: f64 = 0.8;
const QUIET: [Operation; 5] = [
    Operation::NewestPage,
    Operation::DeepPage,
    Operation::InboxPage,
    Operation::MarkRead,
    Operation::Send,
];
const QUIET_TIMES: usize = 300;

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    let Some(shared) = cassandra::shared().await else {
        return;
    };
    let name = format!("bench_{}", uuid::Uuid::new_v4().simple());
    let address: Address = shared.url(&name).parse().unwrap();
    migrate(&address, Some(1), &SystemClock).await.unwrap();
    let store = Arc::new(
        Cql::open(address.clone(), Arc::new(SystemClock))
            .await
            .unwrap(),
    );
    quiet(&store).await;
    let world =
        Arc::new(World::over(store.clone(), tempfile::tempdir().unwrap(), Vec::new()).await);
    let driver = Arc::new(Driver::connect(&address).await);

    let alone: [Way; 4] = [
        bare(
            "the driver alone, no key",
            1,
            &driver,
            pairs(&world, "a", 1).await,
            false,
        ),
        ours_at_once(
            "wideroom, no key",
            1,
            &world,
            of_two(&world, "b", 1).await,
            false,
        ),
        bare(
            "the driver alone, key",
            1,
            &driver,
            pairs(&world, "c", 1).await,
            true,
        ),
        ours_at_once(
            "wideroom, key",
            1,
            &world,
            of_two(&world, "d", 1).await,
            true,
        ),
    ];
    let alone = rounds(size, "One send at a time", alone).await;
    for (bare, ours, what) in [(0, 1, "no key"), (2, 3, "key")] {
        let ratio = median(&alone[ours]) / median(&alone[bare]);
        verdicts.push(
            &format!("ms of one send at a time, {what}, to those of the driver alone"),
            ratio,
            "at most 1.25",
            ratio <= 1.25,
        );
    }
    let crowd: [Way; 7] = [
        bare(
            "the driver alone, no key",
            SENDERS,
            &driver,
            pairs(&world, "e", SENDERS).await,
            false,
        ),
        ours_at_once(
            "64 of two, no key",
            SENDERS,
            &world,
            of_two(&world, "f", SENDERS).await,
            false,
        ),
        bare(
            "the driver alone, key",
            SENDERS,
            &driver,
            pairs(&world, "g", SENDERS).await,
            true,
        ),
        ours_at_once(
            "64 of two, key",
            SENDERS,
            &world,
            of_two(&world, "h", SENDERS).await,
            true,
        ),
        ours_at_once(
            "one of 32, no key",
            SENDERS,
            &world,
            of_many(&world, 32).await,
            false,
        ),
        ours_at_once(
            "one of 64, no key",
            SENDERS,
            &world,
            of_many(&world, SENDERS).await,
            false,
        ),
        ours_at_once(
            "one of 64, key",
            SENDERS,
            &world,
            of_many_more(&world).await,
            true,
        ),
    ];
    let crowd = rounds(size, "64 senders", crowd).await;
    for (bare, ours) in [(0, 1), (2, 3), (0, 4), (0, 5), (2, 6)] {
        let ratio = crowd[ours].rate.median() / crowd[bare].rate.median();
        verdicts.push(
            &format!("sends/s, {}, to {}", crowd[ours].name, crowd[bare].name),
            ratio,
            "at least 0.8",
            ratio >= AIM,
        );
    }
    store.close().await.unwrap();
    verdicts.print();
}

/// Operations one at a time, in a conversation of 1,000 messages and an inbox of 20 entries.
async fn quiet(store: &Arc<Cql>) {
    let mut loader = Loader {
        store: &**store,
        rows: Vec::new(),
    };
    let place = loader.place(0, FEW).await;
    loader.flush().await;
    let world = World::over(store.clone(), tempfile::tempdir().unwrap(), vec![place]).await;
    let mut client = Client::new(&world, &world.places[0]).await;
    report::heading("One at a time: statements, and ms by the clock (p50, p99)");
    for operation in QUIET {
        let (mut statements, mut took) = (Spread::default(), Vec::with_capacity(QUIET_TIMES));
        for _ in 0..QUIET_TIMES {
            let (before, start) = (store.statements_sent(), Instant::now());
            client.run(operation).await;
            took.push(start.elapsed().as_secs_f64() * 1e3);
            statements.push((store.statements_sent() - before) as f64);
            client.drain();
        }
        took.sort_unstable_by(f64::total_cmp);
        let [half, nearly_all] = [0.5, 0.99].map(|share| quantile(&took, share));
        println!(
            "  {:<30} {:>6}  {half:>7.1}  {nearly_all:>7.1}",
            operation.name(),
            report::number(statements.median())
        );
    }
}

/// In turns, so that what else the machine does falls on all of them.
async fn rounds<const N: usize>(size: &Size, what: &str, mut ways: [Way; N]) -> [Way; N] {
    let serial = Arc::new(AtomicU64::new(1));
    for round in 0..=size.throughput_rounds {
        for way in &mut ways {
            // The first round warms up.
            way.round(size.throughput_round, &serial, round > 0).await;
        }
    }
    print(what, &mut ways);
    ways
}

/// Sorted when it was printed.
fn median(way: &Way) -> f64 {
    quantile(&way.latencies, 0.5)
}

fn bare(
    name: &'static str,
    at_once: usize,
    driver: &Arc<Driver>,
    pairs: Vec<Pair>,
    is_keyed: bool,
) -> Way {
    let (driver, pairs) = (Arc::clone(driver), Arc::new(pairs));
    Way::new(name, at_once, move |sender, serial| {
        let (driver, pairs) = (Arc::clone(&driver), Arc::clone(&pairs));
        Box::pin(async move { driver.send(&pairs[sender], serial, is_keyed).await })
    })
}

async fn of_two(world: &World, salt: &str, count: usize) -> Senders {
    let mut senders = Vec::with_capacity(count);
    for sender in 0..count {
        let people = [format!("two{salt}{sender}"), format!("peer{salt}{sender}")];
        senders.push((user(&people[0]), conversation(world, &people).await));
    }
    senders
}

/// The same kind of conversations, with their keys.
async fn pairs(world: &World, salt: &str, count: usize) -> Vec<Pair> {
    let mut pairs = Vec::with_capacity(count);
    for (sender, _) in of_two(world, salt, count).await {
        let page = world
            .store()
            .inbox(&sender, &wideroom::model::PageRequest::first(1))
            .await
            .unwrap();
        let peer = user(&sender.as_str().replacen("two", "peer", 1));
        pairs.push(Pair {
            conversation: page.items[0].conversation,
            sender,
            peer,
        });
    }
    pairs
}

/// Senders in a conversation of their own, with 64 users that no other measurement uses.
async fn of_many_more(world: &World) -> Senders {
    let people: Vec<String> = (0..SENDERS).map(|one| format!("more{one}")).collect();
    let conversation = conversation(world, &people).await;
    people
        .iter()
        .map(|one| (user(one), conversation.clone()))
        .collect()
}
