//! How long it takes to open a store that was closed in order.

use std::time::Instant;

use crate::measure::{Spread, cpu_micros, idle};
use crate::report::{self, number};
use crate::world::World;

/// Gives the worlds back open.
pub async fn measure([small, large]: [World; 2], times: usize) -> [World; 2] {
    report::heading(
        "Opening a store that was closed in order, with the chat over it: ms by the clock, and ms on the processor",
    );
    [
        open_again(small, times).await,
        open_again(large, times).await,
    ]
}

async fn open_again(mut world: World, times: usize) -> World {
    let (mut clock, mut cpu) = (Spread::default(), Spread::default());
    for _ in 0..times {
        let closed = world.close().await;
        let (start, before) = (Instant::now(), cpu_micros());
        world = closed.open().await;
        clock.push(start.elapsed().as_secs_f64() * 1e3);
        cpu.push((cpu_micros() - before) / 1e3);
    }
    idle().await;
    let messages = format!("{} messages", number(world.message_count() as f64));
    println!(
        "  {messages:<22}  {}  {}",
        report::spread(&clock),
        report::spread(&cpu)
    );
    world
}
