//! Sends on a cluster, and the statements of other operations.
//!
//! All of it runs on one machine with the node, which has most of its processors: the figures of one run say little about another machine.

use std::sync::Arc;
use std::time::Instant;

use wideroom::clock::SystemClock;
use wideroom::load::OperationStats;
use wideroom::store::Store;
use wideroom::store::cql::{Address, Cql, migrate};

use crate::measure::Spread;
use crate::operations::{Client, Operation};
use crate::report;
use crate::throughput::{SENDERS, in_turns, of_many, of_two, ours};
use crate::world::{Loader, World};
use crate::{FEW, Size, cassandra};

const QUIET: [Operation; 5] = [
    Operation::NewestPage,
    Operation::DeepPage,
    Operation::InboxPage,
    Operation::MarkRead,
    Operation::Send,
];
const QUIET_TIMES: usize = 300;

pub async fn measure(size: &Size) {
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
    let world = &world;
    let mut alone = [
        ours(
            "wideroom, no key",
            1,
            world,
            of_two(world, "a", 1).await,
            false,
        ),
        ours("wideroom, key", 1, world, of_two(world, "b", 1).await, true),
    ];
    in_turns(size, "One send at a time", &mut alone).await;
    let pairs = |salt| of_two(world, salt, SENDERS);
    let crowd = |salt, count| of_many(world, salt, count);
    let mut crowds = [
        ours("64 of two, no key", SENDERS, world, pairs("c").await, false),
        ours("64 of two, key", SENDERS, world, pairs("d").await, true),
        ours(
            "one of 32, no key",
            SENDERS,
            world,
            crowd("e", 32).await,
            false,
        ),
        ours(
            "one of 64, no key",
            SENDERS,
            world,
            crowd("f", SENDERS).await,
            false,
        ),
        ours(
            "one of 64, key",
            SENDERS,
            world,
            crowd("g", SENDERS).await,
            true,
        ),
    ];
    in_turns(size, "64 senders", &mut crowds).await;
    store.close().await.unwrap();
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
        let (mut statements, mut took) = (Spread::default(), OperationStats::default());
        for _ in 0..QUIET_TIMES {
            let (before, start) = (store.statements_sent(), Instant::now());
            client.run(operation).await;
            took.record(start.elapsed());
            statements.push((store.statements_sent() - before) as f64);
            client.drain();
        }
        let [half, nearly_all] = report::p50_p99(&took);
        println!(
            "  {:<30} {:>6}  {half:>7.1}  {nearly_all:>7.1}",
            operation.name(),
            report::number(statements.median())
        );
    }
}
