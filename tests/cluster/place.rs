//! A keyspace of its own, and servers on it.

use std::time::Duration;

use uuid::Uuid;

use crate::support::program::Program;

/// A program whose store is a new keyspace there, made by `wideroom migrate`. `url` is what `--store` has, by the name of a keyspace.
pub(crate) fn migrated(url: impl Fn(&str) -> String, replicas: &str) -> Program {
    let program = unmigrated(url);
    program
        .run(&["migrate", "--replication", replicas])
        .succeeded();
    program
}

/// The same before its keyspace is made.
pub(super) fn unmigrated(url: impl Fn(&str) -> String) -> Program {
    let keyspace = format!("wideroom_{}", Uuid::new_v4().simple());
    Program::on(url(&keyspace))
}

/// The one below which all but a hundredth lie.
pub(super) fn p99(latencies: &[Duration]) -> Duration {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted
        .get((sorted.len() * 99).div_ceil(100).saturating_sub(1))
        .copied()
        .unwrap_or_default()
}
