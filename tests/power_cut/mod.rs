//! Power cuts: the calls of a server under load are recorded and replayed up to random points, and
//! the disk loses there what was not synced. The real program opens what is left, and must have all
//! that was acknowledged before.
//!
//! 50 points by default, and as many while the store is created; `WIDEROOM_POWER_CUTS=500` takes
//! more. Each run prints its seed; `WIDEROOM_POWER_CUT_SEED` plays the same load, points and losses
//! again, except for the order of threads. A point that fails leaves its folder, as the cut left
//! it, below `target/tmp`.

mod check;
mod disk;
mod disk_test;
mod file;
mod import;
mod load;
mod recording;
mod replay;
mod trace;

use std::path::Path;

use self::load::Ledger;
use self::recording::{Recording, Report};
use crate::binary::Dice;
use crate::support::program::Program;

const POINTS: usize = 50;
/// Points on a store with large journals, in percent: each takes long.
const POINTS_OF_LARGE: usize = 12;
/// Requests of each user: together more than one memtable holds.
const REQUESTS: usize = 260;
/// Requests while the engine flushes and deletes a journal.
const REQUESTS_MEANWHILE: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: fifty disks are replayed"]
async fn a_power_cut_loses_nothing_that_was_acknowledged() {
    if !trace::is_strace_there() {
        return;
    }
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().unwrap());
    let points =
        number("WIDEROOM_POWER_CUTS").map_or(POINTS, |count| usize::try_from(count).unwrap());
    let seed = number("WIDEROOM_POWER_CUT_SEED").unwrap_or_else(|| Dice::new().roll(1 << 40));
    println!("WIDEROOM_POWER_CUT_SEED={seed} plays this run again");
    let (dice, report) = (&mut Dice::seeded(seed), &mut Report::default());
    report.seed = seed;
    let of_large = points * POINTS_OF_LARGE / 100;

    // A new store, and then a server that starts on what a power cut left of it.
    let first = Recording::make(&Program::new(), Ledger::default(), REQUESTS, seed).await;
    first.cut_creation(points, dice, report);
    first.cut_at_random((points - of_large) / 2, dice, report);
    let (program, ledger) = first.cut_near_end(dice, report);
    let second = Recording::make(&program, ledger, REQUESTS, seed).await;
    second.cut_at_random((points - of_large).div_ceil(2) - 1, dice, report);
    second.loses_without_syncs();

    // A store whose journal is nearly full: it is sealed. The next start flushes all that is in
    // it, and deletes it.
    let (program, ledger) = import::large_store();
    let third = Recording::make(&program, ledger, REQUESTS, seed).await;
    assert!(has_journals(&third, [true, true]), "no journal was sealed");
    third.cut_at_random(of_large / 2, dice, report);
    let (program, ledger) = third.cut_near_end(dice, report);
    let fourth = Recording::make(&program, ledger, REQUESTS_MEANWHILE, seed).await;
    assert!(
        has_journals(&fourth, [false, true]),
        "no journal was deleted"
    );
    fourth.cut_at_random(of_large.div_ceil(2) - 1, dice, report);
    report.finish();
}

/// Whether the first two journals are there at the end.
fn has_journals(recording: &Recording, expected: [bool; 2]) -> bool {
    let files = recording.files();
    let has = |name| {
        files
            .iter()
            .any(|path| path == &Path::new("data/db").join(name))
    };
    [has("0.jnl"), has("1.jnl")] == expected
}
