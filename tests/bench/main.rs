//! Cost of operations, and its growth with the amount of stored data: `cargo bench`, or `cargo bench -- --quick` for a first look.
//!
//! Costs are times on the processor, of all threads of the process, because those hold still on a machine that is not idle; only what
//! waits for the disk is measured by the clock. Nothing is asserted here: a goal of speed is no promise, and no test fails for it.
#![expect(clippy::unwrap_used, reason = "a benchmark ends where something fails")]
#![expect(
    unreachable_pub,
    reason = "nothing outside of this binary reaches anything in it"
)]

mod asker;
mod bare;
#[path = "../support/cassandra/mod.rs"]
#[expect(dead_code, reason = "tests use the rest of it")]
mod cassandra;
mod cluster;
mod costs;
mod crowds;
mod documents;
mod doors;
mod fanout;
mod library;
mod measure;
mod mentions;
mod opening;
mod operations;
mod outbox;
#[path = "../support/peer.rs"]
#[expect(dead_code, reason = "tests use the rest of it")]
mod peer;
#[path = "../support/program.rs"]
#[expect(dead_code, reason = "tests use the rest of it")]
mod program;
mod report;
mod rows;
mod search;
mod server;
mod servers;
mod throughput;
mod webhooks;
mod world;
#[path = "../support/worst.rs"]
mod worst;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::report::Verdicts;
use crate::world::{Shape, World};

/// How much is stored and how often it is measured.
#[derive(Debug, Clone, Copy)]
struct Size {
    messages: u64,
    conversations: usize,
    rounds: usize,
    throughput_rounds: usize,
    throughput_round: Duration,
    opens: usize,
}

const FULL: Size = Size {
    messages: 1_000_000,
    conversations: 10_000,
    rounds: 81,
    throughput_rounds: 7,
    throughput_round: Duration::from_secs(2),
    opens: 7,
};
const QUICK: Size = Size {
    messages: 20_000,
    conversations: 1_000,
    rounds: 21,
    throughput_rounds: 3,
    throughput_round: Duration::from_millis(500),
    opens: 3,
};
/// Baseline that the costs at [`Size`] are compared with.
const FEW: Shape = Shape {
    messages: 1_000,
    conversations: 20,
};

const PARTS: [&str; 13] = [
    "costs",
    "documents",
    "open",
    "throughput",
    "doors",
    "cluster",
    "crowds",
    "fanout",
    "servers",
    "outbox",
    "webhooks",
    "mentions",
    "search",
];
/// Not parts, but servers that the parts start: the bare broadcast, the bare HTTP, and the library's handlers.
const BARE: &str = "bare-sockets";
const BARE_HTTP: &str = "bare-http";
const LIBRARY: &str = "library";
const HELP: &str = "
--quick  stores 20,000 messages instead of 1,000,000, and measures less often
Without the name of a part all parts are measured. `cluster` and the second halves of `crowds` and `servers`\nwant a Cassandra: WIDEROOM_TEST_CQL=cql://host:port, or Java and Maven.";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_known = |argument: &String| {
        ["--bench", "--quick"].contains(&argument.as_str()) || PARTS.contains(&argument.as_str())
    };
    if has(BARE) {
        return on_runtime(fanout::serve_bare());
    }
    if has(BARE_HTTP) {
        return on_runtime(server::serve_fixed(arguments.last().unwrap()));
    }
    if has(LIBRARY) {
        return on_runtime(library::serve(Path::new(arguments.last().unwrap())));
    }
    // `cargo test --all-targets` starts this binary too, and without `--bench`.
    if !has("--bench") || !arguments.iter().all(is_known) {
        let parts = PARTS.map(|part| format!("[{part}]")).join(" ");
        println!("cargo bench -- [--quick] {parts}\n{HELP}");
        return;
    }
    let size = if has("--quick") { QUICK } else { FULL };
    let wants = |part: &str| has(part) || !PARTS.iter().any(|part| has(part));
    let wanted = ["costs", "documents", "open", "throughput"].map(wants);
    if wanted.contains(&true) {
        on_worker(run(size, wanted));
    }
    for part in PARTS.into_iter().filter(|part| wants(part)) {
        match part {
            "doors" => on_runtime(doors::measure(&size)),
            "cluster" => on_runtime(cluster::measure(&size)),
            "crowds" => on_runtime(crowds::measure(&size)),
            "fanout" => fanout::measure(),
            "servers" => on_runtime(servers::measure(&size)),
            "outbox" => on_worker(async move { outbox::measure(&size).await }),
            "webhooks" => on_worker(async move { webhooks::measure(&size).await }),
            "mentions" => on_runtime(mentions::measure(&size)),
            "search" => on_runtime(search::measure(&size)),
            _ => {}
        }
    }
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

/// Runs on a worker of the runtime, as the tasks of the server do.
fn on_worker(work: impl Future<Output = ()> + Send + 'static) {
    on_runtime(async { tokio::spawn(work).await.unwrap() });
}

async fn run(size: Size, [costs, documents, open, throughput]: [bool; 4]) {
    let start = Instant::now();
    let mut verdicts = Verdicts::default();
    if documents {
        let world = World::load(&[FEW]).await;
        documents::measure(&world).await;
        world.close().await;
    }
    if costs || open {
        let small = World::load(&[FEW]).await;
        // The baseline is loaded first, so that it is on disk as well when the measurement starts.
        let wide = Shape {
            conversations: size.conversations,
            ..FEW
        };
        let long = Shape {
            messages: size.messages,
            ..FEW
        };
        let large = World::load(&[FEW, wide, long]).await;
        let mut worlds = [small, large];
        if open {
            worlds = opening::measure(worlds, size.opens).await;
        }
        let [small, large] = worlds;
        if costs {
            costs::measure(&small, &large, size.rounds, &mut verdicts).await;
        }
        small.close().await;
        large.close().await;
    }
    if throughput {
        throughput::measure(&size, &mut verdicts).await;
    }
    verdicts.print();
    println!("\nAll of it took {:.0} s.", start.elapsed().as_secs_f64());
}
