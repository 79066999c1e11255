//! Cost of the worst documents: the time until the server refuses or answers each, and the memory that it takes.

use std::time::Instant;

use async_graphql::Variables;
use wideroom::graphql::{OperationExecutor as _, RequestErrorKind};
use wideroom::model::UserId;

use crate::measure::Spread;
use crate::report::{heading, number, spread};
use crate::world::World;
use crate::worst;

/// One after the other, and each another text, so that no cache knows it.
const TRIES: usize = 100;

pub async fn measure(world: &World) {
    heading(
        "The worst documents: bytes, µs until refused or answered (median, from, to), KiB that the process grew by at most",
    );
    let viewer = UserId::parse("somebody").unwrap();
    for (what, text) in worst::documents() {
        let (mut micros, mut outcome) = (Spread::default(), "answered");
        let before = reset_peak();
        for attempt in 0..TRIES {
            let text = format!("{text}#{attempt}");
            let start = Instant::now();
            outcome = match world.api.prepare(&text, None) {
                Ok(prepared) => {
                    let response = world
                        .api
                        .execute(
                            &prepared,
                            Variables::default(),
                            Some(viewer.clone().into()),
                            Default::default(),
                        )
                        .await;
                    if response.errors.is_empty() {
                        "answered"
                    } else {
                        "invalid"
                    }
                }
                Err(refused) if refused.kind == RequestErrorKind::Syntax => "unreadable",
                Err(_) => "too much",
            };
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let grown = peak().saturating_sub(before);
        println!(
            "  {:>7} B {} {:>7} KiB  {outcome:<10} {what}",
            number(text.len() as f64),
            spread(&micros),
            number(grown as f64)
        );
    }
}

/// In KiB, by what Linux counts. Elsewhere nothing.
fn peak() -> u64 {
    status("VmHWM:")
}

fn reset_peak() -> u64 {
    // Refused where the system does not know it: then the peak is that of the whole run.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    status("VmRSS:")
}

fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0)
}
