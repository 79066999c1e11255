//! How long it takes to open a store that was closed in order.

use std::time::Instant;

use crate::measure::{Spread, cpu_micros};
use crate::report::{self, number};
use crate::world::World;

/// Gives the worlds back open.
pub async fn measure(worlds: Vec<World>, times: usize) -> Vec<World> {
    report::heading("Opening a store that was closed in order, with the chat over it: ms by the clock, and ms on the processor");
    let mut opened = Vec::with_capacity(worlds.len());
    for mut world in worlds {
        let (mut clock, mut cpu) = (Spread::default(), Spread::default());
        for _ in 0..times {
            let closed = world.close().await;
            let (start, before) = (Instant::now(), cpu_micros());
            world = closed.open().await;
            clock.push(start.elapsed().as_secs_f64() * 1e3);
            cpu.push((cpu_micros() - before) / 1e3);
        }
        let messages = format!("{} messages", number(world.shape.messages as f64));
        println!("  {messages:<22}  {}  {}", report::spread(&clock), report::spread(&cpu));
        opened.push(world);
    }
    opened
}
