//! A keyspace of its own, and servers on it.

use std::time::Duration;

use uuid::Uuid;

use crate::support::program::Program;
use crate::support::server::Server;

/// A program whose store is a new keyspace there, made by `wideroom migrate`. `url` is what `--store` has, by the name of a keyspace.
pub(crate) fn migrated(url: impl Fn(&str) -> String, replicas: &str) -> Program {
    let keyspace = format!("wideroom_{}", Uuid::new_v4().simple());
    let program = Program::on(url(&keyspace));
    program.run(&["migrate", "--replication", replicas]).succeeded();
    program
}

/// What the server has in memory.
pub(super) fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1_024
}

/// The one below which all but a hundredth lie.
pub(super) fn p99(latencies: &[Duration]) -> Duration {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}
