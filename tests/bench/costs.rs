//! Cost of each operation on a small and on a large store.

use crate::measure::{Spread, cpu_micros, idle};
use crate::operations::{Client, Operation};
use crate::report::{self, Verdicts, number};
use crate::world::World;

/// Which column the ratio of a column is to: the large store's first place to the small store's, and the others of it to that first one.
const COMPARED_WITH: [Option<usize>; 4] = [None, Some(0), Some(1), Some(1)];
const NAMES: [&str; COMPARED_WITH.len()] = [
    "small store",
    "large store",
    "many conversations",
    "many messages",
];

const NOTES: &str = "
  The small store holds nothing but what its column says, in memory; the large one holds all of the three columns. Its first ratio is to
  the small store, the others are to that first column. A message moves an entry in the inboxes, and leaves something behind that the
  first page steps over until the engine has cleaned up: a thousand batches of import have done so in the last column.";

/// The large world's first place is as large as the small world's only one.
pub async fn measure(small: &World, large: &World, rounds: usize, verdicts: &mut Verdicts) {
    let mut clients = vec![Client::new(small, &small.places[0]).await];
    for place in &large.places {
        clients.push(Client::new(large, place).await);
    }
    idle().await;
    report::heading(
        "Cost of one operation in µs on the processor: median, least…most, and the ratio",
    );
    print_head(small, large);
    for operation in Operation::ALL {
        let spreads = measure_one(&mut clients, operation, rounds).await;
        let ratios = ratios(&spreads);
        print_row(operation, &spreads, &ratios);
        for (name, ratio) in NAMES.iter().zip(ratios).filter(|_| operation.has_aim()) {
            if let Some(ratio) = ratio {
                verdicts.at_most(&format!("{}: {name}", operation.name()), ratio, 1.3);
            }
        }
    }
    println!("{NOTES}");
    for operation in Operation::ALL {
        println!("  {:<22} {}", operation.name(), operation.meaning());
    }
}

/// In turns, so that what else the machine does falls on all of them.
async fn measure_one(
    clients: &mut [Client<'_>],
    operation: Operation,
    rounds: usize,
) -> Vec<Spread> {
    let mut spreads = vec![Spread::default(); clients.len()];
    for round in 0..=rounds {
        for (client, spread) in clients.iter_mut().zip(&mut spreads) {
            let before = cpu_micros();
            for _ in 0..operation.times() {
                assert!(client.run(operation).await > 0);
            }
            let cost = (cpu_micros() - before) / operation.times() as f64;
            client.drain();
            // The first round warms up.
            if round > 0 {
                spread.push(cost);
            }
        }
    }
    spreads
}

fn ratios(spreads: &[Spread]) -> Vec<Option<f64>> {
    let ratio =
        |(spread, to): (&Spread, Option<usize>)| Some(spread.median() / spreads[to?].median());
    spreads.iter().zip(COMPARED_WITH).map(ratio).collect()
}

fn print_head(small: &World, large: &World) {
    let line = |texts: Vec<String>| {
        let cells: String = texts
            .iter()
            .zip(COMPARED_WITH)
            .map(|(text, to)| format!("{text:>28}{}", to.map_or("", |_| "  ratio")))
            .collect();
        println!("  {:<22}{cells}", "");
    };
    line(NAMES.map(str::to_owned).to_vec());
    let shapes = small
        .places
        .iter()
        .chain(&large.places)
        .map(|place| place.shape);
    line(
        shapes
            .map(|shape| {
                format!(
                    "{} msg, {} conv",
                    number(shape.messages as f64),
                    number(shape.conversations as f64)
                )
            })
            .collect(),
    );
}

fn print_row(operation: Operation, spreads: &[Spread], ratios: &[Option<f64>]) {
    let mut line = format!("  {:<22}", operation.name());
    for (spread, ratio) in spreads.iter().zip(ratios) {
        line += &format!("  {}", report::spread(spread));
        line += &ratio
            .map(|ratio| format!("  {ratio:>5.2}"))
            .unwrap_or_default();
    }
    println!("{line}");
}
