//! What each operation costs in a world with little in it, and in worlds with a lot.

use crate::measure::{Spread, cpu_micros, idle};
use crate::operations::{Client, Operation};
use crate::report::{self, Verdicts, number};
use crate::world::World;

const AIM: f64 = 1.3;

/// The first world is the one that the others are compared with.
pub async fn measure(worlds: &[World], rounds: usize, verdicts: &mut Verdicts) {
    let mut clients = Vec::with_capacity(worlds.len());
    for world in worlds {
        clients.push(Client::new(world).await);
    }
    idle().await;
    report::heading("Cost of one operation, in µs on the processor: median, least…most, and the ratio to the first column");
    println!("{}", head(worlds));
    for operation in Operation::ALL {
        let spreads = measure_one(&mut clients, operation, rounds).await;
        print_row(operation, &spreads);
        for (world, spread) in worlds.iter().zip(&spreads).skip(1).filter(|_| operation.has_aim()) {
            let ratio = spread.median() / spreads[0].median();
            let what = format!("{}, at {}", operation.name(), describe(world));
            verdicts.push(&what, ratio, "at most 1.3", ratio <= AIM);
        }
    }
    println!();
    for operation in Operation::ALL {
        println!("  {:<22} {}", operation.name(), operation.meaning());
    }
}

/// In turns, so that what else the machine does falls on all of them.
async fn measure_one(clients: &mut [Client<'_>], operation: Operation, rounds: usize) -> Vec<Spread> {
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

fn describe(world: &World) -> String {
    let shape = world.shape;
    format!("{} messages, {} conversations", number(shape.messages as f64), number(shape.conversations as f64))
}

fn head(worlds: &[World]) -> String {
    let mut line = format!("  {:<22}", "");
    for (place, world) in worlds.iter().enumerate() {
        let text = format!("{} msg, {} conv", number(world.shape.messages as f64), number(world.shape.conversations as f64));
        line += &format!("{text:>28}{}", if place == 0 { "" } else { "  ratio" });
    }
    line
}

fn print_row(operation: Operation, spreads: &[Spread]) {
    let mut line = format!("  {:<22}", operation.name());
    for (place, spread) in spreads.iter().enumerate() {
        line += &format!("  {}", report::spread(spread));
        if place > 0 {
            line += &format!("  {:>5.2}", spread.median() / spreads[0].median());
        }
    }
    println!("{line}");
}
